//! Values to bytes.

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, ListArray, PrimitiveArray, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimeUnit, TimestampMillisecondType, UInt64Type,
};

use super::RowBytes;

/// A column whose values are written one row at a time.
pub(super) struct ValueWriter<'a> {
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

enum Values<'a> {
    Boolean(&'a BooleanArray),
    I8(&'a PrimitiveArray<Int8Type>),
    I16(&'a PrimitiveArray<Int16Type>),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U64(&'a [u64]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Decimal(&'a [i128]),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    List(&'a ListArray, Box<ValueWriter<'a>>),
    Struct(Vec<ValueWriter<'a>>),
}

impl<'a> ValueWriter<'a> {
    /// Contract: the column's type is one of `LogicalType::to_arrow`; another panics, since schemas are made of those.
    pub(super) fn new(column: &'a ArrayRef) -> Self {
        Self { nulls: column.nulls(), values: Values::of(column) }
    }

    /// Appends the value of `row`.
    #[inline]
    pub(super) fn write(&self, row: usize, out: &mut RowBytes) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return out.byte(0);
        }
        out.byte(1);
        match &self.values {
            Values::Boolean(values) => out.byte(u8::from(values.value(row))),
            Values::I8(values) => out.extend(&i64::from(values.value(row)).to_le_bytes()),
            Values::I16(values) => out.extend(&i64::from(values.value(row)).to_le_bytes()),
            Values::I32(values) => out.extend(&i64::from(values[row]).to_le_bytes()),
            Values::I64(values) => out.extend(&values[row].to_le_bytes()),
            Values::U64(values) => out.extend(&values[row].to_le_bytes()),
            Values::F32(values) => out.extend(&values[row].to_bits().to_le_bytes()),
            Values::F64(values) => out.extend(&values[row].to_bits().to_le_bytes()),
            Values::Decimal(values) => out.extend(&values[row].to_le_bytes()),
            Values::Text(values) => write_text(values.value(row).as_bytes(), out),
            Values::Bytes(values) => write_text(values.value(row), out),
            Values::List(lists, elements) => {
                let offsets = lists.value_offsets();
                let (start, end) = (offsets[row] as usize, offsets[row + 1] as usize);
                out.extend(&((end - start) as u32).to_le_bytes());
                (start..end).for_each(|element| elements.write(element, out));
            }
            Values::Struct(fields) => fields.iter().for_each(|field| field.write(row, out)),
        }
    }
}

fn write_text(bytes: &[u8], out: &mut RowBytes) {
    out.extend(&(bytes.len() as u32).to_le_bytes());
    out.extend(bytes);
}

impl<'a> Values<'a> {
    fn of(column: &'a ArrayRef) -> Self {
        fn words<T: ArrowPrimitiveType>(column: &ArrayRef) -> &[T::Native] {
            column.as_primitive::<T>().values()
        }
        match column.data_type() {
            DataType::Boolean => Self::Boolean(column.as_boolean()),
            DataType::Int8 => Self::I8(column.as_primitive()),
            DataType::Int16 => Self::I16(column.as_primitive()),
            DataType::Int32 => Self::I32(words::<Int32Type>(column)),
            DataType::Date32 => Self::I32(words::<Date32Type>(column)),
            DataType::Int64 => Self::I64(words::<Int64Type>(column)),
            DataType::Timestamp(TimeUnit::Millisecond, None) => Self::I64(words::<TimestampMillisecondType>(column)),
            DataType::UInt64 => Self::U64(words::<UInt64Type>(column)),
            DataType::Float32 => Self::F32(words::<Float32Type>(column)),
            DataType::Float64 => Self::F64(words::<Float64Type>(column)),
            DataType::Decimal128(_, _) => Self::Decimal(words::<Decimal128Type>(column)),
            DataType::Utf8 => Self::Text(column.as_string()),
            DataType::Binary => Self::Bytes(column.as_binary()),
            DataType::List(_) => {
                let lists: &ListArray = column.as_list();
                Self::List(lists, Box::new(ValueWriter::new(lists.values())))
            }
            DataType::Struct(_) => {
                let structs: &StructArray = column.as_struct();
                Self::Struct(structs.columns().iter().map(ValueWriter::new).collect())
            }
            other => panic!("no state has a column of type {other}"),
        }
    }
}
