//! Where a task's rows come from: its source, or its input gate.

use levada_common::ids::{CheckpointId, Uid};
use levada_common::time::Instant;
use levada_state::snapshot::StatePart;

use arrow::record_batch::RecordBatch;

use crate::element::{Barrier, Signal};
use crate::error::EngineError;
use crate::gate::input::{Input, InputGate};
use crate::operators::chain::RowCount;
use crate::source::{Source, SourcePoll};
use crate::task::entries;
use crate::task::silence::{Silence, Verdict};

/// The head of a task.
pub(crate) enum Head {
    /// It reads a source.
    Source(SourceHead),
    /// It reads channels.
    Gate(InputGate),
}

/// A source, its counters, its silence.
pub(crate) struct SourceHead {
    pub(crate) source: Box<dyn Source>,
    pub(crate) uid: Uid,
    pub(crate) count: RowCount,
    /// Whose watermarks depend on how long the source is silent; `None` where none are made.
    pub(crate) silence: Option<Silence>,
    /// Rows that wait behind the signal that they set off.
    pub(crate) held: Option<RecordBatch>,
    /// Its data ends here, whatever it has left: the job is drained.
    pub(crate) ended: bool,
}

/// What a head has.
pub(crate) enum Taken {
    /// Rows of the first operator's input of this number.
    Batch(usize, RecordBatch),
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
            Self::Gate(gate) => Ok(match gate.read() {
                Input::Batch(input, batch) => Taken::Batch(input, batch),
                Input::Signal(signal) => Taken::Signal(signal),
                Input::GivenUp(checkpoint) => Taken::GivenUp(checkpoint),
                Input::Nothing => Taken::Nothing,
                Input::Empty => Taken::Empty(None),
            }),
        }
    }

    /// The task is held up: what a source does not say now is not its silence.
    pub(crate) fn interrupt(&mut self) {
        if let Self::Source(SourceHead { silence: Some(silence), .. }) = self {
            silence.interrupt();
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
            Self::Gate(gate) => gate.barrier(checkpoint),
        }
    }

    /// Whether a checkpoint may enter the task here, by RPC: at a source, all of whose rows that were read have gone on.
    pub(crate) fn takes_barrier(&self) -> bool {
        matches!(self, Self::Source(SourceHead { held: None, .. }))
    }

    /// The source's positions.
    pub(crate) fn snapshot(&mut self, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        match self {
            Self::Source(head) => {
                let positions = head.source.snapshot(checkpoint)?;
                Ok(entries::part(&head.uid, entries::SPLITS, positions))
            }
            Self::Gate(_) => Ok(Vec::new()),
        }
    }

    /// Tells what became of a checkpoint.
    pub(crate) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        match self {
            Self::Source(head) if completed => head.source.notify_completed(checkpoint),
            Self::Source(_) => Ok(()),
            Self::Gate(gate) => {
                if !completed {
                    gate.abort(checkpoint);
                }
                Ok(())
            }
        }
    }
}

impl SourceHead {
    fn next(&mut self, now: Instant) -> Result<Taken, EngineError> {
        if let Some(batch) = self.held.take() {
            return Ok(Taken::Batch(0, batch));
        }
        if self.ended {
            return Ok(Taken::Signal(Signal::End));
        }
        Ok(match self.source.poll()? {
            SourcePoll::Batch(batch) => {
                self.count.count_in(batch.num_rows());
                self.count.count_out(batch.num_rows());
                if self.silence.as_mut().is_some_and(Silence::rows) {
                    self.held = Some(batch);
                    Taken::Signal(Signal::Active)
                } else {
                    Taken::Batch(0, batch)
                }
            }
            SourcePoll::End => Taken::Signal(Signal::End),
            SourcePoll::Pending => match self.silence.as_mut().map(|silence| silence.nothing(now)) {
                Some(Verdict::Quiet) => Taken::Quiet,
                Some(Verdict::Idle) => Taken::Signal(Signal::Idle),
                Some(Verdict::Wait(until)) => Taken::Empty(until),
                None => Taken::Empty(None),
            },
        })
    }
}
