//! What one function in windows looks at and what it gives: its inputs, where windows come from, schemas.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::function::FunctionDeclaration;
use levada_common::ids::Uid;
use levada_common::plan::{OperatorSpec, ProcessSpec, ProcessWindow, SideOutput, WindowSpec};
use levada_common::state_schema::StateDeclaration;
use levada_common::types::{Column, StreamSchema};
use levada_state::rows::Rows;

use super::evict::Evictor;
use super::firing::{Firing, Runs};
use crate::error::EngineError;
use crate::operators::waiting::{Meets, Side, SidePlan, WaitingOwner};
use crate::operators::window::{Grid, Series, zone};

/// A function in windows, resolved against its inputs.
pub(in super::super) struct Shape {
    pub(in super::super) uid: Uid,
    clause: String,
    pub(in super::super) function: String,
    pub(in super::super) declaration: Arc<FunctionDeclaration>,
    pub(in super::super) keys: Vec<Column>,
    pub(in super::super) key_schema: SchemaRef,
    /// By input.
    pub(in super::super) sides: Vec<Side>,
    /// Windows that overlap, of slices.
    pub(in super::super) series: Option<Series>,
    pub(super) evict: Option<Evictor>,
    /// What the function gives itself.
    pub(in super::super) own_output: StreamSchema,
    /// Its outputs beside the main one that are read.
    pub(in super::super) read: Vec<SideOutput>,
    pub(in super::super) output: SchemaRef,
}

impl Shape {
    pub(in super::super) fn new(spec: &OperatorSpec, process: &ProcessSpec, window: &ProcessWindow) -> Result<Self, EngineError> {
        let invariant = |message: String| EngineError::Invariant { uid: spec.uid.clone(), message };
        let meets = match (&window.window, window.window.slices()) {
            (WindowSpec::Same, _) => Meets::InColumns,
            (WindowSpec::Session { .. }, _) => Meets::InTime,
            (_, Some((size_ms, offset_ms))) => {
                let zone = zone(window.time.time_zone.as_deref()).map_err(invariant)?;
                Meets::InGrid(Grid::new(size_ms, offset_ms, zone))
            }
            (other, None) => return Err(invariant(format!("a function takes no rows of {other:?}"))),
        };
        let grid = match meets {
            Meets::InGrid(grid) => Some(grid),
            Meets::Anywhere | Meets::InTime | Meets::InColumns => None,
        };
        let inputs = std::iter::once(&spec.input).chain(process.second.iter().map(|second| &second.schema));
        let kept = process.window_inputs(&spec.input);
        let time = kept[0].0.event_time.as_ref().and_then(|name| kept[0].0.batch_index(name));
        let notes_arrival = window.time.processing;
        let side = |((given, (kept, keys)), state): ((&StreamSchema, (StreamSchema, Vec<String>)), StateDeclaration)| {
            let (uid, keys) = (&spec.uid, keys.as_slice());
            let plan = SidePlan { uid, given, kept, keys, unique: None, meets, state, notes_arrival, has_mark: false };
            Side::new(plan).map_err(invariant)
        };
        let sides = inputs.zip(kept).zip(process.window_states(&spec.input)).map(side).collect::<Result<Vec<_>, _>>()?;
        let evict = window.evict.as_ref().map(|evict| Evictor::new(evict, time)).transpose().map_err(invariant)?;
        let of_window = process.keys.len() + 3;
        if spec.output.columns.len() != of_window + process.function.outputs.len() {
            let (planned, known) = (spec.output.columns.len(), of_window + process.function.outputs.len());
            return Err(invariant(format!("the output has {planned} columns in the plan, {known} in the engine")));
        }
        Ok(Self {
            uid: spec.uid.clone(),
            clause: spec.clause.clone(),
            function: process.function.name.clone(),
            declaration: Arc::new(process.function.clone()),
            keys: process.keys.clone(),
            key_schema: Arc::new(Schema::new(process.keys.iter().map(Column::to_field).collect::<Vec<_>>())),
            sides,
            series: grid.and_then(|grid| Series::of(&window.window, grid)),
            evict,
            own_output: StreamSchema::append(process.function.outputs.clone()),
            read: spec.sides.clone(),
            output: spec.output.to_arrow(),
        })
    }

    /// Puts keys and window before rows that the function gave for the window that fires.
    pub(super) fn output(&self, firing: &Firing, runs: &mut Runs, own: RecordBatch) -> Result<RecordBatch, EngineError> {
        let rows = own.num_rows();
        let keys = firing.index.keys(Rows::Ids(&runs.take(rows)));
        let window = firing.window.result_columns(rows);
        let columns: Vec<ArrayRef> = keys.into_iter().chain(window).chain(own.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&self.output), columns).map_err(|source| self.kernel(source))
    }

    /// An Arrow kernel failed.
    pub(in super::super) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }

    /// A rule of the engine's own was broken.
    pub(in super::super) fn invariant(&self, message: impl Into<String>) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message: message.into() }
    }
}

impl WaitingOwner for Shape {
    fn uid(&self) -> &Uid {
        &self.uid
    }

    fn sides(&self) -> &[Side] {
        &self.sides
    }

    fn remedy(&self) -> &'static str {
        "make the window shorter, or aggregate before it"
    }

    fn kernel(&self, source: ArrowError) -> EngineError {
        Self::kernel(self, source)
    }
}
