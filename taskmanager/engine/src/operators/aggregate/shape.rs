//! What one aggregation looks at and what it gives: columns by place, schemas, where windows come from.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, new_null_array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::array_value_to_string;
use levada_common::aggregate_state::state_columns;
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, CountedValues, DistinctSpec, OperatorSpec, WindowSpec,
};
use levada_common::state_schema::StateSchema;
use levada_common::types::Column;
use levada_state::format::KEY_PREFIX;
use levada_state::snapshot::{Contents, StateMeta, StatePart};

use super::given::GivenRows;
use super::library::{Library, ReadFailure};
use super::value_sets::SetsShape;
use crate::aggregate::{AggregatePlan, CallOverflow, Make};
use crate::error::EngineError;
use crate::expr::ExpressionCompiler;
use crate::operators::window::{
    self, Grid, NAMESPACE_COLUMN, Split, WINDOW_END, WINDOW_START, Window, WindowSource, namespace_type,
};

/// An aggregation, resolved against its input.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) uid: Uid,
    clause: String,
    /// Places of the key columns in the input's batches.
    keys: Vec<usize>,
    /// How many of the last key columns lie below the key: those of a map's key.
    pub(super) below: usize,
    /// The column of the state that counts the rows of a group which is gone when there are none; `None` where groups stay.
    pub(super) rows_column: Option<usize>,
    /// Whether windows are of rows that each has for itself; the last two calls of the plan are those of the window's own state then.
    pub(super) is_whole_count: bool,
    pub(super) key_names: Vec<String>,
    pub(super) key_types: Vec<DataType>,
    pub(super) plan: Arc<AggregatePlan>,
    /// Where windows, or slices of windows, come from; `None` where there are none that rows alone make.
    pub(super) windows: Option<WindowSource>,
    /// On what those lie, where they lie on one.
    pub(super) grid: Option<Grid>,
    /// Whether groups have windows.
    pub(super) is_windowed: bool,
    /// Schema of what is given.
    pub(super) output: SchemaRef,
    /// Schema of a snapshot's pieces.
    pub(super) pieces: SchemaRef,
    state_name: Option<String>,
    /// What the state holds.
    pub(super) state: Arc<StateSchema>,
    /// How a store lays it out.
    pub(super) stored: Arc<StateSchema>,
    /// Whether a call goes by the order in which rows come.
    pub(super) goes_by_order: bool,
    /// What makes the state smaller where memory is short.
    pub(super) remedy: &'static str,
    /// What a library could not give out.
    failure: ReadFailure,
    /// What is told apart in its sessions or chunks of rows, where something is.
    pub(super) sets: Option<Arc<SetsShape>>,
}

