//! Attempts begin: the start of each is written before it is made, and some are waited for.

use std::time::Duration;

use waybill_domain::attempt::Order;
use waybill_domain::selector::Revisions;
use waybill_event::LogTime;

use super::{Record, Running, drafts};
use crate::chat::Ready;
use crate::course::Course;
use crate::emit::{Drafts, Room};
use crate::replica::Usable;

impl Record {
    /// An attempt for this order, its start not yet written.
    #[must_use]
    pub fn prepare(&self, order: Order, ready: Ready, course: &mut Course) -> Running {
        let Ready { usable, permit, held } = ready;
        let (table, first_use) = course.other_table(self.story.table, &order.candidate);
        let Usable { entity, target, revision: credential_revision } = usable;
        let in_flight = self.replica.views.enter(order.candidate.source.source);
        Running {
            model: course.model_of(&order.candidate),
            first_use,
            table,
            lacks: course.lacks(&order.candidate),
            order,
            entity,
            target,
            credential_revision,
            started: self.now(),
            first_content: None,
            permit,
            held,
            _in_flight: in_flight,
        }
    }

    /// The next dispatch; its start is written before it is done. Says whether it was written: it isn't done otherwise.
    #[must_use]
    pub fn start(&mut self, running: Running) -> bool {
        // The source that was waited for may have been left instead.
        let mut ended = Drafts::new();
        self.outcomes(&mut ended);
        self.go_on(ended, running)
    }

    /// Writes what has ended and the next start as one. A start that can't be written is taken back, and the loop is over.
    pub(super) fn go_on(&mut self, ended: Drafts, next: Running) -> bool {
        let (used, rn) = (self.used, self.story.rn);
        let mut drafts = ended.clone();
        self.begin(next, &mut drafts);
        let error = match self.append(drafts, |room| Room::Further(room)) {
            Ok(ordinal) => {
                self.tables_recorded(ordinal);
                return true;
            }
            Err(error) => error,
        };
        self.tables.clear();
        tracing::warn!(request_id = %self.story.id, %error, "a further attempt can't be recorded, and isn't made");
        (self.used, self.story.rn) = (used, rn);
        self.begun -= 1;
        if let Some(running) = self.running.take() {
            self.release(running);
        }
        self.machine.unrecordable();
        let mut ended = ended;
        drafts::nothing_follows(&mut ended);
        self.outcomes(&mut ended);
        self.write(ended);
        false
    }

    /// What was written names these tables; of an unrecorded request nothing was.
    pub(super) fn tables_recorded(&mut self, ordinal: Option<u64>) {
        for table in self.tables.drain(..).filter(|_| ordinal.is_some()) {
            table.recorded();
        }
    }

    pub(super) fn begin(&mut self, mut running: Running, drafts: &mut Drafts) {
        if let Some(table) = running.first_use.take() {
            drafts.push(self.story.table(&table));
            self.tables.push(table);
        }
        if let (Some(opening), Some(_)) = (&running.order.candidate.probe_of, &running.permit) {
            drafts.push(self.story.half_opened(&running, opening));
        }
        drafts.push(self.story.attempt_started(&running, running.credential_revision));
        self.used =
            Revisions { credential: running.credential_revision, base_url: running.entity.revisions().base_url };
        self.running = Some(running);
        self.begun += 1;
    }

    /// Waits until a time since the admission and, by the log's clock, for the end of a limit. Says no where the replica
    /// must stop: it waits for nothing more.
    pub async fn wait(&self, until: Duration, ends: Option<LogTime>) -> bool {
        let waited = async {
            tokio::time::sleep(until.saturating_sub(self.now())).await;
            while let (Some(ends), Some(now)) = (ends, (self.replica.clock)())
                && now < ends
            {
                tokio::time::sleep(ends.since(now)).await;
            }
        };
        self.replica.stopping().run_until_cancelled(waited).await.is_some()
    }
}
