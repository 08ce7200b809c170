//! What every cold store must do, run against the store in memory with the same calls: for tests of implementations.
//!
//! Panics where the store differs, naming the seed and the step.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{Stamps, StateSchema, StateShape};
use levada_common::types::{Column, LogicalType};

use super::memory::MemoryColdStore;
use super::{Addresses, Change, ColdError, ColdStateId, ColdStore, RowLayout, Scope, Window, Within};
use crate::row_codec::{INDEX_COLUMN, NAMESPACE_COLUMN, Namespaces, RowBytes, TTL_COLUMN};
use crate::snapshot::DatabaseSnapshot;

/// Number of key groups of the stores in the suite.
pub const MAX_PARALLELISM: u32 = 32;

/// What entries restored without a time get.
pub const TOUCHED_AT_MS: i64 = 77;

/// Distinct values of each part of an address.
const KEYS: u64 = 12;

/// Names and schemas of the suite's states: a value, a windowed one that expires, a map, a windowed list, rows.
pub fn states() -> Vec<(&'static str, Arc<StateSchema>)> {
    let column = |name: &str, ty| Column::new(name, ty, true);
    let state = |shape, keys: Vec<Column>| StateSchema { shape, keys, ..StateSchema::default() };
    let number = || column("id", LogicalType::Int64);
    let text = || column("name", LogicalType::String);
    let values = vec![column("value", LogicalType::Int64), column("note", LogicalType::String)];
    let value = StateSchema { values: values.clone(), ..state(StateShape::Value, vec![number()]) };
    let windows = StateSchema {
        windowed: true,
        ttl: Stamps::Event,
        values: values.clone(),
        ..state(StateShape::Reducing, vec![text(), number()])
    };
    let map =
        StateSchema { map_key: vec![column("page", LogicalType::String)], values, ..state(StateShape::Map, vec![number()]) };
    let list = StateSchema {
        windowed: true,
        values: vec![column("value", LogicalType::Int64)],
        ..state(StateShape::List, vec![text()])
    };
    let rows =
        StateSchema { values: vec![column("value", LogicalType::Int64)], ..state(StateShape::Rows, vec![number(), text()]) };
    let states = [("value", value), ("windows", windows), ("map", map), ("list", list), ("rows", rows)];
    states.map(|(name, schema)| (name, Arc::new(schema))).into()
}

/// Small numbers, the same for a seed.
#[derive(Debug, Clone)]
pub struct Numbers(u64);

impl Numbers {
    /// Of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next one, below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    fn many(&mut self, rows: usize, end: u64) -> Vec<i64> {
        (0..rows).map(|_| self.below(end) as i64).collect()
    }
}

/// The store under test beside the model.
#[derive(Debug)]
pub struct Pair {
    store: Box<dyn ColdStore>,
    model: MemoryColdStore,
    ids: Vec<(ColdStateId, ColdStateId)>,
    numbers: Numbers,
    seed: u64,
}

impl Pair {
    /// Two stores that have the same; `states` is opened in both.
    ///
    /// Errors: as the store has them.
    pub fn new(store: Box<dyn ColdStore>, model: MemoryColdStore, seed: u64) -> Result<Self, ColdError> {
        let mut pair = Self { store, model, ids: Vec::new(), numbers: Numbers::new(seed), seed };
        for (name, schema) in states() {
            pair.ids.push((
                pair.store.open_state(name, &schema, TOUCHED_AT_MS)?,
                pair.model.open_state(name, &schema, TOUCHED_AT_MS)?,
            ));
        }
        Ok(pair)
    }

    /// Two empty stores.
    ///
    /// Errors: as the store has them.
    pub fn empty(store: Box<dyn ColdStore>, seed: u64) -> Result<Self, ColdError> {
        Self::new(store, MemoryColdStore::new(Uid::new("model"), MAX_PARALLELISM, 0), seed)
    }

    /// The store under test.
    pub fn store(&mut self) -> &mut dyn ColdStore {
        self.store.as_mut()
    }

    /// Sends changes to both, waits, and compares all that can be read, `steps` times.
    ///
    /// Errors: as the store has them.
    pub fn work(&mut self, steps: usize) -> Result<(), ColdError> {
        for step in 0..steps {
            for _ in 0..=self.numbers.below(3) {
                self.change()?;
            }
            let (seal, of_model) = (self.store.seal(), self.model.seal());
            self.store.wait_written(seal)?;
            self.model.wait_written(of_model)?;
            assert!(self.store.is_written(seal)?, "seed {}, step {step}: a seal that was waited for is written", self.seed);
            self.compare(step)?;
        }
        Ok(())
    }

