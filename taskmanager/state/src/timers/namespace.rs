//! What timers of one key are told apart by, beside their times.

use std::fmt::Debug;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;

use super::TimerError;
use crate::row_codec::{NAMESPACE_COLUMN, Namespaces, Window, namespace_type};

/// What a timer belongs to within its key: a window, or nothing.
pub trait TimerNamespace: Copy + Ord + Debug + Send + 'static {
    /// The column that holds it.
    fn field() -> Option<Field>;

    /// The column of these.
    fn column(namespaces: impl Iterator<Item = Self>) -> Option<ArrayRef>;

    /// What stands in the column of a snapshot.
    fn read(batch: &RecordBatch) -> Result<Vec<Self>, TimerError>;
}

impl TimerNamespace for Window {
    fn field() -> Option<Field> {
        Some(Field::new(NAMESPACE_COLUMN, namespace_type(), false))
    }

    fn column(namespaces: impl Iterator<Item = Self>) -> Option<ArrayRef> {
        Some(Namespaces::column(&namespaces.map(Some).collect::<Vec<_>>()))
    }

    fn read(batch: &RecordBatch) -> Result<Vec<Self>, TimerError> {
        let refuse = |found: String| TimerError::Column { column: NAMESPACE_COLUMN, expected: "a window, not null", found };
        let column = batch.column_by_name(NAMESPACE_COLUMN).ok_or_else(|| refuse("nothing".into()))?;
        if *column.data_type() != namespace_type() {
            return Err(refuse(column.data_type().to_string()));
        }
        let windows = Namespaces::of(column);
        let windows: Option<Vec<_>> = (0..batch.num_rows()).map(|row| windows.get(row)).collect();
        windows.ok_or_else(|| refuse(format!("{} nulls", column.null_count())))
    }
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
