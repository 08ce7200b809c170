//! What the contexts of a function look at; the operator holds it.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::time::Watermark;
use levada_common::types::Column;
use levada_state::keyed::{Clock, KeyedState, Namespace};
use levada_state::operator_state::OperatorStates;
use levada_state::snapshot::{StateMeta, StatePart};
use levada_state::timers::TimerKind;

use super::error::FunctionError;
use super::timers::{Due, FunctionTimers};

/// Timers that a step of the background saves.
const TIMERS_PER_STEP: usize = 8192;

/// Timers that fired before they were saved and may wait until more do.
const MOVED_TIMERS_MAX: usize = 8192;

/// States, timers, time, and the rows that can be entered.
pub(crate) struct Inner {
    uid: Uid,
    pub(crate) key_columns: Vec<Column>,
    pub(crate) keyed: KeyedState,
    pub(crate) operator: OperatorStates,
    /// Those of event time and those of processing time.
    timers: [Option<FunctionTimers>; 2],
    pub(super) watermark: Watermark,
    pub(super) processing_ms: i64,
    /// Event times of the rows of the batch, where they have some.
    pub(crate) row_times: Option<ScalarBuffer<i64>>,
    /// The key id of each row that can be entered.
    pub(crate) ids: Vec<u32>,
    /// The window of each row that can be entered, where it is a timer that has one.
    pub(crate) windows: Vec<Namespace>,
    /// The key id of the row that was entered.
    pub(super) current: Option<u32>,
    due: Due,
    emptied: Vec<u32>,
    checkpoint: Option<CheckpointId>,
}

impl Inner {
    /// Of these states; `timers`: of event time, of processing time.
    pub(crate) fn new(
        uid: Uid,
        key_columns: Vec<Column>,
        keyed: KeyedState,
        operator: OperatorStates,
        timers: [Option<FunctionTimers>; 2],
    ) -> Self {
        Self {
            uid,
            key_columns,
            keyed,
            operator,
            timers,
            watermark: Watermark::MIN,
            processing_ms: 0,
            row_times: None,
            ids: Vec::new(),
            windows: Vec::new(),
            current: None,
            due: Due::default(),
            emptied: Vec::new(),
            checkpoint: None,
        }
    }

    /// Makes these keys the ones of the rows that can be entered.
    pub(crate) fn enter(&mut self, keys: &[ArrayRef], rows: usize) -> Result<(), FunctionError> {
        self.keyed.enter(keys, rows)?;
        self.ids.clear();
        self.ids.extend_from_slice(self.keyed.ids());
        self.leave_row();
        Ok(())
    }

    /// Makes windows of keys the rows that can be entered: the id of each one's key, and the window.
    pub(crate) fn enter_windows(&mut self, keys: impl IntoIterator<Item = u32>, windows: impl IntoIterator<Item = Namespace>) {
        self.leave();
        self.ids.extend(keys);
        self.windows.extend(windows);
    }

    /// Makes this window of a key the current one.
    pub(crate) fn enter_window(&mut self, key: u32, window: Namespace) {
        self.keyed.set_current(key);
        self.keyed.set_namespace(Some(window));
    }

    /// There are no rows to be entered.
    pub(crate) fn leave(&mut self) {
        self.ids.clear();
        self.leave_row();
    }

    fn leave_row(&mut self) {
        self.row_times = None;
        self.windows.clear();
        self.current = None;
        self.keyed.set_namespace(None);
        self.tell_time();
    }

    /// How far event time has come.
    pub(crate) fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// Event time has come to `watermark`; sources that were restored may say an earlier one again.
    pub(crate) fn set_watermark(&mut self, watermark: Watermark) {
        self.watermark = self.watermark.max(watermark);
        self.tell_time();
    }

    /// It is `time_ms`.
    pub(crate) fn set_processing_time(&mut self, time_ms: i64) {
        self.processing_ms = self.processing_ms.max(time_ms);
        self.tell_time();
    }

    fn tell_time(&mut self) {
        let watermark_ms = self.watermark.0;
        self.keyed.set_clock(Clock { processing_ms: self.processing_ms, watermark_ms, row_ms: watermark_ms });
    }

    /// The timers of this kind, if the function sets any.
    pub(crate) fn timers_of(&mut self, kind: TimerKind) -> Option<&mut FunctionTimers> {
        self.timers[kind as usize].as_mut()
    }

    /// Sets a timer of the current key, and of the current window where timers belong to windows.
    #[inline]
    pub(super) fn set_timer(&mut self, kind: TimerKind, time_ms: i64) -> Result<(), FunctionError> {
        let window = self.keyed.namespace();
        let (timers, key) = self.timers(kind)?;
        timers.register(key, window, time_ms).ok_or(FunctionError::NoWindow)
    }

    /// Takes a timer back.
    #[inline]
    pub(super) fn delete_timer(&mut self, kind: TimerKind, time_ms: i64) -> Result<(), FunctionError> {
        let window = self.keyed.namespace();
        let (timers, key) = self.timers(kind)?;
        timers.delete(key, window, time_ms).ok_or(FunctionError::NoWindow)
    }

