//! Output that waits to be polled.

use std::collections::VecDeque;

use arrow::record_batch::RecordBatch;

/// Batches in order, cut to size as they are taken.
#[derive(Debug, Default)]
pub(in crate::operators) struct Pending {
    batches: VecDeque<RecordBatch>,
}

impl Pending {
    /// Puts rows at the end.
    pub(in crate::operators) fn push(&mut self, batch: RecordBatch) {
        if batch.num_rows() > 0 {
            self.batches.push_back(batch);
        }
    }

    /// Whether nothing waits.
    pub(in crate::operators) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The next rows, at most `rows_max`.
    pub(in crate::operators) fn pop(&mut self, rows_max: usize) -> Option<RecordBatch> {
        let batch = self.batches.pop_front()?;
        if batch.num_rows() <= rows_max {
            return Some(batch);
        }
        self.batches.push_front(batch.slice(rows_max, batch.num_rows() - rows_max));
        Some(batch.slice(0, rows_max))
    }
}
