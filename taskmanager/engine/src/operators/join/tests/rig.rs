//! A join with what a test needs to drive it: rows in as tuples, out as text; and the nested loops that it is held against.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray, TimestampMillisecondArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{
    BadRecordPolicy, JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec, OperatorKind, OperatorSpec, SideOutput, WindowTime,
};
use levada_common::time::Watermark;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::cold::ColdStores;
use levada_state::format::{SizeLimit, decode, encode};
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::StatePart;
use proptest::prelude::*;

use super::super::build;
use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext, RestoredState};

pub(super) const MAX_PARALLELISM: u32 = 16;

/// Few, so that cursors stop often.
const BATCH_ROWS_MAX: usize = 7;

/// A row of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    pub(super) key: Option<i64>,
    pub(super) time: i64,
    pub(super) id: i64,
}

/// What happens to a join.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Rows(JoinSide, Vec<Row>),
    Advance(i64),
}

/// Rows of both sides and the passing of time, in any order; ids are the rows' numbers.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![1 => Just(None), 9 => (0i64..5).prop_map(Some)];
    let rows = prop::collection::vec((key, -4_000i64..4_000), 1..40);
    let step = prop_oneof![
        3 => (any::<bool>(), rows).prop_map(|(is_left, rows)| {
            let rows = rows.into_iter().map(|(key, time)| Row { key, time, id: 0 }).collect();
            Step::Rows(if is_left { JoinSide::Left } else { JoinSide::Right }, rows)
        }),
        1 => (-5_000i64..3_000).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..25).prop_map(|mut steps| {
        let rows = steps.iter_mut().filter_map(|step| match step {
            Step::Rows(_, rows) => Some(rows),
            Step::Advance(_) => None,
        });
        rows.flatten().enumerate().for_each(|(id, row)| row.id = id as i64);
        steps
    })
}

pub(super) fn kinds() -> impl Strategy<Value = JoinKind> {
    prop::sample::select(JoinKind::ALL.to_vec())
}

/// `k` and, for keys of two columns, `s`; `t`, the event time; `id`; in windows of the input its bounds.
fn input_schema(scope: &JoinScope) -> StreamSchema {
    let mut columns = vec![
        Column::new("k", LogicalType::Int64, true),
        Column::new("s", LogicalType::String, true),
        Column::new("t", LogicalType::Timestamp, false),
        Column::new("id", LogicalType::Int64, false),
    ];
    if *scope == JoinScope::Same {
        columns.extend(["window_start", "window_end"].map(|name| Column::new(name, LogicalType::Timestamp, false)));
    }
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns) }
}

/// Windows of this length, of event time.
pub(super) fn tumbling(size_ms: i64) -> JoinScope {
    JoinScope::Tumbling { size_ms, offset_ms: 0, time: WindowTime::default() }
}

/// The window of a time in tests with windows of the input.
pub(super) const SAME_MS: i64 = 700;

fn batch(scope: &JoinScope, rows: &[Row]) -> RecordBatch {
    let times = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| of(row.time))))
    };
    let texts = rows.iter().map(|row| row.key.map(|key| format!("the key {key} as a text of some length")));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter(rows.iter().map(|row| row.key))),
        Arc::new(StringArray::from_iter(texts)),
        times(&|time| time),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.id))),
    ];
    if *scope == JoinScope::Same {
        let start = |time: i64| time.div_euclid(SAME_MS) * SAME_MS;
        columns.extend([times(&start), times(&|time| start(time) + SAME_MS)]);
    }
    RecordBatch::try_new(input_schema(scope).to_arrow(), columns).expect("columns match the schema")
}

