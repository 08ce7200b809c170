//! An operator with what a test needs to drive it: rows in and out as text.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::{KeyGroupRange, key_groups};
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, BadRecordPolicy, OperatorKind, OperatorSpec, OrderSpec,
    SideOutput, WindowSpec, WindowTime,
};
use levada_common::time::Watermark;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::cold::ColdStores;
use levada_state::format::{SizeLimit, decode, encode};
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::StatePart;

use super::super::build;
use super::linked::{is_linked, linked};
use crate::error::EngineError;
use crate::function::Functions;
use crate::metrics::NodeMetrics;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::testing::Closures;

pub(super) const MAX_PARALLELISM: u32 = 16;

/// A row of the input: key, time, value.
pub(super) type Row = (i64, i64, i64);

/// Most rows of a batch that an operator gives in these tests: few, so that cursors stop often.
pub(super) const BATCH_ROWS_MAX: usize = 7;

/// A call over column `v`, named `name`.
pub(super) fn call(name: &str, function: AggregateFunction) -> AggregateCall {
    let argument = (function != AggregateFunction::Count).then(|| "v".to_string());
    let result = match function {
        AggregateFunction::Count => LogicalType::Int64,
        AggregateFunction::Sum => LogicalType::Decimal(38, 0),
        AggregateFunction::Avg => LogicalType::Float64,
        _ => LogicalType::Int64,
    };
    let argument_type = argument.as_ref().map(|_| LogicalType::Int64);
    AggregateCall {
        name: name.into(),
        function,
        argument,
        argument_type,
        argument_nullable: false,
        order: Vec::new(),
        result,
        library: None,
    }
}

/// Count, sum, maximum, first by descending value, last key text by value: something of every kind.
pub(super) fn calls() -> Vec<AggregateCall> {
    let order = |descending| vec![OrderSpec { column: "v".into(), ty: LogicalType::Int64, nullable: false, descending }];
    vec![
        call("n", AggregateFunction::Count),
        call("total", AggregateFunction::Sum),
        call("most", AggregateFunction::Max),
        AggregateCall { order: order(true), argument: Some("t".into()), ..call("when", AggregateFunction::First) },
        AggregateCall {
            order: order(false),
            argument: Some("s".into()),
            argument_type: Some(LogicalType::String),
            result: LogicalType::String,
            ..call("text", AggregateFunction::Last)
        },
    ]
}

pub(super) fn spec(keys: &[&str], window: WindowSpec, calls: Vec<AggregateCall>) -> AggregateSpec {
    let keys = keys.iter().map(|key| (*key).into()).collect();
    let (phase, time) = (AggregatePhase::Single, WindowTime::default());
    AggregateSpec {
        keys,
        window,
        time,
        phase,
        calls,
        changelog_full: false,
        firing: None,
        trigger: None,
        takes_changes: false,
        distinct: Vec::new(),
    }
}

pub(super) fn tumbling(size_ms: i64) -> WindowSpec {
    WindowSpec::Tumbling { size_ms, offset_ms: 0 }
}

/// `k` and `s` (the key as an integer and as text), `t`, `v`.
pub(super) fn input_schema() -> StreamSchema {
    let column = |name, ty| Column::new(name, ty, false);
    let columns = vec![
        column("k", LogicalType::Int64),
        column("s", LogicalType::String),
        column("t", LogicalType::Int64),
        column("v", LogicalType::Int64),
    ];
    StreamSchema { event_time: Some("t".into()), ..StreamSchema::append(columns) }
}

pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let ints = |of: fn(&Row) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(rows.iter().map(of))) };
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(rows.iter().map(|row| format!("key {}", row.0))));
    let columns = vec![ints(|row| row.0), texts, ints(|row| row.1), ints(|row| row.2)];
    RecordBatch::try_new(input_schema().to_arrow(), columns).expect("columns match the schema")
}

