//! Aggregates in session windows that give results more than once, as changes.
//!
//! A session stays until no row can join it any more: by processing time until the tenth of a second in which it ends is over. In front
//! of a store one that nothing has touched lately leaves memory, and comes back when it is to be given; if it is closed then too, it
//! goes out from where it is. Must never know processing time beyond what `tick` says.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{AggregateSpec, FiringSpec, OperatorSpec, Trigger};
use levada_common::planned_state::SESSION_BOUNDS;
use levada_common::time::Watermark;
use levada_state::bits::Bits;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::super::shape::Shape;
use super::super::updating::Timers;
use super::collapse::Collapse;
use super::coming_in::ComingIn;
use super::ends::Ends;
use super::open_sessions::OpenSessions;
use super::rows::SessionRows;
use super::source::Source;
use super::stored_due::StoredDue;
use super::{behind, count_sessions};
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::pending::Pending;
use crate::operators::window::{Split, WindowClock};

/// Sessions on their way out: only those that have changed since they were given are.
#[derive(Debug)]
enum Job {
    /// They stay.
    Give(Vec<u32>),
    /// They are forgotten.
    Forget(Vec<u32>),
}

impl Job {
    fn sessions(&self) -> &[u32] {
        let (Self::Give(sessions) | Self::Forget(sessions)) = self;
        sessions
    }
}

/// An aggregation in session windows that give results more than once.
///
/// Shape of the output: `_op` and the columns of `Sessions`; a changelog by keys and `window_start`. A session's first result is an
/// insert, an update replaces the one before, which in a full changelog goes before it, and a result whose session begins earlier now or
/// is part of another is taken back (in a full changelog as it was given, else with the values that the session had last). At most one
/// change a session and firing. A row that would open a session which is closed is late.
#[derive(Debug)]
pub(in super::super) struct UpdatingSessions {
    shape: Arc<Shape>,
    firing: FiringSpec,
    source: Source,
    collapse: Collapse,
    open: OpenSessions,
    /// The time up to which sessions have been closed.
    closed: i64,
    /// Closed sessions that only the store has, which go first: memory still knows those that it has.
    stored_due: Option<StoredDue>,
    jobs: VecDeque<Job>,
    /// What is to be given of sessions beyond memory, once nothing waits that is known by its place there.
    coming_in: VecDeque<ComingIn>,
    pending: Pending,
    timers: Timers,
    late_rows: LateRows,
    clock: WindowClock,
    running: Option<(OperatorContext, HeapShare)>,
}

impl UpdatingSessions {
    pub(in super::super) fn new(
        shape: Arc<Shape>,
        late_rows: LateRows,
        firing: FiringSpec,
        (spec, aggregate): (&OperatorSpec, &AggregateSpec),
    ) -> Result<Self, EngineError> {
        Ok(Self {
            source: Source::new(spec, aggregate).map_err(|message| shape.invariant(message))?,
            collapse: Collapse::new(&shape),
            open: OpenSessions::new(&shape),
            shape,
            closed: i64::MIN,
            stored_due: None,
            jobs: VecDeque::new(),
            coming_in: VecDeque::new(),
            pending: Pending::default(),
            timers: Timers::of(&firing),
            late_rows,
            firing,
            clock: WindowClock::new(&aggregate.time),
            running: None,
        })
    }

    fn context(&self) -> &OperatorContext {
        &self.running.as_ref().expect("an operator is opened first").0
    }

    /// The time up to which sessions are over.
    fn over(&self) -> i64 {
        self.clock.now().map_or_else(|| self.clock.watermark(), Ends::last_over)
    }

    /// The time up to which sessions take no row in any more.
    fn last_closed(&self) -> i64 {
        self.over().saturating_sub(self.firing.lateness_ms)
    }

