//! What one join looks at and what it gives: columns by place, where windows come from, schemas.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array};
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::{JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec, OperatorSpec};
use levada_common::types::{Column, StreamSchema};
use levada_state::format::KEY_PREFIX;
use levada_state::row_codec::TTL_COLUMN;
use levada_state::snapshot::StateMeta;

use crate::error::EngineError;
use crate::operators::rows::Part;
use crate::operators::window::{self, Grid, Window, WindowSource};

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
    /// Places in a batch of the columns that are kept: the others are read by no one here.
    places: Vec<usize>,
    /// Whether batches carry `_op` before their columns.
    is_changelog: bool,
    /// Places of the unique key's columns, on a changelog; as all below, among the kept columns.
    unique: Option<Vec<usize>>,
    /// Schema of the kept columns.
    pub(super) input: SchemaRef,
    /// Its state.
    pub(super) state: StateMeta,
    /// Schema of a snapshot's pieces.
    pub(super) pieces: SchemaRef,
    /// For each column of a piece but the marks, its place in the input.
    pub(super) saved: Vec<usize>,
    /// Whether pieces end with a column of marks; before it they have one that says since when rows stand, where they have a time to
    /// live.
    pub(super) saves_marks: bool,
}

impl Side {
    fn new(uid: &Uid, join: &JoinSpec, side: JoinSide, given: &StreamSchema) -> Result<Self, String> {
        let input = &join.kept(side, given);
        let place = |name: &String| {
            input.batch_index(name).ok_or_else(|| format!("no column \"{name}\" on the {} side", side.state_name()))
        };
        let names = join.keys(side);
        let keys = names.iter().map(place).collect::<Result<Vec<_>, _>>()?;
        let event_time = || {
            let time = input.event_time.as_ref();
            place(time.ok_or_else(|| format!("no event time on the {} side", side.state_name()))?)
        };
        let (time, windows) = match &join.scope {
            JoinScope::Standing { .. } => (None, None),
            JoinScope::Within { .. } => (Some(event_time()?), None),
            JoinScope::Tumbling { size_ms, offset_ms, time_zone } => {
                let zone = window::zone(time_zone.as_deref())?;
                (None, Some(WindowSource::Times { time: event_time()?, grid: Grid::new(*size_ms, *offset_ms, zone) }))
            }
            JoinScope::Same => {
                let (start, end) = (place(&"window_start".into())?, place(&"window_end".into())?);
                (None, Some(WindowSource::Columns { start, end }))
            }
        };
        let arrow = input.to_arrow();
        let declaration = join.state(side, given);
        let place_given =
            |column: &Column| given.batch_index(&column.name).ok_or_else(|| format!("no column \"{}\"", column.name));
        let places = input.columns.iter().map(place_given).collect::<Result<Vec<_>, _>>()?;
        let unique = join.unique(side).map(|unique| unique.iter().map(place).collect::<Result<Vec<_>, _>>()).transpose()?;
        let ttl = declaration
            .schema
            .ttl
            .is_some()
            .then(|| Field::new(TTL_COLUMN, DataType::Timestamp(TimeUnit::Millisecond, None), false));
        let key = |at: &usize| {
            Field::new(format!("{KEY_PREFIX}{}", arrow.field(*at).name()), arrow.field(*at).data_type().clone(), true)
        };
        let mut values: Vec<Field> = declaration.schema.values.iter().map(Column::to_field).collect();
        let mark = join.mark(side).and_then(|_| values.pop());
        let others = (0..arrow.fields().len()).filter(|at| !keys.contains(at));
        let saved = keys.iter().copied().chain(others).collect();
        let pieces = Arc::new(Schema::new(keys.iter().map(key).chain(values).chain(ttl).chain(mark).collect::<Vec<_>>()));
        let (name, kind) = (declaration.name, declaration.kind);
        Ok(Self {
            key_types: keys.iter().map(|at| arrow.field(*at).data_type().clone()).collect(),
            keys,
            places,
            is_changelog: given.changelog,
            unique,
            time,
            windows,
            input: arrow,
            state: StateMeta { uid: uid.clone(), name, kind, schema: Arc::new(declaration.schema) },
            pieces,
            saved,
            saves_marks: join.mark(side).is_some(),
        })
    }

    /// What each row does, on a changelog, and the columns of a batch that are kept.
    pub(super) fn split(&self, batch: &RecordBatch) -> (Option<ArrayRef>, Vec<ArrayRef>) {
        let ops = self.is_changelog.then(|| Arc::clone(batch.column(0)));
        (ops, self.places.iter().map(|at| Arc::clone(batch.column(*at))).collect())
    }