/// The schema of what a partial gives and a final takes.
fn partial_schema(aggregate: &AggregateSpec) -> StreamSchema {
    let keys = aggregate.keys.iter().map(|key| input_schema().column(key).expect("a key").clone());
    let partial = AggregateSpec { phase: AggregatePhase::Partial, ..aggregate.clone() };
    let windows = if partial.gives_windows() { vec!["window_start", "window_end"] } else { vec![] };
    let windows = windows.into_iter().map(|name| Column::new(name, LogicalType::Timestamp, false));
    StreamSchema::append(keys.chain(windows).chain(partial.state_columns()).collect())
}

/// The operator of an aggregation, or where it tells values apart those of its node.
fn operator(aggregate: &AggregateSpec) -> Result<Box<dyn Operator>, EngineError> {
    let spec = operator_spec(aggregate);
    match is_linked(aggregate) {
        true => linked(spec, aggregate),
        false => build(&spec, aggregate, &Closures::default(), &Functions::new()),
    }
}

fn operator_spec(aggregate: &AggregateSpec) -> OperatorSpec {
    let input = match aggregate.phase {
        AggregatePhase::Final => partial_schema(aggregate),
        _ => input_schema(),
    };
    let output = match aggregate.phase {
        AggregatePhase::Partial => partial_schema(aggregate),
        _ => {
            let keys = aggregate.keys.iter().map(|key| input_schema().column(key).expect("a key").clone());
            let windows = match aggregate.window {
                WindowSpec::Running | WindowSpec::Global | WindowSpec::Count { .. } => vec![],
                _ => vec!["window_start", "window_end", "window_time"],
            };
            let windows = windows.into_iter().map(|name| Column::new(name, LogicalType::Timestamp, false));
            let results = aggregate.calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
            StreamSchema {
                changelog: aggregate.is_changelog(),
                ..StreamSchema::append(keys.chain(windows).chain(results).collect())
            }
        }
    };
    let late = ["t", "k"].map(|name| input_schema().column(name).expect("it is one").clone());
    let late = SideOutput { name: SideOutput::LATE.into(), schema: StreamSchema::append(late.into()) };
    let sides = if aggregate.phase == AggregatePhase::Single { vec![late] } else { Vec::new() };
    OperatorSpec {
        uid: Uid::new("counts"),
        clause: "aggregate".into(),
        kind: OperatorKind::Aggregate(aggregate.clone()),
        input,
        output,
        sides,
        bad_records: BadRecordPolicy::Fail,
    }
}

/// An operator, and what it has given so far.
pub(super) struct Rig {
    operator: Box<dyn Operator>,
    pub(super) metrics: Arc<NodeMetrics>,
    pub(super) out: Vec<RecordBatch>,
    /// Late rows, which it gives to an output of their own where it has rows for input.
    late: Vec<RecordBatch>,
    pub(super) budget: Arc<HeapBudget>,
}

