//! What one join looks at and what it gives: columns by place, where windows come from, schemas.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::{JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec, OperatorSpec};
use levada_common::types::StreamSchema;
use levada_state::format::KEY_PREFIX;
use levada_state::snapshot::StateMeta;

use crate::error::EngineError;
use crate::operators::aggregate::{Window, WindowSource};
use crate::operators::rows::Part;

/// One side, resolved against its input.
#[derive(Debug)]
pub(super) struct Side {
    /// Places of the key columns.
    keys: Vec<usize>,
    pub(super) key_types: Vec<DataType>,
    /// Place of the event time, where rows meet within an interval of it.
    pub(super) time: Option<usize>,
    /// Where its windows come from, where rows meet in one.
    pub(super) windows: Option<WindowSource>,
    /// Schema of its batches.
    pub(super) input: SchemaRef,
    /// Its state.
    pub(super) state: StateMeta,
    /// Schema of a snapshot's pieces.
    pub(super) pieces: SchemaRef,
    /// For each column of a piece but the marks, its place in the input.
    pub(super) saved: Vec<usize>,
    /// Whether pieces end with a column of marks.
    pub(super) saves_marks: bool,
}

impl Side {
    fn new(uid: &Uid, join: &JoinSpec, side: JoinSide, input: &StreamSchema) -> Result<Self, String> {
        let place = |name: &String| {
            input.batch_index(name).ok_or_else(|| format!("no column \"{name}\" on the {} side", side.state_name()))
        };
        let names = join.keys(side);
        let keys = names.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let event_time = || {
            let time = input.event_time.as_ref();
            place(time.ok_or_else(|| format!("no event time on the {} side", side.state_name()))?)
        };
        let (time, windows) = match join.scope {
            JoinScope::Within { .. } => (Some(event_time()?), None),
            JoinScope::Tumbling { size_ms, offset_ms } => {
                (None, Some(WindowSource::Tumbling { time: event_time()?, size_ms: size_ms.max(1), offset_ms }))
            }
            JoinScope::Same => {
                let (start, end) = (place(&"window_start".into())?, place(&"window_end".into())?);
                (None, Some(WindowSource::Columns { start, end }))
            }
        };
        let arrow = input.to_arrow();
        let declaration = join.state(side, input);
        let key = |at: &usize| {
            Field::new(format!("{KEY_PREFIX}{}", arrow.field(*at).name()), arrow.field(*at).data_type().clone(), true)
        };
        let values = declaration.schema.values.iter().map(levada_common::types::Column::to_field);
        let others = (0..arrow.fields().len()).filter(|at| !keys.contains(at));
        let saved = keys.iter().copied().chain(others).collect();
        let pieces = Arc::new(Schema::new(keys.iter().map(key).chain(values).collect::<Vec<_>>()));
        let (name, kind) = (declaration.name, declaration.kind);
        Ok(Self {
            key_types: keys.iter().map(|at| arrow.field(*at).data_type().clone()).collect(),
            keys,
            time,
            windows,
            input: arrow,
            state: StateMeta { uid: uid.clone(), name, kind, schema: Arc::new(declaration.schema) },
            pieces,
            saved,
            saves_marks: join.saves_marks(side),
        })
    }

    /// A batch of the input with these columns.
    pub(super) fn batch(&self, columns: Vec<ArrayRef>) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(Arc::clone(&self.input), columns)
    }

    /// The key's columns among those of the input.
    pub(super) fn keys(&self, columns: &[ArrayRef]) -> Vec<ArrayRef> {
        self.keys.iter().map(|at| Arc::clone(&columns[*at])).collect()
    }
}

/// Where a column of the output comes from.
#[derive(Debug)]
enum Origin {
    Side(usize, usize),
    /// The place on each side; of whichever there is.
    Key([usize; 2]),
    WindowStart,
    WindowEnd,
    WindowTime,
}

/// A join, resolved against its inputs.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) uid: Uid,
    clause: String,
    pub(super) kind: JoinKind,
    /// By input.
    pub(super) sides: [Side; 2],
    /// Schema of what is given.
    pub(super) output: SchemaRef,
    origins: Vec<Origin>,
}

impl Shape {
    pub(super) fn new(spec: &OperatorSpec, join: &JoinSpec) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let inputs = [&spec.input, &join.right];
        let [left, right] = JoinSide::ALL.map(|side| Side::new(&spec.uid, join, side, inputs[side as usize]));
        let sides = [left.map_err(invariant)?, right.map_err(invariant)?];
        let place = |side: JoinSide, name: &String| {
            let found = inputs[side as usize].batch_index(name);
            found.ok_or_else(|| invariant(format!("no column \"{name}\" on the {} side", side.state_name())))
        };
        let origin = |column: &JoinColumn| {
            Ok(match column {
                JoinColumn::Left(name) => Origin::Side(0, place(JoinSide::Left, name)?),
                JoinColumn::Right(name) => Origin::Side(1, place(JoinSide::Right, name)?),
                JoinColumn::Key(at) => {
                    let key = |side: &Side| side.keys.get(*at).copied().ok_or_else(|| invariant(format!("no key {at}")));
                    Origin::Key([key(&sides[0])?, key(&sides[1])?])
                }
                JoinColumn::WindowStart => Origin::WindowStart,
                JoinColumn::WindowEnd => Origin::WindowEnd,
                JoinColumn::WindowTime => Origin::WindowTime,
            })
        };
        let origins = join.columns.iter().map(origin).collect::<Result<Vec<_>, EngineError>>()?;
        let output = spec.output.to_arrow();
        if output.fields().len() != origins.len() {
            let (planned, known) = (output.fields().len(), origins.len());
            return Err(invariant(format!("the output has {planned} columns in the plan, {known} in the engine")));
        }
        Ok(Self { uid: spec.uid.clone(), clause: spec.clause.clone(), kind: join.kind, sides, output, origins })
    }

    /// A batch of the output: `rows` rows made of a part of each side.
    pub(super) fn output(&self, rows: usize, parts: [&Part<'_>; 2], window: Option<Window>) -> Result<RecordBatch, EngineError> {
        let of_window = |column: fn(Window, usize) -> ArrayRef| {
            window.map(|window| column(window, rows)).ok_or_else(|| self.invariant("the join is in no window"))
        };
        let columns = self.origins.iter().map(|origin| match origin {
            Origin::Side(side, at) => self.column(*side, *at, parts[*side], rows),
            Origin::Key(places) => {
                let side = usize::from(!parts[0].is_there());
                self.column(side, places[side], parts[side], rows)
            }
            Origin::WindowStart => of_window(|window, rows| window.columns(rows).0),
            Origin::WindowEnd => of_window(|window, rows| window.columns(rows).1),
            Origin::WindowTime => of_window(Window::time_column),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    fn column(&self, side: usize, at: usize, part: &Part<'_>, rows: usize) -> Result<ArrayRef, EngineError> {
        part.column(at, self.sides[side].input.field(at).data_type(), rows).map_err(|source| self.kernel(source))
    }

    /// An Arrow kernel failed.
    pub(super) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }

    /// A rule of the engine's own was broken.
    pub(super) fn invariant(&self, message: impl Into<String>) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message: message.into() }
    }
}
