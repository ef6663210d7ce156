//! The retry budgets of this replica, one for each target model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;
use waybill_domain::retry_budget::RetryBudget;
use waybill_event::config::RetryBudgetPolicy;

/// Models whose budgets are kept. Names come from clients only where somebody offers them, so there are rarely as many.
const MODELS: usize = 10_000;

/// All budgets.
#[derive(Debug)]
pub struct Budgets {
    since: Instant,
    replicas: AtomicU32,
    models: Mutex<HashMap<Arc<str>, RetryBudget>>,
}

impl Budgets {
    /// Nothing was asked yet.
    #[must_use]
    pub fn new() -> Self {
        Self { since: Instant::now(), replicas: AtomicU32::new(1), models: Mutex::default() }
    }

    /// So many replicas share the floor.
    pub fn shared_by(&self, replicas: u32) {
        self.replicas.store(replicas.max(1), Ordering::Relaxed);
    }

    /// How many replicas share the floor, this one included.
    #[must_use]
    pub fn replicas(&self) -> u32 {
        self.replicas.load(Ordering::Relaxed)
    }

    /// A request for a model came.
    pub fn request(&self, model: &Arc<str>) {
        let now = self.since.elapsed();
        self.of(model, |budget| budget.request(now));
    }

    /// Whether a further try is within the model's budget; a yes is counted.
    pub fn spend(&self, model: &Arc<str>, policy: &RetryBudgetPolicy) -> bool {
        let (now, replicas) = (self.since.elapsed(), self.replicas());
        self.of(model, |budget| budget.spend(now, policy, replicas))
    }

    fn of<T>(&self, model: &Arc<str>, with: impl FnOnce(&mut RetryBudget) -> T) -> T {
        let mut models = self.models.lock();
        if let Some(budget) = models.get_mut(model) {
            return with(budget);
        }
        if models.len() >= MODELS {
            models.clear();
        }
        with(models.entry(model.clone()).or_default())
    }
}