impl Shape {
    pub(super) fn new(
        spec: &OperatorSpec,
        aggregate: &AggregateSpec,
        compiler: &dyn ExpressionCompiler,
    ) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let is_whole_count = is_whole_count(aggregate);
        let mut calls = aggregate.kept_calls();
        if is_whole_count {
            // There is one chunk of a group, so that its place says nothing.
            calls.extend(WindowSpec::count_state_columns().map(|column| AggregateCall::count(&column.name)));
        }
        let kept = AggregateSpec { calls, ..aggregate.clone() };
        let marked = DistinctSpec::marked(&aggregate.distinct, &spec.input);
        let failure = ReadFailure::default();
        let plan = AggregatePlan::new(&kept, &marked, &|call| of_library(call, compiler, &failure)).map_err(invariant)?;
        let plan = match aggregate.result_column() {
            None => plan,
            Some(column) => {
                let result = column.ty.to_arrow();
                plan.keeping_results(&column, Box::new(move || Box::new(GivenRows::new(result.clone()))))
            }
        };
        let keys = aggregate.keys.iter().map(|key| place(spec, key)).collect::<Result<Vec<_>, _>>()?;
        let input = spec.input.to_arrow();
        let (windows, grid) = window_source(spec, aggregate)?;
        let is_windowed = aggregate.gives_windows();
        let key_fields = keys.iter().map(|key| input.field(*key));
        let pieces = piece_schema(key_fields, is_windowed, &[], &aggregate.state_columns());
        let key_types = keys.iter().map(|key| input.field(*key).data_type().clone()).collect();
        let of_values = |schema: &StateSchema| {
            let below: Vec<Field> = schema.map_key.iter().map(Column::to_field).collect();
            piece_schema(keys.iter().map(|key| input.field(*key)), false, &below, &schema.values)
        };
        let sets = SetsShape::of(spec, aggregate, of_values).map_err(invariant)?.map(Arc::new);
        let shape = Self {
            uid: spec.uid.clone(),
            clause: spec.clause.clone(),
            keys,
            below: 0,
            rows_column: match is_whole_count {
                true => Some(plan.state_fields().len() - 1),
                false => aggregate.takes_changes.then_some(0),
            },
            is_whole_count,
            key_names: aggregate.keys.clone(),
            key_types,
            plan: Arc::new(plan),
            windows,
            grid,
            is_windowed,
            output: spec.output.to_arrow(),
            pieces,
            state_name: aggregate.state_name().map(String::from),
            state: Arc::new(aggregate.state_schema(&spec.input)),
            stored: Arc::new(aggregate.stored_schema(&spec.input)),
            goes_by_order: kept.calls.iter().any(goes_by_order),
            remedy: remedy(&aggregate.window),
            failure,
            sets,
        };
        shape.check_output(aggregate).map_err(invariant)?;
        Ok(shape)
    }

    /// The values of a column by key and window, each with the number of its rows: groups whose key has the value behind it.
    pub(super) fn of_values(spec: &OperatorSpec, counted: &CountedValues) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let key_names: Vec<String> = counted.keys.iter().chain([&counted.value]).cloned().collect();
        let aggregate = AggregateSpec {
            keys: key_names.clone(),
            window: counted.window.clone(),
            time: counted.time.clone(),
            phase: AggregatePhase::Single,
            calls: vec![AggregateCall::count(CountedValues::COUNT)],
            changelog_full: false,
            firing: None,
            trigger: None,
            takes_changes: false,
            distinct: Vec::new(),
        };
        let plan = AggregatePlan::new(&aggregate, &spec.input, &|call| Err(format!("\"{}\" counts no values", call.name)));
        let plan = plan.map_err(invariant)?;
        let keys = key_names.iter().map(|key| place(spec, key)).collect::<Result<Vec<_>, _>>()?;
        let input = spec.input.to_arrow();
        let key_types: Vec<DataType> = keys.iter().map(|key| input.field(*key).data_type().clone()).collect();
        let key_fields = keys[..counted.keys.len()].iter().map(|key| input.field(*key));
        let value = Field::new(CountedValues::VALUE, key_types[counted.keys.len()].clone(), true);
        let is_windowed = counted.window.is_windowed();
        let state = Arc::new(counted.state_schema(&spec.input));
        let (windows, grid) = window_source(spec, &aggregate)?;
        Ok(Self {
            uid: spec.uid.clone(),
            clause: spec.clause.clone(),
            pieces: piece_schema(key_fields, is_windowed, &[value], &aggregate.state_columns()),
            keys,
            below: 1,
            rows_column: Some(0),
            is_whole_count: false,
            key_names,
            key_types,
            plan: Arc::new(plan),
            windows,
            grid,
            is_windowed,
            goes_by_order: false,
            remedy: "use DISTINCT, min and max over columns of fewer values",
            failure: ReadFailure::default(),
            sets: None,
            output: spec.output.to_arrow(),
            state_name: Some(counted.state.clone()),
            stored: Arc::clone(&state),
            state,
        })
    }

    /// The clause of the operator, for messages.
    pub(super) fn clause(&self) -> &str {
        &self.clause
    }

    /// What rows of a batch are of which window; all are of one where there are no windows.
    ///
    /// Errors: `Invariant` where their windows cannot be read.
    pub(super) fn split(&self, batch: &RecordBatch) -> Result<Vec<(Window, Split)>, EngineError> {
        self.split_at(batch, None)
    }

    /// As `split`, of rows that come in at `now`, where the clock is asked at all.
    pub(super) fn split_at(&self, batch: &RecordBatch, now: Option<i64>) -> Result<Vec<(Window, Split)>, EngineError> {
        match &self.windows {
            None => Ok(vec![(Window::WHOLE, Split::All)]),
            Some(source) => source.split_at(batch, now).map_err(|reason| self.invariant(reason)),
        }
    }

    /// The aggregation's own state in a snapshot.
    pub(super) fn part(&self, contents: Contents) -> StatePart {
        let schema = Arc::clone(&self.state);
        let meta = StateMeta { uid: self.uid.clone(), name: self.state_name().into(), kind: StateKind::Keyed, schema };
        StatePart { meta, contents }
    }

    /// The output has as many columns as will be given.
    fn check_output(&self, aggregate: &AggregateSpec) -> Result<(), String> {
        let window = match (self.is_windowed, aggregate.phase) {
            (false, _) => 0,
            (true, AggregatePhase::Partial) => 2,
            (true, _) => 3,
        };
        let calls = match aggregate.phase {
            AggregatePhase::Partial => self.plan.state_fields().len(),
            _ => aggregate.calls.len(),
        };
        let is_changelog = aggregate.is_changelog() && aggregate.phase != AggregatePhase::Partial;
        let expected = usize::from(is_changelog) + self.keys.len() + window + calls;
        let found = self.output.fields().len();
        if expected == found {
            Ok(())
        } else {
            Err(format!("the output has {found} columns in the plan, {expected} in the engine"))
        }
    }

    /// The name of the keyed state, which all but a partial have.
    pub(super) fn state_name(&self) -> &str {
        self.state_name.as_deref().expect("a partial keeps no state")
    }

    /// The key columns of a batch.
    pub(super) fn keys(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.keys.iter().map(|key| Arc::clone(batch.column(*key))).collect()
    }

    /// The place of the last key column: of counted values.
    pub(super) fn value_place(&self) -> usize {
        *self.keys.last().expect("counted values have a column")
    }

    /// The columns of a batch that the aggregates take in.
    pub(super) fn inputs(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        let Some(sets) = &self.sets else { return self.plan.inputs(batch.columns()).collect() };
        // Which values are new is known by set only, and there they are computed with.
        let nothing = sets.data_types().map(|data_type| new_null_array(data_type, batch.num_rows()));
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(nothing).collect();
        self.plan.inputs(&columns).collect()
    }

    /// The columns of a batch whose values are told apart in sets.
    pub(super) fn values(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.sets.as_ref().map_or_else(Vec::new, |sets| sets.values(batch))
    }

    /// A batch of the output.
    ///
    /// Errors: `LibraryAggregate` where a library could not give a result out.
    pub(super) fn output(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch, EngineError> {
        if let Some((call, reason)) = self.failure.get() {
            return Err(self.of_library(call, reason));
        }
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// One batch of the output's parts, none where there are none.
    pub(super) fn joined(&self, mut parts: Vec<RecordBatch>) -> Result<Option<RecordBatch>, EngineError> {
        match parts.len() {
            0 | 1 => Ok(parts.pop()),
            _ => concat_batches(&self.output, &parts).map(Some).map_err(|source| self.kernel(source)),
        }
    }

    /// An Arrow kernel failed.
    pub(super) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }

    /// A sum of a group with this key, a row of the key's columns, left its type, or a library cannot take the rows.
    pub(super) fn overflow(&self, overflow: &CallOverflow<'_>, key: &[ArrayRef]) -> EngineError {
        let call = overflow.call;
        if let Some(reason) = &overflow.reason {
            return self.of_library(call, reason);
        }
        let texts = self.key_names.iter().zip(key).map(|(name, column)| {
            let value = if column.is_null(0) { "null".into() } else { array_value_to_string(column, 0).unwrap_or_default() };
            format!("{name} = {value}")
        });
        let key = texts.collect::<Vec<_>>().join(", ");
        EngineError::AggregateOverflow {
            uid: self.uid.clone(),
            function: call.function_name().into(),
            column: call.name.clone(),
            ty: format!("{}", state_columns(std::slice::from_ref(call))[0].ty),
            key: if key.is_empty() { "(all rows)".into() } else { key },
        }
    }

    /// A library cannot compute a call.
    fn of_library(&self, call: &AggregateCall, reason: &str) -> EngineError {
        let (function, column) = (call.function_name().into(), call.name.clone());
        EngineError::LibraryAggregate { uid: self.uid.clone(), function, column, reason: reason.into() }
    }

    /// A rule of the engine's own was broken.
    pub(super) fn invariant(&self, message: impl Into<String>) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message: message.into() }
    }
}