impl Rig {
    pub(super) fn new(aggregate: &AggregateSpec) -> Self {
        Self::restored(aggregate, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM))
    }

    /// An operator that starts from `restored` and owns these key groups.
    pub(super) fn restored(aggregate: &AggregateSpec, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Self {
        Self::try_restored(aggregate, restored, key_groups).expect("it opens")
    }

    pub(super) fn try_restored(
        aggregate: &AggregateSpec,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
    ) -> Result<Self, EngineError> {
        Self::try_before(aggregate, None, restored, key_groups)
    }

    /// An operator in front of stores, if any.
    pub(super) fn try_before(
        aggregate: &AggregateSpec,
        cold: Option<Arc<dyn ColdStores>>,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
    ) -> Result<Self, EngineError> {
        Self::of(operator(aggregate)?, cold, restored, key_groups)
    }

    /// This operator.
    pub(super) fn of(
        operator: Box<dyn Operator>,
        cold: Option<Arc<dyn ColdStores>>,
        restored: Vec<RestoredState>,
        key_groups: KeyGroupRange,
    ) -> Result<Self, EngineError> {
        Self::open(operator, Self::context(cold, key_groups, HeapBudget::unlimited()), restored)
    }

    /// An operator on the heap that may take no more than `budget`.
    pub(super) fn within(aggregate: &AggregateSpec, budget: HeapBudget) -> Self {
        let context = Self::context(None, KeyGroupRange::all(MAX_PARALLELISM), budget);
        let operator = operator(aggregate).expect("it is built");
        Self::open(operator, context, Vec::new()).expect("it opens")
    }

    fn open(
        mut operator: Box<dyn Operator>,
        context: OperatorContext,
        restored: Vec<RestoredState>,
    ) -> Result<Self, EngineError> {
        operator.open(&context, restored)?;
        Ok(Self { operator, metrics: context.metrics, budget: context.heap_budget, out: Vec::new(), late: Vec::new() })
    }

    fn context(cold: Option<Arc<dyn ColdStores>>, key_groups: KeyGroupRange, budget: HeapBudget) -> OperatorContext {
        let metrics = Arc::new(NodeMetrics::new(Uid::new("counts")));
        OperatorContext {
            subtask: 0,
            parallelism: 1,
            max_parallelism: MAX_PARALLELISM,
            key_groups,
            batch_rows_max: BATCH_ROWS_MAX,
            metrics,
            cold,
            heap_budget: Arc::new(budget),
        }
    }

    pub(super) fn process(&mut self, rows: &[Row]) {
        self.process_batch(batch(rows));
    }

    pub(super) fn process_batch(&mut self, batch: RecordBatch) {
        self.try_process(batch).expect("rows are taken in");
    }

    pub(super) fn try_process(&mut self, batch: RecordBatch) -> Result<(), EngineError> {
        self.wait_ready()?;
        self.operator.process(0, batch)?;
        self.try_drain()
    }

    /// As `process_batch`, for an operator that gives each batch whole.
    pub(super) fn try_process_whole(&mut self, batch: RecordBatch) {
        self.wait_ready().expect("its store is well");
        self.operator.process(0, batch).expect("rows are taken in");
        while let Some(batch) = self.operator.poll().expect("output is polled") {
            self.out.push(batch);
        }
    }

    /// Waits until the operator's store, if it has one, has written enough.
    fn wait_ready(&mut self) -> Result<(), EngineError> {
        while !self.operator.is_ready()? {
            self.operator.background()?;
        }
        Ok(())
    }

    pub(super) fn advance(&mut self, watermark: i64) {
        self.operator.advance(Watermark(watermark)).expect("time goes on");
        self.drain();
    }

    /// The clock shows `time_ms`, which an operator that does not keep time does not hear; answers when it wants to hear it again.
    pub(super) fn tick(&mut self, time_ms: i64) -> Option<i64> {
        if !self.operator.keeps_time() {
            return None;
        }
        loop {
            let next = self.operator.tick(time_ms).expect("time goes on");
            self.drain();
            if next.is_none_or(|next| next > time_ms) {
                return next;
            }
        }
    }

    /// As `advance`, with the output blocked after its first batch.
    pub(super) fn advance_blocked(&mut self, watermark: i64) {
        self.operator.advance(Watermark(watermark)).expect("time goes on");
        self.out.extend(self.operator.poll().expect("output is polled"));
    }

    /// Polls what is left.
    pub(super) fn drain(&mut self) {
        self.try_drain().expect("output is polled");
    }

    fn try_drain(&mut self) -> Result<(), EngineError> {
        loop {
            self.wait_ready()?;
            let (main, batch) = match self.operator.poll()? {
                Some(batch) => (true, batch),
                None => match self.operator.poll_side()? {
                    Some((side, batch)) => (side != 0, batch),
                    None => return Ok(()),
                },
            };
            assert!((1..=BATCH_ROWS_MAX).contains(&batch.num_rows()), "{} rows", batch.num_rows());
            if main { self.out.push(batch) } else { self.late.push(batch) }
        }
    }

    /// The late rows: their times and keys.
    pub(super) fn take_late(&mut self) -> Vec<(i64, i64)> {
        let number = |text: &str| text.parse().expect("a number");
        let row = |text: String| text.split_once(',').map(|(time, key)| (number(time), number(key)));
        std::mem::take(&mut self.late).iter().flat_map(rows_of).filter_map(row).collect()
    }

    /// The input is idle.
    pub(super) fn idle(&mut self) {
        self.operator.idle().expect("it is told");
        self.drain();
    }

    pub(super) fn finish(&mut self) {
        self.try_finish().expect("it ends");
    }

    pub(super) fn try_finish(&mut self) -> Result<(), EngineError> {
        self.operator.finish()?;
        self.try_drain()
    }

    pub(super) fn background(&mut self) -> bool {
        self.operator.background().expect("background work is done")
    }

    /// Takes a snapshot's synchronous part.
    pub(super) fn barrier(&mut self, checkpoint: u64) -> Vec<StatePart> {
        self.operator.before_barrier().expect("a barrier passes");
        self.drain();
        self.operator.snapshot(CheckpointId(checkpoint), false).expect("a snapshot is taken")
    }

    pub(super) fn give_up(&mut self, checkpoint: u64) {
        self.operator.notify(CheckpointId(checkpoint), false).expect("it is told");
    }

    pub(super) fn late_rows(&self) -> u64 {
        self.metrics.late_rows.load(Ordering::Relaxed)
    }

    /// What was given since the last call, a text per row.
    pub(super) fn take_rows(&mut self) -> Vec<String> {
        std::mem::take(&mut self.out).iter().flat_map(rows_of).collect()
    }
}

