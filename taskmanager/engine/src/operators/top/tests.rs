//! Top-N and deduplication against sorted lists: what the changes add up to after every batch, across restores, and what lives how long.

mod clock;
mod floats;
mod local;
mod stored;
mod stored_windows;
mod windows;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{Int8Type, Int64Type};
use levada_common::ids::Uid;
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{BadRecordPolicy, OperatorKind, OrderSpec};
use levada_common::types::{Column, LogicalType, RowKind, StreamSchema};
use levada_state::cold::ColdStores;
use levada_state::format::{SizeLimit, decode, encode};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::metrics::NodeMetrics;

const MAX_PARALLELISM: u32 = 16;

/// Key, what is ordered by (a number and a text), number of arrival.
type Row = (i64, Option<i64>, String, i64);

fn input() -> StreamSchema {
    let column = |name, ty, nullable| Column::new(name, ty, nullable);
    StreamSchema::append(vec![
        column("k", LogicalType::Int64, false),
        column("n", LogicalType::Int64, true),
        column("s", LogicalType::String, false),
        column("id", LogicalType::Int64, false),
    ])
}

fn spec(top: &TopSpec) -> OperatorSpec {
    let place = top.place.as_ref().map(|place| Column::new(place, LogicalType::Int64, false));
    let columns = input().columns.into_iter().chain(place).collect();
    OperatorSpec {
        uid: Uid::new("best"),
        clause: "order_by".into(),
        kind: OperatorKind::Top(top.clone()),
        input: input(),
        output: StreamSchema { changelog: !top.is_append(), ..StreamSchema::append(columns) },
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    }
}

fn by(column: &str, ty: LogicalType, descending: bool) -> OrderSpec {
    OrderSpec { column: column.into(), ty, nullable: column == "n", descending }
}

fn top(rng: &mut StdRng) -> TopSpec {
    let mut order = vec![by("n", LogicalType::Int64, rng.random()), by("s", LogicalType::String, rng.random())];
    order.truncate(rng.random_range(0..3));
    TopSpec {
        keys: vec!["k".into()],
        order,
        newest_wins: rng.random(),
        limit: rng.random_range(1..5),
        place: rng.random_bool(0.4).then(|| "place".into()),
        changelog_full: rng.random(),
        ttl_ms: None,
        window: None,
        with_ties: false,
        local: false,
    }
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.1))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| &row.2))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.3))),
    ];
    RecordBatch::try_new(input().to_arrow(), columns).expect("columns match the schema")
}

/// The best rows of each key among these, as (key, place, id); without places all are at 0.
fn expected(top: &TopSpec, rows: &[Row]) -> Vec<(i64, i64, i64)> {
    let mut keys: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| keys.entry(row.0).or_default().push(row));
    let flip = |is: bool, ordering: std::cmp::Ordering| if is { ordering.reverse() } else { ordering };
    let mut best = Vec::new();
    for (key, mut rows) in keys {
        rows.sort_by(|one, other| {
            let order = top.order.iter().map(|by| match by.column.as_str() {
                "n" => flip(by.descending, one.1.cmp(&other.1)),
                _ => flip(by.descending, one.2.cmp(&other.2)),
            });
            let arrival = flip(top.newest_wins, one.3.cmp(&other.3));
            order.chain([arrival]).find(|ordering| ordering.is_ne()).unwrap_or(arrival)
        });
        let places = rows.iter().take(top.limit as usize).enumerate();
        best.extend(places.map(|(at, row)| (key, if top.place.is_some() { at as i64 + 1 } else { 0 }, row.3)));
    }
    best.sort_unstable();
    best
}

struct Rig {
    top: TopSpec,
    operator: Box<dyn Operator>,
    metrics: Arc<NodeMetrics>,
    /// What the changes add up to: by key and place, or by row, the id.
    now: BTreeMap<(i64, i64, i64), i64>,
}

