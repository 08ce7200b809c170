//! A function's states: made, bound and restored.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::ProcessSpec;
use levada_common::types::Column;
use levada_state::descriptor::{BindError, Binder, Descriptor, StateId};
use levada_state::format::KEY_PREFIX;
use levada_state::keyed::{KeyedOptions, KeyedState};
use levada_state::operator_state::OperatorStates;
use levada_state::timers::TimerKind;

use crate::error::EngineError;
use crate::function::{Function, FunctionTimers, Inner};
use crate::operator::{OperatorContext, RestoredState, in_groups};

/// Binds keyed states to keys and all others to the operator.
struct Both<'a> {
    keyed: &'a mut KeyedState,
    operator: &'a mut OperatorStates,
}

impl Binder for Both<'_> {
    fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<StateId, BindError> {
        if descriptor.signature()?.declaration().kind.is_keyed() {
            self.keyed.bind(descriptor)
        } else {
            self.operator.bind(descriptor)
        }
    }
}

/// The function's states, bound: with what their database had where they are restored in one, else empty.
///
/// Errors: `Bind`, which registration has found already; a database that cannot be opened.
pub(super) fn open(
    uid: &Uid,
    process: &ProcessSpec,
    context: &OperatorContext,
    function: &mut dyn Function,
) -> Result<Inner, EngineError> {
    let options = options(uid, &process.keys, context);
    let is_keyed = process.function.states.iter().any(|state| state.kind.is_keyed());
    let mut keyed = match context.cold.as_ref().filter(|_| is_keyed) {
        Some(stores) => {
            let opened = stores.open(uid).map_err(|source| EngineError::Store { uid: uid.clone(), source: Box::new(source) })?;
            KeyedState::with_store(options, opened)
        }
        None => KeyedState::new(options),
    };
    let mut operator = OperatorStates::new(uid.clone());
    let bound = function.bind(&mut Both { keyed: &mut keyed, operator: &mut operator });
    bound.map_err(|source| EngineError::Bind {
        uid: uid.clone(),
        function: process.function.name.clone(),
        source: Box::new(source),
    })?;
    let timers = |wanted: bool| wanted.then(|| FunctionTimers::new(&process.keys, process.function.window_timers));
    let (event, processing) = (timers(process.function.event_timers), timers(process.function.processing_timers));
    Ok(Inner::new(uid.clone(), process.keys.clone(), keyed, operator, [event, processing]))
}

/// Keyed states on the heap, empty, and timers of windows where they are wanted (of event time, of processing time).
///
/// Errors: as `open`.
pub(super) fn on_heap<T>(
    (uid, function): (&Uid, &str),
    keys: &[Column],
    context: &OperatorContext,
    timers: [bool; 2],
    bind: impl FnOnce(&mut dyn Binder) -> Result<T, BindError>,
) -> Result<(Inner, T), EngineError> {
    let mut keyed = KeyedState::new(options(uid, keys, context));
    let bound = bind(&mut keyed).map_err(|source| EngineError::Bind {
        uid: uid.clone(),
        function: function.into(),
        source: Box::new(source),
    })?;
    let timers = timers.map(|wanted| wanted.then(|| FunctionTimers::new(keys, true)));
    Ok((Inner::new(uid.clone(), keys.to_vec(), keyed, OperatorStates::new(uid.clone()), timers), bound))
}

fn options(uid: &Uid, keys: &[Column], context: &OperatorContext) -> KeyedOptions {
    KeyedOptions {
        uid: uid.clone(),
        keys: keys.to_vec(),
        key_groups: context.key_groups,
        max_parallelism: context.max_parallelism,
        budget: Arc::clone(&context.heap_budget),
    }
}

/// Puts what a snapshot had into the states.
///
/// Errors: `Restore` for a state that the function does not have, or has otherwise.
pub(super) fn restore(
    uid: &Uid,
    inner: &mut Inner,
    context: &OperatorContext,
    restored: Vec<RestoredState>,
) -> Result<(), EngineError> {
    for RestoredState { name, kind, batches } in restored {
        let refuse = |reason: String| EngineError::Restore { uid: uid.clone(), state: name.clone(), reason };
        let timers = TimerKind::ALL.into_iter().find(|kind| kind.state_name() == name);
        match (timers, kind.is_keyed()) {
            (Some(kind), _) => restore_timers(inner, kind, context.key_groups, &batches).map_err(refuse)?,
            (None, true) => inner.keyed.restore(&name, batches).map_err(|error| refuse(text_of(&error)))?,
            (None, false) => inner.operator.restore(&name, &batches).map_err(|error| refuse(text_of(&error)))?,
        }
    }
    Ok(())
}

fn restore_timers(inner: &mut Inner, kind: TimerKind, own: KeyGroupRange, batches: &[RecordBatch]) -> Result<(), String> {
    let mut parts = Vec::with_capacity(batches.len());
    for batch in batches {
        let batch = in_groups(batch, own)?;
        let keys = key_columns(&batch, &inner.key_columns)?;
        let mut ids = Vec::new();
        inner.keyed.intern(&keys, batch.num_rows(), &mut ids);
        parts.push((ids, batch));
    }
    let Some(timers) = inner.timers_of(kind) else {
        return Err(format!("the function sets no timers of {} time any more", word(kind)));
    };
    timers.restore(parts.iter().map(|(ids, batch)| (ids.as_slice(), batch))).map_err(|error| error.to_string())
}

/// An error with its causes.
fn text_of(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn word(kind: TimerKind) -> &'static str {
    match kind {
        TimerKind::Event => "event",
        TimerKind::Processing => "processing",
    }
}

fn key_columns(batch: &RecordBatch, keys: &[Column]) -> Result<Vec<ArrayRef>, String> {
    let column = |key: &Column| {
        let column = batch.column_by_name(&format!("{KEY_PREFIX}{}", key.name));
        let column = column.ok_or_else(|| format!("it has no key column \"{}\"", key.name))?;
        if *column.data_type() != key.ty.to_arrow() {
            return Err(format!("its key column \"{}\" is {}, the job's is {}", key.name, column.data_type(), key.ty));
        }
        Ok(Arc::clone(column))
    };
    keys.iter().map(column).collect()
}
