//! Where a task's rows come from: its source, or its input gate.

use std::sync::atomic::Ordering;

use levada_common::ids::{CheckpointId, Uid};
use levada_common::time::{Instant, Watermark};
use levada_state::snapshot::StatePart;

use arrow::record_batch::RecordBatch;

use crate::element::{Barrier, Signal, SplitVoice};
use crate::error::EngineError;
use crate::metrics::TaskMetrics;
use crate::operators::chain::RowCount;
use crate::source::{Source, SourcePoll, SplitId};
use crate::task::entries;
use crate::task::gate_head::GateHead;
use crate::task::pace::Pace;
use crate::task::silence::{Silence, Verdict};
use crate::task::split_silence::SplitSilences;

/// The head of a task.
pub(crate) enum Head {
    /// It reads a source.
    Source(Box<SourceHead>),
    /// It reads channels.
    Gate(Box<GateHead>),
}

/// A source, its counters, its silence.
pub(crate) struct SourceHead {
    pub(crate) source: Box<dyn Source>,
    pub(crate) uid: Uid,
    pub(crate) count: RowCount,
    /// Whose watermarks depend on how long the source is silent; `None` where none are made.
    pub(crate) silence: Option<Silence>,
    /// The silence of its splits, where it reads several side by side.
    pub(crate) splits: SplitSilences,
    /// The source is idle, which is said once each of its splits has been said to be.
    pub(crate) idle_next: bool,
    /// How far it may go before others of its group; `None` where it has none.
    pub(crate) pace: Option<Pace>,
    /// Rows that wait behind the signal that they set off, and their split.
    pub(crate) held: Option<(Option<SplitId>, RecordBatch)>,
    /// Its data ends here, whatever it has left: the job is drained.
    pub(crate) ended: bool,
}

/// What a head has.
pub(crate) enum Taken {
    /// Rows of the first operator's input of this number.
    Batch(usize, RecordBatch),
    /// Rows of one of the splits that the source reads side by side.
    Rows(SplitId, RecordBatch),
    /// A split of the source says something beside rows.
    Split(SplitId, SplitVoice),
    /// A signal.
    Signal(Signal),
    /// The source is quiet: a watermark that was held back is due.
    Quiet,
    /// This checkpoint's alignment was given up for a newer one's.
    GivenUp(CheckpointId),
    /// Nothing yet, but there may be more at once.
    Nothing,
    /// Nothing until something wakes the task, or this moment.
    Empty(Option<Instant>),
}

impl Head {
    /// The next thing, without waiting.
    pub(crate) fn next(&mut self, now: Instant) -> Result<Taken, EngineError> {
        match self {
            Self::Source(source) => source.next(now),
            Self::Gate(head) => head.next(),
        }
    }

    /// The task is held up: what a source does not say now is not its silence.
    pub(crate) fn interrupt(&mut self) {
        if let Self::Source(head) = self {
            head.interrupt();
        }
    }

    /// The source's time has come to `watermark`.
    pub(crate) fn reached(&mut self, watermark: Watermark) {
        if let Self::Source(head) = self
            && let Some(pace) = &mut head.pace
        {
            pace.reached(watermark);
        }
    }

    /// The source may go as far as `limit`.
    pub(crate) fn limit(&mut self, limit: Watermark) {
        if let Self::Source(head) = self
            && let Some(pace) = &mut head.pace
        {
            pace.limit(limit);
        }
    }

    /// Says why time is where it is.
    pub(crate) fn show(&self, metrics: &TaskMetrics) {
        match self {
            Self::Source(head) => {
                metrics.idle.store(head.silence.as_ref().is_some_and(Silence::is_idle), Ordering::Relaxed);
                metrics.paused.store(head.is_paused(), Ordering::Relaxed);
            }
            Self::Gate(head) => {
                metrics.waiting.store(head.gate.is_waiting(), Ordering::Relaxed);
                let holder = head.gate.holder().and_then(|holder| u32::try_from(holder).ok());
                metrics.held_back_by.store(holder.unwrap_or(TaskMetrics::NO_CHANNEL), Ordering::Relaxed);
            }
        }
    }

