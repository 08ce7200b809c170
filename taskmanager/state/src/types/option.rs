//! Values that may be null.

use arrow::array::{Array, ArrayRef};
use arrow::buffer::NullBuffer;
use levada_common::types::LogicalType;

use super::{ScalarReader, ScalarType, ScalarWriter, TypeError};

/// A type of one column that has no null of its own, so that `Option` of it has exactly one.
pub trait NotNull {}

impl<T: ScalarType + NotNull> ScalarType for Option<T> {
    const NULLABLE: bool = true;
    const ON_HEAP: bool = T::ON_HEAP;
    type Writer = OptionWriter<T>;
    type Reader = OptionReader<T>;

    fn logical_type() -> LogicalType {
        T::logical_type()
    }

    fn writer(rows: usize) -> OptionWriter<T> {
        OptionWriter(T::writer(rows))
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<OptionReader<T>, TypeError> {
        Ok(OptionReader { values: T::reader(column, array)?, nulls: array.nulls().cloned() })
    }

    fn heap_bytes(&self) -> usize {
        self.as_ref().map_or(0, ScalarType::heap_bytes)
    }
}

/// Takes values and nulls.
#[derive(Debug)]
pub struct OptionWriter<T: ScalarType>(T::Writer);

impl<T: ScalarType> ScalarWriter<Option<T>> for OptionWriter<T> {
    fn push(&mut self, value: &Option<T>) {
        match value {
            Some(value) => ScalarWriter::push(&mut self.0, value),
            None => self.0.push_null(),
        }
    }

    fn push_null(&mut self) {
        self.0.push_null();
    }

    fn finish(self) -> Result<ArrayRef, TypeError> {
        ScalarWriter::finish(self.0)
    }
}

/// Gives values and nulls.
#[derive(Debug)]
pub struct OptionReader<T: ScalarType> {
    values: T::Reader,
    nulls: Option<NullBuffer>,
}

impl<T: ScalarType> ScalarReader<Option<T>> for OptionReader<T> {
    fn get(&self, row: usize) -> Option<T> {
        let valid = self.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
        valid.then(|| ScalarReader::get(&self.values, row))
    }
}
