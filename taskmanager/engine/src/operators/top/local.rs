//! The local half of a top-N in windows without a key: it stands before the rows of all instances come together, and lets those go on
//! that may still be among the best.
//!
//! A row of which as many better ones as are wanted went on before goes nowhere; all others go on at once, as they came. So nothing
//! waits here, neither for time nor for a barrier, and what is remembered is no state: where it is forgotten more rows go on. Which
//! rows are late is for the other half to say, whose time may be behind: all of a window that has fired here go on. Right after a
//! restore that is not known, so late rows may be held back, uncounted; where they are read there is no local half.
//!
//! By processing time the other half says which window rows are in, all of a batch in the one that is open when it comes. So here only
//! rows of one batch keep each other from going on, and nothing is remembered; a batch that might be cut on its way goes on whole.

use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BinaryArray, Int64Array};
use arrow::record_batch::RecordBatch;
use levada_common::time::Watermark;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::Window;

/// Bytes of what is remembered, over all windows: beyond, all is forgotten.
const REMEMBERED_BYTES_MAX: usize = 8 << 20;

/// Bytes up to which a batch is surely not cut on its way to the other half, into frames that come one after the other.
const UNCUT_BYTES_MAX: usize = 128 << 10;

/// About what one takes beside its bytes: in the heap, as an allocation, and of its window.
const BESIDE_BYTES: usize = 64;

/// The rows that may be among the best of their window.
///
/// Shape of the output: the input's; append, in the order in which rows came.
pub(super) struct LocalTop {
    shape: Shape,
    by_clock: bool,
    sent: BTreeMap<Window, Sent>,
    /// Bytes of what is remembered.
    remembered_bytes: usize,
    /// The number of the row that arrives next.
    arrivals: i64,
    watermark: i64,
    pending: Pending,
    rows_max: usize,
}

/// The best rows of a window that went on.
#[derive(Default)]
struct Sent {
    /// What they are ordered by, the worst one first.
    orders: BinaryHeap<Box<[u8]>>,
    bytes: usize,
}

impl Sent {
    /// Whether a row of this order may be among the best; it is one of those that went on then.
    fn enter(&mut self, shape: &Shape, order: &[u8]) -> bool {
        if self.orders.len() < shape.limit as usize {
            self.bytes += order.len() + BESIDE_BYTES;
            self.orders.push(order.into());
            return true;
        }
        let Some(mut worst) = self.orders.peek_mut() else { return false };
        if order < &worst[..] {
            self.bytes = self.bytes + order.len() - worst.len();
            *worst = order.into();
            return true;
        }
        shape.with_ties && shape.without_arrival(order) == shape.without_arrival(&worst)
    }
}

impl LocalTop {
    /// In windows of event time, or `by_clock` of processing time.
    ///
    /// Contract: the shape has windows and no key.
    pub(super) fn new(shape: Shape, by_clock: bool) -> Self {
        let (sent, pending) = (BTreeMap::new(), Pending::default());
        Self { shape, by_clock, sent, remembered_bytes: 0, arrivals: 0, watermark: i64::MIN, pending, rows_max: 0 }
    }

    /// Whether some of these rows may come to the other half later than others.
    fn may_be_cut(&self, rows: &RecordBatch) -> bool {
        rows.num_rows() > self.rows_max || rows.get_array_memory_size() > UNCUT_BYTES_MAX
    }

    /// The places of the rows that go on, ascending.
    fn choose(&mut self, batch: &RecordBatch) -> Result<Vec<u32>, EngineError> {
        let rows = batch.num_rows();
        let arrivals: ArrayRef = Arc::new(Int64Array::from_iter_values(self.arrivals..self.arrivals + rows as i64));
        self.arrivals += rows as i64;
        let orders = self.shape.orders(batch.columns(), &arrivals)?;
        if self.by_clock {
            return Ok(best_of(&self.shape, &orders));
        }
        let source = self.shape.windows.as_ref().expect("it is in windows");
        let mut chosen = Vec::new();
        for (window, split) in source.split(batch).map_err(|reason| self.shape.invariant(reason))? {
            let numbers = split.numbers(rows).into_iter();
            if window.has_fired(self.watermark) {
                chosen.extend(numbers);
                continue;
            }
            let sent = self.sent.entry(window).or_default();
            let before = sent.bytes;
            chosen.extend(numbers.filter(|row| sent.enter(&self.shape, orders.value(*row as usize))));
            self.remembered_bytes = self.remembered_bytes + sent.bytes - before;
        }
        chosen.sort_unstable();
        Ok(chosen)
    }
}

/// The places of the best of these rows, ascending.
fn best_of(shape: &Shape, orders: &BinaryArray) -> Vec<u32> {
    let order = |row: u32| orders.value(row as usize);
    let mut rows: Vec<u32> = (0..orders.len() as u32).collect();
    rows.sort_unstable_by(|one, other| order(*one).cmp(order(*other)));
    let mut kept = rows.len().min(shape.limit as usize);
    if let Some(worst) = rows[..kept].last().filter(|_| shape.with_ties) {
        let is_equal = |row: &&u32| shape.without_arrival(order(**row)) == shape.without_arrival(order(*worst));
        kept += rows[kept..].iter().take_while(is_equal).count();
    }
    rows.truncate(kept);
    rows.sort_unstable();
    rows
}

impl Operator for LocalTop {
    fn open(&mut self, context: &OperatorContext, _restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.rows_max = context.batch_rows_max;
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let chosen = self.choose(&batch)?;
        if self.remembered_bytes > REMEMBERED_BYTES_MAX {
            self.sent.clear();
            self.remembered_bytes = 0;
        }
        let goes_on = if chosen.len() == batch.num_rows() { batch.clone() } else { self.shape.rows(&batch, &chosen)? };
        self.pending.push(if self.by_clock && self.may_be_cut(&goes_on) { batch } else { goes_on });
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.pop(self.rows_max))
    }

    fn has_output(&self) -> bool {
        !self.pending.is_empty()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.watermark = self.watermark.max(watermark.0);
        while let Some(entry) = self.sent.first_entry().filter(|entry| entry.key().has_fired(self.watermark)) {
            self.remembered_bytes -= entry.remove().bytes;
        }
        Ok(Some(watermark))
    }
}
