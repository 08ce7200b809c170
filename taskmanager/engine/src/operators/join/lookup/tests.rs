//! Lookups against a map, whatever comes of the table and when, across snapshots that every instance takes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, AsArray, Int8Array, Int64Array};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::{BadRecordPolicy, JoinColumn, JoinKind, JoinScope, JoinSpec, OperatorKind, OperatorSpec};
use levada_common::types::{Column, LogicalType, RowKind, StreamSchema};
use levada_state::format::{SizeLimit, decode, encode};
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::StatePart;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext, RestoredState};

const BATCH_ROWS_MAX: usize = 7;

/// What the table's input is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// Rows, looked up by `u`.
    Rows,
    /// A changelog by `u`, looked up by it, and whether it has the rows that updates replace.
    Changes { full: bool },
    /// A changelog by `u`, looked up by `u` and `k`, which changes.
    Moves,
}

#[derive(Debug, Clone, Copy)]
struct Case {
    kind: JoinKind,
    table: Kind,
}

/// `u`, `k`, `v` of a row of the table; `u`, `k`, number of a left one.
type Row = (Option<i64>, i64, i64);

/// Of a left row: its number, and `k` and `v` of what it met.
type Out = (i64, Option<i64>, Option<i64>);

fn ints(rows: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(rows.collect::<Int64Array>())
}

impl Case {
    fn is_changelog(&self) -> bool {
        self.table != Kind::Rows
    }

    fn spec(&self) -> OperatorSpec {
        let column = |name: &str| Column::new(name, LogicalType::Int64, name == "u");
        let right = StreamSchema { changelog: self.is_changelog(), ..StreamSchema::append(["v", "u", "k"].map(column).to_vec()) };
        let keys: Vec<String> = if self.table == Kind::Moves { vec!["u".into(), "k".into()] } else { vec!["u".into()] };
        let mut columns = vec![(Column::new("id", LogicalType::Int64, false), JoinColumn::Left("id".into()))];
        if self.kind.gives_pairs() {
            let taken =
                |name: &str| (Column::new(format!("right_{name}"), LogicalType::Int64, true), JoinColumn::Right(name.into()));
            columns.extend([taken("k"), taken("v")]);
        }
        let (output, columns) = columns.into_iter().unzip();
        let scope = JoinScope::Lookup { whole: false, moves: self.table == Kind::Moves };
        let join = JoinSpec { kind: self.kind, left_keys: keys.clone(), right_keys: keys, scope, right, columns };
        OperatorSpec {
            uid: Uid::new("rates"),
            clause: "join".into(),
            kind: OperatorKind::Join(Box::new(join)),
            input: StreamSchema::append(["u", "k", "id"].map(column).to_vec()),
            output: StreamSchema::append(output),
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        }
    }

    fn table_batch(&self, rows: &[(RowKind, Row)]) -> RecordBatch {
        let OperatorKind::Join(join) = self.spec().kind else { panic!("it is a join") };
        let ops: ArrayRef = Arc::new(Int8Array::from_iter_values(rows.iter().map(|(op, _)| *op as i8)));
        let of = |value: fn(&Row) -> Option<i64>| ints(rows.iter().map(move |(_, row)| value(row)));
        let columns = [of(|row| Some(row.2)), of(|row| row.0), of(|row| Some(row.1))];
        let columns = self.is_changelog().then_some(ops).into_iter().chain(columns).collect();
        RecordBatch::try_new(join.right.to_arrow(), columns).expect("columns match the schema")
    }

    /// The next change of the table at random, by the rows that it has; `model` then has it too.
    fn change(&self, rng: &mut StdRng, model: &mut BTreeMap<i64, (i64, i64)>, rows: &mut Vec<(RowKind, Row)>) {
        let (u, k, v) = (rng.random_range(0..12), rng.random_range(0..3), rng.random_range(0..1_000));
        if self.table == Kind::Rows {
            let u = (!rng.random_bool(0.1)).then_some(u);
            rows.push((RowKind::Insert, (u, k, v)));
            model.extend(u.map(|u| (u, (k, v))));
            return;
        }
        let is_full = !matches!(self.table, Kind::Changes { full: false });
        match model.remove(&u) {
            Some((old_k, old_v)) if rng.random_bool(0.4) => rows.push((RowKind::Delete, (Some(u), old_k, old_v))),
            old => {
                if let Some((k, v)) = old.filter(|_| is_full) {
                    rows.push((RowKind::UpdateBefore, (Some(u), k, v)));
                }
                let op = if old.is_some() { RowKind::UpdateAfter } else { RowKind::Insert };
                rows.push((op, (Some(u), k, v)));
                model.insert(u, (k, v));
            }
        }
    }