    /// Takes a snapshot of both, with changes before, between and after its calls.
    ///
    /// Errors: as the store has them.
    pub fn snapshot(&mut self) -> Result<[Arc<dyn DatabaseSnapshot>; 2], ColdError> {
        self.change()?;
        let taken = [self.store.begin_snapshot(), self.model.begin_snapshot()];
        self.change()?;
        self.store.complete_snapshot();
        self.model.complete_snapshot();
        self.change()?;
        Ok(taken)
    }

    /// Changes one state in both.
    ///
    /// Errors: as the store has them.
    pub fn change(&mut self) -> Result<(), ColdError> {
        let state = self.numbers.below(self.ids.len() as u64) as usize;
        let (id, of_model) = self.ids[state];
        let layout = self.store.layout(id).clone();
        let (gone, rows) = (self.numbers.below(6) as usize, self.numbers.below(20) as usize);
        let mut deletes = self.addresses(&layout, gone);
        if self.numbers.below(4) == 0 {
            deletes.below.clear();
        }
        let change = Change { deletes: Some(deletes), upserts: Some(self.entries(&layout, rows)) };
        self.store.change(id, change.clone())?;
        self.model.change(of_model, change)
    }

    fn entries(&mut self, layout: &RowLayout, rows: usize) -> RecordBatch {
        let columns = layout.columns().fields().iter().map(|field| self.column(field.name(), rows)).collect::<Vec<_>>();
        RecordBatch::try_new(Arc::clone(layout.columns()), columns).expect("the layout's columns")
    }

    fn addresses(&mut self, layout: &RowLayout, rows: usize) -> Addresses {
        let entries = self.entries(layout, rows);
        layout.addresses(&entries).expect("the layout's columns")
    }

    fn column(&mut self, name: &str, rows: usize) -> ArrayRef {
        let some = |number: i64| (number > 0).then_some(number);
        match name {
            NAMESPACE_COLUMN => {
                let window = |number: i64| some(number).map(|end| Window { end: end - 3, start: -end });
                let windows: Vec<_> = self.numbers.many(rows, 5).into_iter().map(window).collect();
                Namespaces::column(&windows)
            }
            INDEX_COLUMN => Arc::new(Int64Array::from(self.numbers.many(rows, 4))),
            TTL_COLUMN => Arc::new(TimestampMillisecondArray::from(self.numbers.many(rows, 100))),
            "key.id" | "value" => {
                let end = if name == "value" { 1 << 40 } else { KEYS };
                Arc::new(self.numbers.many(rows, end).into_iter().map(some).collect::<Int64Array>())
            }
            _ => {
                let texts = self.numbers.many(rows, KEYS).into_iter().map(|n| some(n).map(|n| "é".repeat(n as usize)));
                Arc::new(texts.collect::<StringArray>())
            }
        }
    }

    /// The namespaces of a state as a look at all its entries finds them.
    fn namespaces_of(&mut self, id: ColdStateId, groups: KeyGroupRange) -> Result<BTreeSet<Option<Window>>, ColdError> {
        let mut found = BTreeSet::new();
        for batch in self.store.scan(id, Scope { groups, within: Within::Any })? {
            let batch = batch?;
            match batch.column_by_name(NAMESPACE_COLUMN) {
                Some(column) => found.extend((0..batch.num_rows()).map(|row| Namespaces::of(column).get(row))),
                None => found.extend((batch.num_rows() > 0).then_some(None)),
            }
        }
        Ok(found)
    }