    /// The types of the unique key, on a changelog.
    pub(super) fn unique_types(&self) -> Option<Vec<DataType>> {
        let unique = self.unique.as_ref()?;
        Some(unique.iter().map(|at| self.input.field(*at).data_type().clone()).collect())
    }

    /// The unique key's columns, on a changelog.
    pub(super) fn unique_keys(&self, columns: &[ArrayRef]) -> Option<Vec<ArrayRef>> {
        let unique = self.unique.as_ref()?;
        Some(unique.iter().map(|at| Arc::clone(&columns[*at])).collect())
    }

    /// The rows of a batch that is no changelog, in the columns that are kept.
    pub(super) fn rows(&self, batch: RecordBatch) -> Result<RecordBatch, ArrowError> {
        if batch.num_columns() == self.places.len() { Ok(batch) } else { batch.project(&self.places) }
    }

    /// A batch of the kept columns.
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
    is_changelog: bool,
    /// What makes its state smaller.
    pub(super) remedy: &'static str,
    origins: Vec<Origin>,
}

impl Shape {
    pub(super) fn new(spec: &OperatorSpec, join: &JoinSpec) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let inputs = [&spec.input, &join.right];
        let [left, right] = JoinSide::ALL.map(|side| Side::new(&spec.uid, join, side, inputs[side as usize]));
        let sides = [left.map_err(invariant)?, right.map_err(invariant)?];
        let place = |side: JoinSide, name: &String| {
            let found = sides[side as usize].input.index_of(name);
            found.map_err(|_| invariant(format!("no column \"{name}\" on the {} side", side.state_name())))
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
        let remedy = match join.scope {
            JoinScope::Standing { .. } => "set a shorter `ttl`",
            JoinScope::Tumbling { .. } | JoinScope::Same | JoinScope::Within { .. } => {
                "make the join's window or interval shorter"
            }
        };
        let (output, is_changelog) = (spec.output.to_arrow(), spec.output.changelog);
        if spec.output.columns.len() != origins.len() {
            let (planned, known) = (spec.output.columns.len(), origins.len());
            return Err(invariant(format!("the output has {planned} columns in the plan, {known} in the engine")));
        }
        Ok(Self {
            uid: spec.uid.clone(),
            clause: spec.clause.clone(),
            kind: join.kind,
            sides,
            output,
            is_changelog,
            remedy,
            origins,
        })
    }

    /// A batch of the output: `rows` rows made of a part of each side.
    pub(super) fn output(&self, rows: usize, parts: [&Part<'_>; 2], window: Option<Window>) -> Result<RecordBatch, EngineError> {
        let of_window = |column: fn(Window, usize) -> ArrayRef| {
            window.map(|window| column(window, rows)).ok_or_else(|| self.invariant("the join is in no window"))
        };
        let columns = self.origins.iter().map(|origin| match origin {
            Origin::Side(side, at) => self.column(*side, *at, parts[*side], rows),
            Origin::Key(places) => self.key(*places, parts, rows),
            Origin::WindowStart => of_window(|window, rows| window.columns(rows).0),
            Origin::WindowEnd => of_window(|window, rows| window.columns(rows).1),
            Origin::WindowTime => of_window(Window::time_column),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// A batch of changes: what each does, and a part of each side.
    pub(super) fn changes(&self, ops: &[i8], parts: [&Part<'_>; 2]) -> Result<RecordBatch, EngineError> {
        let rows = ops.len();
        let columns = self.origins.iter().map(|origin| match origin {
            Origin::Side(side, at) => self.column(*side, *at, parts[*side], rows),
            Origin::Key(places) => self.key(*places, parts, rows),
            Origin::WindowStart | Origin::WindowEnd | Origin::WindowTime => Err(self.invariant("the join is in no window")),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let ops = self.is_changelog.then(|| Arc::new(Int8Array::from(ops.to_vec())) as ArrayRef);
        let columns = ops.into_iter().chain(columns).collect();
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// A column of the key: the left row's where there is one, else the right row's.
    fn key(&self, places: [usize; 2], parts: [&Part<'_>; 2], rows: usize) -> Result<ArrayRef, EngineError> {
        let of = |side: usize| self.column(side, places[side], parts[side], rows);
        match (parts[0].is_there(), parts[0].presence()) {
            (false, _) => of(1),
            (true, None) => of(0),
            (true, Some(is_there)) => zip(&is_there, &of(0)?, &of(1)?).map_err(|source| self.kernel(source)),
        }
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
