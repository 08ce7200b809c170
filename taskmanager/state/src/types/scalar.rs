//! Types of one column, of which all others are made.

use std::any::type_name;

use arrow::array::ArrayRef;
use levada_common::types::{Column, LogicalType};

use super::error::{check_no_nulls, check_width};
use super::{StateReader, StateType, StateWriter, TypeError};

/// A Rust type that is one column.
pub trait ScalarType: Clone + Send + Sized + 'static {
    /// Whether a value may be null.
    const NULLABLE: bool;
    /// As `StateType::ON_HEAP`.
    const ON_HEAP: bool;
    /// Takes values and gives a column.
    type Writer: ScalarWriter<Self>;
    /// Gives values of a column.
    type Reader: ScalarReader<Self>;

    /// The column's type.
    fn logical_type() -> LogicalType;

    /// A writer with room for `rows` values.
    fn writer(rows: usize) -> Self::Writer;

    /// A reader of this column. Nulls are the caller's business: a row with one is not read, unless `NULLABLE` holds.
    fn reader(column: &str, array: &ArrayRef) -> Result<Self::Reader, TypeError>;

    /// As `StateType::heap_bytes`.
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// Takes values of `T` one by one; holds them as a column.
pub trait ScalarWriter<T>: Send {
    /// Takes a value.
    fn push(&mut self, value: &T);

    /// Takes a null.
    fn push_null(&mut self);

    /// The column of all values.
    fn finish(self) -> Result<ArrayRef, TypeError>;
}

/// Gives values of a column that was checked.
pub trait ScalarReader<T>: Send {
    /// The value of this row.
    fn get(&self, row: usize) -> T;
}

/// A reader of a column in which no null may be that the type does not have.
pub(super) fn checked_reader<T: ScalarType>(column: &str, array: &ArrayRef) -> Result<<T as ScalarType>::Reader, TypeError> {
    let reader = <T as ScalarType>::reader(column, array)?;
    if !T::NULLABLE {
        check_no_nulls::<T>(column, array)?;
    }
    Ok(reader)
}

/// An `i32` offset, or that there are too many bytes or elements for one.
pub(super) fn offset<T>(end: usize, rows: usize) -> Result<i32, TypeError> {
    i32::try_from(end).map_err(|_| TypeError::Oversized { rust: type_name::<T>(), rows })
}

impl<T: ScalarType> StateType for T {
    const ON_HEAP: bool = <T as ScalarType>::ON_HEAP;
    type Writer = <T as ScalarType>::Writer;
    type Reader = <T as ScalarType>::Reader;

    fn columns(name: &str) -> Result<Vec<Column>, TypeError> {
        Ok(vec![Column::new(name, T::logical_type(), T::NULLABLE)])
    }

    fn width() -> usize {
        1
    }

    fn writer(rows: usize) -> Self::Writer {
        <T as ScalarType>::writer(rows)
    }

    fn reader(name: &str, columns: &[ArrayRef]) -> Result<Self::Reader, TypeError> {
        check_width::<T>(name, 1, columns.len())?;
        checked_reader::<T>(name, &columns[0])
    }

    fn heap_bytes(&self) -> usize {
        ScalarType::heap_bytes(self)
    }
}

impl<T: ScalarType, W: ScalarWriter<T>> StateWriter<T> for W {
    fn push(&mut self, value: &T) {
        ScalarWriter::push(self, value);
    }

    fn finish(self, columns: &mut Vec<ArrayRef>) -> Result<(), TypeError> {
        columns.push(ScalarWriter::finish(self)?);
        Ok(())
    }
}

impl<T: ScalarType, R: ScalarReader<T>> StateReader<T> for R {
    #[inline]
    fn get(&self, row: usize) -> T {
        ScalarReader::get(self, row)
    }
}
