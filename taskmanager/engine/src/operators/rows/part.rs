//! Rows on their way out, column by column.

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array, new_null_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::{NO_ROW, RowBuffer, RowHeap};

/// What rows that go out have of one side.
pub(in crate::operators) enum Part<'a> {
    /// These rows of some columns; all of them where none are named.
    Of(&'a [ArrayRef], Option<UInt32Array>),
    /// Rows of these chunks, by chunk and place; `NO_ROW` is in the chunk behind the last.
    Kept { chunks: Vec<&'a [ArrayRef]>, places: Vec<(usize, usize)>, has_nulls: bool },
    /// No row of this side.
    Nothing,
}

impl<'a> Part<'a> {
    /// These rows of some columns.
    pub(in crate::operators) fn of(columns: &'a [ArrayRef], rows: &[u32]) -> Self {
        let is_whole = rows.len() == columns[0].len() && rows.iter().enumerate().all(|(at, row)| at as u32 == *row);
        Self::Of(columns, (!is_whole).then(|| rows.to_vec().into()))
    }

    /// These rows of a buffer; `NO_ROW` gives nulls.
    pub(in crate::operators) fn kept(buffer: &'a RowBuffer, rows: &[u32]) -> Self {
        let chunks = buffer.chunks().iter().map(|chunk| chunk.columns.as_slice()).collect();
        Self::Kept { chunks, places: buffer.places(rows), has_nulls: rows.contains(&NO_ROW) }
    }

    /// These rows of a heap; `NO_ROW` gives nulls.
    pub(in crate::operators) fn in_heap(heap: &'a RowHeap, rows: &[u32]) -> Self {
        let (chunks, places) = heap.places(rows);
        Self::Kept { chunks, places, has_nulls: rows.contains(&NO_ROW) }
    }

    /// Which rows of it are there, where some are not.
    pub(in crate::operators) fn presence(&self) -> Option<BooleanArray> {
        match self {
            Self::Kept { chunks, places, has_nulls: true } => {
                Some(places.iter().map(|(chunk, _)| Some(*chunk < chunks.len())).collect())
            }
            _ => None,
        }
    }

    /// Whether it has rows.
    pub(in crate::operators) fn is_there(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// A column of the rows; `rows` nulls where there are none.
    pub(in crate::operators) fn column(&self, at: usize, data_type: &DataType, rows: usize) -> Result<ArrayRef, ArrowError> {
        match self {
            Self::Of(columns, None) => Ok(ArrayRef::clone(&columns[at])),
            Self::Of(columns, Some(rows)) => take(&columns[at], rows, None),
            Self::Kept { chunks, places, has_nulls } => {
                let nothing = has_nulls.then(|| new_null_array(data_type, 1));
                let arrays: Vec<&dyn Array> =
                    chunks.iter().map(|columns| columns[at].as_ref()).chain(nothing.as_deref()).collect();
                interleave(&arrays, places)
            }
            Self::Nothing => Ok(new_null_array(data_type, rows)),
        }
    }
}