    /// Gives the sessions that are over, and forgets those that are closed.
    fn fire(&mut self) -> Result<(), EngineError> {
        let (over_before, closed_before) = (self.open.over, self.closed);
        self.closed = self.last_closed();
        let (mut over, mut closed) = (Vec::new(), Vec::new());
        self.open.pass(self.over(), &mut over);
        self.open.take_closing(self.closed, &mut closed);
        self.stored_due = self.open.stored_due(&self.shape, closed_before, self.closed)?;
        let jobs = [Job::Forget(closed), Job::Give(if self.firing.lateness_ms > 0 { over } else { Vec::new() })];
        self.jobs.extend(jobs.into_iter().filter(|job| !job.sessions().is_empty()));
        self.bring_in(over_before.max(self.closed), self.open.over);
        // What those that are closed have to be given goes out with them.
        self.open.away_to_give(i64::MIN, self.closed);
        Ok(())
    }

    /// Gives what is to be given of sessions beyond memory that end after `after`, at `until` or before.
    fn bring_in(&mut self, after: i64, until: i64) {
        if self.open.may_be_away(after, until) {
            self.coming_in.push_back(ComingIn::new(after, until));
        }
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let running = self.running.as_mut().expect("an operator is opened first");
        count_sessions(&self.shape, running, &self.open, &self.collapse)
    }

    /// What the last batch of parts has changed: what was taken back goes out, and what is to be given at once.
    fn note_changes(&mut self) -> Result<(), EngineError> {
        for columns in self.open.drain_taken_back() {
            self.pending.push(self.shape.output(columns)?);
        }
        let touched: Vec<u32> = self.open.touched().collect();
        self.open.note_to_give(&touched);
        let mut due = Vec::new();
        for session in touched {
            self.open.place_in_time(session);
            let is_over = self.open.is_over(session);
            let trigger = if is_over { self.firing.late } else { self.firing.early };
            let rows = match trigger {
                None => is_over.then_some(1),
                Some(Trigger { rows, .. }) => rows.map(i64::from),
            };
            if rows.is_some_and(|rows| self.open.rows(session) >= rows) {
                due.push(session);
            }
        }
        if !due.is_empty() {
            self.jobs.push_back(Job::Give(due));
        }
        Ok(())
    }

    /// Gives what has changed of the sessions that are over, or of those that are not.
    fn give_changed(&mut self, over: bool) {
        let due = self.open.take_to_give(over);
        if !due.is_empty() {
            self.jobs.push_back(Job::Give(due));
        }
        let (after, until) = if over { (self.closed, self.open.over) } else { (self.open.over, i64::MAX) };
        if let Some((after, until)) = self.open.away_to_give(after, until) {
            self.bring_in(after, until);
        }
    }

    /// Gives or forgets some of what waits; answers whether anything did.
    fn work(&mut self, rows_max: usize) -> Result<bool, EngineError> {
        if let Some(stored) = &mut self.stored_due {
            match stored.next(&self.shape, &mut self.open, rows_max)? {
                Some(batch) => self.pending.push(batch),
                None => self.stored_due = None,
            }
            return Ok(true);
        }
        if let Some((sessions, forget)) = self.next_sessions(rows_max) {
            self.give(&sessions)?;
            if forget {
                self.open.remove(&self.shape, &sessions)?;
                self.count()?;
            }
            return Ok(true);
        }
        let asked_for: Vec<(i64, i64)> = self.coming_in.iter().map(ComingIn::ends).collect();
        let Some(coming) = self.coming_in.front_mut() else { return Ok(false) };
        match coming.next(&self.shape, &mut self.open, (&asked_for, self.closed))? {
            Some(sessions) => {
                self.give(&sessions)?;
                self.make_room()?;
            }
            None => drop(self.coming_in.pop_front()),
        }
        Ok(true)
    }