    /// The job is drained: a source's data ends here.
    pub(crate) fn end(&mut self) {
        if let Self::Source(head) = self {
            head.ended = true;
        }
    }

    /// The cut of the checkpoint whose signal the head gave.
    pub(crate) fn barrier(&self, checkpoint: CheckpointId) -> Barrier {
        match self {
            Self::Source(_) => Barrier::checkpoint(checkpoint),
            Self::Gate(head) => head.gate.barrier(checkpoint),
        }
    }

    /// Whether a checkpoint may enter the task here, by RPC: at a source, all of whose rows that were read have gone on.
    pub(crate) fn takes_barrier(&self) -> bool {
        matches!(self, Self::Source(head) if head.held.is_none())
    }

    /// The source's positions, or the rows that were read and wait.
    pub(crate) fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        match self {
            Self::Source(head) => {
                let positions = head.source.snapshot(checkpoint)?;
                Ok(entries::part(&head.uid, entries::SPLITS, positions))
            }
            Self::Gate(head) => Ok(head.snapshot()),
        }
    }

    /// Tells what became of a checkpoint.
    pub(crate) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        match self {
            Self::Source(head) if completed => head.source.notify_completed(checkpoint),
            Self::Source(_) => Ok(()),
            Self::Gate(head) => {
                if !completed {
                    head.gate.abort(checkpoint);
                }
                Ok(())
            }
        }
    }
}

impl SourceHead {
    fn is_paused(&self) -> bool {
        self.pace.as_ref().is_some_and(Pace::is_ahead)
    }

    fn next(&mut self, now: Instant) -> Result<Taken, EngineError> {
        if let Some((split, batch)) = self.held.take() {
            return Ok(taken(split, batch));
        }
        if self.ended {
            return Ok(Taken::Signal(Signal::End));
        }
        if self.is_paused() {
            // What it does not say now is not its silence.
            self.interrupt();
            return Ok(Taken::Empty(None));
        }
        self.splits.poll(now);
        if let Some(split) = self.splits.idle() {
            return Ok(Taken::Split(split, SplitVoice::Idle));
        }
        if std::mem::take(&mut self.idle_next) {
            return Ok(Taken::Signal(Signal::Idle));
        }
        Ok(match self.source.poll()? {
            SourcePoll::Batch(batch) => self.rows(None, batch),
            SourcePoll::Rows(split, batch) => {
                self.splits.spoke(split);
                self.rows(Some(split), batch)
            }
            SourcePoll::Begin(split) => {
                self.splits.spoke(split);
                Taken::Split(split, SplitVoice::Begin)
            }
            SourcePoll::Ended(split) => {
                self.splits.end(split);
                Taken::Split(split, SplitVoice::End)
            }
            SourcePoll::End => Taken::Signal(Signal::End),
            SourcePoll::Pending => match self.silence.as_mut().map(|silence| silence.nothing(now)) {
                Some(Verdict::Quiet) => Taken::Quiet,
                Some(Verdict::Idle) => {
                    self.splits.all_idle();
                    self.idle_next = true;
                    Taken::Nothing
                }
                Some(Verdict::Wait(until)) => Taken::Empty(until.into_iter().chain(self.splits.until(now)).min()),
                None => Taken::Empty(None),
            },
        })
    }

    fn rows(&mut self, split: Option<SplitId>, batch: RecordBatch) -> Taken {
        self.count.count_in(batch.num_rows());
        self.count.count_out(batch.num_rows());
        if self.silence.as_mut().is_some_and(Silence::rows) {
            self.held = Some((split, batch));
            Taken::Signal(Signal::Active)
        } else {
            taken(split, batch)
        }
    }

    /// The task is held up: what the source does not say now is not its silence.
    fn interrupt(&mut self) {
        self.silence.as_mut().into_iter().for_each(Silence::interrupt);
        self.splits.interrupt();
    }
}

fn taken(split: Option<SplitId>, batch: RecordBatch) -> Taken {
    match split {
        Some(split) => Taken::Rows(split, batch),
        None => Taken::Batch(0, batch),
    }
}

#[cfg(test)]
mod tests;
