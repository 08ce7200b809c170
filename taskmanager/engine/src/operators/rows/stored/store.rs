//! The store behind rows by key: what it knows of the keys in memory, and how those of a batch come in.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;
use levada_state::bits::Bits;
use levada_state::cold::{ColdError, ColdExpiry, ColdMetrics, ColdStateId, ColdStores, Phase, Scan, Scope, Within};
use levada_state::key_index::ABSENT;
use levada_state::snapshot::StateMeta;

use super::warm::Warming;
use super::windows::stored_schema;
use super::{ByKey, EntryPlaces, Found, StoredRows};
use crate::error::EngineError;
use crate::operators::behind::{Behind, failed};

/// What a key's rows are taken for before any came in.
const KEY_BYTES: usize = 256;

/// The part of the overlay's share that the rows of a batch's keys may take at once.
const LOADED_PART: usize = 8;

/// The store of an operator whose rows are by key.
#[derive(Debug)]
pub(in crate::operators) struct KeyedRowStore {
    pub(super) behind: Behind,
    uid: Uid,
    clause: String,
    pub(super) key_groups: KeyGroupRange,
    /// The store has nothing of keys that memory does not have.
    pub(super) is_whole: bool,
    pub(super) warming: Option<Warming>,
    /// By key: it is in memory.
    pub(super) live: Bits,
    /// By key: it was used since the hand passed.
    pub(super) used: Bits,
    /// By key: something of it has changed since the last generation began.
    pub(super) dirty: Bits,
    /// The key that is looked at next.
    pub(super) hand: u32,
    /// By key: it may have no rows any more.
    pub(super) emptied: Bits,
    /// Likewise, since before the last generation: it may go once that is written.
    pub(super) leaving: Bits,
    /// The checkpoint that is being sent, if one is.
    pub(super) checkpoint: Option<CheckpointId>,
    /// About what a key's rows take when they come in.
    key_bytes: usize,
    ids: Vec<u32>,
}