    /// The timers of this kind, and the current key.
    fn timers(&mut self, kind: TimerKind) -> Result<(&mut FunctionTimers, u32), FunctionError> {
        match (&mut self.timers[kind as usize], self.current) {
            (Some(timers), Some(key)) => Ok((timers, key)),
            (Some(_), None) => Err(FunctionError::NoKey),
            (None, _) => Err(match kind {
                TimerKind::Event => FunctionError::UndeclaredTimer { kind: "event", method: "event_timers" },
                TimerKind::Processing => FunctionError::UndeclaredTimer { kind: "processing", method: "processing_timers" },
            }),
        }
    }

    /// How far the timers of this kind are due.
    fn due(&self, kind: TimerKind) -> i64 {
        match kind {
            TimerKind::Event => self.watermark.0,
            TimerKind::Processing => self.processing_ms,
        }
    }

    /// Whether a timer is due.
    pub(crate) fn has_due(&self) -> bool {
        TimerKind::ALL.into_iter().any(|kind| self.next_due(kind).is_some())
    }

    /// When the next timer of this kind was due, if it was.
    pub(crate) fn next_due(&self, kind: TimerKind) -> Option<i64> {
        let next = self.timers[kind as usize].as_ref().and_then(FunctionTimers::next_time);
        next.filter(|next| *next <= self.due(kind))
    }

    /// Takes up to `max` timers that are due: their keys, with their windows, are the rows that can be entered, their times are put in
    /// `times_ms`.
    pub(crate) fn take_due(&mut self, kind: TimerKind, max: usize, times_ms: &mut Vec<i64>) -> Result<(), FunctionError> {
        self.take_due_until(kind, i64::MAX, max, times_ms)
    }

    /// As `take_due`, of those that were due at `until` or before.
    pub(crate) fn take_due_until(
        &mut self,
        kind: TimerKind,
        until: i64,
        max: usize,
        times_ms: &mut Vec<i64>,
    ) -> Result<(), FunctionError> {
        times_ms.clear();
        let due = self.due(kind).min(until);
        let Some(timers) = &mut self.timers[kind as usize] else { return Ok(()) };
        if timers.next_time().is_none_or(|next| next > due) {
            return Ok(());
        }
        timers.fire(due, max, &mut self.due);
        std::mem::swap(times_ms, &mut self.due.times_ms);
        self.leave();
        std::mem::swap(&mut self.ids, &mut self.due.keys);
        std::mem::swap(&mut self.windows, &mut self.due.windows);
        Ok(self.keyed.fetch_windows(&self.ids, &self.windows)?)
    }

    /// When the next timer of processing time is due.
    pub(crate) fn next_processing_timer(&self) -> Option<i64> {
        self.timers[TimerKind::Processing as usize].as_ref().and_then(FunctionTimers::next_time)
    }

    /// After each call that changed something: memory is charged, and keys that have nothing are forgotten.
    pub(crate) fn end_batch(&mut self) -> Result<(), FunctionError> {
        self.leave();
        let Self { keyed, timers, emptied, .. } = self;
        for timers in timers.iter_mut().flatten() {
            timers.flush(MOVED_TIMERS_MAX, |ids| keyed.key_columns(ids));
            timers.drain_emptied(emptied);
        }
        keyed.reconsider(emptied);
        emptied.clear();
        keyed.finish_batch(|key| timers.iter().flatten().any(|timers| timers.has_timers(key)))?;
        Ok(())
    }

    /// The synchronous part of a snapshot.
    pub(crate) fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, FunctionError> {
        self.checkpoint = Some(checkpoint);
        let mut parts = self.operator.snapshot(checkpoint)?;
        if finished {
            return Ok(parts);
        }
        parts.extend(self.keyed.snapshot(checkpoint)?);
        let Self { keyed, timers, .. } = self;
        for kind in TimerKind::ALL {
            let Some(timers) = &mut timers[kind as usize] else { continue };
            let pieces = timers.freeze(|ids| keyed.key_columns(ids));
            let declaration = timers.declaration(kind);
            let schema = Arc::new(declaration.schema(&self.key_columns));
            let (uid, name, kind) = (self.uid.clone(), declaration.name, declaration.kind);
            parts.push(StatePart { meta: StateMeta { uid, name, kind, schema }, contents: pieces.into() });
        }
        Ok(parts)
    }

    /// Saves further pieces of a running snapshot; whether more remain.
    pub(crate) fn background(&mut self) -> Result<bool, FunctionError> {
        let mut remains = self.keyed.background()? | self.operator.background()?;
        let Self { keyed, timers, .. } = self;
        for timers in timers.iter_mut().flatten() {
            remains |= timers.advance(TIMERS_PER_STEP, |ids| keyed.key_columns(ids));
        }
        Ok(remains)
    }

    /// What became of a checkpoint.
    pub(crate) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) {
        self.keyed.notify(checkpoint, completed);
        self.operator.notify(checkpoint, completed);
        if !completed && self.checkpoint == Some(checkpoint) {
            self.timers.iter_mut().flatten().for_each(FunctionTimers::abandon);
        }
    }

    /// Bytes held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keyed.memory_bytes() + self.sizes_beside_keyed().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// The bytes that timers and operator states hold, by name: they are on the heap whatever the backend.
    pub(crate) fn sizes_beside_keyed(&self) -> impl Iterator<Item = (&str, usize)> {
        let timers = TimerKind::ALL.into_iter().zip(&self.timers);
        let timers = timers.filter_map(|(kind, timers)| Some((kind.state_name(), timers.as_ref()?.memory_bytes())));
        timers.chain(self.operator.sizes())
    }
}