    fn expected(&self, model: &BTreeMap<i64, (i64, i64)>, left: &[Row]) -> Vec<Out> {
        let meets = |row: &Row| {
            let found = model.get(&row.0?)?;
            (self.table != Kind::Moves || found.0 == row.1).then_some(*found)
        };
        let out = left.iter().filter_map(|row| match (self.kind, meets(row)) {
            (JoinKind::Inner, found) => found.map(|(k, v)| (row.2, Some(k), Some(v))),
            (JoinKind::Left, found) => Some((row.2, found.map(|found| found.0), found.map(|found| found.1))),
            (JoinKind::Semi, found) => found.map(|_| (row.2, None, None)),
            (_, found) => found.is_none().then_some((row.2, None, None)),
        });
        out.collect()
    }
}

struct Rig {
    case: Case,
    operator: Box<dyn Operator>,
    metrics: Arc<NodeMetrics>,
}

impl Rig {
    fn try_open(case: Case, restored: Vec<RestoredState>, budget: HeapBudget) -> Result<Self, EngineError> {
        let spec = case.spec();
        let OperatorKind::Join(join) = &spec.kind else { panic!("it is a join") };
        let mut operator = super::super::build(&spec, join)?;
        let metrics = Arc::new(NodeMetrics::new(spec.uid.clone()));
        let context = OperatorContext {
            metrics: Arc::clone(&metrics),
            heap_budget: Arc::new(budget),
            ..crate::testing::context("rates", BATCH_ROWS_MAX)
        };
        operator.open(&context, restored)?;
        Ok(Self { case, operator, metrics })
    }

    fn open(case: Case, restored: Vec<RestoredState>) -> Self {
        Self::try_open(case, restored, HeapBudget::unlimited()).expect("it opens")
    }

    fn table(&mut self, rows: &[(RowKind, Row)]) -> Result<(), EngineError> {
        self.operator.process(1, self.case.table_batch(rows))?;
        assert!(self.operator.poll().expect("it is polled").is_none(), "the table gives nothing by itself");
        self.operator.background().map(drop)
    }

    fn look_up(&mut self, rows: &[Row]) -> Vec<Out> {
        let columns = vec![
            ints(rows.iter().map(|row| row.0)),
            ints(rows.iter().map(|row| Some(row.1))),
            ints(rows.iter().map(|row| Some(row.2))),
        ];
        let batch = RecordBatch::try_new(self.case.spec().input.to_arrow(), columns).expect("columns match the schema");
        self.operator.process(0, batch).expect("rows are taken in");
        let mut out = Vec::new();
        while let Some(batch) = self.operator.poll().expect("it is polled") {
            assert!((1..=BATCH_ROWS_MAX).contains(&batch.num_rows()));
            let cell = |column: usize, row| {
                let column = batch.columns().get(column)?.as_primitive::<Int64Type>();
                column.iter().nth(row).flatten()
            };
            out.extend((0..batch.num_rows()).map(|row| (cell(0, row).expect("a number"), cell(1, row), cell(2, row))));
        }
        out
    }

    fn snapshot(&mut self) -> Vec<StatePart> {
        self.operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken")
    }

    /// The parts as an upload and a restore hand them on.
    fn stored(&mut self, parts: Vec<StatePart>) -> Vec<RestoredState> {
        while self.operator.background().expect("a snapshot goes on") {}
        let stored = |part: StatePart| {
            let mut bytes = Vec::new();
            let (meta, pieces) = part.into_pieces().expect("pieces");
            encode(&meta, 16, pieces, SizeLimit { bytes_max: None }, &mut bytes).expect("it is encoded");
            let state = decode(bytes.into()).expect("it is decoded");
            RestoredState { name: state.meta.name, kind: state.meta.kind, batches: state.batches }
        };
        parts.into_iter().map(stored).collect()
    }
}

fn left_rows(rng: &mut StdRng) -> Vec<Row> {
    let row = |id: i64, rng: &mut StdRng| {
        let u = (!rng.random_bool(0.1)).then(|| rng.random_range(0..14));
        (u, rng.random_range(0..3), id)
    };
    (0..rng.random_range(1..30)).map(|id| row(id, rng)).collect()
}

const KINDS: [JoinKind; 4] = [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti];

const TABLES: [Kind; 4] = [Kind::Rows, Kind::Changes { full: true }, Kind::Changes { full: false }, Kind::Moves];

