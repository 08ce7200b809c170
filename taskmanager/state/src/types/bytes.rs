//! Texts and bytes.

use std::any::type_name;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, GenericByteBuilder, StringArray};
use arrow::datatypes::{BinaryType, ByteArrayType, Utf8Type};
use levada_common::types::LogicalType;

use super::error::check_column;
use super::scalar::offset;
use super::{NotNull, ScalarReader, ScalarType, ScalarWriter, TypeError};

impl NotNull for String {}

impl ScalarType for String {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = true;
    type Writer = BytesWriter<String, Utf8Type>;
    type Reader = StringArray;

    fn logical_type() -> LogicalType {
        LogicalType::String
    }

    fn writer(rows: usize) -> Self::Writer {
        BytesWriter::new(rows, 0)
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<StringArray, TypeError> {
        check_column::<String>(column, LogicalType::String, array)?;
        Ok(array.as_string::<i32>().clone())
    }

    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl ScalarReader<String> for StringArray {
    fn get(&self, row: usize) -> String {
        self.value(row).to_owned()
    }
}

impl NotNull for Vec<u8> {}

impl ScalarType for Vec<u8> {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = true;
    type Writer = BytesWriter<Vec<u8>, BinaryType>;
    type Reader = BinaryArray;

    fn logical_type() -> LogicalType {
        LogicalType::Binary
    }

    fn writer(rows: usize) -> Self::Writer {
        BytesWriter::new(rows, 0)
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<BinaryArray, TypeError> {
        check_column::<Vec<u8>>(column, LogicalType::Binary, array)?;
        Ok(array.as_binary::<i32>().clone())
    }

    fn heap_bytes(&self) -> usize {
        self.capacity()
    }
}

impl ScalarReader<Vec<u8>> for BinaryArray {
    fn get(&self, row: usize) -> Vec<u8> {
        self.value(row).to_vec()
    }
}

impl<const N: usize> NotNull for [u8; N] {}

impl<const N: usize> ScalarType for [u8; N] {
    const NULLABLE: bool = false;
    const ON_HEAP: bool = false;
    type Writer = BytesWriter<[u8; N], BinaryType>;
    type Reader = FixedBytesReader<N>;

    fn logical_type() -> LogicalType {
        LogicalType::Binary
    }

    fn writer(rows: usize) -> Self::Writer {
        BytesWriter::new(rows, rows * N)
    }

    fn reader(column: &str, array: &ArrayRef) -> Result<FixedBytesReader<N>, TypeError> {
        check_column::<Self>(column, LogicalType::Binary, array)?;
        let array = array.as_binary::<i32>();
        match (0..array.len()).find(|row| array.is_valid(*row) && array.value(*row).len() != N) {
            None => Ok(FixedBytesReader(array.clone())),
            Some(row) => {
                let value = format!("{} bytes", array.value(row).len());
                Err(TypeError::Value { column: column.into(), rust: type_name::<Self>(), row, value })
            }
        }
    }
}

/// Gives arrays of bytes.
#[derive(Debug)]
pub struct FixedBytesReader<const N: usize>(BinaryArray);

impl<const N: usize> ScalarReader<[u8; N]> for FixedBytesReader<N> {
    fn get(&self, row: usize) -> [u8; N] {
        self.0.value(row).try_into().expect("the reader checked every length")
    }
}

/// Takes texts or bytes.
#[derive(Debug)]
pub struct BytesWriter<T, A: ByteArrayType> {
    builder: GenericByteBuilder<A>,
    /// Values taken after which their bytes were too many; none is taken after that.
    oversized: Option<usize>,
    rust: PhantomData<fn(&T)>,
}

impl<T, A: ByteArrayType<Offset = i32>> BytesWriter<T, A> {
    fn new(rows: usize, bytes: usize) -> Self {
        Self { builder: GenericByteBuilder::with_capacity(rows, bytes), oversized: None, rust: PhantomData }
    }
}

impl<T: AsRef<A::Native>, A: ByteArrayType<Offset = i32>> ScalarWriter<T> for BytesWriter<T, A> {
    fn push(&mut self, value: &T) {
        let value: &A::Native = value.as_ref();
        let bytes: &[u8] = value.as_ref();
        let rows = arrow::array::ArrayBuilder::len(&self.builder) + 1;
        if self.oversized.is_some() || offset::<T>(self.builder.values_slice().len() + bytes.len(), rows).is_err() {
            self.oversized.get_or_insert(rows);
            return;
        }
        self.builder.append_value(value);
    }

    fn push_null(&mut self) {
        self.builder.append_null();
    }

    fn finish(mut self) -> Result<ArrayRef, TypeError> {
        match self.oversized {
            None => Ok(Arc::new(self.builder.finish())),
            Some(rows) => Err(TypeError::Oversized { rust: type_name::<T>(), rows }),
        }
    }
}
