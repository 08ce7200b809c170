//! A cold store in memory, for tests: ordered maps of the same bytes, written only when one asks long enough.

mod snapshot;
mod stores;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{Stamps, StateSchema};

use super::{
    Change, ColdError, ColdExpiry, ColdMetrics, ColdStateId, ColdStore, Loaded, Scan, Scope, Seal, Window, find_namespaces,
    scan_bounds,
};
use crate::row_codec::{Addresses, RowBytes, RowLayout, RowReader, TTL_COLUMN};
use crate::snapshot::DatabaseSnapshot;

use snapshot::{MemorySnapshot, Taken};
pub use stores::MemoryColdStores;

/// Rows of a batch that a scan gives.
const SCAN_ROWS: usize = 1024;

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The store.
#[derive(Debug)]
pub struct MemoryColdStore {
    uid: Uid,
    max_parallelism: u32,
    states: Vec<MemoryState>,
    /// Changes that are not written, each with the seal that will end it.
    sent: VecDeque<(Seal, ColdStateId, Change)>,
    sealed: Seal,
    written: Seal,
    /// Times that one has to ask before a seal is written.
    lag: u32,
    asked: u32,
    snapshot: Option<Arc<MemorySnapshot>>,
    /// What it is restored from: taken in state by state.
    restored: Vec<Arc<dyn DatabaseSnapshot>>,
    groups: KeyGroupRange,
    metrics: ColdMetrics,
}

#[derive(Debug, Clone)]
struct MemoryState {
    name: String,
    layout: RowLayout,
    entries: Entries,
    /// The last touch of what has expired, and goes when no snapshot is under way.
    expired_until_ms: Option<i64>,
    /// The same at the barrier of the snapshot that is under way.
    expired_at_barrier_ms: Option<i64>,
}

impl MemoryColdStore {
    /// An empty store of a job with so many key groups, in which a seal is written when it has been asked for `lag + 1` times.
    pub fn new(uid: Uid, max_parallelism: u32, lag: u32) -> Self {
        Self {
            uid,
            max_parallelism,
            states: Vec::new(),
            sent: VecDeque::new(),
            sealed: Seal(0),
            written: Seal(0),
            lag,
            asked: 0,
            snapshot: None,
            restored: Vec::new(),
            groups: KeyGroupRange::all(max_parallelism),
            metrics: ColdMetrics::default(),
        }
    }

    /// With what these snapshots, of whichever stores, had in `groups`.
    #[must_use]
    pub fn restored(mut self, snapshots: Vec<Arc<dyn DatabaseSnapshot>>, groups: KeyGroupRange) -> Self {
        self.restored = snapshots;
        self.groups = groups;
        self
    }

    /// What the snapshots that it is restored from had of a state.
    fn restored_entries(&self, name: &str, schema: &StateSchema, touched_at_ms: i64) -> Result<Entries, ColdError> {
        let (mut restored, (from, to)) = (Entries::new(), RowLayout::group_bounds(self.groups));
        for snapshot in &self.restored {
            let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
            let mut had = schema.ttl;
            let visited = snapshot.rows(name, &mut |rows| {
                had = rows.column_by_name(TTL_COLUMN).map_or(Stamps::None, |_| Stamps::Unnoted);
                let layout = RowLayout::new(Arc::new(StateSchema { ttl: had, ..schema.clone() }), self.max_parallelism);
                layout.write(&laid_out(&layout, rows), &mut keys, &mut values).expect("the restore check compared the columns");
                ControlFlow::Continue(())
            });
            match visited {
                Ok(()) | Err(ColdError::UnknownState { .. }) => {}
                Err(error) => return Err(error),
            }
            for (key, value) in keys.iter().zip(values.iter()).filter(|(key, _)| (*key >= &from[..]) && (*key < &to[..])) {
                let mut value = value.to_vec();
                RowLayout::convert_stamp(&mut value, had, schema.ttl, touched_at_ms);
                restored.insert(key.to_vec(), value);
            }
        }
        Ok(restored)
    }

    fn state(&self, state: ColdStateId) -> &MemoryState {
        &self.states[state.0 as usize]
    }

