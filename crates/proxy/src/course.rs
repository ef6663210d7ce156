//! The candidates of one request over all targets of its route: the plan of the present target, and the next one's when
//! nobody is left.

use std::sync::Arc;

use smallvec::SmallVec;
use waybill_domain::attempt::Order;
use waybill_domain::candidate::{Candidate, Candidates};
use waybill_domain::catalog::{Resolved, ResolvedTarget, Snapshot};
use waybill_domain::needs::{Missing, Needs, lesser};
use waybill_domain::selector::plan::{Manner, Moment, Plan, Session};
use waybill_domain::selector::table::{Row, Unavailable};
use waybill_event::config::{OnAllUnavailable, RequestPolicy};
use waybill_event::selection::TableHash;
use waybill_event::{GroupId, LogTime, SourceKind};

use crate::replica::Replica;
use crate::tables::{FirstUse, Planned};

/// What a course is made for.
pub struct Wish {
    /// The group that serves the request.
    pub group: GroupId,
    /// What the model's name stands for; only targets that the key may use.
    pub route: Resolved,
    /// The numbers in force.
    pub policy: RequestPolicy,
    /// What the request needs.
    pub needs: Needs,
    /// The conversation it belongs to.
    pub session: Option<Session>,
    /// When it was admitted, as its id tells it.
    pub admitted: LogTime,
    /// From when on its time is counted.
    pub begun: LogTime,
}

/// The candidates of one request.
pub struct Course {
    replica: Arc<Replica>,
    wish: Wish,
    /// The target that the plan serves.
    at: usize,
    plan: Plan,
    /// The plan's table, where it isn't recorded yet.
    first_use: Option<FirstUse>,
    /// The tables of the plans before, by their targets, where they aren't recorded yet also these: who was full there may
    /// have room later.
    before: SmallVec<[(u32, TableHash, Option<FirstUse>); 1]>,
    /// Whether the plan's turn of the wheel still has to be given back or used.
    unsettled: bool,
    /// Whether some plan so far knew a source that could give what the request needs.
    somebody_fits: bool,
    /// Why the first such plan had nobody to offer.
    unavailable: Option<Unavailable>,
}

struct Now<'a>(&'a Replica);

impl Moment for Now<'_> {
    fn probe_free(&mut self, row: &Row) -> bool {
        let free = |opening: &str| self.0.probes.seems_free(row.source.source, opening, row.probes);
        row.half_open.as_deref().is_some_and(free)
    }

    fn in_flight(&self, row: &Row) -> u32 {
        self.0.views.of(row.source.source).fleet_wide()
    }
}

impl Course {
    /// Plans a request for the first of its targets that anybody offers; nothing where nobody offers one.
    #[must_use]
    pub fn plan(replica: &Arc<Replica>, snapshot: &Snapshot, wish: Wish, now: LogTime) -> Option<Self> {
        let (at, planned) =
            (0..wish.route.targets.len()).find_map(|at| Some((at, plan(replica, snapshot, &wish, at, now)?)))?;
        let Planned { plan, first_use } = planned;
        replica.budgets.request(&target_of(&wish, at)?.model);
        let mut course = Self {
            replica: replica.clone(),
            wish,
            at,
            plan,
            first_use,
            before: SmallVec::new(),
            unsettled: true,
            somebody_fits: false,
            unavailable: None,
        };
        course.take_note();
        Some(course)
    }

    /// The present target's plan.
    #[must_use]
    pub const fn present(&self) -> &Plan {
        &self.plan
    }

    fn take_note(&mut self) {
        if self.plan.somebody_fits() {
            self.somebody_fits = true;
            self.unavailable = self.unavailable.or_else(|| self.plan.unavailable());
        }
    }

    /// Why nobody can be asked now, as far as there is somebody who could give what the request needs.
    #[must_use]
    pub fn unavailable(&self) -> Option<Unavailable> {
        self.somebody_fits.then(|| self.unavailable.unwrap_or_else(|| self.plan.table().unavailable()))
    }

    /// The numbers in force.
    #[must_use]
    pub const fn policy(&self) -> &RequestPolicy {
        &self.wish.policy
    }

    /// What the request is served by.
    #[must_use]
    pub const fn wish(&self) -> &Wish {
        &self.wish
    }