/// A join on `k`, or on `k` and `s`. It gives the left id and time, the right ones, and the key of whichever row there is.
pub(super) fn spec(kind: JoinKind, scope: JoinScope, composite: bool) -> OperatorSpec {
    let input = input_schema(&scope);
    let keys: Vec<String> = if composite { vec!["k".into(), "s".into()] } else { vec!["k".into()] };
    let int = |name: &str| Column::new(name, LogicalType::Int64, true);
    let time = |name: &str| Column::new(name, LogicalType::Timestamp, true);
    let key = if kind.keeps_right() { JoinColumn::Key(0) } else { JoinColumn::Left("k".into()) };
    let mut output = vec![(int("id"), JoinColumn::Left("id".into())), (time("t"), JoinColumn::Left("t".into())), (int("k"), key)];
    if kind.gives_pairs() {
        output.extend([(int("right_id"), JoinColumn::Right("id".into())), (time("right_t"), JoinColumn::Right("t".into()))]);
    }
    if !matches!(scope, JoinScope::Within { .. }) {
        let window = [("start", JoinColumn::WindowStart), ("end", JoinColumn::WindowEnd), ("time", JoinColumn::WindowTime)];
        output.extend(window.map(|(name, origin)| (Column::new(name, LogicalType::Timestamp, false), origin)));
    }
    let (columns, origins) = output.into_iter().unzip();
    let join = JoinSpec { kind, left_keys: keys.clone(), right_keys: keys, scope, right: input.clone(), columns: origins };
    let late = ["t", "id"].map(|name| input.column(name).expect("it is one").clone());
    let late = |side: JoinSide| SideOutput { name: side.late_output().into(), schema: StreamSchema::append(late.clone().into()) };
    let sides = JoinSide::ALL.map(late).into();
    OperatorSpec {
        uid: Uid::new("pairs"),
        clause: "join".into(),
        kind: OperatorKind::Join(Box::new(join)),
        input,
        output: StreamSchema::append(columns),
        sides,
        bad_records: BadRecordPolicy::Fail,
    }
}

fn join(spec: &OperatorSpec) -> &JoinSpec {
    let OperatorKind::Join(join) = &spec.kind else { panic!("it is a join") };
    join
}

/// A join, and what it has given so far.
pub(super) struct Rig {
    spec: OperatorSpec,
    operator: Box<dyn Operator>,
    pub(super) metrics: Arc<NodeMetrics>,
    out: Vec<RecordBatch>,
    /// Ids of late rows, by side.
    late: [Vec<i64>; 2],
    watermark: i64,
    /// The watermark that went on last.
    passed_on: i64,
    /// Most bytes that were held when output was polled.
    pub(super) peak_bytes: u64,
}

