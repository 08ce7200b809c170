//! What timers of one key are told apart by, beside their times.

use std::fmt::Debug;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;

use super::TimerError;

/// What a timer belongs to within its key: a window, or nothing.
pub trait TimerNamespace: Copy + Ord + Debug + Send + 'static {
    /// The column that holds it.
    fn field() -> Option<Field>;

    /// The column of these.
    fn column(namespaces: impl Iterator<Item = Self>) -> Option<ArrayRef>;

    /// What stands in the column of a snapshot.
    fn read(batch: &RecordBatch) -> Result<Vec<Self>, TimerError>;
}

impl TimerNamespace for () {
    fn field() -> Option<Field> {
        None
    }

    fn column(_namespaces: impl Iterator<Item = Self>) -> Option<ArrayRef> {
        None
    }

    fn read(batch: &RecordBatch) -> Result<Vec<Self>, TimerError> {
        Ok(vec![(); batch.num_rows()])
    }
}