/// Whether windows are of rows, do not overlap, and have no values that are told apart.
fn is_whole_count(aggregate: &AggregateSpec) -> bool {
    matches!(aggregate.window, WindowSpec::Count { .. }) && !aggregate.keeps_chunks()
}

/// Whether it matters to a call in which order rows come.
fn goes_by_order(call: &AggregateCall) -> bool {
    matches!(call.function, AggregateFunction::First | AggregateFunction::Last | AggregateFunction::Library)
}

/// What makes an aggregation's state smaller.
fn remedy(window: &WindowSpec) -> &'static str {
    match window {
        WindowSpec::Running | WindowSpec::Global => "use the rocksdb backend, group by fewer keys",
        WindowSpec::Session { .. } => "make the gap of the sessions shorter",
        WindowSpec::Count { .. } => "use the rocksdb backend, make windows smaller, or their slide a larger part of them",
        _ => "use the rocksdb backend, make the windows shorter",
    }
}

/// Makes the accumulators of a call of a library.
fn of_library(call: &AggregateCall, compiler: &dyn ExpressionCompiler, failure: &ReadFailure) -> Result<Make, String> {
    let (function, call, failure) = (compiler.aggregate(call)?, call.clone(), Arc::clone(failure));
    Ok(Box::new(move || Box::new(Library::new(Arc::clone(&function), &call, Arc::clone(&failure)))))
}