    /// Applies what was sent before `seal`.
    fn write(&mut self, seal: Seal) {
        while let Some((of, state, change)) = self.sent.pop_front_if(|(of, ..)| *of <= seal) {
            let state = &mut self.states[state.0 as usize];
            let written = state.apply(&change);
            self.metrics.writes += written;
            self.written = self.written.max(of);
        }
        self.written = self.written.max(seal);
    }

    fn drop_expired(&mut self, until_ms: fn(&MemoryState) -> Option<i64>) {
        for state in self.states.iter_mut().filter(|state| state.layout.schema().ttl.is_some()) {
            state.drop_expired(until_ms(state));
        }
    }

    fn look_up(
        &mut self,
        state: ColdStateId,
        addresses: &Addresses,
        below_max: usize,
        only_last: bool,
    ) -> Result<Loaded, ColdError> {
        let (mut keys, mut known) = (RowBytes::new(), Vec::new());
        let found = self.state(state);
        found.layout.write_keys(addresses, &mut keys, &mut known).map_err(|source| self.layout_error(state, source))?;
        let mut order = keys.in_order();
        order.dedup_by(|left, right| keys.get(*left as usize) == keys.get(*right as usize));
        let (mut reader, mut positions, mut cut) = (RowReader::below(&found.layout), Vec::new(), Vec::new());
        for position in order {
            let below: Vec<_> = found.below(keys.get(position as usize)).collect();
            let from = if only_last { below.len().saturating_sub(1) } else { 0 };
            for (key, value) in below[from..].iter().take(below_max) {
                reader.push(known[position as usize] as usize, key, value).expect("the store wrote it");
                positions.push(position);
            }
            cut.extend((below.len() > below_max).then_some(position));
        }
        self.metrics.loads += 1;
        self.metrics.reads += keys.len() as u64;
        self.metrics.hits += positions.len() as u64;
        Ok(Loaded { positions, rows: reader.finish(), cut })
    }

    fn layout_error(&self, state: ColdStateId, source: crate::row_codec::LayoutError) -> ColdError {
        ColdError::Layout { uid: self.uid.clone(), state: self.state(state).name.clone(), source }
    }
}

/// Rows with the layout's columns in its order; another layout of the same state may have had others below the key.
fn laid_out(layout: &RowLayout, rows: RecordBatch) -> RecordBatch {
    let had = rows.schema();
    let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    if names(&had) == names(layout.columns()) { rows } else { layout.pick(&rows).unwrap_or(rows) }
}

impl MemoryState {
    fn apply(&mut self, change: &Change) -> u64 {
        let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
        let mut written = 0;
        if let Some(deletes) = &change.deletes {
            self.layout.write_keys(deletes, &mut keys, &mut Vec::new()).expect("checked when it was sent");
            let all_below = self.layout.has_below() && deletes.below.is_empty();
            for key in keys.iter() {
                if all_below {
                    let gone: Vec<Vec<u8>> = self.below(key).map(|(entry, _)| entry.clone()).collect();
                    gone.iter().for_each(|entry| drop(self.entries.remove(entry)));
                } else {
                    self.entries.remove(key);
                }
            }
            written += keys.len() as u64;
        }
        keys.clear();
        if let Some(upserts) = &change.upserts {
            self.layout.write(upserts, &mut keys, &mut values).expect("checked when it was sent");
            self.entries.extend(keys.iter().zip(values.iter()).map(|(key, value)| (key.to_vec(), value.to_vec())));
            written += keys.len() as u64;
        }
        written
    }

    fn drop_expired(&mut self, until: Option<i64>) {
        self.entries.retain(|_, value| RowLayout::touched_at(value).is_none_or(|at| until.is_none_or(|until| at > until)));
    }

    fn below<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)> {
        let from = self.entries.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        from.take_while(move |(entry, _)| entry.starts_with(key))
    }

    fn batches<'a>(&self, entries: impl Iterator<Item = (&'a Vec<u8>, &'a Vec<u8>)>) -> Vec<RecordBatch> {
        let mut reader = RowReader::whole(&self.layout);
        let mut batches = Vec::new();
        for (key, value) in entries {
            reader.push(0, key, value).expect("the store wrote it");
            if reader.rows() == SCAN_ROWS {
                batches.push(reader.finish());
            }
        }
        if reader.rows() > 0 {
            batches.push(reader.finish());
        }
        batches
    }
}