#[test]
fn a_row_meets_what_the_table_has_then_across_restores_of_any_width() {
    let mut found = 0;
    for (seed, (kind, table)) in (0..400).zip(KINDS.into_iter().flat_map(|kind| TABLES.map(|table| (kind, table))).cycle()) {
        let (mut rng, case) = (StdRng::seed_from_u64(seed), Case { kind, table });
        // Instances of the join: all take in the whole table, and each any part of the rows.
        let mut rigs = vec![Rig::open(case, Vec::new())];
        let mut model = BTreeMap::new();
        for _ in 0..40 {
            let mut rows = Vec::new();
            (0..rng.random_range(1..20)).for_each(|_| case.change(&mut rng, &mut model, &mut rows));
            rigs.iter_mut().for_each(|rig| rig.table(&rows).expect("rows are taken in"));
            for rig in &mut rigs {
                let left = left_rows(&mut rng);
                let out = rig.look_up(&left);
                assert_eq!(out, case.expected(&model, &left), "seed {seed}: {case:?}");
                assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), model.len() as u64, "seed {seed}: {case:?}");
                found += out.len();
            }
            if rng.random_bool(0.2) {
                let (then, parts) = (model.clone(), rigs[0].snapshot());
                // What comes after the barrier is not in it.
                let mut later = Vec::new();
                (0..20).for_each(|_| case.change(&mut rng, &mut model, &mut later));
                rigs[0].table(&later).expect("rows are taken in");
                let restored = rigs[0].stored(parts);
                model = then;
                let width = rng.random_range(1..4);
                rigs = (0..width).map(|_| Rig::open(case, restored.clone())).collect();
            }
        }
    }
    assert!(found > 10_000, "the run is empty: {found} rows");
}

#[test]
fn a_large_table_that_changes_gives_its_memory_back_and_is_saved_as_it_was() {
    let case = Case { kind: JoinKind::Left, table: Kind::Rows };
    let mut rig = Rig::open(case, Vec::new());
    let mut peak = 0;
    for round in 0..6 {
        for start in (0..40_000).step_by(500) {
            let rows: Vec<_> = (start..start + 500).map(|u| (RowKind::Insert, (Some(u), round, u + round))).collect();
            rig.table(&rows).unwrap();
        }
        let bytes = rig.metrics.state_bytes.load(Ordering::Relaxed);
        if round == 1 {
            peak = bytes;
        }
        assert!(round < 2 || bytes <= peak * 3 / 2, "round {round}: {bytes} bytes, {peak} in the second");
    }
    let parts = rig.snapshot();
    rig.table(&[(RowKind::Insert, (Some(7), 0, -1))]).unwrap();
    let restored = rig.stored(parts);
    assert_eq!(restored[0].batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 40_000);
    let mut other = Rig::open(case, restored);
    assert_eq!(other.look_up(&[(Some(7), 0, 1), (Some(40_000), 0, 2)]), [(1, Some(5), Some(12)), (2, None, None)]);
    assert_eq!(other.metrics.lookup_misses.load(Ordering::Relaxed), 1);
    assert_eq!(rig.look_up(&[(Some(7), 0, 1)]), [(1, Some(0), Some(-1))]);
}

#[test]
fn another_table_and_too_large_a_one_are_refused() {
    let case = Case { kind: JoinKind::Inner, table: Kind::Rows };
    let mut rig = Rig::open(case, Vec::new());
    rig.table(&[(RowKind::Insert, (Some(1), 2, 3))]).unwrap();
    let parts = rig.snapshot();
    let mut restored = rig.stored(parts);
    restored[0].name = "left".into();
    let error = Rig::try_open(case, restored, HeapBudget::unlimited()).err().expect("it is refused");
    assert_eq!(
        error.to_string(),
        "node \"rates\": state \"left\" cannot be restored: the rows of this operator are in \"table\""
    );

    let mut rig = Rig::try_open(case, Vec::new(), HeapBudget::new(1 << 20)).expect("it opens");
    let rows: Vec<_> = (0..200_000).map(|u| (RowKind::Insert, (Some(u), 0, 0))).collect();
    let text = rig.table(&rows).expect_err("it is too much").to_string();
    let remedy = "give the table fewer rows or columns, leave `lookup` out to spread it by its key, or raise \
                  taskmanager.memory.total; every instance has all of it in memory";
    assert!(text.contains("state \"table\" holds") && text.contains(remedy), "{text}");
    assert!(!text.contains("raise the parallelism"), "it would be in every further instance too: {text}");
}