/// The place of a column in the input's batches.
fn place(spec: &OperatorSpec, name: &str) -> Result<usize, EngineError> {
    spec.input.batch_index(name).ok_or_else(|| EngineError::Invariant {
        uid: spec.uid.clone(),
        message: format!("column \"{name}\" is not among the input's: {}", spec.input.names()),
    })
}

/// Where the windows, or slices of windows, of an operator's rows come from, and on what grid they lie.
fn window_source(spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<(Option<WindowSource>, Option<Grid>), EngineError> {
    let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
    let zone = window::zone(aggregate.time.time_zone.as_deref()).map_err(invariant)?;
    let grid = aggregate.window.slices().map(|(length_ms, offset_ms)| Grid::new(length_ms, offset_ms, zone));
    let slices = || grid.ok_or_else(|| invariant(format!("{:?} has no slices", aggregate.window)));
    let windows = match (&aggregate.window, aggregate.phase) {
        (WindowSpec::Running | WindowSpec::Global | WindowSpec::Session { .. } | WindowSpec::Count { .. }, _) => None,
        // A state of rows has no time: it is in the window that is open when it comes to the final half.
        (_, AggregatePhase::Partial) if aggregate.time.processing => None,
        (WindowSpec::Tumbling { .. } | WindowSpec::Sliding { .. } | WindowSpec::Cumulate { .. }, _)
            if aggregate.time.processing =>
        {
            Some(WindowSource::Clock { grid: slices()? })
        }
        (WindowSpec::Same, _) | (_, AggregatePhase::Final) => {
            Some(WindowSource::Columns { start: place(spec, WINDOW_START)?, end: place(spec, WINDOW_END)? })
        }
        (_, AggregatePhase::Single | AggregatePhase::Partial) => {
            let time = spec.input.event_time.as_deref();
            let time = time.ok_or_else(|| invariant("a window over a stream without event time".into()))?;
            Some(WindowSource::Times { time: place(spec, time)?, grid: slices()? })
        }
    };
    Ok((windows, grid))
}

fn piece_schema<'a>(keys: impl Iterator<Item = &'a Field>, has_window: bool, below: &[Field], states: &[Column]) -> SchemaRef {
    let keys = keys.map(|key| Field::new(format!("{KEY_PREFIX}{}", key.name()), key.data_type().clone(), true));
    let namespace = has_window.then(|| Field::new(NAMESPACE_COLUMN, namespace_type(), false));
    let values = below.iter().cloned().chain(states.iter().map(Column::to_field));
    Arc::new(Schema::new(keys.chain(namespace).chain(values).collect::<Vec<_>>()))
}
