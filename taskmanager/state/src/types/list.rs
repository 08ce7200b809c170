//! Lists of values of one column, within one value.

use std::any::type_name;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, NullBufferBuilder};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use levada_common::types::LogicalType;

use super::error::check_column;
use super::scalar::{checked_reader, offset};
use super::{NotNull, ScalarReader, ScalarType, ScalarWriter, TypeError};

impl<T: ScalarType> NotNull for Vec<T> {}

impl<T: ScalarType> ScalarType for Vec<T> {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = true;
    type Writer = ListWriter<T>;
    type Reader = ListReader<T>;

    fn logical_type() -> LogicalType {
        LogicalType::List(Box::new(T::logical_type()))
    }

    fn writer(rows: usize) -> ListWriter<T> {
        let mut offsets = Vec::with_capacity(rows + 1);
        offsets.push(0);
        ListWriter { elements: T::writer(rows), count: 0, offsets, nulls: NullBufferBuilder::new(rows), oversized: None }
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<ListReader<T>, TypeError> {
        check_column::<Self>(column, Self::logical_type(), array)?;
        let lists = array.as_list::<i32>();
        let offsets = lists.value_offsets().to_vec();
        let (start, end) = (offsets[0] as usize, offsets[offsets.len() - 1] as usize);
        let elements = checked_reader::<T>(column, &lists.values().slice(start, end - start))?;
        Ok(ListReader { elements, offsets, element: PhantomData })
    }

    fn heap_bytes(&self) -> usize {
        let below: usize = if T::ON_HEAP { self.iter().map(ScalarType::heap_bytes).sum() } else { 0 };
        self.capacity() * size_of::<T>() + below
    }
}

/// Takes lists.
#[derive(Debug)]
pub struct ListWriter<T: ScalarType> {
    elements: T::Writer,
    count: usize,
    offsets: Vec<i32>,
    nulls: NullBufferBuilder,
    /// As in `BytesWriter`.
    oversized: Option<usize>,
}

impl<T: ScalarType> ScalarWriter<Vec<T>> for ListWriter<T> {
    fn push(&mut self, value: &Vec<T>) {
        match offset::<T>(self.count + value.len(), self.offsets.len()) {
            Ok(end) if self.oversized.is_none() => {
                value.iter().for_each(|element| ScalarWriter::push(&mut self.elements, element));
                self.count += value.len();
                self.offsets.push(end);
                self.nulls.append_non_null();
            }
            _ => {
                self.oversized.get_or_insert(self.offsets.len());
            }
        }
    }

    fn push_null(&mut self) {
        self.offsets.push(self.offsets[self.offsets.len() - 1]);
        self.nulls.append_null();
    }

    fn finish(self) -> Result<ArrayRef, TypeError> {
        if let Some(rows) = self.oversized {
            return Err(TypeError::Oversized { rust: type_name::<Vec<T>>(), rows });
        }
        let DataType::List(field) = Vec::<T>::logical_type().to_arrow() else {
            unreachable!("a list's type is LIST");
        };
        let field: Arc<Field> = field;
        let elements = ScalarWriter::finish(self.elements)?;
        Ok(Arc::new(ListArray::new(field, OffsetBuffer::new(self.offsets.into()), elements, self.nulls.build())))
    }
}

/// Gives lists.
#[derive(Debug)]
pub struct ListReader<T: ScalarType> {
    elements: T::Reader,
    offsets: Vec<i32>,
    element: PhantomData<fn() -> T>,
}

impl<T: ScalarType> ListReader<T> {
    fn range(&self, row: usize) -> Range<usize> {
        let at = |row: usize| (self.offsets[row] - self.offsets[0]) as usize;
        at(row)..at(row + 1)
    }
}

impl<T: ScalarType> ScalarReader<Vec<T>> for ListReader<T> {
    fn get(&self, row: usize) -> Vec<T> {
        self.range(row).map(|element| ScalarReader::get(&self.elements, element)).collect()
    }
}
