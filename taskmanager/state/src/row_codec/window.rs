//! Windows as columns and as bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, StructArray, TimestampMillisecondArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Field, Fields, TimeUnit, TimestampMillisecondType};

use super::{RowBytes, WINDOW_BYTES};

/// A window: milliseconds of event time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Window {
    /// First millisecond after it; first here, since windows order by it.
    pub end: i64,
    /// Its first millisecond.
    pub start: i64,
}

/// The type of the column of windows: a struct of `start` and `end`, TIMESTAMP, not null.
pub fn namespace_type() -> DataType {
    DataType::Struct(window_fields())
}

fn window_fields() -> Fields {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    vec![Field::new("start", time.clone(), false), Field::new("end", time, false)].into()
}

/// Big-endian bytes that order as the numbers do.
#[inline]
pub(super) fn ordered(value: i64) -> [u8; 8] {
    ((value as u64) ^ (1 << 63)).to_be_bytes()
}

/// What `ordered` took.
#[inline]
pub(super) fn from_ordered(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

impl Window {
    /// The bytes of a namespace in a key.
    pub fn key_bytes(window: Option<Self>) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(WINDOW_BYTES);
        match window {
            None => bytes.push(0),
            Some(window) => {
                bytes.push(1);
                bytes.extend(ordered(window.end));
                bytes.extend(ordered(window.start));
            }
        }
        bytes
    }

    /// Appends the bytes of a namespace.
    pub(super) fn write(window: Option<Self>, out: &mut RowBytes) {
        let Some(window) = window else { return out.byte(0) };
        out.byte(1);
        out.extend(&ordered(window.end));
        out.extend(&ordered(window.start));
    }
}

/// A column of windows, seen row by row.
pub struct Namespaces<'a> {
    starts: &'a [i64],
    ends: &'a [i64],
    nulls: Option<&'a NullBuffer>,
}

impl<'a> Namespaces<'a> {
    /// Contract: the column has `namespace_type`; another type panics.
    pub fn of(column: &'a ArrayRef) -> Self {
        let windows = column.as_struct();
        let times = |at: usize| &windows.column(at).as_primitive::<TimestampMillisecondType>().values()[..];
        Self { starts: times(0), ends: times(1), nulls: windows.nulls() }
    }

    /// The window of a row; `None` for no namespace.
    #[inline]
    pub fn get(&self, row: usize) -> Option<Window> {
        let is_null = self.nulls.is_some_and(|nulls| nulls.is_null(row));
        (!is_null).then(|| Window { start: self.starts[row], end: self.ends[row] })
    }

    /// The column of these windows.
    pub fn column(windows: &[Option<Window>]) -> ArrayRef {
        let time = |pick: fn(&Window) -> i64| -> ArrayRef {
            let times = windows.iter().map(|window| window.as_ref().map_or(0, pick));
            Arc::new(TimestampMillisecondArray::from_iter_values(times))
        };
        let columns = vec![time(|window| window.start), time(|window| window.end)];
        let nulls: NullBuffer = windows.iter().map(Option::is_some).collect::<Vec<bool>>().into();
        Arc::new(StructArray::new(window_fields(), columns, (nulls.null_count() > 0).then_some(nulls)))
    }
}