impl KeyedRowStore {
    /// Opens the store of an operator; its states are opened next.
    pub(in crate::operators) fn open(
        uid: &Uid,
        clause: &str,
        stores: &Arc<dyn ColdStores>,
        key_groups: KeyGroupRange,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            behind: Behind::open(uid, stores.as_ref())?,
            uid: uid.clone(),
            clause: clause.into(),
            key_groups,
            is_whole: true,
            warming: None,
            live: Bits::default(),
            used: Bits::default(),
            dirty: Bits::default(),
            hand: 0,
            emptied: Bits::default(),
            leaving: Bits::default(),
            checkpoint: None,
            key_bytes: KEY_BYTES,
            ids: Vec::new(),
        })
    }

    /// Opens a state that is laid out by this schema, with what was restored in it; what has no stamp and needs one stands since
    /// `since_ms`.
    pub(in crate::operators) fn open_state(
        &mut self,
        name: &str,
        schema: &Arc<StateSchema>,
        since_ms: i64,
    ) -> Result<ColdStateId, EngineError> {
        let store = self.behind.write_back.store();
        let opened = store.open_state(name, schema, since_ms);
        let opened = opened.and_then(|state| Ok((state, store.namespaces(state, self.key_groups)?)));
        let (state, namespaces) = opened.map_err(|source| failed(&self.uid, source))?;
        if !namespaces.is_empty() {
            self.is_whole = false;
            self.warming = Some(Warming::default());
        }
        Ok(state)
    }

    /// The columns of a state's entries.
    pub(in crate::operators) fn columns(&mut self, state: ColdStateId) -> SchemaRef {
        Arc::clone(self.behind.write_back.store().layout(state).columns())
    }

    /// Opens the state of a heap whose columns have these places, with what was restored in it; what has no stamp and needs one
    /// stands since `since_ms`.
    pub(in crate::operators) fn open_rows(
        &mut self,
        meta: &StateMeta,
        places: EntryPlaces,
        since_ms: i64,
    ) -> Result<StoredRows, EngineError> {
        let schema = if places.window.is_some() { stored_schema(&meta.schema) } else { Arc::clone(&meta.schema) };
        let state = self.open_state(&meta.name, &schema, since_ms)?;
        if places.window.is_some() {
            // Keys of windows are over before it would be worth while.
            self.warming = None;
        }
        let schema = self.columns(state);
        Ok(StoredRows::new(state, meta.clone(), schema, places))
    }

    /// Opens the state of a heap whose keys are of windows, with what was restored in it. Which keys the store has something of is known
    /// without it: nothing is looked for.
    pub(in crate::operators) fn open_known_rows(
        &mut self,
        meta: &StateMeta,
        places: EntryPlaces,
    ) -> Result<StoredRows, EngineError> {
        let state = self.behind.open_state(&meta.name, &stored_schema(&meta.schema))?;
        let schema = self.columns(state);
        Ok(StoredRows::new(state, meta.clone(), schema, places))
    }

    /// Begins to visit all that the store has of a state.
    pub(in crate::operators) fn visit_state(&mut self, state: ColdStateId) -> Result<Scan, EngineError> {
        self.behind.scan(state, Scope { groups: self.key_groups, within: Within::Any })
    }

    /// Of how many keys about that have left memory all may come in at once; of one at least.
    pub(in crate::operators) fn keys_at_once(&self) -> usize {
        (self.behind.write_back.share_bytes() / LOADED_PART / self.key_bytes.max(1)).max(1)
    }

    /// Brings in what the store has of these keys, whose numbers are `ids`, each once.
    pub(in crate::operators) fn load_known(
        &mut self,
        rows: &mut impl ByKey,
        keys: &[ArrayRef],
        ids: &[u32],
    ) -> Result<(), EngineError> {
        let bytes = self.load_entries(rows, keys, ids)?;
        self.note_bytes(bytes, ids.len());
        Ok(())
    }

    /// Brings in the rows of these keys that only the store has. Answers how many of the first of them have their rows in memory now:
    /// all, or where that would take too much some, at least one.
    pub(in crate::operators) fn load(
        &mut self,
        rows: &mut impl ByKey,
        keys: &[ArrayRef],
        count: usize,
    ) -> Result<usize, EngineError> {
        if self.is_whole {
            return Ok(count);
        }
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        rows.find_keys(keys, count, &mut ids);
        let absent: Vec<u32> = (0..).zip(&ids).filter(|(_, id)| **id == ABSENT).map(|(row, _)| row).collect();
        self.ids = ids;
        let room = self.behind.write_back.share_bytes() / LOADED_PART;
        let (mut left, mut bytes) = (&absent[..], 0);
        while !left.is_empty() {
            let at_once = (room.saturating_sub(bytes) / self.key_bytes.max(1)).max(usize::from(left.len() == absent.len()));
            if at_once == 0 {
                return Ok(left[0] as usize);
            }
            let (some, behind) = left.split_at(at_once.min(left.len()));
            let columns = self.some(keys, some.to_vec())?;
            bytes += self.load_absent(rows, &columns, some.len())?;
            left = behind;
        }
        Ok(count)
    }

    /// Brings in keys of which some are not in memory. Answers how many bytes came in.
    fn load_absent(&mut self, rows: &mut impl ByKey, columns: &[ArrayRef], count: usize) -> Result<usize, EngineError> {
        let mut ids = Vec::with_capacity(count);
        rows.make_keys(columns, count, &mut ids);
        let (mut firsts, mut distinct) = (Vec::new(), Vec::new());
        for (row, id) in (0..).zip(ids) {
            if self.live.set(id) {
                firsts.push(row);
                distinct.push(id);
            }
        }
        if distinct.is_empty() {
            return Ok(0);
        }
        let keys = self.some(columns, firsts)?;
        let bytes = self.load_entries(rows, &keys, &distinct)?;
        let keys = distinct.len();
        distinct.retain(|key| !rows.has_entries(*key));
        self.note_bytes(bytes, keys - distinct.len());
        // A key of which nothing was found is nothing that could leave memory.
        self.note_emptied(distinct);
        Ok(bytes)
    }

    /// Brings in the entries of these keys, whose numbers are `ids`, each once. Answers how many bytes came in.
    fn load_entries(&mut self, rows: &mut impl ByKey, keys: &[ArrayRef], ids: &[u32]) -> Result<usize, EngineError> {
        let mut bytes = 0;
        for at in 0..rows.states() {
            let (state, addresses) = (rows.state(at).0, rows.addresses(at, keys, ids.len()));
            let loaded = self.behind.load(state, &addresses)?;
            if loaded.positions.is_empty() {
                continue;
            }
            bytes += loaded.rows.get_array_memory_size();
            if rows.take_found(at, Found { keys, ids, loaded: &loaded })? {
                ids.iter().for_each(|key| self.dirty.set_one(*key));
            }
        }
        Ok(bytes)
    }

    /// So many keys with entries took so many bytes.
    fn note_bytes(&mut self, bytes: usize, keys: usize) {
        if let Some(bytes) = bytes.checked_div(keys) {
            self.key_bytes = (3 * self.key_bytes + bytes) / 4;
        }
    }

    fn some(&self, columns: &[ArrayRef], rows: Vec<u32>) -> Result<Vec<ArrayRef>, EngineError> {
        let rows = UInt32Array::from(rows);
        columns.iter().map(|column| take(column, &rows, None).map_err(|source| self.kernel(source))).collect()
    }

    /// These keys are in memory and used; `len` keys were made so far.
    pub(in crate::operators) fn note_used(&mut self, keys: &[u32], len: usize) {
        self.live.set_all(keys, len);
        self.used.set_all(keys, len);
    }

    /// Something of these keys is in memory; `len` keys were made so far.
    pub(in crate::operators) fn note_live(&mut self, keys: &[u32], len: usize) {
        self.live.set_all(keys, len);
    }

    /// Something of these keys changes, or may.
    pub(in crate::operators) fn note_changed(&mut self, keys: &[u32], len: usize) {
        self.dirty.set_all(keys, len);
    }

    /// These keys may have no rows any more.
    pub(in crate::operators) fn note_emptied(&mut self, keys: impl IntoIterator<Item = u32>) {
        keys.into_iter().for_each(|key| self.emptied.set_one(key));
    }

    /// Whether there is room for another batch. Where there is none the store is writing: it wakes the task when it is done.
    pub(in crate::operators) fn is_ready(&mut self, rows: &impl ByKey) -> Result<bool, EngineError> {
        let held_bytes = self.held_bytes(rows);
        self.behind.is_ready(held_bytes)
    }

    /// Lets the store drop what expired: not before a snapshot is taken, which has what had not expired at its barrier.
    pub(in crate::operators) fn expire(&mut self, rows: &mut impl ByKey, expired_until_ms: i64) {
        if self.behind.write_back.phase() != Phase::Idle {
            return;
        }
        for at in 0..rows.states() {
            let state = rows.state(at).0;
            self.behind.write_back.store().expire(state, ColdExpiry { expired_until_ms });
        }
    }

    /// What the store did and has.
    pub(in crate::operators) fn metrics(&self) -> ColdMetrics {
        self.behind.write_back.metrics()
    }

    /// The store failed.
    pub(super) fn failed(&self, source: ColdError) -> EngineError {
        failed(&self.uid, source)
    }

    /// An Arrow kernel failed.
    pub(super) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }
}
