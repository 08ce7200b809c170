//! Stores in memory for the operators of a task.

use std::sync::Arc;

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;

use super::MemoryColdStore;
use crate::cold::{ColdError, ColdStores, Opened, OverlayBudget};
use crate::snapshot::DatabaseSnapshot;

/// Gives each operator a store in memory.
#[derive(Debug)]
pub struct MemoryColdStores {
    max_parallelism: u32,
    lag: u32,
    budget: Arc<OverlayBudget>,
    restored: Vec<Arc<dyn DatabaseSnapshot>>,
    groups: KeyGroupRange,
}

impl MemoryColdStores {
    /// Stores of a job with so many key groups, in which a seal is written when it has been asked for `lag + 1` times; the
    /// overlays before them divide `budget`.
    pub fn new(max_parallelism: u32, lag: u32, budget: Arc<OverlayBudget>) -> Self {
        Self { max_parallelism, lag, budget, restored: Vec::new(), groups: KeyGroupRange::all(max_parallelism) }
    }

    /// With what these snapshots had in `groups`.
    #[must_use]
    pub fn restored(mut self, snapshots: Vec<Arc<dyn DatabaseSnapshot>>, groups: KeyGroupRange) -> Self {
        self.restored = snapshots;
        self.groups = groups;
        self
    }
}

impl ColdStores for MemoryColdStores {
    fn open(&self, uid: &Uid) -> Result<Opened, ColdError> {
        let store = MemoryColdStore::new(uid.clone(), self.max_parallelism, self.lag);
        let store = store.restored(self.restored.clone(), self.groups);
        Ok(Opened { store: Box::new(store), share: self.budget.share() })
    }
}