/// The rows of a batch, as text.
pub(super) fn rows_of(batch: &RecordBatch) -> Vec<String> {
    let cell = |column: &ArrayRef, row| match column.is_null(row) {
        true => "null".to_string(),
        false => match column.data_type() {
            arrow::datatypes::DataType::Timestamp(_, _) => {
                let times = arrow::compute::cast(column, &arrow::datatypes::DataType::Int64).expect("a time is a number");
                array_value_to_string(&times, row).expect("it has a text")
            }
            _ => array_value_to_string(column, row).expect("it has a text"),
        },
    };
    let row = |row| batch.columns().iter().map(|column| cell(column, row)).collect::<Vec<_>>().join(",");
    (0..batch.num_rows()).map(row).collect()
}

/// Sends a snapshot's parts through the format, as an upload and a restore do. The rig goes on saving in the background.
pub(super) fn store(parts: Vec<StatePart>, mut more: impl FnMut() -> bool) -> Vec<RestoredState> {
    let mut restored = Vec::new();
    let parts: Vec<_> = parts
        .into_iter()
        .map(|part| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                let (meta, pieces) = part.into_pieces().expect("pieces");
                let encoded = encode(&meta, MAX_PARALLELISM, pieces, SizeLimit { bytes_max: None }, &mut bytes);
                encoded.map(|_| decode(bytes.into()).expect("it is decoded"))
            })
        })
        .collect();
    while more() {
        std::thread::yield_now();
    }
    for part in parts {
        let state = part.join().expect("the background does not panic").expect("it is encoded");
        restored.push(RestoredState { name: state.meta.name, kind: state.meta.kind, batches: state.batches });
    }
    restored
}

/// The rows of `rows` whose key is in `range`, for keys `k`.
pub(super) fn in_range(rows: &[Row], range: KeyGroupRange) -> Vec<Row> {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0)));
    let mut groups = Vec::new();
    key_groups(&[keys], MAX_PARALLELISM, &mut groups);
    rows.iter().zip(groups).filter(|(_, group)| range.contains(*group)).map(|(row, _)| *row).collect()
}
