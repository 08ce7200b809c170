//! The store behind an operator, as far as all use it alike: failures with the operator's name, and when something is to be sent
//! or forgotten. Must never know what the rows are.

use std::sync::Arc;

use levada_common::ids::Uid;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{Addresses, Change, ColdError, ColdStateId, ColdStores, Loaded, Phase, Scan, Scope, WriteBack};
use levada_state::snapshot::DatabaseSnapshot;

use crate::error::EngineError;

/// What is to be done after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Nothing, or nothing that could be done now.
    Nothing,
    /// More of what is being sent.
    Send,
    /// What the store has as it is is to be forgotten, or where that is little, what has changed is to be sent.
    Room,
}

/// The store of one operator in one task.
#[derive(Debug)]
pub(super) struct Behind {
    uid: Uid,
    pub(super) write_back: WriteBack,
}

impl Behind {
    /// Opens the operator's store.
    pub(super) fn open(uid: &Uid, stores: &dyn ColdStores) -> Result<Self, EngineError> {
        let opened = stores.open(uid).map_err(|source| failed(uid, source))?;
        Ok(Self { uid: uid.clone(), write_back: WriteBack::new(opened) })
    }

    /// Takes a state up, with what was restored in it.
    pub(super) fn open_state(&mut self, name: &str, schema: &Arc<StateSchema>) -> Result<ColdStateId, EngineError> {
        self.write_back.store().open_state(name, schema, 0).map_err(|source| failed(&self.uid, source))
    }

    /// Looks entries up.
    pub(super) fn load(&mut self, state: ColdStateId, addresses: &Addresses) -> Result<Loaded, EngineError> {
        self.write_back.store().load(state, addresses, usize::MAX).map_err(|source| failed(&self.uid, source))
    }

    /// Begins to visit entries.
    pub(super) fn scan(&mut self, state: ColdStateId, scope: Scope) -> Result<Scan, EngineError> {
        self.write_back.store().scan(state, scope).map_err(|source| failed(&self.uid, source))
    }

    /// Sends a change.
    pub(super) fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), EngineError> {
        self.write_back.change(state, change).map_err(|source| failed(&self.uid, source))
    }

    /// Begins a snapshot, which is of the store as it is when the generation was sent.
    pub(super) fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        self.write_back.begin_snapshot()
    }

    /// Everything of the generation was sent.
    pub(super) fn end_generation(&mut self) {
        self.write_back.end_generation();
    }

    /// Whether more may be sent now; where not, the store wakes the task when it may.
    pub(super) fn takes_more(&mut self) -> Result<bool, EngineError> {
        self.write_back.takes_more().map_err(|source| failed(&self.uid, source))
    }

    /// Whether so many bytes in memory leave room for more rows; where not, the store wakes the task when they do.
    pub(super) fn is_ready(&mut self, held_bytes: usize) -> Result<bool, EngineError> {
        let is_ready = self.write_back.is_ready(held_bytes).map_err(|source| failed(&self.uid, source))?;
        // Between generations it is what goes out that the store hears of.
        Ok(is_ready && (self.write_back.phase() != Phase::Idle || self.takes_more()?))
    }

    /// Whether so many bytes in memory are so many that something should go.
    pub(super) fn is_short(&self, held_bytes: usize) -> bool {
        self.write_back.is_short(held_bytes)
    }

    /// What is to be done after a batch where so many bytes are in memory.
    pub(super) fn due(&mut self, held_bytes: usize) -> Result<Due, EngineError> {
        let phase = self.write_back.look().map_err(|source| failed(&self.uid, source))?;
        if !self.is_short(held_bytes) {
            return Ok(Due::Nothing);
        }
        Ok(match phase {
            Phase::Writing(_) => Due::Nothing,
            Phase::Sending { .. } => Due::Send,
            Phase::Idle => Due::Room,
        })
    }

    /// Waits until there is room for more, where nobody else can do something meanwhile.
    pub(super) fn wait_for_room(&mut self) -> Result<(), EngineError> {
        self.write_back.wait_for_room().map_err(|source| failed(&self.uid, source))
    }

    /// Waits until everything sent is written: only before rows come.
    pub(super) fn wait(&mut self) -> Result<(), EngineError> {
        self.write_back.wait().map_err(|source| failed(&self.uid, source))
    }
}

/// The store's failure, with the operator's name.
#[cold]
pub(super) fn failed(uid: &Uid, source: ColdError) -> EngineError {
    EngineError::Store { uid: uid.clone(), source: Box::new(source) }
}
