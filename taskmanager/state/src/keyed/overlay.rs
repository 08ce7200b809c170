//! The tables as a write-back overlay of a cold store: what comes in, what goes out, and when.
//!
//! A key's values come in before its batch, all of them by one sorted read per state. What changes stays until a *generation*
//! ends: at a barrier, or when the overlay is full of changes. Then all changed rows are sent as they are at that moment (saved
//! before they change again, a cursor takes the rest), the store seals and writes them in the background, and once that is done
//! keys that are clean and were not used lately are forgotten. Ids of keys stay what they are. Must never know how the store
//! keeps entries.

use crate::cold::{Addresses, Change, ColdError, ColdStateId, ColdStore, Loaded, Scan, Scope, Seal};

use super::bits::Bits;
use super::error::{StateError, StateName, StateResult};

/// Bytes on their way into the store above which the cursor waits.
const PENDING_BYTES_MAX: u64 = 64 << 20;

/// What is going on between the tables and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing: clean keys may go.
    Idle,
    /// The changed rows are being sent.
    Sending {
        /// Whether a snapshot is made of them.
        snapshot: bool,
    },
    /// They were sent and are being written.
    Writing(Seal),
}

/// The store, and what was done with it.
#[derive(Debug)]
pub(crate) struct Overlay {
    store: Box<dyn ColdStore>,
    /// Bytes that the tables should stay below.
    pub(super) share: usize,
    pub(super) phase: Phase,
    /// Keys that have an id.
    pub(super) live: Bits,
    /// Keys that were used since they were last looked at.
    pub(super) used: Bits,
    /// The key that is looked at next.
    pub(super) hand: u32,
}

impl Overlay {
    pub(super) fn new(store: Box<dyn ColdStore>, share: usize) -> Self {
        let (live, used) = (Bits::default(), Bits::default());
        Self { store, share, phase: Phase::Idle, live, used, hand: 0 }
    }

    pub(super) fn store(&mut self) -> &mut dyn ColdStore {
        self.store.as_mut()
    }

    pub(super) fn load(&mut self, name: &StateName, state: ColdStateId, addresses: &Addresses) -> StateResult<Loaded> {
        self.store.load(state, addresses).map_err(|source| failed(name, source))
    }

    pub(super) fn scan(&mut self, name: &StateName, state: ColdStateId, scope: Scope) -> StateResult<Scan> {
        self.store.scan(state, scope).map_err(|source| failed(name, source))
    }

    pub(super) fn change(&mut self, name: &StateName, state: ColdStateId, changes: Vec<Change>) -> StateResult<()> {
        let mut changes = changes.into_iter();
        changes.try_for_each(|change| self.store.change(state, change)).map_err(|source| failed(name, source))
    }

    /// Whether the store has enough to do.
    pub(super) fn is_busy(&self) -> bool {
        self.store.pending_bytes() > PENDING_BYTES_MAX
    }

    /// Everything changed was sent.
    pub(super) fn end_generation(&mut self) {
        if self.phase == (Phase::Sending { snapshot: true }) {
            self.store.complete_snapshot();
        }
        self.phase = Phase::Writing(self.store.seal());
    }

    /// Looks whether what was sent is written.
    pub(super) fn look(&mut self) -> Result<(), ColdError> {
        if let Phase::Writing(seal) = self.phase
            && self.store.is_written(seal)?
        {
            self.phase = Phase::Idle;
        }
        Ok(())
    }
}

/// The store's failure, with the state's name.
#[cold]
pub(super) fn failed(name: &StateName, source: ColdError) -> Box<StateError> {
    Box::new(StateError::Cold { name: name.clone(), source })
}