impl Rig {
    fn new(top: &TopSpec, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Self {
        Self::before(top, restored, key_groups, None)
    }

    /// In front of a store, or none.
    fn before(top: &TopSpec, restored: Vec<RestoredState>, key_groups: KeyGroupRange, cold: Option<Arc<dyn ColdStores>>) -> Self {
        let mut operator = build(&spec(top), top).expect("the plan is good");
        let context =
            OperatorContext { key_groups, max_parallelism: MAX_PARALLELISM, cold, ..crate::testing::context("best", 7) };
        operator.open(&context, restored).expect("it opens");
        Self { top: top.clone(), operator, metrics: context.metrics, now: BTreeMap::new() }
    }

    fn process(&mut self, rows: &[Row]) {
        let mut asked = 0;
        while !self.operator.is_ready().expect("the store has no errors") {
            self.operator.background().expect("the store has no errors");
            asked += 1;
            assert!(asked < 1_000, "there is no room, and nothing makes any");
        }
        self.operator.process(0, batch(rows)).expect("rows are taken in");
        while let Some(batch) = self.operator.poll().expect("output is polled") {
            assert!((1..=7).contains(&batch.num_rows()));
            self.add_up(&batch);
        }
    }

    /// Applies changes as a reader does: where rows have a key of their own an update replaces what stands under it.
    fn add_up(&mut self, batch: &RecordBatch) {
        let first = usize::from(!self.top.is_append());
        let column = |at: usize| batch.column(first + at).as_primitive::<Int64Type>();
        let is_unique = self.top.place.is_some() || (self.top.limit == 1 && !self.top.is_append());
        for row in 0..batch.num_rows() {
            let op = if first == 1 { batch.column(0).as_primitive::<Int8Type>().value(row) } else { 0 };
            let (key, id) = (column(0).value(row), column(3).value(row));
            let place = if self.top.place.is_some() { column(4).value(row) } else { 0 };
            let slot = if is_unique { (key, place, 0) } else { (key, place, id) };
            let what = format!("{:?}: op {op} of row {id} of key {key} at {place}", self.top);
            if op == RowKind::Insert as i8 {
                assert_eq!(self.now.insert(slot, id), None, "{what}");
            } else if op == RowKind::UpdateAfter as i8 {
                let before = self.now.insert(slot, id);
                assert_eq!(before.is_some(), !self.top.changelog_full, "{what}");
            } else {
                assert_eq!(self.now.remove(&slot), Some(id), "{what}");
            }
        }
    }

    fn rows(&self) -> Vec<(i64, i64, i64)> {
        let mut rows: Vec<_> = self.now.iter().map(|((key, place, _), id)| (*key, *place, *id)).collect();
        rows.sort_unstable();
        rows
    }

    fn snapshot(&mut self, more: impl FnOnce(&mut Self)) -> Vec<RestoredState> {
        let parts = self.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
        more(self);
        stored(self.operator.as_mut(), parts)
    }
}

/// A snapshot, sent through the format as an upload and a restore do.
fn stored(operator: &mut dyn Operator, parts: Vec<StatePart>) -> Vec<RestoredState> {
    while operator.background().expect("pieces are sent") {}
    let stored = |part: StatePart| {
        let mut bytes = Vec::new();
        let (meta, pieces) = part.into_pieces().expect("pieces");
        encode(&meta, MAX_PARALLELISM, pieces, SizeLimit { bytes_max: None }, &mut bytes).expect("it is encoded");
        let state = decode(bytes.into()).expect("it is decoded");
        RestoredState { name: state.meta.name, kind: state.meta.kind, batches: state.batches }
    };
    parts.into_iter().map(stored).collect()
}

fn some_rows(rng: &mut StdRng, next: &mut i64) -> Vec<Row> {
    rows_of_keys(rng, next, 4)
}

fn rows_of_keys(rng: &mut StdRng, next: &mut i64, keys: i64) -> Vec<Row> {
    let row = |rng: &mut StdRng, next: &mut i64| {
        *next += 1;
        let number = rng.random_bool(0.9).then(|| rng.random_range(0..6));
        (rng.random_range(0..keys), number, ["", "a", "b", "a longer text"][rng.random_range(0..4)].to_string(), *next)
    };
    (0..rng.random_range(1..20)).map(|_| row(rng, next)).collect()
}

/// The key group of a key.
fn group_of(key: i64) -> u16 {
    let mut groups = Vec::new();
    key_groups(&[Arc::new(Int64Array::from(vec![key])) as ArrayRef], MAX_PARALLELISM, &mut groups);
    groups[0]
}

fn everything() -> KeyGroupRange {
    KeyGroupRange::all(MAX_PARALLELISM)
}

#[test]
fn changes_add_up_to_the_best_rows_after_every_batch() {
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = top(&mut rng);
        let (mut rig, mut all, mut next) = (Rig::new(&top, Vec::new(), everything()), Vec::new(), 0);
        for _ in 0..10 {
            let rows = some_rows(&mut rng, &mut next);
            rig.process(&rows);
            all.extend(rows);
            assert_eq!(rig.rows(), expected(&top, &all), "seed {seed}: {top:?}");
        }
    }
}

