//! The event times in a column: TIMESTAMP, or INT64 taken as milliseconds.

use arrow::array::{Array, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMillisecondType};

/// The column's values, milliseconds since 1970; those of nulls are undefined. `None` where it is of another type.
pub(super) fn event_times(column: &dyn Array) -> Option<&ScalarBuffer<i64>> {
    match column.data_type() {
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().values()),
        DataType::Timestamp(TimeUnit::Millisecond, None) => Some(column.as_primitive::<TimestampMillisecondType>().values()),
        _ => None,
    }
}
