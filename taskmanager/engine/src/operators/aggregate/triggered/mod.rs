//! Aggregates in windows with a trigger of a user: rows are added up by key and window, and a window gives what it has come to whenever
//! the trigger says so.
//!
//! Windows, trigger, sessions, late rows and restores are those of functions (`GroupWindows`); here is what their windows hold. Must
//! never know what the trigger does.

mod sums;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int8Array, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateSpec, FiringSpec, OperatorSpec, TriggerSpec, WindowSpec};
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS};
use levada_common::types::RowKind;
use levada_state::bits::Bits;
use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
use levada_state::snapshot::StatePart;

use super::restore::{RestoredRows, refuse, restored_rows};
use super::sessions::SessionSource;
use super::shape::Shape;
use crate::error::EngineError;
use crate::function::{FunctionError, Functions, TriggerResult};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::pending::Pending;
use crate::operators::process::groups::{
    Arrival, Belongs, Contents, Entries, Frame, GroupWindows, Place, Returned, Trigger, namespace, rows_of,
};
use crate::operators::window::{Series, Split, Window, WindowClock};
use sums::Sums;

/// A global window, as its trigger and states see it: all times that a row may have.
const EVER: Window = Window { start: EVENT_TIME_MIN_MS, end: EVENT_TIME_MAX_MS + 1 };

/// The operator of such an aggregation, not yet opened.
///
/// Errors: as `super::build`.
pub(super) fn build(
    (spec, aggregate, trigger): (&OperatorSpec, &AggregateSpec, &TriggerSpec),
    shape: Arc<Shape>,
    late: LateRows,
    functions: &Functions,
) -> Result<Box<dyn Operator>, EngineError> {
    let keys = aggregate.keys.iter().filter_map(|key| spec.input.column(key).cloned()).collect();
    let series = shape.grid.and_then(|grid| Series::of(&aggregate.window, grid));
    let frame = Frame::new(spec, &trigger.part.function.name, keys, series);
    let sessions = match &aggregate.window {
        WindowSpec::Session { gap } => {
            let source = SessionSource::of_rows(spec, &spec.input, gap, &aggregate.time);
            vec![source.map_err(|reason| shape.invariant(reason))?]
        }
        _ => Vec::new(),
    };
    let asked = Trigger::new(&frame, &trigger.part, &[&spec.input], functions)?;
    let contents = Totals {
        frame,
        sums: Sums::new(&shape),
        shape,
        accumulates: trigger.accumulate,
        given: None,
        round_of: Vec::new(),
        fired: Vec::new(),
        purged: Vec::new(),
        is_purged: Bits::default(),
        pending: Pending::default(),
        waiting: 0,
        rows_max: 1,
    };
    let clock = WindowClock::new(&aggregate.time);
    Ok(Box::new(GroupWindows::new(contents, Some(asked), (sessions, vec![late]), (clock, trigger.lateness_ms))))
}

/// What the rows of windows have come to.
///
/// Shape of the output: keys, where there are some the window's columns, aggregates. Where results accumulate a changelog by key and
/// window (of sessions by key and `window_start`): the first result of a window is an insert, each further one an update, whatever was
/// purged in between; what a session has given that begins earlier now, or is part of another, is taken back. Else rows, each over what
/// came since the one before.
struct Totals {
    frame: Frame,
    shape: Arc<Shape>,
    sums: Sums,
    accumulates: bool,
    /// Windows of which a result was given, where results accumulate.
    given: Option<ValueState<bool>>,
    /// By group: how often it has fired with rows of the batch; all 0 between two.
    round_of: Vec<u32>,
    /// Groups that fire, as they are now.
    fired: Vec<Fired>,
    /// Groups that are emptied once these are given.
    purged: Vec<u32>,
    is_purged: Bits,
    pending: Pending,
    /// Rows in `pending`.
    waiting: usize,
    rows_max: usize,
}

