//! Between tables in memory and their store: generations of changes, the snapshots made of them, and whether there is room.
//!
//! What changes in memory stays there until a *generation* ends: at a barrier, or when memory is short. Then everything that
//! changed is sent as it is at that moment, piece by piece, sealed, and written in the background; until that is done the tables
//! must keep what they sent. Must never know what the tables hold, nor how the store keeps it. Invariant: while a snapshot is
//! being sent nothing else is, so that the store passes through exactly the barrier's state.

use std::sync::Arc;

use crate::snapshot::DatabaseSnapshot;

use super::{Change, ColdError, ColdMetrics, ColdStateId, ColdStore, Opened, OverlayShare, Seal};

/// Most bytes on their way into a store, however much memory there is.
const PENDING_BYTES_MAX: usize = 64 << 20;

/// How many times as much, where rows that change what is being sent send it: beyond, rows wait.
const PENDING_PARTS_MAX: usize = 2;

/// What is going on between the tables and the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing: what has not changed since the last generation is in the store.
    Idle,
    /// What has changed is being sent.
    Sending {
        /// Whether a snapshot is made of it.
        snapshot: bool,
    },
    /// It was sent and is being written.
    Writing(Seal),
}

/// A store, and what was done with it.
#[derive(Debug)]
pub struct WriteBack {
    store: Box<dyn ColdStore>,
    share: OverlayShare,
    phase: Phase,
    /// The end of what was sent so far of a generation that is too large to be sent at once.
    part: Option<Seal>,
}

impl WriteBack {
    /// Before this store.
    pub fn new(Opened { store, share }: Opened) -> Self {
        Self { store, share, phase: Phase::Idle, part: None }
    }

    /// The store, to open states and to read.
    pub fn store(&mut self) -> &mut dyn ColdStore {
        self.store.as_mut()
    }

    /// What the store did and has.
    pub fn metrics(&self) -> ColdMetrics {
        self.store.metrics()
    }

    /// What is going on, as `look` saw it last.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Looks whether what was sent is written.
    pub fn look(&mut self) -> Result<Phase, ColdError> {
        if let Phase::Writing(seal) = self.phase
            && self.store.is_written(seal)?
        {
            self.phase = Phase::Idle;
        }
        Ok(self.phase)
    }

    /// Begins a generation.
    ///
    /// Contract: nothing is being sent, or what is being sent begins anew.
    pub fn begin_generation(&mut self) {
        debug_assert_ne!(self.phase, Phase::Sending { snapshot: true }, "a snapshot is sent alone");
        self.phase = Phase::Sending { snapshot: false };
    }

