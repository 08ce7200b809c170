//! What a state may hold: Rust values that become Arrow columns and come back.
//!
//! A [`StateType`] has one column or several. Values go into columns through a writer, which holds them typed and unboxed, and
//! come back through a reader, which checks the columns once and then only copies. The columns are what snapshots hold: a
//! column's name and type may never change for a Rust type. Must never know tables, keys or operators.
//!
//! Invariant: what a reader gives is what the writer was given, bit by bit (property tests of every type).

mod bytes;
mod error;
mod list;
mod number;
mod option;
mod scalar;
mod serde_type;
mod tuple;

use arrow::array::ArrayRef;
use levada_common::types::Column;

pub use error::TypeError;
pub use number::{Date, Decimal, FixedType, Timestamp};
pub use option::NotNull;
pub use scalar::{ScalarReader, ScalarType, ScalarWriter};
pub use serde_type::Serde;

/// A Rust type whose values a state can hold.
///
/// Shape: `columns(name)` gives the columns, in order; `name` alone for a type of one column, `name.0`, `name.1` ... for a tuple,
/// `name.<field>` for a struct in [`Serde`].
///
/// | Rust | column |
/// |---|---|
/// | `bool`, `i8` … `i64`, `u64`, `f32`, `f64` | BOOLEAN, INT8 … INT64, UINT64, FLOAT32, FLOAT64 |
/// | `u16`, `u32` | INT32, INT64 |
/// | `String`; `Vec<u8>`, `[u8; N]` | STRING; BINARY |
/// | [`Timestamp`], [`Date`], [`Decimal<P, S>`](Decimal) | TIMESTAMP, DATE, DECIMAL(P,S) |
/// | `Option<T>` of these | the same, nullable |
/// | `Vec<T>` of these and of options | LIST |
/// | tuples of up to four, nested too; `()` | the columns of each; none |
/// | [`Serde<T>`](Serde) | a column a field; lists and structs below |
pub trait StateType: Clone + Send + Sized + 'static {
    /// Whether values may hold memory behind pointers, so that `heap_bytes` is worth a call.
    const ON_HEAP: bool;
    /// Takes values and gives columns.
    type Writer: StateWriter<Self>;
    /// Gives values of columns.
    type Reader: StateReader<Self>;

    /// The columns of a value.
    ///
    /// Errors: `Untraceable`, for `Serde<T>` only, where `T` has no columns; the author's fault.
    fn columns(name: &str) -> Result<Vec<Column>, TypeError>;

    /// Number of columns; 0 where `columns` fails.
    fn width() -> usize;

    /// A writer with room for `rows` values.
    fn writer(rows: usize) -> Self::Writer;

    /// A reader of these columns, which are checked here, once for all rows.
    ///
    /// Shape: as `columns(name)` says; names are the caller's business and stand in errors only.
    /// Errors: wrong number or types of columns, a null where none may be, a value out of the type's range.
    fn reader(name: &str, columns: &[ArrayRef]) -> Result<Self::Reader, TypeError>;

    /// Bytes that the value holds behind pointers, those of spare capacity included; what stands in the value itself is not.
    fn heap_bytes(&self) -> usize;

    /// The columns of these values.
    ///
    /// Errors: `Encode` and `Oversized`; the author's or the data's fault.
    fn gather<'a>(values: impl IntoIterator<Item = &'a Self>) -> Result<Vec<ArrayRef>, TypeError> {
        let values = values.into_iter();
        let mut writer = Self::writer(values.size_hint().0);
        values.for_each(|value| writer.push(value));
        let mut columns = Vec::with_capacity(Self::width());
        writer.finish(&mut columns)?;
        Ok(columns)
    }

    /// The first `rows` values of these columns.
    ///
    /// Errors: those of `reader`.
    fn scatter(name: &str, columns: &[ArrayRef], rows: usize) -> Result<Vec<Self>, TypeError> {
        let reader = Self::reader(name, columns)?;
        Ok((0..rows).map(|row| reader.get(row)).collect())
    }
}

/// Takes values of `T` one by one; holds them as columns.
pub trait StateWriter<T>: Send {
    /// Takes a value.
    fn push(&mut self, value: &T);

    /// Appends the columns of all values, in the order in which they came.
    ///
    /// Errors: `Encode` and `Oversized`, which `push` has put off until here.
    fn finish(self, columns: &mut Vec<ArrayRef>) -> Result<(), TypeError>;
}

/// Gives values of columns that were checked.
pub trait StateReader<T>: Send {
    /// The value of this row.
    ///
    /// Contract: the row exists; another one panics.
    fn get(&self, row: usize) -> T;
}

#[cfg(test)]
mod tests;
