//! What one join looks at and what it gives: columns by place, where windows come from, schemas.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array};
use arrow::compute::kernels::zip::zip;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::{JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec, OperatorSpec};

use crate::error::EngineError;
use crate::operators::rows::Part;
use crate::operators::waiting::{Meets, Side, SidePlan, WaitingOwner};
use crate::operators::window::{self, Grid, Series, Window};

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
    pub(super) clause: String,
    pub(super) kind: JoinKind,
    /// By input.
    pub(super) sides: [Side; 2],
    /// Windows that overlap, of slices.
    pub(super) series: Option<Series>,
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
        let (meets, series) = meets(&join.scope).map_err(invariant)?;
        let [left, right] = JoinSide::ALL.map(|side| {
            let given = inputs[side as usize];
            Side::new(SidePlan {
                uid: &spec.uid,
                given,
                kept: join.kept(side, given),
                keys: join.keys(side),
                unique: join.unique(side),
                meets,
                notes_arrival: join.is_by_clock(),
                state: join.state(side, given),
                has_mark: join.mark(side).is_some(),
            })
        });
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
                    let key = |side: &Side| side.key(*at).ok_or_else(|| invariant(format!("no key {at}")));
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
            JoinScope::Lookup { .. } => "give the table fewer rows or columns, leave `lookup` out to spread it by its key",
            JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same | JoinScope::Within { .. } => {
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
            series,
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

/// What of two rows makes them meet, and the windows in which they do where these overlap.
///
/// Errors: windows in which no rows can, in words.
fn meets(scope: &JoinScope) -> Result<(Meets, Option<Series>), String> {
    let meets = match scope {
        JoinScope::Standing { .. } | JoinScope::Lookup { .. } => Meets::Anywhere,
        JoinScope::Within { .. } => Meets::InTime,
        JoinScope::Same => Meets::InColumns,
        JoinScope::Tumbling { time, .. } | JoinScope::Overlapping { time, .. } => {
            let windows = scope.windows().expect("rows meet in windows");
            let (size_ms, offset_ms) = windows.slices().ok_or_else(|| format!("rows meet in {windows:?}"))?;
            let slices = Grid::new(size_ms, offset_ms, window::zone(time.time_zone.as_deref())?);
            return Ok((Meets::InGrid(slices), Series::of(&windows, slices)));
        }
    };
    Ok((meets, None))
}

impl WaitingOwner for Shape {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn sides(&self) -> &[Side] {
        &self.sides
    }

    fn remedy(&self) -> &'static str {
        self.remedy
    }

    fn kernel(&self, source: ArrowError) -> EngineError {
        Self::kernel(self, source)
    }
}