    /// The model that a candidate is asked for, as groups and routes name it.
    #[must_use]
    pub fn model_of(&self, candidate: &Candidate) -> Arc<str> {
        let target = usize::try_from(candidate.target).ok().and_then(|at| target_of(&self.wish, at));
        target.map_or_else(|| "".into(), |target| target.model.clone())
    }

    /// The present target's model.
    #[must_use]
    pub fn model(&self) -> Arc<str> {
        target_of(&self.wish, self.at).map_or_else(|| "".into(), |target| target.model.clone())
    }

    /// The table of the present plan, to be recorded with what is drawn from it.
    pub const fn take_first_use(&mut self) -> Option<FirstUse> {
        self.first_use.take()
    }

    /// The table that a candidate was drawn from, where it isn't the one of the admission; and that table, where it isn't
    /// recorded yet.
    pub fn other_table(&mut self, admitted: TableHash, candidate: &Candidate) -> (Option<TableHash>, Option<FirstUse>) {
        let left = self.before.iter_mut().find(|(target, ..)| *target == candidate.target);
        let (hash, first_use) = match left {
            Some((_, hash, first_use)) => (*hash, first_use),
            None => (self.plan.table().hash(), &mut self.first_use),
        };
        if hash == admitted { (None, None) } else { (Some(hash), first_use.take()) }
    }

    /// What a degraded answer lacks of what the route's first target declares.
    #[must_use]
    pub fn lacks(&self, candidate: &Candidate) -> Missing {
        let first = target_of(&self.wish, 0).map(|target| target.capabilities).unwrap_or_default();
        lesser(&first, &candidate.capabilities)
    }

    /// A source was chosen, or nobody was. The turn of the wheel belongs to a source that is asked; else it is given back.
    pub fn settle(&mut self, chosen: Option<&Order>) {
        if !std::mem::take(&mut self.unsettled) {
            return;
        }
        if let Some(commit) = self.plan.commit()
            && chosen.is_none_or(|order| order.candidate.source.source != commit.source)
        {
            self.replica.tables.give_back(self.plan.table(), self.wish.policy.max_ejected_percent, commit);
        }
    }
}

fn target_of(wish: &Wish, at: usize) -> Option<&ResolvedTarget> {
    wish.route.targets.get(at)
}

fn plan(replica: &Replica, snapshot: &Snapshot, wish: &Wish, at: usize, now: LogTime) -> Option<Planned> {
    let target = target_of(wish, at)?;
    let abilities = snapshot.index().model(wish.group, &target.model)?;
    let manner = Manner {
        strategy: wish.policy.strategy,
        least_bad: wish.policy.on_all_unavailable == OnAllUnavailable::LeastBad,
        needs: wish.needs,
        declared: target.capabilities,
        target: u32::try_from(at).unwrap_or(u32::MAX),
        admitted: wish.admitted,
        begun: wish.begun,
        // Conversations stay with accounts, whose capacity and cache are one login's; channels take any request.
        session: wish.session.filter(|_| abilities.iter().any(|ability| ability.source.kind == SourceKind::Account)),
    };
    let wanted = (wish.group, &target.model);
    let by = (manner, wish.policy.max_ejected_percent);
    let known = (snapshot, &*replica.views, now);
    Some(replica.tables.plan(known, wanted, abilities, by, &mut Now(replica)))
}

impl Candidates for Course {
    fn next_candidate(&mut self) -> Option<Candidate> {
        self.plan.next_candidate()
    }

    fn next_target(&mut self) -> bool {
        let Some(now) = (self.replica.clock)() else { return false };
        self.settle(None);
        let (replica, snapshot) = (self.replica.clone(), self.replica.snapshot());
        while self.at + 1 < self.wish.route.targets.len() {
            self.at += 1;
            if let Some(Planned { plan, first_use }) = plan(&replica, &snapshot, &self.wish, self.at, now) {
                let target = self.plan.manner().target;
                let first_use_before = std::mem::replace(&mut self.first_use, first_use);
                self.before.push((target, self.plan.table().hash(), first_use_before));
                (self.plan, self.unsettled) = (plan, true);
                self.take_note();
                return true;
            }
        }
        false
    }

    fn may_strain(&mut self, candidate: &Candidate) -> bool {
        let within = self.replica.budgets.spend(&self.model_of(candidate), &self.wish.policy.retry_budget);
        if !within {
            self.replica.metrics.suppressed();
        }
        within
    }
}
