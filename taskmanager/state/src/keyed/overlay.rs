//! The tables as a write-back overlay of a cold store: what comes in, what goes out, and which keys may go.
//!
//! A key's values come in before its batch, all of them by one sorted read per state. What changes is sent and written as
//! `cold::WriteBack` says; while nothing is on its way, keys that are clean and were not used lately are forgotten where memory is
//! short. Ids of keys stay what they are. Must never know how the store keeps entries.

use crate::cold::{Addresses, Change, ColdError, ColdStateId, Loaded, Opened, Scan, Scope, WriteBack};

use super::cold_windows::AskedWindows;
use super::error::{StateError, StateName, StateResult};
use super::warm::Warming;
use crate::bits::Bits;

/// The store, and what is known of the keys before it.
#[derive(Debug)]
pub(crate) struct Overlay {
    pub(super) write_back: WriteBack,
    /// Keys that have an id.
    pub(super) live: Bits,
    /// Keys that were used since they were last looked at.
    pub(super) used: Bits,
    /// The key that is looked at next.
    pub(super) hand: u32,
    /// What the store had when the task began, on its way into memory.
    pub(super) warming: Warming,
    /// The windows that rows ask for.
    pub(super) asked: AskedWindows,
}

impl Overlay {
    pub(super) fn new(opened: Opened) -> Self {
        let (live, used) = (Bits::default(), Bits::default());
        Self {
            write_back: WriteBack::new(opened),
            live,
            used,
            hand: 0,
            warming: Warming::default(),
            asked: AskedWindows::default(),
        }
    }

    pub(super) fn load(
        &mut self,
        name: &StateName,
        state: ColdStateId,
        addresses: &Addresses,
        below_max: usize,
    ) -> StateResult<Loaded> {
        self.write_back.store().load(state, addresses, below_max).map_err(|source| failed(name, source))
    }

    pub(super) fn load_last(&mut self, name: &StateName, state: ColdStateId, addresses: &Addresses) -> StateResult<Loaded> {
        self.write_back.store().load_last(state, addresses).map_err(|source| failed(name, source))
    }

    pub(super) fn scan(&mut self, name: &StateName, state: ColdStateId, scope: Scope) -> StateResult<Scan> {
        self.write_back.store().scan(state, scope).map_err(|source| failed(name, source))
    }

    pub(super) fn change(&mut self, name: &StateName, state: ColdStateId, changes: Vec<Change>) -> StateResult<()> {
        let mut changes = changes.into_iter();
        changes.try_for_each(|change| self.write_back.change(state, change)).map_err(|source| failed(name, source))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.live.memory_bytes() + self.used.memory_bytes()
    }
}

/// The store's failure, with the state's name.
#[cold]
pub(super) fn failed(name: &StateName, source: ColdError) -> Box<StateError> {
    Box::new(StateError::Cold { name: name.clone(), source })
}

/// A failure of the store that is of no state.
#[cold]
pub(super) fn store_failed(source: ColdError) -> Box<StateError> {
    Box::new(StateError::Store { source })
}
