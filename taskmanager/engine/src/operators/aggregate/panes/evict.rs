//! Making room in front of a store: groups that it has as they are go.
//!
//! All of them at once, pane by pane: what has changed since the last generation began is what is in use, and stays.

use levada_state::bits::Bits;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use super::pane::Stored;
use super::saving::Target;
use super::{OpenPanes, PIECE_ROWS, Pane, recount};
use crate::error::EngineError;
use crate::operators::behind::Due;

/// Groups that are sent after a batch while memory is short.
const SENT_ROWS: usize = 16_384;

impl OpenPanes {
    /// Whether there is room for another batch. Where there is none the store is writing: it wakes the task when it is done.
    pub(in super::super) fn is_ready(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        let held_bytes = self.held_bytes();
        self.store.as_mut().map_or(Ok(true), |store| store.is_ready(shape, held_bytes))
    }

    /// Whether something should go.
    pub(in super::super) fn is_short(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.behind.is_short(self.held_bytes()))
    }

    /// Bytes that are held, beside the panes too.
    pub(super) fn held_bytes(&self) -> usize {
        self.memory_bytes + self.beside_bytes + self.spare.as_ref().map_or(0, GroupTable::memory_bytes)
    }

    /// So many bytes are held beside the panes, of the memory that they have.
    pub(in super::super) fn hold_beside(&mut self, bytes: usize) {
        self.beside_bytes = bytes;
    }

    /// To be called after each batch: sends and forgets what is due where memory is short.
    pub(in super::super) fn make_room(&mut self, shape: &Shape) -> Result<(), EngineError> {
        let held_bytes = self.held_bytes();
        let Some(store) = &mut self.store else { return Ok(()) };
        match store.behind.due(held_bytes)? {
            Due::Nothing => Ok(()),
            Due::Send => self.send(shape),
            Due::Room if self.changed() * 2 <= self.groups => self.evict(shape),
            Due::Room => {
                self.begin_generation();
                self.send(shape)
            }
        }
    }

    /// Number of groups that the store has otherwise.
    fn changed(&self) -> usize {
        self.panes.values().filter_map(|pane| pane.stored.as_ref()).map(|stored| stored.dirty.count()).sum()
    }

    fn begin_generation(&mut self) {
        if let Some(store) = &mut self.store {
            store.behind.write_back.begin_generation();
            self.freeze(None, Target::Store);
        }
    }

    /// Sends more than a batch can change, if the store takes it.
    fn send(&mut self, shape: &Shape) -> Result<(), EngineError> {
        let takes_more = self.store.as_mut().map_or(Ok(false), |store| store.behind.takes_more())?;
        if takes_more { self.save(shape, SENT_ROWS) } else { Ok(()) }
    }

    /// Sends what has changed, waits until it is written, and forgets it: only before rows come.
    pub(super) fn empty(&mut self, shape: &Shape) -> Result<(), EngineError> {
        self.begin_generation();
        self.save_all(shape)?;
        self.store.as_mut().map_or(Ok(()), |store| store.behind.wait())?;
        self.evict(shape)
    }

    /// Forgets every group that the store has as it is.
    ///
    /// Contract: nothing is being sent or written.
    fn evict(&mut self, shape: &Shape) -> Result<(), EngineError> {
        (self.warming, self.spare) = (None, None);
        let Self { panes, store: Some(store), groups, memory_bytes, .. } = self else { return Ok(()) };
        for pane in panes.values_mut() {
            let changed: Vec<u32> = pane.stored.iter().flat_map(|stored| stored.dirty.rows()).collect();
            if changed.len() < pane.groups.len() {
                keep(shape, pane, &changed)?;
                recount(pane, groups, memory_bytes);
                store.beyond.insert(pane.window);
            }
        }
        for (_, pane) in panes.extract_if(.., |_, pane| pane.groups.len() == 0) {
            *memory_bytes -= pane.counted.1;
        }
        Ok(())
    }
}

/// Leaves only these groups in a pane, all of which have changed.
fn keep(shape: &Shape, pane: &mut Pane, changed: &[u32]) -> Result<(), EngineError> {
    let mut groups = GroupTable::new(shape);
    for some in changed.chunks(PIECE_ROWS) {
        let rows = Rows::Ids(some);
        groups.absorb(shape, &pane.groups.keys(rows), some.len(), &pane.groups.states(rows))?;
    }
    // What was sent of them is written, so a look at the store finds it.
    let stored = Stored { dirty: Bits::ones(changed.len()), has_more: true, ..Stored::default() };
    *pane = Pane { stored: Some(stored), counted: pane.counted, ..Pane::new(pane.window, groups) };
    Ok(())
}
