//! The memory of all overlays of a TaskManager: divided evenly among the stores that are open.
//!
//! Must never know who holds what. Invariant: the shares of all stores together are the budget, whenever one is opened or
//! closed: an overlay asks for its share anew after each batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory, and how many stores divide it.
#[derive(Debug)]
pub struct OverlayBudget {
    bytes: usize,
    stores: AtomicUsize,
}

/// One store's part of the memory, given back when it is dropped.
#[derive(Debug)]
pub struct OverlayShare {
    budget: Arc<OverlayBudget>,
}

impl OverlayBudget {
    /// So many bytes for all stores together.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, stores: AtomicUsize::new(0) })
    }

    /// A store's part: those that are open have less from now on.
    pub fn share(self: &Arc<Self>) -> OverlayShare {
        self.stores.fetch_add(1, Ordering::Relaxed);
        OverlayShare { budget: Arc::clone(self) }
    }

    /// Bytes of all stores together.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl OverlayShare {
    /// The memory that it is a part of.
    pub(super) fn budget(&self) -> Arc<OverlayBudget> {
        Arc::clone(&self.budget)
    }

    /// Bytes that the overlay before the store, and what is on its way into it, may take now.
    pub fn bytes(&self) -> usize {
        self.budget.bytes / self.budget.stores.load(Ordering::Relaxed).max(1)
    }
}

impl Drop for OverlayShare {
    fn drop(&mut self) {
        self.budget.stores.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_the_budget_whoever_comes_and_goes() {
        let budget = OverlayBudget::new(1000);
        let first = budget.share();
        assert_eq!(first.bytes(), 1000);
        let second = budget.share();
        assert_eq!((first.bytes(), second.bytes()), (500, 500));
        drop(first);
        assert_eq!(second.bytes(), 1000);
    }
}