/// The round of this number, of which all before it are there.
fn round_at(rounds: &mut Vec<Round>, number: u32) -> &mut Round {
    if rounds.len() == number as usize {
        rounds.push(Round::default());
    }
    &mut rounds[number as usize]
}

/// Rows of a batch that are added up together, by their places.
#[derive(Default)]
struct Round {
    places: Vec<u32>,
    /// Sessions that begin earlier behind it, as they are in it.
    taken_back: Vec<(u32, Window)>,
}

/// A group that fires.
struct Fired {
    group: u32,
    key: u32,
    window: Window,
    kind: RowKind,
}

impl Totals {
    fn failed(&self, source: impl Into<FunctionError>) -> EngineError {
        let (uid, function) = (self.frame.uid.clone(), self.frame.name.clone());
        EngineError::Function { uid, function, source: Box::new(source.into()) }
    }

    /// Notes that a result of a group is given, or that none stands; answers whether one did.
    fn mark_given(&self, place: &mut Place<'_>, group: u32, is_given: bool) -> Result<bool, EngineError> {
        let Some(given) = &self.given else { return Ok(false) };
        let group = place.groups.get(group);
        place.inner.enter_window(group.key, namespace(group.name));
        let keyed = &mut place.inner.keyed;
        let was_given = given.get(keyed).map_err(|source| self.failed(source))?.is_some();
        match (was_given, is_given) {
            (false, true) => given.set(keyed, true).map_err(|source| self.failed(source))?,
            (true, false) => given.clear(keyed).map_err(|source| self.failed(source))?,
            _ => {}
        }
        Ok(was_given)
    }

    /// Whether a result of a group stands.
    fn is_given(&self, place: &mut Place<'_>, group: u32) -> Result<bool, EngineError> {
        let Some(given) = &self.given else { return Ok(false) };
        let group = place.groups.get(group);
        place.inner.enter_window(group.key, namespace(group.name));
        Ok(given.get(&mut place.inner.keyed).map_err(|source| self.failed(source))?.is_some())
    }

    /// Rows of a batch in rounds: in each a group has the rows up to the first of which something was answered, or with which it begins
    /// earlier though a result of it stands.
    fn rounds(&mut self, place: &mut Place<'_>, entries: &Entries, answers: &[TriggerResult]) -> Result<Vec<Round>, EngineError> {
        let (mut rounds, mut restarts) = (Vec::<Round>::new(), entries.restarts.iter().peekable());
        // Of sessions that begin earlier in this batch: whether a result stands by then.
        let mut stands: HashMap<u32, bool> = HashMap::new();
        for group in entries.restarts.iter().map(|(at, _)| entries.groups[*at]) {
            stands.insert(group, self.is_given(place, group)?);
        }
        for (at, group) in entries.groups.iter().enumerate() {
            let round = &mut self.round_of[*group as usize];
            if let Some((_, before)) = restarts.next_if(|(restart, _)| *restart == at)
                && stands.insert(*group, false) == Some(true)
            {
                round_at(&mut rounds, *round).taken_back.push((*group, *before));
                *round += 1;
            }
            round_at(&mut rounds, *round).places.push(at as u32);
            *round += u32::from(answers[at] != TriggerResult::Continue);
            if let Some(stands) = stands.get_mut(group).filter(|_| answers[at].fires()) {
                *stands = true;
            }
        }
        entries.groups.iter().for_each(|group| self.round_of[*group as usize] = 0);
        Ok(rounds)
    }

