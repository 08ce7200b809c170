//! Where a task's rows go: its sink, or its output gate.

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_state::snapshot::StatePart;

use crate::element::{Barrier, Signal};
use crate::error::EngineError;
use crate::gate::output::OutputGate;
use crate::operators::chain::{Outflow, RowCount};
use crate::sink::{Durable, Sink};
use crate::task::entries;

/// The tail of a task.
pub(crate) enum Tail {
    /// It writes to a sink.
    Sink(SinkTail),
    /// It writes to channels.
    Gate(GateTail),
}

/// A sink and its counters.
pub(crate) struct SinkTail {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) uid: Uid,
    pub(crate) count: RowCount,
    /// Rows were written since the last flush.
    pub(crate) dirty: bool,
}

/// An output gate, and the node that it is named after in messages.
pub(crate) struct GateTail {
    pub(crate) gate: OutputGate,
    pub(crate) uid: Uid,
}

impl Outflow for Tail {
    fn is_ready(&mut self) -> bool {
        match self {
            Self::Sink(tail) => tail.sink.is_ready(),
            Self::Gate(tail) => tail.gate.is_ready(),
        }
    }

    fn write(&mut self, output: usize, batch: RecordBatch) -> Result<(), EngineError> {
        match self {
            Self::Sink(tail) => {
                debug_assert_eq!(output, 0, "an operator with side outputs ends its vertex, and a sink is in another");
                tail.count.count_in(batch.num_rows());
                tail.dirty = true;
                tail.sink.write(&batch)?;
                tail.count.count_out(batch.num_rows());
                Ok(())
            }
            Self::Gate(tail) => tail.gate.write(output, batch).map_err(|source| EngineError::Kernel {
                uid: tail.uid.clone(),
                clause: "exchange".into(),
                source,
            }),
        }
    }
}

impl Tail {
    /// Passes a signal on; a sink hears of barriers through `prepare` only.
    pub(crate) fn signal(&mut self, signal: Signal) -> Result<(), EngineError> {
        match self {
            Self::Sink(_) if signal == Signal::End => self.flush(),
            Self::Sink(_) => Ok(()),
            Self::Gate(tail) => {
                tail.gate.signal(signal);
                Ok(())
            }
        }
    }

    /// Passes a checkpoint's cut on.
    pub(crate) fn barrier(&mut self, barrier: &Barrier) {
        if let Self::Gate(tail) = self {
            tail.gate.barrier(barrier.clone());
        }
    }

    /// Nothing comes for now: a sink's buffered rows go out.
    pub(crate) fn flush(&mut self) -> Result<(), EngineError> {
        match self {
            Self::Sink(tail) if tail.dirty => {
                tail.dirty = false;
                tail.sink.flush()
            }
            _ => Ok(()),
        }
    }

    /// Closes the sink's transaction: its state, and what makes it durable.
    pub(crate) fn prepare(&mut self, checkpoint: CheckpointId) -> Result<(Vec<StatePart>, Option<Durable>), EngineError> {
        match self {
            Self::Sink(tail) => {
                let prepared = tail.sink.prepare(checkpoint)?;
                let (name, entries, durable) = (entries::TRANSACTIONS, prepared.entries, prepared.durable);
                let Some(late) = prepared.late else { return Ok((entries::part(&tail.uid, name, entries), durable)) };
                let (part, rest) = entries::part_with_late(&tail.uid, name, entries, late);
                let durable = move || durable.map_or(Ok(()), |durable| durable()).and(rest());
                Ok((vec![part], Some(Box::new(durable))))
            }
            Self::Gate(_) => Ok((Vec::new(), None)),
        }
    }

    /// Tells the sink what became of a checkpoint.
    pub(crate) fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        match self {
            Self::Sink(tail) if completed => tail.sink.commit(checkpoint),
            Self::Sink(tail) => tail.sink.abort(checkpoint),
            Self::Gate(_) => Ok(()),
        }
    }

    /// The task finishes; `stopped`: by a savepoint from which another job may go on.
    pub(crate) fn close(&mut self, stopped: bool) -> Result<(), EngineError> {
        match self {
            Self::Sink(tail) if stopped => tail.sink.stop(),
            Self::Sink(tail) => tail.sink.close(),
            Self::Gate(_) => Ok(()),
        }
    }

    /// The task ends without finishing.
    pub(crate) fn discard(&mut self) {
        if let Self::Sink(tail) = self {
            tail.sink.discard();
        }
    }
}
