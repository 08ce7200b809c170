//! The chain: operators that call no one, driven from behind.
//!
//! Rows are polled from the deepest operator that has some, so at most one batch is under way between two operators and a
//! full output stops the chain anywhere. Invariant: a signal is handed to an operator only when nothing before it in the
//! stream is pending in the chain, so rows and signals leave in the order in which they came.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use levada_state::snapshot::StatePart;

use crate::element::{Signal, SplitVoice};
use crate::error::EngineError;
use crate::metrics::NodeMetrics;
use crate::operator::Operator;
use crate::source::SplitId;

/// Batches moved in one pump at most, so that control messages are seen while a large window drains.
const MOVES_PER_PUMP: usize = 16;

/// Where the chain's rows go.
pub(crate) trait Outflow {
    /// Whether `write` may be called.
    fn is_ready(&mut self) -> bool;
    /// Takes rows of an output of the last operator: 0 is the main one, those after it are its sides.
    fn write(&mut self, output: usize, batch: RecordBatch) -> Result<(), EngineError>;
}

/// Counters of one node, and which of them this place of the chain writes: rows in at the node's first place in the plan,
/// rows out at its last one.
#[derive(Debug, Clone)]
pub(crate) struct RowCount {
    /// The node's counters.
    pub(crate) metrics: Arc<NodeMetrics>,
    /// Rows that come in are counted.
    pub(crate) rows_in: bool,
    /// Rows that go out are counted.
    pub(crate) rows_out: bool,
}

