//! The operator that runs a function of a user.
//!
//! It gives the function batches and due timers, holds its states, and takes part in checkpoints for it. Must never know what
//! the function does. Invariant: timers of event time fire before the watermark that they waited for goes on.

pub(super) mod groups;
mod guard;
mod states;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::Schema;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::function::FunctionDeclaration;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::{OperatorSpec, ProcessSpec};
use levada_common::time::Watermark;
use levada_common::types::{Column, StreamSchema};
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::function::{
    FiredTimers, Function, FunctionContext, FunctionError, Functions, Inner, Namespace, Output, RegisteredFunction, Rows,
    TimerKind,
};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::event_time::{event_times, restored_watermark, watermark_part};
use guard::guarded;

/// Most timers that a function gets at once.
const TIMERS_PER_CALL: usize = 1024;

/// The operator of `spec`, not yet opened.
///
/// Errors: a function that is not registered here, or that was declared otherwise at planning.
pub(super) fn build(spec: &OperatorSpec, process: &ProcessSpec, functions: &Functions) -> Result<Box<dyn Operator>, EngineError> {
    let uid = &spec.uid;
    let registered = registered(uid, &process.function, functions)?;
    let failed = failed(uid, &process.function.name);
    if let Some(window) = &process.window {
        let work = guarded(|| registered.create_windowed(&process.options)).map_err(failed)?;
        if window.is_by_key() {
            return groups::build(spec, process, window, work, functions);
        }
        return window::build(spec, process, window, work);
    }
    let function = guarded(|| registered.create(&process.options)).map_err(failed)?;
    let mut inputs = vec![Keyed::new(uid, &spec.input, process.keys.iter().map(|key| &key.name))?];
    if let Some(second) = &process.second {
        inputs.push(Keyed::new(uid, &second.schema, second.keys.iter())?);
    }
    Ok(Box::new(Process { spec: spec.clone(), process: process.clone(), function, inputs, running: None }))
}

/// The function that is registered here under the name of a planned one.
///
/// Errors: none is, or it is declared otherwise.
fn registered<'a>(
    uid: &Uid,
    planned: &FunctionDeclaration,
    functions: &'a Functions,
) -> Result<&'a RegisteredFunction, EngineError> {
    let name = &planned.name;
    let registered = functions.get(name).ok_or_else(|| EngineError::UnknownFunction {
        uid: uid.clone(),
        function: name.clone(),
        known: functions.keys().cloned().collect::<Vec<_>>().join(", "),
    })?;
    if registered.declaration() != planned {
        return Err(EngineError::OtherFunction { uid: uid.clone(), function: name.clone() });
    }
    Ok(registered)
}

/// What an error of a node's function becomes.
fn failed(uid: &Uid, function: &str) -> impl Fn(FunctionError) -> EngineError + use<> {
    let (uid, function) = (uid.clone(), function.to_owned());
    move |source| EngineError::Function { uid: uid.clone(), function: function.clone(), source: Box::new(source) }
}

/// An input whose rows belong to keys, or the only one of a function without a key.
struct Keyed {
    /// Places of the key's columns.
    keys: Vec<usize>,
    /// Place of the event time.
    event_time: Option<usize>,
}

impl Keyed {
    fn new<'a>(uid: &Uid, schema: &StreamSchema, keys: impl Iterator<Item = &'a String>) -> Result<Self, EngineError> {
        let place = |name: &String| {
            let message = || format!("no key column \"{name}\" in the function's input");
            schema.batch_index(name).ok_or_else(|| EngineError::Invariant { uid: uid.clone(), message: message() })
        };
        let event_time = schema.event_time.as_ref().and_then(|name| schema.batch_index(name));
        Ok(Self { keys: keys.map(place).collect::<Result<_, _>>()?, event_time })
    }

    fn keys(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.keys.iter().map(|place| Arc::clone(batch.column(*place))).collect()
    }

    fn row_times(&self, batch: &RecordBatch) -> Option<ScalarBuffer<i64>> {
        event_times(batch.column(self.event_time?)).cloned()
    }
}

/// A function in its place.
struct Process {
    spec: OperatorSpec,
    process: ProcessSpec,
    function: Box<dyn Function>,
    /// The inputs whose rows belong to keys: the first one, and the second where it is not broadcast.
    inputs: Vec<Keyed>,
    /// From `open` on.
    running: Option<Running>,
}

/// What an opened function works with.
struct Running {
    context: OperatorContext,
    /// What timers and operator states take of the memory of all heap states; keyed states are charged by themselves.
    share: HeapShare,
    inner: Inner,
    out: Output,
    key_schema: Arc<Schema>,
    /// Times of the timers that are given out.
    times_ms: Vec<i64>,
    /// Their windows, where they have some.
    windows: Vec<Namespace>,
}

impl Process {
    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<> {
        failed(&self.spec.uid, &self.process.function.name)
    }

    fn parts(&mut self) -> (&mut dyn Function, &mut Running) {
        (self.function.as_mut(), self.running.as_mut().expect("an operator is opened first"))
    }