    fn compare(&mut self, step: usize) -> Result<(), ColdError> {
        let groups = KeyGroupRange { start: 3, end: self.numbers.below(25) as u16 + 5 };
        let window = Window { end: self.numbers.below(3) as i64 - 1, start: -2 };
        let ending = |after| Within::Ending { after, until: window.end };
        let exactly = [Within::Exactly(None), Within::Exactly(Some(window))];
        let within = [[Within::Any, ending(i64::MIN)], exactly, [ending(window.end - 1), ending(window.end)]].concat();
        for (state, (id, of_model)) in self.ids.clone().into_iter().enumerate() {
            let layout = self.store.layout(id).clone();
            let mut addresses = self.addresses(&layout, 30);
            if self.numbers.below(2) == 0 {
                addresses.below.clear();
            }
            let below_max = [usize::MAX, 2, 1][self.numbers.below(3) as usize];
            let found = self.store.load(id, &addresses, below_max)?;
            let expected = self.model.load(of_model, &addresses, below_max)?;
            let place = format!("seed {}, step {step}, state {state}", self.seed);
            assert_eq!(found.cut, expected.cut, "{place}: of which addresses there is more than {below_max}");
            assert_eq!(found.positions, expected.positions, "{place}: which addresses are found");
            assert_eq!(found.rows, expected.rows, "{place}: what is found");
            if layout.has_below() && addresses.below.is_empty() {
                let (found, expected) = (self.store.load_last(id, &addresses)?, self.model.load_last(of_model, &addresses)?);
                assert_eq!(
                    (found.positions, found.rows),
                    (expected.positions, expected.rows),
                    "{place}: the last below addresses"
                );
            }
            let (found, expected) = (self.store.namespaces(id, groups)?, self.model.namespaces(of_model, groups)?);
            assert_eq!(found, expected, "{place}: the namespaces");
            assert_eq!(found, self.namespaces_of(id, groups)?, "{place}: the namespaces of all entries");
            for within in &within {
                let scope = Scope { groups, within: *within };
                let found = self.store.scan(id, scope)?.collect::<Result<Vec<_>, _>>()?;
                let expected = self.model.scan(of_model, scope)?.collect::<Result<Vec<_>, _>>()?;
                assert_eq!(bytes(&layout, &found), bytes(&layout, &expected), "{place}: {scope:?}");
                if let Within::Ending { after, until } = within {
                    let all = self.store.scan(id, Scope { groups, within: Within::Any })?.collect::<Result<Vec<_>, _>>()?;
                    let expected: Vec<i64> = ends(&all).into_iter().filter(|end| after < end && end <= until).collect();
                    assert_eq!(ends(&found), expected, "{place}: the ends of {scope:?}");
                }
            }
        }
        Ok(())
    }
}

/// The ends of entries' windows, where they have any.
fn ends(batches: &[RecordBatch]) -> Vec<i64> {
    let column = |batch: &RecordBatch| batch.column_by_name(NAMESPACE_COLUMN).cloned().map(|column| (column, batch.num_rows()));
    let of = |(column, rows): (ArrayRef, usize)| (0..rows).filter_map(|row| Namespaces::of(&column).get(row)).collect::<Vec<_>>();
    batches.iter().filter_map(column).flat_map(of).map(|window| window.end).collect()
}

/// Compares all entries of two snapshots, as far as they belong to `groups`; the states are the suite's.
///
/// Errors: as the snapshots have them.
pub fn compare_snapshots(taken: &[Arc<dyn DatabaseSnapshot>; 2]) -> Result<(), ColdError> {
    for (name, schema) in states() {
        let layout = RowLayout::new(schema, MAX_PARALLELISM);
        let [found, expected] = taken.each_ref().map(|snapshot| all_rows(snapshot.as_ref(), name));
        assert_eq!(bytes(&layout, &found?), bytes(&layout, &expected?), "state \"{name}\" in the snapshot");
    }
    Ok(())
}

/// All entries of a state in a snapshot.
///
/// Errors: as the snapshot has them.
pub fn all_rows(snapshot: &dyn DatabaseSnapshot, state: &str) -> Result<Vec<RecordBatch>, ColdError> {
    let mut rows = Vec::new();
    snapshot.rows(state, &mut |batch| {
        rows.push(batch);
        std::ops::ControlFlow::Continue(())
    })?;
    Ok(rows)
}

/// Keys and values, one behind the other.
fn bytes(layout: &RowLayout, batches: &[RecordBatch]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
    for batch in batches {
        layout.write(batch, &mut keys, &mut values).expect("the layout's columns");
    }
    keys.iter().zip(values.iter()).map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// The suite: work, a snapshot amid changes, work again.
///
/// Errors: as the store has them.
pub fn check(store: Box<dyn ColdStore>, seed: u64) -> Result<(), ColdError> {
    let mut pair = Pair::empty(store, seed)?;
    pair.work(6)?;
    let first = pair.snapshot()?;
    pair.work(3)?;
    compare_snapshots(&first)?;
    let given_up = pair.store.begin_snapshot();
    pair.change()?;
    pair.store.abandon_snapshot();
    assert!(matches!(given_up.files(), Err(ColdError::Abandoned { .. })), "a snapshot that was given up says so");
    let second = pair.snapshot()?;
    pair.work(3)?;
    compare_snapshots(&second)?;
    compare_snapshots(&first)?;
    let last = pair.store.begin_snapshot();
    drop(pair);
    assert!(last.files().is_err(), "a snapshot that its task did not complete does not wait for ever");
    Ok(())
}
