//! Rows as what windows of keys hold: of one input or of two, for a function that gets them when the window fires.

mod evict;
mod firing;
mod held;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::function::FunctionDeclaration;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinSide, OperatorSpec, ProcessSpec, ProcessWindow, SideOutput, WindowSpec};
use levada_state::descriptor::{BindError, Binder};
use levada_state::snapshot::StatePart;

use super::trigger;
use super::{Arrival, Belongs, Contents, Entries, Frame, GroupWindows, Place, Returned, Trigger};
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Functions, Output, TriggerResult, WindowWork};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::aggregate::SessionSource;
use crate::operators::late::LateRows;
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;
use crate::operators::process::window::Shape;
use crate::operators::waiting::{self, RestoredRows};
use crate::operators::window::{Split, Window, WindowClock, namespace_column};
use evict::Evictor;
use firing::{Firing, Given};
use held::Held;

/// The operator of such a function, not yet opened.
///
/// Errors: `Invariant` where the plan names a column that there is not; a trigger or evictor that is not registered here, or was declared
/// otherwise at planning.
pub(in super::super) fn build(
    spec: &OperatorSpec,
    process: &ProcessSpec,
    window: &ProcessWindow,
    work: Box<dyn WindowWork>,
    functions: &Functions,
) -> Result<Box<dyn Operator>, EngineError> {
    let shape = Shape::new(spec, process, window)?;
    let frame = Frame::new(spec, &shape.function, process.keys.clone(), shape.series);
    let inputs: Vec<_> = std::iter::once(&spec.input).chain(process.second.iter().map(|second| &second.schema)).collect();
    let late_names = match inputs.len() {
        1 => vec![SideOutput::LATE],
        _ => JoinSide::ALL.map(|side| side.late_output()).to_vec(),
    };
    let late = late_names.into_iter().zip(&inputs).map(|(name, input)| LateRows::new(spec, name, input));
    let late = late.collect::<Result<Vec<_>, _>>()?;
    let sessions = match &window.window {
        WindowSpec::Session { gap } => {
            let sources = inputs.iter().map(|input| SessionSource::of_rows(spec, input, gap, &window.time));
            sources.collect::<Result<Vec<_>, _>>().map_err(|reason| shape.invariant(reason))?
        }
        _ => Vec::new(),
    };
    let trigger = match (&window.trigger, window.results()) {
        (Some(part), _) => Some(Trigger::new(&frame, part, &inputs, functions)?),
        (None, Some(firing)) => Some(Trigger::of_results(firing, inputs.len())),
        (None, None) => None,
    };
    let evictor = match (&window.evictor, window.evict) {
        (Some(part), _) => {
            let evictor = trigger::create(&shape.uid, part, functions, |function, options| function.create_evictor(options))?;
            Some((Evictor::Function(evictor), Arc::new(part.function.clone())))
        }
        (None, Some(evict)) => {
            let kept = &process.window_inputs(&spec.input)[0].0;
            let time = kept.event_time.as_ref().and_then(|time| kept.batch_index(time));
            Some((Evictor::Last(evict, time), Arc::clone(&shape.declaration)))
        }
        (None, None) => None,
    };
    let contents = FunctionRows {
        held: inputs.iter().map(|_| Held::default()).collect(),
        firing: Firing::new(inputs.len()),
        frame,
        shape,
        work,
        evictor,
        given: Given::default(),
        running: None,
    };
    let clock = WindowClock::new(&window.time);
    Ok(Box::new(GroupWindows::new(contents, trigger, (sessions, late), (clock, window.lateness_ms()))))
}

/// The rows of windows, and the function that gets them.
///
/// Shape of the output: as of a function in windows; a window comes as often as it gives its rows.
struct FunctionRows {
    frame: Frame,
    shape: Shape,
    work: Box<dyn WindowWork>,
    /// With its declaration.
    evictor: Option<(Evictor, Arc<FunctionDeclaration>)>,
    /// By input.
    held: Vec<Held>,
    firing: Firing,
    given: Given,
    running: Option<Running>,
}

/// What it works with once it is opened.
struct Running {
    rows_max: usize,
    out: Output,
}

impl FunctionRows {
    fn failed(&self) -> impl Fn(FunctionError) -> EngineError + use<> {
        failed(&self.shape.uid, &self.shape.function)
    }

