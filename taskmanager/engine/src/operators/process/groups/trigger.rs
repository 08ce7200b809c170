//! A trigger in its place: what it looks at of each input, and how it is asked.

use std::sync::Arc;

use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::ids::Uid;
use levada_common::plan::{FiringSpec, ProcessSpec, WindowPart};
use levada_common::types::StreamSchema;

use super::contents::{Frame, rows_of};
use super::results::Results;
use crate::error::EngineError;
use crate::function::{FunctionError, Functions, RegisteredFunction, TriggerWork, Triggering};
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;

/// A trigger.
pub(in crate::operators) struct Trigger {
    pub(super) work: Box<dyn TriggerWork>,
    pub(super) declaration: Arc<FunctionDeclaration>,
    /// By input: places of the columns that it declares.
    places: Vec<Vec<usize>>,
}

impl Trigger {
    /// The trigger of a plan, where the operator has these inputs.
    pub(in crate::operators) fn new(
        frame: &Frame,
        part: &WindowPart,
        inputs: &[&StreamSchema],
        functions: &Functions,
    ) -> Result<Self, EngineError> {
        let work = create(&frame.uid, part, functions, |function, options| function.create_trigger(options))?;
        let places = |input: &&StreamSchema| {
            let place = |name: &String| {
                let reason = || format!("no column \"{name}\" for trigger \"{}\"", part.function.name);
                input.batch_index(name).ok_or_else(|| frame.invariant(reason()))
            };
            part.function.inputs.iter().map(|column| place(&column.name)).collect::<Result<Vec<_>, _>>()
        };
        let places = inputs.iter().map(places).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { work, declaration: Arc::new(part.function.clone()), places })
    }

    /// What gives windows early and late as `firing` says, of a function with so many inputs.
    pub(super) fn of_results(firing: FiringSpec, inputs: usize) -> Self {
        let declaration = FunctionDeclaration::new(ProcessSpec::RESULTS, FunctionKind::Trigger).merging();
        let declaration = if firing.goes_by_clock() { declaration.processing_timers() } else { declaration };
        let work = Box::new(Triggering::new(Results(firing)));
        Self { work, declaration: Arc::new(declaration), places: vec![Vec::new(); inputs] }
    }

    /// Whether it sets timers of event time, and of processing time.
    pub(super) fn timers(&self) -> [bool; 2] {
        [self.declaration.event_timers, self.declaration.processing_timers]
    }

    /// What it looks at of these rows of a batch of an input.
    pub(super) fn rows(&self, input: usize, batch: &RecordBatch, rows: &[u32]) -> Result<RecordBatch, ArrowError> {
        let batch = batch.project(&self.places[input])?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(batch.schema(), rows_of(batch.columns(), rows)?, &options)
    }
}

/// An instance of a trigger or evictor of a plan.
///
/// Errors: one that is not registered here, or that was declared otherwise at planning; what it answers.
pub(super) fn create<T>(
    uid: &Uid,
    part: &WindowPart,
    functions: &Functions,
    create: impl FnOnce(&RegisteredFunction, &Options) -> Result<T, FunctionError>,
) -> Result<T, EngineError> {
    let registered = crate::operators::process::registered(uid, &part.function, functions)?;
    guarded(|| create(registered, &part.options)).map_err(failed(uid, &part.function.name))
}
