//! A snapshot of a store in memory: a copy.

use std::sync::{Condvar, Mutex, PoisonError};

use levada_common::ids::Uid;

use super::MemoryState;
use crate::cold::ColdError;
use crate::snapshot::{DatabaseSnapshot, SnapshotFile, VisitRows};

/// What became of a snapshot.
#[derive(Debug, Default)]
pub(super) enum Taken {
    #[default]
    NotYet,
    States(Vec<MemoryState>),
    Abandoned,
}

/// A snapshot of such a store: a copy.
#[derive(Debug)]
pub struct MemorySnapshot {
    uid: Uid,
    taken: Mutex<Taken>,
    ready: Condvar,
}

impl MemorySnapshot {
    /// One that is not taken yet.
    pub(super) fn new(uid: Uid) -> Self {
        Self { uid, taken: Mutex::default(), ready: Condvar::new() }
    }

    /// Says what became of it.
    pub(super) fn settle(&self, taken: Taken) {
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = taken;
        self.ready.notify_all();
    }

    /// Waits for what was taken; nothing where it was given up.
    pub(super) fn taken(&self) -> Option<Vec<MemoryState>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = self.ready.wait_while(taken, |taken| matches!(taken, Taken::NotYet));
        match &*taken.unwrap_or_else(PoisonError::into_inner) {
            Taken::States(states) => Some(states.clone()),
            Taken::NotYet | Taken::Abandoned => None,
        }
    }
}

impl DatabaseSnapshot for MemorySnapshot {
    fn files(&self) -> Result<Vec<SnapshotFile>, ColdError> {
        self.taken().map(|_| Vec::new()).ok_or_else(|| ColdError::Abandoned { uid: self.uid.clone() })
    }

    fn rows(&self, state: &str, visit: VisitRows<'_>) -> Result<(), ColdError> {
        let states = self.taken().ok_or_else(|| ColdError::Abandoned { uid: self.uid.clone() })?;
        let Some(found) = states.iter().find(|found| found.name == state) else {
            let known = states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ColdError::UnknownState { uid: self.uid.clone(), state: state.into(), known });
        };
        for batch in found.batches(found.entries.iter()) {
            if visit(batch).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn entries(&self, state: &str) -> u64 {
        let states = self.taken().unwrap_or_default();
        states.iter().find(|found| found.name == state).map_or(0, |found| found.entries.len() as u64)
    }
}
