//! Rows in columns that operators keep: a buffer that only grows, a heap out of which rows go one by one, lists of rows by key, and
//! the way out of all of them.
//!
//! Must never know what a column means.

mod buffer;
mod grouped;
mod heap;
mod lists;
mod marks;
mod part;
mod saving;
mod stored;
mod sweep;

pub(super) use buffer::{NO_ROW, RowBuffer};
pub(super) use grouped::{Grouped, rows_of};
pub(super) use heap::RowHeap;
pub(super) use lists::RowLists;
pub(super) use marks::Marks;
pub(super) use part::Part;
pub(super) use saving::Saving;
pub(super) use stored::{
    ByKey, EntryBytes, EntryPlaces, Found, HeapParts, HeapsByKey, Held, KeyedRowStore, StoredEntries, StoredRows, Taken,
};
pub(super) use sweep::{Sweep, restored_since};