impl RowCount {
    /// Rows came in.
    pub(crate) fn count_in(&self, rows: usize) {
        if self.rows_in {
            self.metrics.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    /// Rows went out beside the main output, which is the node's output here and nowhere else.
    fn count_side(&self, rows: usize) {
        self.metrics.rows_out.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// Rows went out.
    pub(crate) fn count_out(&self, rows: usize) {
        if self.rows_out {
            self.metrics.rows_out.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }
}

/// One operator of a chain.
struct Stage {
    operator: Box<dyn Operator>,
    count: RowCount,
    /// It may have output: it was given something since it was last polled to the end.
    pending: bool,
    /// It wants to hear processing time.
    keeps_time: bool,
}

/// A signal on its way.
struct UnderWay {
    signal: Signal,
    /// The operator that it is handed to next.
    stage: usize,
    /// That operator has heard of it and has the second half to come.
    entered: bool,
    /// Of a barrier: the snapshots so far.
    parts: Vec<StatePart>,
}

/// How far a pump came.
pub(crate) enum Pump {
    /// Nothing is under way.
    Drained,
    /// There is more to move.
    More,
    /// The outflow has no room.
    Blocked,
    /// An operator's store has too much to write.
    Writing,
    /// This signal has passed every operator; with a barrier come the snapshots.
    Passed(Signal, Vec<StatePart>),
}

/// The operators of one task.
#[derive(Default)]
pub(crate) struct Chain {
    stages: Vec<Stage>,
    /// The operator that makes watermarks.
    maker: Option<usize>,
    /// Whether the last operator has outputs beside its main one that are read.
    has_sides: bool,
    /// Rows, and the first operator's input for which they are.
    inbox: Option<(usize, RecordBatch)>,
    under_way: Option<UnderWay>,
}

impl Chain {
    /// Adds an opened operator at the end; `makes_time`: its `due_watermark` is asked for.
    pub(crate) fn push(&mut self, operator: Box<dyn Operator>, count: RowCount, makes_time: bool) {
        if makes_time {
            self.maker = Some(self.stages.len());
        }
        let keeps_time = operator.keeps_time();
        self.stages.push(Stage { operator, count, pending: false, keeps_time });
    }

    /// The last operator has outputs beside its main one that are read. No other one has.
    pub(crate) fn give_sides(&mut self) {
        self.has_sides = true;
    }

    /// Takes rows of input `input`. Contract: only when drained.
    pub(crate) fn feed(&mut self, input: usize, batch: RecordBatch) {
        debug_assert!(self.inbox.is_none() && self.under_way.is_none(), "a chain takes one thing at a time");
        self.inbox = Some((input, batch));
    }

    /// Tells the operators that keep it what processing time it is; answers the earliest moment at which one wants to be told
    /// again, which has come already where one has output. Contract: only when drained.
    pub(crate) fn tick(&mut self, time_ms: i64) -> Result<Option<i64>, EngineError> {
        let mut earliest: Option<i64> = None;
        for stage in self.stages.iter_mut().filter(|stage| stage.keeps_time) {
            let next = stage.operator.tick(time_ms)?;
            stage.pending |= next.is_some_and(|next| next <= time_ms);
            earliest = earliest.into_iter().chain(next).min();
        }
        Ok(earliest)
    }

    /// Takes a signal; `parts` are snapshots that go with a barrier. Contract: only when drained.
    pub(crate) fn enter(&mut self, signal: Signal, parts: Vec<StatePart>) {
        debug_assert!(self.inbox.is_none() && self.under_way.is_none(), "a chain takes one thing at a time");
        self.under_way = Some(UnderWay { signal, stage: 0, entered: false, parts });
    }

    /// Tells the maker of watermarks what the source says of a split. Contract: only when drained.
    pub(crate) fn hear_split(&mut self, split: SplitId, voice: SplitVoice) {
        if let Some(maker) = self.maker {
            self.stages[maker].operator.hear_split(split, voice);
        }
    }

    /// Takes the watermark that its maker finds due, if any, and answers it. Contract: only when drained.
    pub(crate) fn make_time(&mut self, quiet: bool) -> Option<Watermark> {
        let maker = self.maker?;
        let watermark = self.stages[maker].operator.due_watermark(quiet)?;
        self.enter(Signal::Watermark(watermark), Vec::new());
        if let Some(under_way) = &mut self.under_way {
            under_way.stage = maker + 1;
        }
        Some(watermark)
    }

    /// Moves what is under way towards `outflow`.
    pub(crate) fn pump(&mut self, outflow: &mut dyn Outflow) -> Result<Pump, EngineError> {
        for _ in 0..MOVES_PER_PUMP {
            if let Some(at) = self.stages.iter().rposition(|stage| stage.pending) {
                if !self.are_ready(at, at + 1)? {
                    return Ok(Pump::Writing);
                }
                if at + 1 < self.stages.len() || outflow.is_ready() {
                    self.poll(at, outflow)?;
                } else if self.stages[at].operator.has_output() {
                    return Ok(Pump::Blocked);
                } else {
                    self.stages[at].pending = false;
                }
            } else if let Some(under_way) = self.under_way.take() {
                if under_way.stage < self.stages.len() {
                    self.under_way = self.hand(under_way)?;
                } else if waits_for_room(under_way.signal) && !outflow.is_ready() {
                    self.under_way = Some(under_way);
                    return Ok(Pump::Blocked);
                } else {
                    return Ok(Pump::Passed(under_way.signal, under_way.parts));
                }
            } else if let Some((input, batch)) = self.inbox.take() {
                if self.stages.is_empty() && !outflow.is_ready() {
                    self.inbox = Some((input, batch));
                    return Ok(Pump::Blocked);
                }
                if !self.are_ready(0, 0)? {
                    self.inbox = Some((input, batch));
                    return Ok(Pump::Writing);
                }
                self.give(0, input, batch, outflow)?;
            } else {
                return Ok(Pump::Drained);
            }
        }
        Ok(Pump::More)
    }

    /// Whether the operators from `first` to `last` have room to work, as far as there are so many.
    fn are_ready(&mut self, first: usize, last: usize) -> Result<bool, EngineError> {
        for stage in self.stages.iter_mut().take(last + 1).skip(first) {
            if !stage.operator.is_ready()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Does a bounded piece of the operators' work beside rows; `true` while there is more.
    pub(crate) fn background(&mut self) -> Result<bool, EngineError> {
        let mut more = false;
        for stage in &mut self.stages {
            more |= stage.operator.background()?;
        }
        Ok(more)
    }

    /// Every operator's snapshot at once, for a task that has seen the end of its data.
    pub(crate) fn snapshot_finished(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        let mut parts = Vec::new();
        for stage in &mut self.stages {
            parts.extend(stage.operator.snapshot(checkpoint, true)?);
        }
        Ok(parts)
    }

    /// Tells every operator what became of a checkpoint.
    pub(crate) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        self.stages.iter_mut().try_for_each(|stage| stage.operator.notify(checkpoint, completed))
    }

    fn poll(&mut self, at: usize, outflow: &mut dyn Outflow) -> Result<(), EngineError> {
        let gives_sides = self.has_sides && at + 1 == self.stages.len();
        let stage = &mut self.stages[at];
        match stage.operator.poll()? {
            Some(batch) => {
                debug_assert!(batch.num_rows() > 0, "an operator gives no empty batch");
                stage.count.count_out(batch.num_rows());
                self.give(at + 1, 0, batch, outflow)
            }
            None if gives_sides => self.poll_side(at, outflow),
            None => {
                stage.pending = false;
                Ok(())
            }
        }
    }

    fn poll_side(&mut self, at: usize, outflow: &mut dyn Outflow) -> Result<(), EngineError> {
        let stage = &mut self.stages[at];
        match stage.operator.poll_side()? {
            Some((side, batch)) => {
                debug_assert!(batch.num_rows() > 0, "an operator gives no empty batch");
                stage.count.count_side(batch.num_rows());
                outflow.write(side + 1, batch)
            }
            None => {
                stage.pending = false;
                Ok(())
            }
        }
    }

    fn give(&mut self, to: usize, input: usize, batch: RecordBatch, outflow: &mut dyn Outflow) -> Result<(), EngineError> {
        match self.stages.get_mut(to) {
            Some(stage) => {
                stage.count.count_in(batch.num_rows());
                stage.pending = true;
                stage.operator.process(input, batch)
            }
            None => outflow.write(0, batch),
        }
    }

    /// Hands a signal to the operator that it has reached; answers where it is then, or `None` where it ended there.
    fn hand(&mut self, mut under_way: UnderWay) -> Result<Option<UnderWay>, EngineError> {
        let stage = &mut self.stages[under_way.stage];
        stage.pending = true;
        let passes = match (under_way.signal, under_way.entered) {
            (Signal::Idle, _) => {
                stage.operator.idle()?;
                true
            }
            (Signal::Active, _) => {
                stage.pending = false;
                true
            }
            (Signal::Watermark(watermark), _) => match stage.operator.advance(watermark)? {
                Some(watermark) => {
                    under_way.signal = Signal::Watermark(watermark);
                    true
                }
                None => return Ok(None),
            },
            (Signal::Barrier(_), false) => {
                stage.operator.before_barrier()?;
                false
            }
            (Signal::Barrier(checkpoint), true) => {
                stage.pending = false;
                under_way.parts.extend(stage.operator.snapshot(checkpoint, false)?);
                true
            }
            (Signal::End, false) => {
                stage.operator.advance(Watermark::MAX)?;
                false
            }
            (Signal::End, true) => {
                stage.operator.finish()?;
                true
            }
        };
        under_way.entered = !passes;
        under_way.stage += usize::from(passes);
        Ok(Some(under_way))
    }
}

/// A checkpoint and the end never wait. Time does: a chain whose rows are all dropped would fill a channel that no one reads
/// with watermarks.
fn waits_for_room(signal: Signal) -> bool {
    match signal {
        Signal::Watermark(_) | Signal::Idle | Signal::Active => true,
        Signal::Barrier(_) | Signal::End => false,
    }
}

#[cfg(test)]
mod tests;
