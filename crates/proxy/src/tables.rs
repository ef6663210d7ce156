//! Selection tables and wheels of this replica, one of each per (group, model): built when eligibility changed, else at
//! most once a second, and used by every plan in between.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use foldhash::HashMap;
use parking_lot::{Mutex, RwLock};
use waybill_domain::catalog::{ModelAbilities, Snapshot};
use waybill_domain::selector::plan::{Manner, Moment, Plan};
use waybill_domain::selector::table::Table;
use waybill_domain::selector::wheel::{Commit, Wheel};
use waybill_event::traffic::SelectionTable;
use waybill_event::{ConfigPosition, GroupId, LogTime};
use waybill_journal::dice::Dice;

use crate::views::Views;

/// How long a table serves while nobody's eligibility changes.
const LIFE: Duration = Duration::from_secs(1);

/// Group, model, and how much of a tier open breakers may take out.
type Key = (GroupId, Arc<str>, u32);

/// One table with what tells when it is void.
struct Current {
    table: Arc<Table>,
    generation: u64,
    config: ConfigPosition,
    void_at: LogTime,
    announced: AtomicBool,
}

struct Slot {
    current: ArcSwapOption<Current>,
    wheel: Mutex<Wheel>,
}

/// A plan, and the table's event if none is known to be in the outbox yet.
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// To be recorded with the request.
    pub first_use: Option<FirstUse>,
}

/// A table that isn't recorded yet. Two requests at once may both record it, which is the same fact twice; one that
/// fails to leaves it to the next.
pub struct FirstUse {
    current: Arc<Current>,
}

impl FirstUse {
    /// The table's event.
    #[must_use]
    pub fn event(&self) -> SelectionTable {
        self.current.table.to_event()
    }

    /// The configuration that the table was made under.
    #[must_use]
    pub fn config(&self) -> ConfigPosition {
        self.current.config
    }

    /// The event is in the outbox.
    pub fn recorded(self) {
        self.current.announced.store(true, Ordering::Release);
    }
}

/// All tables of the replica.
pub struct Tables {
    dice: Dice,
    slots: RwLock<HashMap<Key, Arc<Slot>>>,
}

impl Tables {
    /// No table yet.
    #[must_use]
    pub fn new(dice: Dice) -> Self {
        Self { dice, slots: RwLock::default() }
    }

    /// Plans a request for one (group, model).
    pub fn plan(
        &self,
        (snapshot, views, now): (&Snapshot, &Views, LogTime),
        (group, model): (GroupId, &Arc<str>),
        abilities: &ModelAbilities,
        (manner, max_ejected_percent): (Manner, u32),
        moment: &mut dyn Moment,
    ) -> Planned {
        let key = (group, model.clone(), max_ejected_percent);
        let slot = self.slot(&key);
        let current =
            slot.fresh(snapshot, views, now).unwrap_or_else(|| slot.build(snapshot, views, key, abilities, now));
        let plan = Plan::new(current.table.clone(), &mut slot.wheel.lock(), manner, moment);
        let recorded = current.announced.load(Ordering::Acquire);
        Planned { plan, first_use: (!recorded).then_some(FirstUse { current }) }
    }

    /// Gives back a place whose source was never dispatched to.
    pub fn give_back(&self, table: &Table, max_ejected_percent: u32, commit: &Commit) {
        let slot = self.slots.read().get(&(table.group(), table.model().clone(), max_ejected_percent)).cloned();
        if let Some(slot) = slot {
            slot.wheel.lock().give_back(commit);
        }
    }

    /// Forgets the tables of what no longer exists.
    pub fn retain(&self, snapshot: &Snapshot) {
        self.slots.write().retain(|(group, model, _), _| snapshot.index().model(*group, model).is_some());
    }

    fn slot(&self, key: &Key) -> Arc<Slot> {
        if let Some(slot) = self.slots.read().get(key) {
            return slot.clone();
        }
        // The phase is random, so that replicas don't all begin with the same source.
        let new = || Slot { current: ArcSwapOption::empty(), wheel: Mutex::new(Wheel::new((self.dice)())) };
        self.slots.write().entry(key.clone()).or_insert_with(|| Arc::new(new())).clone()
    }
}

impl Slot {
    fn fresh(&self, snapshot: &Snapshot, views: &Views, now: LogTime) -> Option<Arc<Current>> {
        let current = self.current.load_full()?;
        let valid =
            current.generation == views.generation() && current.config == snapshot.position() && now < current.void_at;
        valid.then_some(current)
    }

    fn build(
        &self,
        snapshot: &Snapshot,
        views: &Views,
        (group, model, max_ejected_percent): Key,
        abilities: &ModelAbilities,
        now: LogTime,
    ) -> Arc<Current> {
        // Read before the views: a change that comes in between makes the table void, not fresh.
        let generation = views.generation();
        let rows = abilities.iter().map(|ability| views.judge(snapshot.catalog(), ability, now)).collect();
        let table = Table::of((group, model), rows, now, snapshot.position(), max_ejected_percent);
        let second_over = now + LIFE;
        let void_at = table.changes_at().map_or(second_over, |at| at.min(second_over));
        let before = self.current.load_full();
        let announced = before.is_some_and(|b| b.table.hash() == table.hash() && b.announced.load(Ordering::Acquire));
        let current = Arc::new(Current {
            table: Arc::new(table),
            generation,
            config: snapshot.position(),
            void_at,
            announced: AtomicBool::new(announced),
        });
        self.current.store(Some(current.clone()));
        current
    }
}