impl Rig {
    pub(super) fn new(spec: &OperatorSpec) -> Self {
        Self::restored(spec, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM))
    }

    pub(super) fn restored(spec: &OperatorSpec, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Self {
        Self::try_open(spec, restored, key_groups, HeapBudget::unlimited()).expect("it opens")
    }

    pub(super) fn try_open(
        spec: &OperatorSpec,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
        budget: HeapBudget,
    ) -> Result<Self, EngineError> {
        Self::try_before(spec, None, restored, (key_groups, budget))
    }

    /// In front of a store, where there is one.
    pub(super) fn try_before(
        spec: &OperatorSpec,
        cold: Option<Arc<dyn ColdStores>>,
        restored: Vec<RestoredState>,
        (key_groups, budget): (KeyGroupRange, HeapBudget),
    ) -> Result<Self, EngineError> {
        let mut operator = build(spec, join(spec))?;
        let metrics = Arc::new(NodeMetrics::new(spec.uid.clone()));
        let context = OperatorContext {
            key_groups,
            max_parallelism: MAX_PARALLELISM,
            metrics: Arc::clone(&metrics),
            cold,
            heap_budget: Arc::new(budget),
            ..crate::testing::context(spec.uid.as_str(), BATCH_ROWS_MAX)
        };
        operator.open(&context, restored)?;
        let late = [Vec::new(), Vec::new()];
        let (watermark, passed_on) = (i64::MIN, i64::MIN);
        Ok(Self { spec: spec.clone(), operator, metrics, out: Vec::new(), late, watermark, passed_on, peak_bytes: 0 })
    }

    pub(super) fn process(&mut self, side: JoinSide, rows: &[Row]) -> Result<(), EngineError> {
        self.wait_ready();
        self.operator.process(side as usize, batch(&join(&self.spec).scope, rows))?;
        self.drain();
        Ok(())
    }

    pub(super) fn advance(&mut self, to: i64) {
        if to <= self.watermark {
            return;
        }
        self.watermark = to;
        let passed_on = self.operator.advance(Watermark(to)).expect("time goes on").expect("time goes on");
        self.drain();
        self.passed_on = passed_on.0;
    }

    /// The clock shows this; answers when it is to be told next.
    pub(super) fn tick(&mut self, time_ms: i64) -> Option<i64> {
        let next = self.operator.tick(time_ms).expect("it hears the time");
        self.drain();
        next
    }

    /// The data ends, whatever the time of its rows.
    pub(super) fn end(&mut self) {
        self.operator.finish().expect("it ends");
        self.drain();
    }

    pub(super) fn finish(&mut self) {
        self.advance(i64::MAX);
        self.end();
    }

    pub(super) fn run(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Rows(side, rows) => self.process(*side, rows).expect("rows are taken in"),
                Step::Advance(to) => self.advance(*to),
            }
        }
    }

    /// Polls what is left; no row of it may be late for whoever reads it.
    fn drain(&mut self) {
        loop {
            self.wait_ready();
            let next = self.operator.poll().expect("output is polled");
            self.peak_bytes = self.peak_bytes.max(self.state_bytes());
            let Some(batch) = next else { break };
            assert!((1..=BATCH_ROWS_MAX).contains(&batch.num_rows()), "{} rows", batch.num_rows());
            let time = match (join(&self.spec).kind, batch.column_by_name("time")) {
                (_, Some(time)) => Some(time),
                (JoinKind::Right, None) => batch.column_by_name("right_t"),
                (JoinKind::Full, None) => None,
                (_, None) => batch.column_by_name("t"),
            };
            // What windows of processing time give has no event time.
            if let Some(time) = time.filter(|_| !self.operator.keeps_time()) {
                let times = cast(time, &DataType::Int64).expect("a time is a number");
                let least = times.as_primitive::<Int64Type>().iter().flatten().min().expect("rows have times");
                assert!(least > self.passed_on, "a row of {least} after watermark {}", self.passed_on);
            }
            self.out.push(batch);
        }
        while let Some((side, batch)) = self.operator.poll_side().expect("the other outputs are polled") {
            assert!((1..=BATCH_ROWS_MAX).contains(&batch.num_rows()), "{} rows", batch.num_rows());
            self.late[side].extend(batch.column(1).as_primitive::<Int64Type>().values());
        }
    }

    /// Ids of the late rows of each side, sorted.
    pub(super) fn take_late(&mut self) -> [Vec<i64>; 2] {
        self.late.iter_mut().for_each(|late| late.sort_unstable());
        std::mem::take(&mut self.late)
    }

    /// Waits until the join's store, if it has one, has written enough.
    fn wait_ready(&mut self) {
        while !self.operator.is_ready().expect("its store is well") {
            self.background();
        }
    }

    /// Works beside the rows; whether there is more to do.
    pub(super) fn background(&mut self) -> bool {
        self.operator.background().expect("background work is done")
    }

    /// The synchronous part of a snapshot.
    pub(super) fn barrier(&mut self, checkpoint: u64) -> Vec<StatePart> {
        self.operator.before_barrier().expect("a barrier passes");
        self.drain();
        self.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken")
    }

    pub(super) fn give_up(&mut self, checkpoint: u64) {
        self.operator.notify(CheckpointId(checkpoint), false).expect("it is told");
    }

    /// A snapshot, sent through the format as an upload and a restore do.
    pub(super) fn snapshot(&mut self) -> Vec<RestoredState> {
        let parts = self.barrier(1);
        while self.background() {}
        parts.into_iter().map(stored).collect()
    }

    pub(super) fn late_rows(&self) -> u64 {
        self.metrics.late_rows.load(Ordering::Relaxed)
    }

    pub(super) fn state_bytes(&self) -> u64 {
        self.metrics.state_bytes.load(Ordering::Relaxed)
    }

    /// What was given since the last call, a text per row, sorted.
    pub(super) fn take_rows(&mut self) -> Vec<String> {
        let cell = |column: &ArrayRef, row| match (column.is_null(row), column.data_type()) {
            (true, _) => "null".to_string(),
            (false, DataType::Timestamp(..)) => {
                array_value_to_string(&cast(column, &DataType::Int64).expect("a number"), row).expect("it has a text")
            }
            (false, _) => array_value_to_string(column, row).expect("it has a text"),
        };
        let text =
            |batch: &RecordBatch, row| batch.columns().iter().map(|column| cell(column, row)).collect::<Vec<_>>().join(",");
        let batches = std::mem::take(&mut self.out);
        let mut rows: Vec<String> =
            batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| text(batch, row))).collect();
        rows.sort();
        rows
    }
}

