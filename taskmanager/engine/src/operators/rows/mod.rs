//! Rows in columns that operators keep, and their way out.
//!
//! Must never know what a column means, nor keys.

mod buffer;
mod part;

pub(super) use buffer::{NO_ROW, RowBuffer};
pub(super) use part::Part;