    /// Begins a generation that a snapshot is made of.
    ///
    /// Contract: as `begin_generation`.
    pub fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        debug_assert_ne!(self.phase, Phase::Sending { snapshot: true }, "one snapshot at a time");
        self.phase = Phase::Sending { snapshot: true };
        self.store.begin_snapshot()
    }

    /// Sends some of what changed.
    pub fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), ColdError> {
        self.store.change(state, change)
    }

    /// Whether more may be sent now. Where enough is under way, it is written first, and the store wakes the task then.
    pub fn takes_more(&mut self) -> Result<bool, ColdError> {
        if let Some(seal) = self.part {
            if !self.store.is_written(seal)? {
                return Ok(false);
            }
            self.part = None;
        }
        if self.pending_bytes() > self.pending_bytes_max() {
            self.part = Some(self.store.seal());
            return Ok(false);
        }
        Ok(true)
    }

    /// Everything that changed was sent.
    pub fn end_generation(&mut self) {
        if self.phase == (Phase::Sending { snapshot: true }) {
            self.store.complete_snapshot();
        }
        self.part = None;
        self.phase = Phase::Writing(self.store.seal());
    }

    /// Waits until everything that was sent is written. Only before rows come, when there is no snapshot.
    pub fn wait(&mut self) -> Result<(), ColdError> {
        let seal = self.store.seal();
        self.store.wait_written(seal)?;
        assert!(self.store.is_written(seal)?, "before rows come nothing is held back behind a snapshot");
        Ok(())
    }

    /// Waits until there is room for more, as far as that does not wait for another who sends to the store.
    pub fn wait_for_room(&mut self) -> Result<(), ColdError> {
        let seal = self.store.seal();
        self.store.wait_written(seal)
    }

    /// The snapshot that is being sent was given up; what changed is sent all the same.
    pub fn abandon_snapshot(&mut self) {
        if self.phase == (Phase::Sending { snapshot: true }) {
            self.store.abandon_snapshot();
            self.phase = Phase::Sending { snapshot: false };
        }
    }

    /// Whether tables that hold so many bytes should let something go.
    pub fn is_short(&self, held_bytes: usize) -> bool {
        let share = self.share.bytes();
        held_bytes + self.pending_bytes() > share - share / 4
    }

    /// Whether tables that hold so many bytes are about to have no room for more rows.
    pub fn is_nearly_full(&self, held_bytes: usize) -> bool {
        let share = self.share.bytes();
        held_bytes + self.pending_bytes() > share - share / 8
    }

    /// Bytes that tables should hold after something has gone.
    pub fn target_bytes(&self) -> usize {
        let share = self.share.bytes();
        (share / 2 + share / 8).saturating_sub(self.pending_bytes())
    }

    /// Whether tables that hold so many bytes may take more rows. Where they may not, something is to be sent or being written:
    /// the store wakes the task when it is. Rows that change what is being sent send it, so they wait for a store that is far behind,
    /// whatever memory there is.
    pub fn is_ready(&mut self, held_bytes: usize) -> Result<bool, ColdError> {
        let (is_idle, pending_bytes) = (self.look()? == Phase::Idle, self.pending_bytes());
        let is_far_behind = pending_bytes > PENDING_PARTS_MAX * self.pending_bytes_max();
        Ok(is_idle || !is_far_behind && held_bytes + pending_bytes <= self.share.bytes())
    }

    /// Bytes that the overlay and what is on its way into the store may take now.
    pub fn share_bytes(&self) -> usize {
        self.share.bytes()
    }

    fn pending_bytes(&self) -> usize {
        usize::try_from(self.store.pending_bytes()).unwrap_or(usize::MAX)
    }

    fn pending_bytes_max(&self) -> usize {
        (self.share.bytes() / 4).min(PENDING_BYTES_MAX)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, new_null_array};
    use arrow::datatypes::DataType;
    use arrow::record_batch::RecordBatch;
    use levada_common::ids::Uid;
    use levada_common::keys::KeyGroupRange;

    use super::*;
    use crate::cold::contract::{MAX_PARALLELISM, states};
    use crate::cold::memory::MemoryColdStore;
    use crate::cold::{OverlayBudget, Scope, Within};

    /// Before a store that has written something when it was asked three times.
    fn write_back(share_bytes: usize) -> (WriteBack, ColdStateId) {
        let mut store = MemoryColdStore::new(Uid::new("counts"), MAX_PARALLELISM, 2);
        let (name, schema) = states().swap_remove(0);
        let state = store.open_state(name, &schema, 0).expect("no errors");
        let share = OverlayBudget::new(share_bytes).share();
        (WriteBack::new(Opened { store: Box::new(store), share }), state)
    }

    fn change(write_back: &mut WriteBack, state: ColdStateId, keys: std::ops::Range<i64>) {
        let notes = new_null_array(&DataType::Utf8, keys.clone().count());
        let ids: ArrayRef = Arc::new(keys.collect::<Int64Array>());
        let columns = Arc::clone(write_back.store().layout(state).columns());
        let rows = RecordBatch::try_new(columns, vec![Arc::clone(&ids), ids, notes]).expect("the layout's columns");
        write_back.change(state, Change { deletes: None, upserts: Some(rows) }).expect("no errors");
    }

    fn rows(write_back: &mut WriteBack, state: ColdStateId) -> usize {
        let everything = Scope { groups: KeyGroupRange::all(MAX_PARALLELISM), within: Within::Any };
        let scan = write_back.store().scan(state, everything).expect("no errors");
        scan.map(|rows| rows.expect("no errors").num_rows()).sum()
    }

    #[test]
    fn a_generation_larger_than_what_may_be_under_way_goes_in_parts() {
        let (mut write_back, state) = write_back(64 << 10);
        write_back.begin_generation();
        let (mut sent, mut waited) = (0, 0);
        while sent < 10_000 {
            if write_back.takes_more().expect("no errors") {
                change(&mut write_back, state, sent..sent + 100);
                sent += 100;
            } else {
                waited += 1;
                assert!(rows(&mut write_back, state) <= sent as usize);
            }
        }
        assert!(waited > 10, "all of it was under way at once");
        write_back.end_generation();
        while write_back.look().expect("no errors") != Phase::Idle {}
        assert_eq!(rows(&mut write_back, state), 10_000);
    }

    #[test]
    fn over_its_share_an_overlay_waits_for_what_is_under_way_and_for_nothing_else() {
        let (mut write_back, state) = write_back(1_000);
        assert!(write_back.is_ready(5_000).expect("no errors"), "nothing is under way that could make room");
        assert!(write_back.is_short(800) && !write_back.is_short(700));
        write_back.begin_generation();
        assert!(write_back.is_ready(1_000).expect("no errors") && !write_back.is_ready(1_001).expect("no errors"));
        change(&mut write_back, state, 0..10);
        assert!(!write_back.is_ready(1_000).expect("no errors"), "what was sent is still in memory");
        write_back.end_generation();
        let asked = (0..10).take_while(|_| !write_back.is_ready(5_000).expect("no errors")).count();
        assert_eq!((asked, write_back.phase()), (2, Phase::Idle));
    }

    #[test]
    fn a_snapshot_that_is_given_up_leaves_what_was_sent() {
        let (mut write_back, state) = write_back(1 << 20);
        let snapshot = write_back.begin_snapshot();
        change(&mut write_back, state, 0..10);
        write_back.abandon_snapshot();
        assert_eq!(write_back.phase(), Phase::Sending { snapshot: false });
        assert!(matches!(snapshot.files(), Err(ColdError::Abandoned { .. })));
        // A later barrier takes over.
        let snapshot = write_back.begin_snapshot();
        change(&mut write_back, state, 10..20);
        write_back.end_generation();
        assert!(snapshot.files().is_ok());
        write_back.wait().expect("no errors");
        assert_eq!(rows(&mut write_back, state), 20);
    }
}