    /// Gives the function the next timers that are due; whether there were any.
    fn fire(&mut self) -> Result<bool, EngineError> {
        let failed = self.failed();
        let (function, running) = self.parts();
        let Running { inner, out, key_schema, times_ms, windows, .. } = running;
        for kind in TimerKind::ALL {
            inner.take_due(kind, TIMERS_PER_CALL, times_ms).map_err(&failed)?;
            if times_ms.is_empty() {
                continue;
            }
            let options = RecordBatchOptions::new().with_row_count(Some(times_ms.len()));
            let keys = inner.keyed.key_columns(&inner.ids);
            let keys = RecordBatch::try_new_with_options(Arc::clone(key_schema), keys, &options);
            let keys = keys.map_err(|error| failed(FunctionError::OutputColumns(error)))?;
            windows.clone_from(&inner.windows);
            let timers = FiredTimers { kind, keys: Rows::new(&keys), times_ms, windows };
            guarded(|| function.on_timers(timers, inner, out)).map_err(&failed)?;
            inner.end_batch().map_err(&failed)?;
            self.count()?;
            return Ok(true);
        }
        Ok(false)
    }

    fn count(&mut self) -> Result<(), EngineError> {
        self.running.as_mut().expect("an operator is opened first").count(&self.spec.uid)
    }
}

impl Running {
    /// Shows how much state there is, and charges what is not charged by itself.
    ///
    /// Errors: `OverBudget`.
    fn count(&mut self, uid: &Uid) -> Result<(), EngineError> {
        use std::sync::atomic::Ordering::Relaxed;
        let metrics = &self.context.metrics;
        metrics.state_keys.store(self.inner.keyed.keys() as u64, Relaxed);
        metrics.state_bytes.store(self.inner.memory_bytes() as u64, Relaxed);
        if let Some(store) = self.inner.keyed.store_metrics() {
            metrics.set_store(store);
        }
        let sizes: Vec<_> = self.inner.sizes_beside_keyed().collect();
        if sizes.is_empty() {
            Ok(())
        } else {
            charge(uid, &mut self.share, &sizes, "set fewer timers, keep less in operator states")
        }
    }
}

impl Operator for Process {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let watermark = restored_watermark(&self.spec.uid, ProcessSpec::WATERMARK, context, &mut restored)?;
        let mut inner = states::open(&self.spec.uid, &self.process, context, self.function.as_mut())?;
        // Else what had expired would be there again until time is told.
        inner.set_watermark(Watermark(watermark));
        states::restore(&self.spec.uid, &mut inner, context, restored)?;
        let declaration = Arc::new(self.process.function.clone());
        let own = FunctionContext::new(&self.spec.uid, context, self.process.keys.clone(), declaration);
        let function = &mut self.function;
        guarded(|| function.open(&own, &mut inner)).map_err(self.failed())?;
        let fields: Vec<_> = self.process.keys.iter().map(Column::to_field).collect();
        let running = Running {
            context: context.clone(),
            share: HeapShare::new(Arc::clone(&context.heap_budget)),
            inner,
            out: Output::new(&self.spec.output, context.batch_rows_max)
                .with_sides(&self.process.function.sides, &self.spec.sides),
            key_schema: Arc::new(Schema::new(fields)),
            times_ms: Vec::new(),
            windows: Vec::new(),
        };
        self.running = Some(running);
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        let ready = self.parts().1.inner.keyed.is_ready();
        ready.map_err(|error| self.failed()(FunctionError::from(error)))
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let failed = self.failed();
        let keyed = self.inputs.get(input).map(|input| (input.keys(&batch), input.row_times(&batch)));
        let (function, Running { inner, out, .. }) = self.parts();
        match keyed {
            Some((keys, times)) if !keys.is_empty() => {
                inner.enter(&keys, batch.num_rows()).map_err(&failed)?;
                inner.row_times = times;
            }
            _ => inner.leave(),
        }
        guarded(|| function.process(input, Rows::new(&batch), inner, out)).map_err(&failed)?;
        inner.end_batch().map_err(&failed)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            let failed = self.failed();
            let out = &mut self.parts().1.out;
            if let Some(batch) = out.take().map_err(failed)? {
                return Ok(Some(batch));
            }
            // Timers that fire next may give as many rows again: those that are there go out first.
            if out.has_side_rows() || !self.fire()? {
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        let failed = self.failed();
        self.parts().1.out.take_side().map_err(failed)
    }

    fn has_output(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.out.is_empty() || running.inner.has_due())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.parts().1.inner.set_watermark(watermark);
        Ok(Some(watermark))
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        let inner = &mut self.parts().1.inner;
        inner.set_processing_time(time_ms);
        Ok(inner.next_processing_timer())
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        let failed = self.failed();
        let (function, Running { inner, .. }) = self.parts();
        guarded(|| function.snapshot(inner)).map_err(&failed)?;
        let mut parts = inner.snapshot(checkpoint, finished).map_err(&failed)?;
        let Watermark(watermark) = inner.watermark();
        if !finished && !self.process.keys.is_empty() && watermark > i64::MIN {
            let Running { context, .. } = self.running.as_ref().expect("an operator is opened first");
            parts.extend(watermark_part(&self.spec.uid, ProcessSpec::WATERMARK, context, watermark));
        }
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let failed = self.failed();
        self.parts().1.inner.background().map_err(failed)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        let failed = self.failed();
        let (function, Running { inner, out, .. }) = self.parts();
        inner.leave();
        guarded(|| function.close(inner, out)).map_err(&failed)?;
        inner.end_batch().map_err(&failed)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.parts().1.inner.notify(checkpoint, completed);
        Ok(())
    }
}