    /// Gives these groups, which have these results.
    fn give(&mut self, place: &Place<'_>, fired: &[Fired], results: Vec<ArrayRef>) -> Result<(), EngineError> {
        let keys: Vec<u32> = fired.iter().map(|fired| fired.key).collect();
        let op: Option<ArrayRef> = self
            .accumulates
            .then(|| Arc::new(Int8Array::from_iter_values(fired.iter().map(|fired| fired.kind as i8))) as ArrayRef);
        let times = |time: fn(Window) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(fired.iter().map(|fired| time(fired.window))))
        };
        let window: Vec<ArrayRef> = match self.shape.is_windowed {
            true => vec![times(|window| window.start), times(|window| window.end), times(|window| window.end.saturating_sub(1))],
            false => Vec::new(),
        };
        let columns = op.into_iter().chain(place.inner.keyed.key_columns(&keys)).chain(window).chain(results);
        let batch = self.shape.output(columns.collect())?;
        self.waiting += batch.num_rows();
        self.pending.push(batch);
        Ok(())
    }
}

impl Contents for Totals {
    type Saved = Vec<ArrayRef>;

    const TAKES_BACK: bool = true;

    fn frame(&self) -> &Frame {
        &self.frame
    }

    fn remedy(&self) -> &'static str {
        "make the window, or the session's gap, shorter, group by fewer keys, or purge windows with the trigger"
    }

    fn kept(&self, _input: usize, batch: &RecordBatch, _now: Option<i64>) -> Result<RecordBatch, EngineError> {
        Ok(batch.clone())
    }

    fn keys(&self, _input: usize, kept: &RecordBatch) -> Vec<ArrayRef> {
        self.shape.keys(kept)
    }

    fn split(&self, _input: usize, kept: &RecordBatch, now: Option<i64>) -> Result<Vec<(Window, Split)>, EngineError> {
        if self.shape.windows.is_none() {
            return Ok(vec![(EVER, Split::All)]);
        }
        self.shape.split_at(kept, now)
    }

    fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError> {
        if self.accumulates {
            self.given = Some(ValueStateDescriptor::new(TriggerSpec::GIVEN).per_window().bind(binder)?);
        }
        Ok(())
    }

    fn open(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        self.rows_max = context.batch_rows_max;
        Ok(())
    }

    /// Rows are added up together as far as nothing is answered in between.
    fn take_in(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError> {
        let inputs = self.shape.inputs(&arrival.batch);
        self.round_of.resize(place.groups.numbers().max(self.round_of.len()), 0);
        for Round { places: round, taken_back } in self.rounds(place, entries, answers)? {
            let of_round = |values: &[u32]| round.iter().map(|at| values[*at as usize]).collect::<Vec<u32>>();
            let (rows, groups) = (of_round(&entries.rows), of_round(&entries.groups));
            if !rows.is_empty() {
                let columns = rows_of(&inputs, &rows).map_err(|source| self.shape.kernel(source))?;
                self.sums.add(&self.shape, place, &groups, &columns)?;
            }
            for at in round.iter().map(|at| *at as usize).filter(|at| answers[*at] != TriggerResult::Continue) {
                self.answer(place, entries.groups[at], entries.windows[at], answers[at])?;
            }
            self.flush(place)?;
            taken_back.into_iter().try_for_each(|(group, window)| self.take_back(place, group, window))?;
        }
        Ok(())
    }

    fn answer(&mut self, place: &mut Place<'_>, group: u32, window: Window, answer: TriggerResult) -> Result<(), EngineError> {
        if self.is_purged.get(group) {
            // It is empty from then on.
            self.flush(place)?;
        }
        if answer.fires() && self.sums.has(group) {
            let kind = if self.mark_given(place, group, true)? { RowKind::UpdateAfter } else { RowKind::Insert };
            self.fired.push(Fired { group, key: place.groups.get(group).key, window, kind });
        }
        if (answer.purges() || (answer.fires() && !self.accumulates)) && self.is_purged.set(group) {
            self.purged.push(group);
        }
        if self.fired.len() >= self.rows_max { self.flush(place) } else { Ok(()) }
    }

    fn flush(&mut self, place: &mut Place<'_>) -> Result<(), EngineError> {
        let fired = std::mem::take(&mut self.fired);
        if !fired.is_empty() {
            let groups: Vec<u32> = fired.iter().map(|fired| fired.group).collect();
            let results = self.sums.read(&groups);
            self.give(place, &fired, results)?;
        }
        if !self.purged.is_empty() {
            self.sums.clear(&self.shape, place, &self.purged);
            self.purged.drain(..).for_each(|group| self.is_purged.clear(group));
        }
        Ok(())
    }

    fn merge(&mut self, place: &mut Place<'_>, into: u32, from: u32) -> Result<(), EngineError> {
        self.sums.merge(&self.shape, place, into, from)
    }

    /// With what the session has come to, which a purge has made nothing.
    fn take_back(&mut self, place: &mut Place<'_>, group: u32, window: Window) -> Result<(), EngineError> {
        if !self.mark_given(place, group, false)? {
            return Ok(());
        }
        let results = if self.sums.has(group) { self.sums.read(&[group]) } else { Sums::nothing(&self.shape) };
        let fired = Fired { group, key: place.groups.get(group).key, window, kind: RowKind::Delete };
        self.give(place, &[fired], results)
    }

    fn clear(&mut self, place: &mut Place<'_>, groups: &[u32]) {
        self.sums.clear(&self.shape, place, groups);
    }

    fn tidy(&mut self, _place: &mut Place<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < self.rows_max
            && let Some(part) = self.pending.pop(self.rows_max - rows)
        {
            rows += part.num_rows();
            parts.push(part);
        }
        self.waiting -= rows;
        self.shape.joined(parts)
    }

    fn has_side_rows(&self) -> bool {
        false
    }

    fn next_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(None)
    }

    fn has_state(&self, name: &str) -> bool {
        name == self.shape.state_name()
    }

    fn read(&self, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Result<Vec<Returned<Vec<ArrayRef>>>, EngineError> {
        let [_, given] = FiringSpec::state_columns();
        let batches = restored.iter().flat_map(|state| &state.batches);
        let mut marks = batches.filter_map(|batch| batch.column_by_name(&given.name)?.as_boolean_opt());
        if marks.any(|given| given.true_count() > 0) {
            let reason = "results of its windows were given early or late, and a trigger would give them as new ones; drop the state, or \
                          restore once without `early` and `allowed_lateness` first";
            return Err(refuse(&self.shape, self.shape.state_name(), reason));
        }
        let returned = |RestoredRows { rows, keys, namespace, states }: RestoredRows| {
            let windows = namespace.map_or_else(|| vec![EVER; rows], |namespace| windows_in(&namespace));
            Returned { keys, rows, belongs: Belongs::In(windows), state: self.shape.state_name().into(), saved: states }
        };
        Ok(restored_rows(&self.shape, key_groups, restored)?.into_iter().map(returned).collect())
    }

    fn put_back(&mut self, place: &mut Place<'_>, saved: Vec<ArrayRef>, groups: &[u32]) -> Result<(), EngineError> {
        self.sums.put(&self.shape, place, groups, &saved)
    }

    fn snapshot(&mut self, place: &mut Place<'_>, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        Ok(vec![self.sums.snapshot(&self.shape, place, checkpoint)])
    }

    fn background(&mut self, place: &mut Place<'_>) -> Result<bool, EngineError> {
        Ok(self.sums.background(&self.shape, place))
    }

    fn abandon(&mut self, checkpoint: CheckpointId) {
        self.sums.abandon(checkpoint);
    }

    fn sizes(&self) -> Vec<(&str, usize)> {
        let beside = self.round_of.capacity() * size_of::<u32>() + self.is_purged.memory_bytes();
        vec![(self.shape.state_name(), self.sums.memory_bytes() + beside)]
    }
}

/// A column of windows.
fn windows_in(column: &ArrayRef) -> Vec<Window> {
    let times = |at: usize| column.as_struct().column(at).as_primitive::<TimestampMillisecondType>().values().clone();
    times(0).iter().zip(times(1).iter()).map(|(start, end)| Window { start: *start, end: *end }).collect()
}
