//! The memory that all heap states of a TaskManager share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit and what is used of it; shared by the tasks of a TaskManager, charged once a batch.
#[derive(Debug)]
pub struct HeapBudget {
    limit: usize,
    used: AtomicUsize,
}

impl HeapBudget {
    /// Nothing used of `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, used: AtomicUsize::new(0) }
    }

    /// No limit: for tests, and where a job runs alone.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Most bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes used by all.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Changes one holder's share from `before` to `now` bytes; answers whether all are within the limit.
    pub(super) fn charge(&self, before: usize, now: usize) -> bool {
        let used = match now >= before {
            true => self.used.fetch_add(now - before, Ordering::Relaxed) + (now - before),
            false => self.used.fetch_sub(before - now, Ordering::Relaxed) - (before - now),
        };
        used <= self.limit
    }
}

/// What one holder uses of a budget; given back when it is dropped.
#[derive(Debug)]
pub struct HeapShare {
    budget: Arc<HeapBudget>,
    bytes: usize,
}

impl HeapShare {
    /// Nothing of `budget`.
    pub fn new(budget: Arc<HeapBudget>) -> Self {
        Self { budget, bytes: 0 }
    }

    /// The holder uses so many bytes now; answers whether all are within the limit.
    pub fn set(&mut self, bytes: usize) -> bool {
        let before = std::mem::replace(&mut self.bytes, bytes);
        self.budget.charge(before, bytes)
    }

    /// Bytes that the holder uses.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What it is a share of.
    pub fn budget(&self) -> &HeapBudget {
        &self.budget
    }
}

impl Drop for HeapShare {
    fn drop(&mut self) {
        self.budget.charge(self.bytes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_kept_to_the_byte() {
        let budget = Arc::new(HeapBudget::new(1_000));
        let (mut one, mut other) = (HeapShare::new(Arc::clone(&budget)), HeapShare::new(Arc::clone(&budget)));
        assert!(one.set(600));
        for (bytes, is_within) in [(399, true), (400, true), (401, false), (400, true)] {
            assert_eq!(other.set(bytes), is_within, "{bytes}");
            assert_eq!(budget.used(), 600 + bytes);
        }
        drop(one);
        assert_eq!(budget.used(), 400);
        assert!(other.set(1_000) && !other.set(1_001));
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}
