//! Rows as what windows of keys hold: of one input or of two, for a function that gets them when the window fires.

mod evict;
mod firing;
mod held;
mod placing;
mod stored;
mod taking;

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::function::FunctionDeclaration;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinSide, OperatorSpec, ProcessSpec, ProcessWindow, SideOutput, WindowSpec};
use levada_common::planned_state::ROW_NUMBERS;
use levada_state::cold::ColdMetrics;
use levada_state::descriptor::{BindError, Binder};
use levada_state::snapshot::StatePart;

use super::trigger;
use super::{Arrival, Belongs, Contents, Entries, Frame, GroupWindows, Place, Returned, Trigger};
use crate::error::EngineError;
use crate::function::{FunctionContext, FunctionError, Functions, Output, TriggerResult, WindowWork};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::aggregate::SessionSource;
use crate::operators::event_time::number_part;
use crate::operators::late::LateRows;
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;
use crate::operators::process::window::Shape;
use crate::operators::rows::StoredRows;
use crate::operators::waiting::{self, RestoredRows};
use crate::operators::window::{Split, Window, WindowClock, placed_part};
use evict::Evictor;
use firing::{Firing, Given};
use held::Held;
use placing::placed_by;
use stored::Behind;

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
        placed_by: placed_by(window, &shape),
        is_session: !sessions.is_empty(),
        behind: None,
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
    /// By what rows are in their windows.
    placed_by: String,
    is_session: bool,
    /// What is behind the rows, where something is.
    behind: Option<Behind>,
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

    /// Gives memory back that rows held which are gone.
    fn tidy_rows(&mut self) -> Result<(), EngineError> {
        self.held.iter_mut().try_for_each(Held::tidy).map_err(|source| self.shape.kernel(source))
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
        self.stand_before_store(context)
    }

    fn take_in(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError> {
        self.take_all(place, arrival, entries, answers)
    }

    fn answer(&mut self, place: &mut Place<'_>, group: u32, window: Window, answer: TriggerResult) -> Result<(), EngineError> {
        if self.evictor.is_some() && self.firing.has(group) {
            self.flush(place)?;
        }
        if answer.fires() {
            self.bring_in_away(place, &[group])?;
            self.note_fired(place, group);
            self.firing.push(group, place.groups.get(group).key, window, &self.held);
        }
        if answer.purges() {
            if self.evictor.is_some() {
                self.flush(place)?;
            }
            self.clear(place, &[group]);
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

    fn merge(&mut self, place: &mut Place<'_>, into: u32, from: u32) -> Result<(), EngineError> {
        if self.behind.is_some() {
            return self.merge_stored(place, into, from);
        }
        self.held.iter_mut().for_each(|held| held.merge(into, from));
        Ok(())
    }

    fn take_back(&mut self, _place: &mut Place<'_>, _group: u32, _window: Window) -> Result<(), EngineError> {
        Ok(())
    }

    fn clear(&mut self, place: &mut Place<'_>, groups: &[u32]) {
        self.clear_away(place, groups);
        for group in groups {
            self.held.iter_mut().for_each(|held| held.clear(*group));
        }
    }

    fn tidy(&mut self, place: &mut Place<'_>) -> Result<(), EngineError> {
        self.tidy_rows()?;
        match self.before(place.groups.numbers()) {
            Some((store, mut rows)) => store.make_room(&mut rows),
            None => Ok(()),
        }
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
        let read = waiting::read(&self.shape.uid, &self.shape.sides, key_groups, restored)?;
        read.into_iter().map(|rows| self.returned(rows)).collect()
    }

    fn put_back(&mut self, place: &mut Place<'_>, saved: RestoredRows, groups: &[u32]) -> Result<(), EngineError> {
        if self.behind.is_some() {
            return self.put_stored(place, saved, groups);
        }
        let RestoredRows { side: input, batch, windows, .. } = saved;
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(windows).collect();
        let mut numbers = Vec::with_capacity(groups.len());
        let kept = self.held[input].push(&columns, place.groups.numbers(), &mut numbers);
        kept.map_err(|source| self.shape.kernel(source))?;
        groups.iter().zip(numbers).for_each(|(group, number)| self.held[input].append(*group, number));
        Ok(())
    }

    fn snapshot(&mut self, place: &mut Place<'_>, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        if let Some((store, mut rows)) = self.before(place.groups.numbers()) {
            let mut parts = store.snapshot(&mut rows, checkpoint)?;
            let next = self.held.iter().filter_map(|held| held.stored.as_ref()).map(StoredRows::next_number).max();
            parts.extend(number_part(&self.shape.uid, ROW_NUMBERS, next.unwrap_or_default()));
            parts.extend(placed_part(&self.shape.uid, self.placed_by.clone()));
            return Ok(parts);
        }
        let sides = self.held.iter_mut().zip(&self.shape.sides);
        let part = |(held, side): (&mut Held, &waiting::Side)| {
            let reader = held.saving.begin(checkpoint, &held.heap, None, &side.pieces, &side.saved);
            held.saving.advance();
            StatePart { meta: side.state.clone(), contents: reader.into() }
        };
        Ok(sides.map(part).collect())
    }

    fn background(&mut self, place: &mut Place<'_>) -> Result<bool, EngineError> {
        match self.before(place.groups.numbers()) {
            Some((store, mut rows)) => store.background(&mut rows),
            None => Ok(self.held.iter_mut().fold(false, |remains, held| held.saving.advance() | remains)),
        }
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        if let Some(Behind { store, .. }) = &mut self.behind {
            return store.abandon(checkpoint);
        }
        self.held.iter_mut().for_each(|held| held.saving.abandon(checkpoint));
    }

    fn sizes(&self) -> Vec<(&str, usize)> {
        let sides = self.shape.sides.iter().zip(&self.held);
        let bytes = |held: &Held| if self.behind.is_some() { held.group_bytes() } else { held.memory_bytes() };
        sides.map(|(side, held)| (side.state.name.as_str(), bytes(held))).collect()
    }

    fn before_store(&self) -> Option<(ColdMetrics, usize)> {
        let Behind { store, .. } = self.behind.as_ref()?;
        let bytes: usize = self.held.iter().map(|held| held.row_bytes().bytes).sum();
        Some((store.metrics(), bytes + store.memory_bytes()))
    }

    fn take_stored(&mut self, restored: &mut Vec<RestoredState>) -> Result<(), EngineError> {
        self.begin_placing(restored)
    }

    fn stand(&mut self, place: &mut Place<'_>) {
        self.are_away((0..place.groups.numbers() as u32).filter(|group| place.groups.has(*group)));
    }

    fn next_stored(&mut self) -> Result<Option<Returned<RestoredRows>>, EngineError> {
        let rows = self.next_unplaced()?;
        rows.map(|rows| self.returned(rows)).transpose()
    }

    fn settle(&mut self, place: &mut Place<'_>) -> Result<(), EngineError> {
        self.tidy_rows()?;
        match self.before(place.groups.numbers()) {
            Some((store, mut rows)) => store.settle(&mut rows),
            None => Ok(()),
        }
    }

    fn is_ready(&mut self, place: &mut Place<'_>) -> Result<bool, EngineError> {
        match self.before(place.groups.numbers()) {
            Some((store, rows)) => store.is_ready(&rows),
            None => Ok(true),
        }
    }

    fn groups_at_once(&self) -> usize {
        self.behind.as_ref().map_or(usize::MAX, |behind| behind.store.keys_at_once())
    }

    fn bring_in(&mut self, place: &mut Place<'_>, groups: &[u32]) -> Result<(), EngineError> {
        self.bring_in_away(place, groups)
    }
}