    /// Gives those of these sessions that have something to be given.
    fn give(&mut self, sessions: &[u32]) -> Result<(), EngineError> {
        let (mut due, mut seen) = (sessions.to_vec(), Bits::default());
        due.retain(|session| self.open.is_due(*session) && seen.set(*session));
        if !due.is_empty() {
            // What a session gives twice may be more than a batch.
            self.pending.push(self.shape.output(self.open.give(&self.shape, &due)?)?);
        }
        Ok(())
    }

    /// To be called where nothing waits that is known by its place in memory.
    fn make_room(&mut self) -> Result<(), EngineError> {
        self.open.make_room(&self.shape, self.collapse.memory_bytes())?;
        self.count()
    }

    /// The next sessions of the first job, at most `rows_max`, and whether they are forgotten.
    fn next_sessions(&mut self, rows_max: usize) -> Option<(Vec<u32>, bool)> {
        loop {
            let (sessions, forget) = match self.jobs.front_mut()? {
                Job::Give(sessions) => (sessions, false),
                Job::Forget(sessions) => (sessions, true),
            };
            if sessions.is_empty() {
                self.jobs.pop_front();
                continue;
            }
            let rest = sessions.split_off(sessions.len().min(rows_max));
            return Some((std::mem::replace(sessions, rest), forget));
        }
    }
}

impl Operator for UpdatingSessions {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.source.open(&context.metrics);
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        self.open.over = self.over();
        if let Some(stores) = &context.cold {
            self.open.stand_before(&self.shape, stores.as_ref(), context.key_groups)?;
        }
        // A store makes it anew.
        restored.retain(|state| state.name != SESSION_BOUNDS);
        self.open.restore(&self.shape, context.key_groups, restored, self.closed)?;
        self.late_rows.open(context);
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.open.is_ready(self.collapse.memory_bytes())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, bounds) = self.source.read(batch, self.clock.now())?;
        let rows = SessionRows::new(&self.shape, &batch, bounds);
        self.open.load(&self.shape, &rows.keys, rows.len(), self.closed)?;
        for (at, is_closed) in rows.steps(self.last_closed()) {
            let rows = rows.slice(at.clone());
            self.collapse.take(&self.shape, &rows)?;
            if self.open.join(&self.shape, (&mut self.collapse, &rows), !is_closed)? > 0 {
                let late = Split::Run { start: at.start, rows: at.len() };
                self.late_rows.take(&batch, &late).map_err(|source| self.shape.kernel(source))?;
            }
            self.note_changes()?;
        }
        if self.jobs.is_empty() { self.make_room() } else { self.count() }
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        loop {
            if let Some(batch) = self.pending.pop(rows_max) {
                return Ok(Some(batch));
            }
            if !self.work(rows_max)? {
                self.make_room()?;
                return Ok(None);
            }
        }
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late_rows.poll())
    }

    fn has_output(&self) -> bool {
        let is_given = self.stored_due.is_some() || !self.jobs.is_empty() || !self.coming_in.is_empty();
        is_given || !self.pending.is_empty() || self.late_rows.has_some()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        if !self.clock.advance(watermark) {
            return Ok(Some(watermark));
        }
        self.fire()?;
        Ok(Some(behind(watermark)))
    }

    fn keeps_time(&self) -> bool {
        self.timers.are_set() || self.clock.is_processing()
    }

    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        if self.clock.is_processing() {
            self.clock.tick(time_ms);
            self.fire()?;
        }
        let due = self.timers.due(time_ms);
        if due.early {
            self.give_changed(false);
        }
        if due.late {
            self.give_changed(true);
        }
        if self.has_output() {
            return Ok(Some(time_ms));
        }
        let over = self.clock.now().and_then(|now| self.open.first_over(now)).map(|over| self.clock.shows_at(over));
        Ok(self.timers.next().into_iter().chain(over).min())
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = self.open.snapshot(&self.shape, checkpoint)?;
        parts.extend(self.clock.parts(&self.shape.uid));
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.open.save_next(&self.shape)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.clock.end();
        self.fire()
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.open.abandon(checkpoint);
        }
        Ok(())
    }
}