impl ColdStore for MemoryColdStore {
    fn open_state(&mut self, name: &str, schema: &Arc<StateSchema>, touched_at_ms: i64) -> Result<ColdStateId, ColdError> {
        let layout = RowLayout::new(Arc::clone(schema), self.max_parallelism);
        if let Some(place) = self.states.iter().position(|state| state.name == name) {
            let state = &mut self.states[place];
            let had = state.layout.schema().ttl;
            for value in state.entries.values_mut() {
                RowLayout::convert_stamp(value, had, schema.ttl, touched_at_ms);
            }
            state.layout = layout;
            return Ok(ColdStateId(place as u32));
        }
        let entries = self.restored_entries(name, schema, touched_at_ms)?;
        self.states.push(MemoryState { name: name.into(), layout, entries, expired_until_ms: None, expired_at_barrier_ms: None });
        Ok(ColdStateId(self.states.len() as u32 - 1))
    }

    fn layout(&self, state: ColdStateId) -> &RowLayout {
        &self.state(state).layout
    }

    fn load(&mut self, state: ColdStateId, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError> {
        self.look_up(state, addresses, below_max, false)
    }

    fn load_last(&mut self, state: ColdStateId, addresses: &Addresses) -> Result<Loaded, ColdError> {
        self.look_up(state, addresses, usize::MAX, true)
    }

    fn scan(&mut self, state: ColdStateId, scope: Scope) -> Result<Scan, ColdError> {
        let found = self.state(state);
        let ranges = scan_bounds(&found.layout, scope);
        let entries = ranges.into_iter().flat_map(|(from, to)| found.entries.range(from..to));
        let batches = found.batches(entries);
        Ok(Box::new(batches.into_iter().map(Ok)))
    }

    fn namespaces(&mut self, state: ColdStateId, groups: KeyGroupRange) -> Result<BTreeSet<Option<Window>>, ColdError> {
        let found = self.state(state);
        let first_key = |from: &[u8]| {
            let mut entries = found.entries.range::<[u8], _>((Bound::Included(from), Bound::Unbounded));
            Ok(entries.next().map(|(key, _)| key.clone()))
        };
        find_namespaces(&found.layout, groups, first_key, |error| panic!("the store wrote it: {error}"))
    }

    fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), ColdError> {
        let layout = &self.state(state).layout;
        let fail = |source| self.layout_error(state, source);
        if let Some(deletes) = &change.deletes {
            layout.write_keys(deletes, &mut RowBytes::new(), &mut Vec::new()).map_err(fail)?;
        }
        if let Some(upserts) = &change.upserts {
            layout.addresses(upserts).map_err(fail)?;
        }
        self.sent.push_back((Seal(self.sealed.0 + 1), state, change));
        Ok(())
    }

    fn seal(&mut self) -> Seal {
        self.sealed.0 += 1;
        self.asked = 0;
        self.sealed
    }

    fn is_written(&mut self, seal: Seal) -> Result<bool, ColdError> {
        if self.written < seal {
            self.asked += 1;
            if self.asked > self.lag {
                self.write(seal);
            }
        }
        Ok(self.written >= seal)
    }

    fn wait_written(&mut self, seal: Seal) -> Result<(), ColdError> {
        self.write(seal);
        Ok(())
    }

    fn pending_bytes(&self) -> u64 {
        let rows = |change: &Change| change.upserts.as_ref().map_or(0, RecordBatch::get_array_memory_size);
        self.sent.iter().map(|(_, _, change)| rows(change) as u64).sum()
    }

    fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        self.states.iter_mut().for_each(|state| state.expired_at_barrier_ms = state.expired_until_ms);
        let snapshot = Arc::new(MemorySnapshot::new(self.uid.clone()));
        self.snapshot = Some(Arc::clone(&snapshot));
        snapshot
    }

    fn complete_snapshot(&mut self) {
        let seal = self.seal();
        self.write(seal);
        if let Some(snapshot) = self.snapshot.take() {
            self.drop_expired(|state| state.expired_at_barrier_ms);
            snapshot.settle(Taken::States(self.states.clone()));
            self.drop_expired(|state| state.expired_until_ms);
        }
    }

    fn abandon_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.settle(Taken::Abandoned);
            self.drop_expired(|state| state.expired_until_ms);
        }
    }

    fn expire(&mut self, state: ColdStateId, expiry: ColdExpiry) {
        let state = &mut self.states[state.0 as usize];
        if state.layout.schema().ttl.is_some() {
            state.expired_until_ms = state.expired_until_ms.max(Some(expiry.expired_until_ms));
            if self.snapshot.is_none() {
                state.drop_expired(state.expired_until_ms);
            }
        }
    }

    fn metrics(&self) -> ColdMetrics {
        let entries = self.states.iter().map(|state| state.entries.len() as u64).sum();
        ColdMetrics { entries, pending_bytes: self.pending_bytes(), ..self.metrics }
    }
}

impl Drop for MemoryColdStore {
    fn drop(&mut self) {
        self.abandon_snapshot();
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, new_null_array};
    use arrow::datatypes::DataType;

    use super::super::contract::{self, MAX_PARALLELISM, Pair};
    use super::*;

    fn store(lag: u32) -> Box<dyn ColdStore> {
        Box::new(MemoryColdStore::new(Uid::new("counts"), MAX_PARALLELISM, lag))
    }

    #[test]
    fn it_keeps_the_contract() {
        for seed in 0..8 {
            contract::check(store(seed as u32 % 3), seed).expect("memory has no errors");
        }
    }

    #[test]
    #[should_panic(expected = "which addresses are found")]
    fn the_contract_sees_a_lost_entry() {
        let mut pair = Pair::empty(store(0), 1).expect("no errors");
        for _ in 0..20 {
            pair.change().expect("no errors");
        }
        let seal = pair.store().seal();
        pair.store().wait_written(seal).expect("no errors");
        let everything = Scope { groups: KeyGroupRange::all(MAX_PARALLELISM), within: super::super::Within::Any };
        let value = ColdStateId(0);
        let rows = pair.store().scan(value, everything).expect("no errors").next().expect("entries").expect("no errors");
        let deletes = pair.store().layout(value).addresses(&rows).expect("the layout's columns");
        let deletes = Addresses { below: Vec::new(), ..deletes };
        pair.store().change(value, Change { deletes: Some(deletes), upserts: None }).expect("no errors");
        pair.work(1).expect("no errors");
    }

    #[test]
    fn what_is_sent_is_found_once_it_is_written() {
        let mut store = MemoryColdStore::new(Uid::new("counts"), MAX_PARALLELISM, 2);
        let seal = store.seal();
        let asked: Vec<bool> = (0..4).map(|_| store.is_written(seal).expect("no errors")).collect();
        assert_eq!(asked, [false, false, true, true]);
    }

    #[test]
    fn a_range_is_restored() {
        let mut store = MemoryColdStore::new(Uid::new("counts"), MAX_PARALLELISM, 0);
        let (name, schema) = contract::states().swap_remove(0);
        let state = store.open_state(name, &schema, 0).expect("no errors");
        let ids: ArrayRef = Arc::new((0..100).collect::<Int64Array>());
        let notes = new_null_array(&DataType::Utf8, 100);
        let columns = vec![Arc::clone(&ids), ids, notes];
        let rows = RecordBatch::try_new(Arc::clone(store.layout(state).columns()), columns).expect("the layout's columns");
        store.change(state, Change { deletes: None, upserts: Some(rows) }).expect("no errors");
        let snapshot = store.begin_snapshot();
        store.complete_snapshot();
        let half = KeyGroupRange { start: 0, end: 15 };
        let (from, to) = RowLayout::group_bounds(half);
        let restored = MemoryColdStore::new(Uid::new("counts"), MAX_PARALLELISM, 0).restored(vec![snapshot], half);
        let mut restored = restored;
        restored.open_state(name, &schema, 0).expect("no errors");
        let had = &store.states[0].entries;
        assert!(had.range(from..to).eq(restored.states[0].entries.iter()));
        assert!((1..100).contains(&restored.states[0].entries.len()), "the other half is not there");
    }
}
