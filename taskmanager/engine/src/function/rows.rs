//! What a function is given: the rows of a batch, as columns whose type is checked once.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryArray, BooleanArray, PrimitiveArray, StringArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMillisecondType,
    UInt64Type,
};
use arrow::record_batch::RecordBatch;
use levada_state::types::{Date, Timestamp};

use super::error::FunctionError;

/// Rows of a batch, numbered from 0.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    batch: &'a RecordBatch,
}

impl<'a> Rows<'a> {
    /// The rows of `batch`.
    pub fn new(batch: &'a RecordBatch) -> Self {
        Self { batch }
    }

    /// How many there are.
    pub fn len(self) -> usize {
        self.batch.num_rows()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// All columns, as Arrow has them.
    pub fn batch(self) -> &'a RecordBatch {
        self.batch
    }

    /// A column, as Arrow has it.
    ///
    /// Errors: `NoColumn`.
    pub fn array(self, name: &str) -> Result<&'a ArrayRef, FunctionError> {
        self.batch.column_by_name(name).ok_or_else(|| {
            let schema = self.batch.schema_ref();
            let columns: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
            FunctionError::NoColumn { column: name.into(), columns: columns.join(", ") }
        })
    }

    /// A column of values of `T`: `i8` … `i64`, `u64`, `f32`, `f64`, `bool`, `str`, `[u8]`, `Timestamp`, `Date`.
    ///
    /// Errors: `NoColumn`, `ColumnType`.
    pub fn column<T: ColumnType + ?Sized>(self, name: &str) -> Result<TypedColumn<'a, T>, FunctionError> {
        let array = self.array(name)?;
        match T::of(array) {
            Some(array) => Ok(TypedColumn { array }),
            None => Err(FunctionError::ColumnType {
                column: name.into(),
                wanted: std::any::type_name::<T>(),
                found: array.data_type().to_string(),
            }),
        }
    }
}

/// A type in which a function can read a column.
pub trait ColumnType {
    /// Arrow's array.
    type Array: Array + 'static;
    /// A value.
    type Item<'a>;

    /// The array as this type's; `None` where it is of another.
    fn of(array: &ArrayRef) -> Option<&Self::Array>;

    /// The value of a row.
    fn get(array: &Self::Array, row: usize) -> Self::Item<'_>;
}

/// A column whose type was checked.
pub struct TypedColumn<'a, T: ColumnType + ?Sized> {
    array: &'a T::Array,
}

impl<T: ColumnType + ?Sized> Clone for TypedColumn<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ColumnType + ?Sized> Copy for TypedColumn<'_, T> {}

impl<'a, T: ColumnType + ?Sized> TypedColumn<'a, T> {
    /// The value of a row; of a null, any value.
    ///
    /// Contract: the row exists; another one panics.
    #[inline]
    pub fn get(self, row: usize) -> T::Item<'a> {
        T::get(self.array, row)
    }

    /// The value of a row, `None` where it is null.
    #[inline]
    pub fn option(self, row: usize) -> Option<T::Item<'a>> {
        self.array.is_valid(row).then(|| T::get(self.array, row))
    }

    /// Which rows are null; `None` where none is.
    pub fn nulls(self) -> Option<&'a NullBuffer> {
        self.array.nulls()
    }
}

impl<'a, A: ArrowPrimitiveType, T: ColumnType<Array = PrimitiveArray<A>>> TypedColumn<'a, T> {
    /// Every value as Arrow holds it, those of nulls undefined.
    pub fn values(self) -> &'a [A::Native] {
        self.array.values()
    }
}

macro_rules! primitive {
    ($($rust:ty, $arrow:ty, $wrap:expr;)*) => {$(
        impl ColumnType for $rust {
            type Array = PrimitiveArray<$arrow>;
            type Item<'a> = $rust;

            fn of(array: &ArrayRef) -> Option<&Self::Array> {
                array.as_primitive_opt()
            }

            #[inline]
            fn get(array: &Self::Array, row: usize) -> Self {
                $wrap(array.value(row))
            }
        }
    )*};
}

primitive! {
    i8, Int8Type, std::convert::identity;
    i16, Int16Type, std::convert::identity;
    i32, Int32Type, std::convert::identity;
    i64, Int64Type, std::convert::identity;
    u64, UInt64Type, std::convert::identity;
    f32, Float32Type, std::convert::identity;
    f64, Float64Type, std::convert::identity;
    Timestamp, TimestampMillisecondType, Timestamp;
    Date, Date32Type, Date;
}

impl ColumnType for bool {
    type Array = BooleanArray;
    type Item<'a> = bool;

    fn of(array: &ArrayRef) -> Option<&Self::Array> {
        array.as_boolean_opt()
    }

    #[inline]
    fn get(array: &Self::Array, row: usize) -> bool {
        array.value(row)
    }
}

impl ColumnType for str {
    type Array = StringArray;
    type Item<'a> = &'a str;

    fn of(array: &ArrayRef) -> Option<&Self::Array> {
        array.as_string_opt()
    }

    #[inline]
    fn get(array: &Self::Array, row: usize) -> &str {
        array.value(row)
    }
}

impl ColumnType for [u8] {
    type Array = BinaryArray;
    type Item<'a> = &'a [u8];

    fn of(array: &ArrayRef) -> Option<&Self::Array> {
        matches!(array.data_type(), DataType::Binary).then(|| array.as_binary())
    }

    #[inline]
    fn get(array: &Self::Array, row: usize) -> &[u8] {
        array.value(row)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;

    use super::*;

    fn batch() -> RecordBatch {
        RecordBatch::try_from_iter([
            ("n", Arc::new(Int64Array::from(vec![Some(1), None])) as ArrayRef),
            ("name", Arc::new(StringArray::from(vec!["a", "b"])) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn columns_are_read_by_name_and_type() {
        let batch = batch();
        let rows = Rows::new(&batch);
        let n = rows.column::<i64>("n").unwrap();
        assert_eq!((n.option(0), n.option(1), n.values().len()), (Some(1), None, 2));
        assert_eq!(rows.column::<str>("name").unwrap().get(1), "b");
    }

    #[test]
    fn what_is_not_there_is_named() {
        let batch = batch();
        let rows = Rows::new(&batch);
        let error = rows.column::<i64>("m").err().unwrap().to_string();
        assert!(error.contains("\"m\"") && error.contains("n, name"), "{error}");
        let error = rows.column::<f64>("n").err().unwrap().to_string();
        assert!(error.contains("as f64") && error.contains("Int64"), "{error}");
    }
}