pub(super) fn stored(part: StatePart) -> RestoredState {
    let mut bytes = Vec::new();
    let (meta, pieces) = part.into_pieces().expect("pieces");
    encode(&meta, MAX_PARALLELISM, pieces, SizeLimit { bytes_max: None }, &mut bytes).expect("it is encoded");
    let state = decode(bytes.into()).expect("it is decoded");
    RestoredState { name: state.meta.name, kind: state.meta.kind, batches: state.batches }
}

/// The rows whose key is in `range`.
pub(super) fn in_range(rows: &[Row], range: KeyGroupRange, composite: bool) -> Vec<Row> {
    let scope = JoinScope::Within { from_ms: 0, to_ms: 0 };
    let batch = batch(&scope, rows);
    let mut groups = Vec::new();
    key_groups(&batch.columns()[..1 + usize::from(composite)], MAX_PARALLELISM, &mut groups);
    rows.iter().zip(groups).filter(|(_, group)| range.contains(*group)).map(|(row, _)| *row).collect()
}

/// Rows that are not late, by side, and the ids of those that are.
pub(super) fn in_time(steps: &[Step], is_late: impl Fn(i64, i64) -> bool) -> ([Vec<Row>; 2], [Vec<i64>; 2]) {
    let (mut kept, mut late, mut watermark) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()], i64::MIN);
    for step in steps {
        match step {
            Step::Advance(to) => watermark = watermark.max(*to),
            Step::Rows(side, rows) => {
                let (over, good): (Vec<Row>, Vec<Row>) = rows.iter().partition(|row| is_late(row.time, watermark));
                kept[*side as usize].extend(good);
                late[*side as usize].extend(over.iter().map(|row| row.id));
            }
        }
    }
    late.iter_mut().for_each(|late| late.sort_unstable());
    (kept, late)
}

/// The join of these rows by nested loops: `meet` says of two rows of one key whether they do, `window` what stands behind a row
/// of this time.
pub(super) fn nested_loops(
    kind: JoinKind,
    [left, right]: &[Vec<Row>; 2],
    meet: impl Fn(&Row, &Row) -> bool,
    window: impl Fn(i64) -> String,
) -> Vec<String> {
    let met = |one: &Row, other: &Row| one.key.is_some() && one.key == other.key && meet(one, other);
    let text = |value: Option<i64>| value.map_or("null".into(), |value| value.to_string());
    let side = |row: Option<&Row>| format!("{},{}", text(row.map(|row| row.id)), text(row.map(|row| row.time)));
    let mut rows = Vec::new();
    let mut give = |one: Option<&Row>, other: Option<&Row>| {
        let (row, right) = (one.or(other).expect("there is a row"), side(other));
        let right = if kind.gives_pairs() { format!(",{right}") } else { String::new() };
        rows.push(format!("{},{}{right}{}", side(one), text(row.key), window(row.time)));
    };
    for one in left {
        let others: Vec<&Row> = right.iter().filter(|other| met(one, other)).collect();
        match kind {
            JoinKind::Semi | JoinKind::Anti if others.is_empty() == (kind == JoinKind::Anti) => give(Some(one), None),
            JoinKind::Semi | JoinKind::Anti => {}
            JoinKind::Left | JoinKind::Full if others.is_empty() => give(Some(one), None),
            JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full => {
                others.into_iter().for_each(|other| give(Some(one), Some(other)));
            }
        }
    }
    if kind.keeps_right() {
        right.iter().filter(|other| !left.iter().any(|one| met(one, other))).for_each(|other| give(None, Some(other)));
    }
    rows.sort();
    rows
}
