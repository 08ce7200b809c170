//! Aggregates in session windows: from a key's row to its last one that comes before the gap after the one before is over.
//!
//! A batch is collapsed to parts of sessions, and the parts are joined to the open ones: the work is per batch and session. A
//! session that a row touches is not over: `[0, 10)` and a row at 10 are one, as in Flink. So a session fires when no such row can
//! come any more, which is a millisecond after its end, and time goes on downstream a millisecond behind; results then do not depend
//! on when watermarks come. In front of a store sessions that nothing has touched lately are in memory only while there is room.

mod away;
mod collapse;
mod coming_in;
mod ends;
mod memory;
mod open_sessions;
mod partial;
mod rows;
mod saving;
mod source;
mod store;
mod stored_due;
mod updating;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{AggregateSpec, OperatorSpec};
use levada_common::planned_state::SESSION_BOUNDS;
use levada_common::time::Watermark;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::late::LateRows;
use crate::operators::window::{Split, WindowClock};
use collapse::Collapse;
use open_sessions::OpenSessions;
use rows::SessionRows;
use source::Source;
use stored_due::StoredDue;

pub(in crate::operators) use ends::Ends;
pub(super) use partial::Partial;
pub(in crate::operators) use source::Source as SessionSource;
pub(super) use updating::UpdatingSessions;

/// An aggregation in session windows.
///
/// Shape of the output: keys, `window_start` (the first row's time), `window_end` (the last one's, and the gap), `window_time`
/// (end − 1 ms), aggregates; append. A row that would open a session which is over is late: counted, and given beside the result
/// where that is read. By processing time no row is.
#[derive(Debug)]
pub(super) struct Sessions {
    shape: Arc<Shape>,
    source: Source,
    collapse: Collapse,
    open: OpenSessions,
    /// Sessions on their way out, in order.
    due: VecDeque<u32>,
    /// Those of them that only the store has, which go first.
    stored_due: Option<StoredDue>,
    /// By processing time: the time up to which sessions have gone out.
    given_until: i64,
    clock: WindowClock,
    late: LateRows,
    running: Option<(OperatorContext, HeapShare)>,
}

impl Sessions {
    pub(super) fn new(
        shape: Arc<Shape>,
        late: LateRows,
        spec: &OperatorSpec,
        aggregate: &AggregateSpec,
    ) -> Result<Self, EngineError> {
        Ok(Self {
            source: Source::new(spec, aggregate).map_err(|message| shape.invariant(message))?,
            collapse: Collapse::new(&shape),
            open: OpenSessions::new(&shape),
            shape,
            due: VecDeque::new(),
            stored_due: None,
            given_until: i64::MIN,
            clock: WindowClock::new(&aggregate.time),
            late,
            running: None,
        })
    }

    fn context(&self) -> &OperatorContext {
        &self.running.as_ref().expect("an operator is opened first").0
    }

    /// The time up to which sessions are over, and out.
    fn over(&self) -> i64 {
        if self.clock.is_processing() { self.given_until } else { self.clock.watermark() }
    }

    /// Sends the sessions out that are over, and were not when time had come to `before`.
    fn fire(&mut self, before: i64) -> Result<(), EngineError> {
        let mut due = Vec::new();
        self.stored_due = self.open.stored_due(&self.shape, before, self.clock.watermark())?;
        self.open.take_due(self.clock.watermark(), &mut due);
        self.due.extend(due);
        Ok(())
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let running = self.running.as_mut().expect("an operator is opened first");
        count_sessions(&self.shape, running, &self.open, &self.collapse)
    }
}

impl Operator for Sessions {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.source.open(&context.metrics);
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        if let Some(stores) = &context.cold {
            self.open.stand_before(&self.shape, stores.as_ref(), context.key_groups)?;
        }
        // A store makes it anew.
        restored.retain(|state| state.name != SESSION_BOUNDS);
        // What a job that took late rows in had kept of sessions that are over is left out: their results were given.
        self.open.restore(&self.shape, context.key_groups, restored, self.over())?;
        self.late.open(context);
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.open.is_ready(self.collapse.memory_bytes())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, bounds) = self.source.read(batch, self.clock.now())?;
        let rows = SessionRows::new(&self.shape, &batch, bounds);
        self.open.load(&self.shape, &rows.keys, rows.len(), self.over())?;
        for (at, is_over) in rows.steps(self.clock.watermark()) {
            let rows = rows.slice(at.clone());
            self.collapse.take(&self.shape, &rows)?;
            if self.open.join(&self.shape, (&mut self.collapse, &rows), !is_over)? > 0 {
                let late = Split::Run { start: at.start, rows: at.len() };
                self.late.take(&batch, &late).map_err(|source| self.shape.kernel(source))?;
            }
        }
        self.open.make_room(&self.shape, self.collapse.memory_bytes())?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context().batch_rows_max;
        if let Some(stored) = &mut self.stored_due {
            match stored.next(&self.shape, &mut self.open, rows_max)? {
                Some(batch) => return Ok(Some(batch)),
                None => self.stored_due = None,
            }
        }
        let rows = self.due.len().min(rows_max);
        if rows == 0 {
            return Ok(None);
        }
        let sessions: Vec<u32> = self.due.drain(..rows).collect();
        let batch = self.shape.output(self.open.read(&sessions))?;
        self.open.remove(&self.shape, &sessions)?;
        self.count()?;
        Ok(Some(batch))
    }

    fn has_output(&self) -> bool {
        !self.due.is_empty() || self.stored_due.is_some() || self.late.has_some()
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.poll())
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        let before = self.clock.watermark();
        if !self.clock.advance(watermark) {
            return Ok(Some(watermark));
        }
        self.fire(before)?;
        Ok(Some(behind(watermark)))
    }

    fn keeps_time(&self) -> bool {
        self.clock.is_processing()
    }

    /// Sessions go out when the tenth of a second in which they end is over, so that no one is looked at more often.
    fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        self.clock.tick(time_ms);
        let Some(now) = self.clock.now() else { return Ok(None) };
        let (before, until) = (self.given_until, Ends::last_over(now));
        if until > before {
            self.stored_due = self.open.stored_due(&self.shape, before, until)?;
            self.given_until = until;
        }
        let mut due = Vec::new();
        let next = self.open.take_over(now, &mut due);
        self.due.extend(due);
        let is_due = !self.due.is_empty() || self.stored_due.is_some();
        Ok(if is_due { Some(time_ms) } else { next.map(|next| self.clock.shows_at(next)) })
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
        let before = self.over();
        self.clock.end();
        self.fire(before)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.open.abandon(checkpoint);
        }
        Ok(())
    }
}

/// The time that goes on downstream: a millisecond behind, as sessions are given, until the data has ended.
pub(in crate::operators) fn behind(watermark: Watermark) -> Watermark {
    if watermark == Watermark::MAX { watermark } else { Watermark(watermark.0.saturating_sub(1)) }
}

/// Counts what is held, and charges it.
///
/// Errors: `OverBudget`.
fn count_sessions(
    shape: &Shape,
    (context, share): &mut (OperatorContext, HeapShare),
    open: &OpenSessions,
    collapse: &Collapse,
) -> Result<(), EngineError> {
    let bytes = open.memory_bytes() + collapse.memory_bytes();
    context.metrics.state_keys.store(open.entries() as u64, Ordering::Relaxed);
    context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
    if let Some(store) = &open.store {
        // It has a share of memory of its own.
        context.metrics.set_store(store.behind.write_back.metrics());
        return Ok(());
    }
    charge(&shape.uid, share, &[(shape.state_name(), bytes)], shape.remedy)
}
