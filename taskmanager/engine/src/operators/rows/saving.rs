//! A snapshot of a heap: its chunks and which of their rows were there at the barrier, sent piece by piece beside the rows.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::filter;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::snapshot::{PieceReader, PieceSender, pieces};

use super::{Marks, RowHeap};

/// Rows that were looked through in one go, about a quarter of a millisecond.
const ROWS_PER_PIECE: usize = 4096;

/// What is still to be sent. Chunks never change, so nothing is copied at the barrier but the bits.
#[derive(Debug, Default)]
pub(in crate::operators) struct Saving {
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    checkpoint: CheckpointId,
    sender: PieceSender,
    schema: SchemaRef,
    waiting: VecDeque<(Vec<ArrayRef>, Option<BooleanBuffer>)>,
}

impl Saving {
    /// Begins a snapshot of the heap's rows; one that still runs is given up. A piece has the columns of these places, in this order,
    /// and behind them the rows' marks, where there are any.
    pub(in crate::operators) fn begin(
        &mut self,
        checkpoint: CheckpointId,
        heap: &RowHeap,
        marks: Option<&Marks>,
        schema: &SchemaRef,
        places: &[usize],
    ) -> PieceReader {
        let (sender, reader) = pieces();
        let piece = |(first, columns, there): (u32, Vec<ArrayRef>, Option<BooleanBuffer>)| {
            let marks = marks.map(|marks| Arc::new(marks.column(first as usize, columns[0].len())) as ArrayRef);
            (places.iter().map(|at| Arc::clone(&columns[*at])).chain(marks).collect(), there)
        };
        let waiting = heap.pieces().map(piece).collect();
        self.running = Some(Running { checkpoint, sender, schema: Arc::clone(schema), waiting });
        reader
    }

    /// Sends a further piece, none while the background has enough to do; answers whether more remain.
    pub(in crate::operators) fn advance(&mut self) -> bool {
        let Some(running) = &mut self.running else { return false };
        if running.sender.is_abandoned() {
            self.running = None;
            return false;
        }
        let mut rows = 0;
        while rows < ROWS_PER_PIECE && !running.sender.is_full() {
            let Some((columns, there)) = running.waiting.pop_front() else { break };
            rows += columns[0].len();
            running.sender.send(piece(&running.schema, columns, there));
        }
        if running.waiting.is_empty()
            && let Some(running) = self.running.take()
        {
            running.sender.finish();
        }
        self.running.is_some()
    }

    /// Gives the snapshot of this checkpoint up, if it runs.
    pub(in crate::operators) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.running.take_if(|running| running.checkpoint == checkpoint);
    }
}

fn piece(schema: &SchemaRef, columns: Vec<ArrayRef>, there: Option<BooleanBuffer>) -> RecordBatch {
    let there = there.map(|there| BooleanArray::new(there, None));
    let columns = columns.into_iter().map(|column| match &there {
        None => column,
        Some(there) => filter(&column, there).expect("a mask is as long as its chunk"),
    });
    RecordBatch::try_new(Arc::clone(schema), columns.collect()).expect("a chunk has the input's columns")
}