    /// Keeps the rows, and answers their numbers; there are so many groups.
    fn keep(&mut self, groups: usize, arrival: &Arrival, entries: &Entries) -> Result<Vec<u32>, EngineError> {
        let mut columns = entries.columns(&arrival.kept).map_err(|source| self.shape.kernel(source))?;
        if self.shape.series.is_some() {
            columns.push(window_column(&entries.windows));
        }
        let mut numbers = Vec::with_capacity(entries.rows.len());
        let kept = self.held[arrival.input].push(&columns, groups, &mut numbers);
        kept.map_err(|source| self.shape.kernel(source))?;
        Ok(numbers)
    }

    /// The window of each row, where it is in one.
    fn windows_of(&self, input: usize, batch: &RecordBatch) -> Result<Vec<Window>, EngineError> {
        let mut windows = vec![Window::WHOLE; batch.num_rows()];
        for (window, split) in self.split(input, batch, None)? {
            split.numbers(batch.num_rows()).into_iter().for_each(|row| windows[row as usize] = window);
        }
        Ok(windows)
    }
}

impl Contents for FunctionRows {
    type Saved = RestoredRows;

    const TAKES_BACK: bool = false;

    fn frame(&self) -> &Frame {
        &self.frame
    }

    fn remedy(&self) -> &'static str {
        "make the window, or the session's gap, shorter, or purge it with a trigger"
    }

    fn kept(&self, input: usize, batch: &RecordBatch, now: Option<i64>) -> Result<RecordBatch, EngineError> {
        self.shape.sides[input].rows(batch.clone(), now).map_err(|source| self.shape.kernel(source))
    }

    fn keys(&self, input: usize, kept: &RecordBatch) -> Vec<ArrayRef> {
        self.shape.sides[input].keys(kept.columns())
    }

    fn split(&self, input: usize, kept: &RecordBatch, _now: Option<i64>) -> Result<Vec<(Window, Split)>, EngineError> {
        let windows = self.shape.sides[input].windows.as_ref();
        let windows = windows.ok_or_else(|| self.shape.invariant("the function is in no window"))?;
        windows.split(kept).map_err(|reason| self.shape.invariant(reason))
    }

    fn bind(&mut self, _binder: &mut dyn Binder) -> Result<(), BindError> {
        Ok(())
    }

    fn open(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        let (uid, keys) = (&self.shape.uid, &self.shape.keys);
        let of = |declaration| FunctionContext::new(uid, context, keys.clone(), declaration);
        let (own, work) = (of(Arc::clone(&self.shape.declaration)), &mut self.work);
        guarded(|| work.open(&own)).map_err(failed(uid, &self.shape.function))?;
        if let Some((evictor, declaration)) = &mut self.evictor {
            let own = of(Arc::clone(declaration));
            guarded(|| evictor.open(&own)).map_err(failed(uid, &own.declaration.name))?;
        }
        let out = Output::new(&self.shape.own_output, context.batch_rows_max);
        let out = out.with_sides(&self.shape.declaration.sides, &self.shape.read);
        self.running = Some(Running { rows_max: context.batch_rows_max, out });
        Ok(())
    }

    fn take_in(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError> {
        let (input, numbers) = (arrival.input, self.keep(place.groups.numbers(), arrival, entries)?);
        for (at, (group, number)) in entries.groups.iter().zip(numbers).enumerate() {
            // Which of its rows stay is known when the evictor was asked.
            if self.evictor.is_some() && self.firing.has(*group) {
                self.flush(place)?;
            }
            self.held[input].append(*group, number);
            if answers[at] != TriggerResult::Continue {
                self.answer(place, *group, entries.windows[at], answers[at])?;
            }
        }
        Ok(())
    }

    fn answer(&mut self, place: &mut Place<'_>, group: u32, window: Window, answer: TriggerResult) -> Result<(), EngineError> {
        if self.evictor.is_some() && self.firing.has(group) {
            self.flush(place)?;
        }
        if answer.fires() {
            self.firing.push(group, place.groups.get(group).key, window, &self.held);
        }
        if answer.purges() {
            if self.evictor.is_some() {
                self.flush(place)?;
            }
            self.held.iter_mut().for_each(|held| held.clear(group));
        }
        let rows_max = self.running.as_ref().map_or(1, |running| running.rows_max);
        if self.firing.is_full(rows_max) { self.flush(place) } else { Ok(()) }
    }

    fn flush(&mut self, place: &mut Place<'_>) -> Result<(), EngineError> {
        let failed = self.failed();
        let Self { shape, work, evictor, held, firing, given, running: Some(running), .. } = self else { return Ok(()) };
        let evictor = evictor.as_mut().map(|(evictor, _)| evictor);
        firing.flush(shape, held, (work.as_mut(), evictor), (&*place.inner, &mut running.out, given), &failed)
    }

    fn merge(&mut self, _place: &mut Place<'_>, into: u32, from: u32) -> Result<(), EngineError> {
        self.held.iter_mut().for_each(|held| held.merge(into, from));
        Ok(())
    }

    fn take_back(&mut self, _place: &mut Place<'_>, _group: u32, _window: Window) -> Result<(), EngineError> {
        Ok(())
    }

    fn clear(&mut self, _place: &mut Place<'_>, groups: &[u32]) {
        for group in groups {
            self.held.iter_mut().for_each(|held| held.clear(*group));
        }
    }

    fn tidy(&mut self) -> Result<(), EngineError> {
        self.held.iter_mut().try_for_each(Held::tidy).map_err(|source| self.shape.kernel(source))
    }

    fn waiting(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.out.waiting())
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let failed = self.failed();
        let Some(running) = &mut self.running else { return Ok(None) };
        let own = running.out.take().map_err(failed)?;
        own.map(|own| self.given.output(&self.shape, &own)).transpose()
    }

    fn has_side_rows(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.out.has_side_rows())
    }

    fn next_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        let failed = self.failed();
        self.running.as_mut().map_or(Ok(None), |running| running.out.take_side().map_err(failed))
    }

    fn has_state(&self, name: &str) -> bool {
        self.shape.sides.iter().any(|side| side.state.name == name)
    }

    fn read(&self, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Result<Vec<Returned<RestoredRows>>, EngineError> {
        let mut returned = Vec::new();
        for rows in waiting::read(&self.shape.uid, &self.shape.sides, key_groups, restored)? {
            let (side, batch) = (&self.shape.sides[rows.side], &rows.batch);
            let belongs = match (side.time, &rows.windows) {
                (Some(time), _) => {
                    let times = crate::operators::window::times(batch.column(time));
                    Belongs::At(times.map_err(|reason| self.shape.invariant(reason))?.to_vec())
                }
                (None, Some(windows)) => Belongs::In(windows_in(windows)),
                (None, None) => Belongs::In(self.windows_of(rows.side, batch)?),
            };
            let (keys, state) = (side.keys(batch.columns()), side.state.name.clone());
            returned.push(Returned { keys, rows: batch.num_rows(), belongs, state, saved: rows });
        }
        Ok(returned)
    }

    fn put_back(&mut self, place: &mut Place<'_>, saved: RestoredRows, groups: &[u32]) -> Result<(), EngineError> {
        let RestoredRows { side: input, batch, windows, .. } = saved;
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(windows).collect();
        let mut numbers = Vec::with_capacity(groups.len());
        let kept = self.held[input].push(&columns, place.groups.numbers(), &mut numbers);
        kept.map_err(|source| self.shape.kernel(source))?;
        groups.iter().zip(numbers).for_each(|(group, number)| self.held[input].append(*group, number));
        Ok(())
    }

    fn snapshot(&mut self, _place: &mut Place<'_>, checkpoint: CheckpointId) -> Vec<StatePart> {
        let sides = self.held.iter_mut().zip(&self.shape.sides);
        let part = |(held, side): (&mut Held, &waiting::Side)| {
            let reader = held.saving.begin(checkpoint, &held.heap, None, &side.pieces, &side.saved);
            held.saving.advance();
            StatePart { meta: side.state.clone(), contents: reader.into() }
        };
        sides.map(part).collect()
    }

    fn background(&mut self, _place: &mut Place<'_>) -> bool {
        self.held.iter_mut().fold(false, |remains, held| held.saving.advance() | remains)
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        self.held.iter_mut().for_each(|held| held.saving.abandon(checkpoint));
    }

    fn sizes(&self) -> Vec<(&str, usize)> {
        let sides = self.shape.sides.iter().zip(&self.held);
        sides.map(|(side, held)| (side.state.name.as_str(), held.memory_bytes())).collect()
    }
}

/// The windows of rows, as they are kept.
fn window_column(windows: &[Window]) -> ArrayRef {
    let times = |time: fn(&Window) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(windows.iter().map(time)))
    };
    namespace_column(times(|window| window.start), times(|window| window.end))
}

/// A column of windows.
fn windows_in(column: &ArrayRef) -> Vec<Window> {
    let times = |at: usize| column.as_struct().column(at).as_primitive::<TimestampMillisecondType>().values().clone();
    times(0).iter().zip(times(1).iter()).map(|(start, end)| Window { start: *start, end: *end }).collect()
}