#[test]
fn a_restored_top_n_goes_on_as_if_nothing_had_been() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = top(&mut rng);
        let (mut rig, mut all, mut next) = (Rig::new(&top, Vec::new(), everything()), Vec::new(), 0);
        for _ in 0..5 {
            let rows = some_rows(&mut rng, &mut next);
            rig.process(&rows);
            all.extend(rows);
        }
        let before = rig.now.clone();
        let restored = rig.snapshot(|rig| rig.process(&some_rows(&mut rng, &mut next.clone())));
        let parallelism = rng.random_range(1..4);
        let later: Vec<Vec<Row>> = (0..5).map(|_| some_rows(&mut rng, &mut next)).collect();
        let mut rows = Vec::new();
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::new(&top, restored.clone(), range);
            part.now =
                before.iter().filter(|(slot, _)| range.contains(group_of(slot.0))).map(|(slot, id)| (*slot, *id)).collect();
            for rows in &later {
                let mine: Vec<Row> = rows.iter().filter(|row| range.contains(group_of(row.0))).cloned().collect();
                if !mine.is_empty() {
                    part.process(&mine);
                }
            }
            rows.extend(part.rows());
        }
        all.extend(later.into_iter().flatten());
        rows.sort_unstable();
        assert_eq!(rows, expected(&top, &all), "seed {seed}: {top:?}, parallelism {parallelism}");
    }
}

/// Case G46.
#[test]
fn a_time_to_live_is_switched_on_and_off_across_restores() {
    let of_ttl = |ttl_ms| TopSpec {
        keys: vec!["k".into()],
        order: Vec::new(),
        newest_wins: false,
        limit: 1,
        place: None,
        changelog_full: false,
        ttl_ms,
        window: None,
        with_ties: false,
        local: false,
    };
    let row = |id| (1, None, String::new(), id);
    let mut without = Rig::new(&of_ttl(None), Vec::new(), everything());
    without.process(&[row(1)]);
    let mut with = Rig::new(&of_ttl(Some(1_600)), without.snapshot(|_| {}), everything());
    with.operator.tick(1_000_000).unwrap();
    with.process(&[row(2)]);
    with.operator.tick(1_001_500).unwrap();
    with.process(&[row(3)]);
    assert!(with.rows().is_empty(), "the row that was restored stands for its time");
    let mut again = Rig::new(&of_ttl(None), with.snapshot(|_| {}), everything());
    again.process(&[row(4)]);
    assert!(again.rows().is_empty(), "it stands for good");
    with.operator.tick(1_001_700).unwrap();
    with.process(&[row(5)]);
    assert_eq!(with.rows(), [(1, 0, 5)]);
}

#[test]
fn a_key_comes_again_when_its_time_to_live_is_over() {
    let top = TopSpec {
        keys: vec!["k".into()],
        order: Vec::new(),
        newest_wins: false,
        limit: 1,
        place: None,
        changelog_full: false,
        ttl_ms: Some(1_600),
        window: None,
        with_ties: false,
        local: false,
    };
    let mut rig = Rig::new(&top, Vec::new(), everything());
    let row = |id| (1, None, String::new(), id);
    rig.operator.tick(0).unwrap();
    rig.process(&[row(1), row(2)]);
    rig.operator.tick(1_500).unwrap();
    rig.process(&[row(3)]);
    assert_eq!(rig.rows(), [(1, 0, 1)]);
    rig.operator.tick(1_700).unwrap();
    rig.process(&[row(4), row(5)]);
    assert_eq!(rig.rows(), [(1, 0, 1), (1, 0, 4)]);
}
