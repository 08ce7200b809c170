//! Bytes to columns.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, ListArray, PrimitiveArray, PrimitiveBuilder, StringBuilder,
    StructArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Field, FieldRef, Fields, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType, UInt64Type,
};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::window::from_ordered;
use super::{BadRow, Namespaces, RowLayout, Window};

/// Entries of a batch.
const BATCH_ROWS_MAX: usize = 4096;

/// Bytes of entries after which a batch is full, whatever their number.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// Gathers entries into a batch.
///
/// A reader of whole entries gives the layout's columns; one of what lies below known keys gives those behind the key and its
/// window: the map key or index, the values, `_ttl`.
#[derive(Debug)]
pub struct RowReader {
    columns: SchemaRef,
    whole: bool,
    keys: Vec<Reader>,
    windows: Option<Vec<Option<Window>>>,
    index: Option<Vec<i64>>,
    below: Vec<Reader>,
    values: Vec<Reader>,
    ttl: Option<Reader>,
    rows: usize,
    bytes: usize,
}

impl RowReader {
    /// A reader of whole entries.
    pub fn whole(layout: &RowLayout) -> Self {
        Self::new(layout, true)
    }

    /// A reader of what lies below keys that are known.
    pub fn below(layout: &RowLayout) -> Self {
        Self::new(layout, false)
    }

    fn new(layout: &RowLayout, whole: bool) -> Self {
        let (schema, fields) = (layout.schema(), layout.columns().fields());
        let first = layout.key_columns();
        let is_indexed = super::is_indexed(schema);
        let below = first + usize::from(is_indexed);
        let values = first + layout.below_columns();
        let readers = |range: std::ops::Range<usize>, place| fields[range].iter().map(|f| Reader::new(f, place)).collect();
        let columns = if whole { Arc::clone(layout.columns()) } else { Arc::new(Schema::new(fields[first..].to_vec())) };
        Self {
            columns,
            whole,
            keys: if whole { readers(0..schema.keys.len(), Place::Key) } else { Vec::new() },
            windows: (whole && schema.windowed).then(Vec::new),
            index: is_indexed.then(Vec::new),
            below: readers(below..values, Place::Key),
            values: readers(values..values + schema.values.len(), Place::Value),
            ttl: schema.ttl.is_some().then(|| Reader::new(&fields[fields.len() - 1], Place::Value)),
            rows: 0,
            bytes: 0,
        }
    }

    /// The columns of its batches.
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// Entries gathered.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Whether there is enough for a batch.
    pub fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS_MAX || self.bytes >= BATCH_BYTES_MAX
    }

    /// Takes an entry. `known` is the number of the key's bytes that a reader of what lies below passes over: group, window and
    /// key; a reader of whole entries takes all.
    ///
    /// Errors: bytes that are no entry; the reader is to be dropped then.
    pub fn push(&mut self, known: usize, key: &[u8], value: &[u8]) -> Result<(), BadRow> {
        let mut bytes = Bytes { left: key };
        if self.whole {
            bytes.take("_key_group", 2)?;
            if let Some(windows) = &mut self.windows {
                windows.push(read_window(&mut bytes)?);
            }
            self.keys.iter_mut().try_for_each(|reader| reader.read(&mut bytes))?;
        } else {
            bytes.take("key", known)?;
        }
        if let Some(index) = &mut self.index {
            index.push(from_ordered(bytes.array(super::INDEX_COLUMN)?));
        }
        self.below.iter_mut().try_for_each(|reader| reader.read(&mut bytes))?;
        bytes.end()?;
        let mut bytes = Bytes { left: value };
        self.ttl.iter_mut().chain(&mut self.values).try_for_each(|reader| reader.read(&mut bytes))?;
        self.rows += 1;
        self.bytes += key.len() + value.len();
        bytes.end()
    }

    /// The batch of all that was taken since the last one.
    pub fn finish(&mut self) -> RecordBatch {
        self.bytes = 0;
        let mut columns: Vec<ArrayRef> = self.keys.iter_mut().map(Reader::finish).collect();
        if let Some(windows) = &mut self.windows {
            columns.push(Namespaces::column(windows));
            windows.clear();
        }
        if let Some(index) = &mut self.index {
            columns.push(Arc::new(PrimitiveArray::<Int64Type>::new(std::mem::take(index).into(), None)));
        }
        columns.extend(self.below.iter_mut().chain(&mut self.values).chain(&mut self.ttl).map(Reader::finish));
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options)
            .expect("the readers are of the columns' types, and check what may be null")
    }
}

/// The window of the entry with this key, and how many bytes of the key say its group and window.
///
/// Errors: bytes that are no key of the layout.
pub fn read_namespace(layout: &RowLayout, key: &[u8]) -> Result<(Option<Window>, usize), BadRow> {
    let mut bytes = Bytes { left: key };
    bytes.take("_key_group", 2)?;
    let window = if layout.schema().windowed { read_window(&mut bytes)? } else { None };
    Ok((window, key.len() - bytes.left.len()))
}

fn read_window(bytes: &mut Bytes<'_>) -> Result<Option<Window>, BadRow> {
    if !bytes.mark(super::NAMESPACE_COLUMN)? {
        return Ok(None);
    }
    let end = from_ordered(bytes.array(super::NAMESPACE_COLUMN)?);
    let start = from_ordered(bytes.array(super::NAMESPACE_COLUMN)?);
    Ok(Some(Window { end, start }))
}

/// What of a row has not been read.
struct Bytes<'a> {
    left: &'a [u8],
}

impl<'a> Bytes<'a> {
    #[inline]
    fn take(&mut self, column: &str, count: usize) -> Result<&'a [u8], BadRow> {
        let Some((taken, left)) = self.left.split_at_checked(count) else {
            return Err(BadRow::Short { column: column.into(), needed: count, found: self.left.len() });
        };
        self.left = left;
        Ok(taken)
    }

    #[inline]
    fn array<const N: usize>(&mut self, column: &str) -> Result<[u8; N], BadRow> {
        Ok(self.take(column, N)?.try_into().expect("so many were taken"))
    }

    /// Whether a value follows.
    #[inline]
    fn mark(&mut self, column: &str) -> Result<bool, BadRow> {
        match self.array::<1>(column)? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(BadRow::Value { column: column.into(), found: format!("the mark {other}") }),
        }
    }

    fn sized(&mut self, column: &str) -> Result<&'a [u8], BadRow> {
        let count = u32::from_le_bytes(self.array(column)?);
        self.take(column, count as usize)
    }

    fn end(&self) -> Result<(), BadRow> {
        if self.left.is_empty() { Ok(()) } else { Err(BadRow::TooLong(self.left.len())) }
    }
}

/// Where a column's bytes stand: floats of keys are f64s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Value,
}

/// Gathers one column.
#[derive(Debug)]
struct Reader {
    name: String,
    nullable: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Boolean(BooleanBuilder),
    I8(PrimitiveBuilder<Int8Type>),
    I16(PrimitiveBuilder<Int16Type>),
    I32(PrimitiveBuilder<Int32Type>),
    Date(PrimitiveBuilder<Date32Type>),
    I64(PrimitiveBuilder<Int64Type>),
    Time(PrimitiveBuilder<TimestampMillisecondType>),
    U64(PrimitiveBuilder<UInt64Type>),
    F32(PrimitiveBuilder<Float32Type>, Place),
    F64(PrimitiveBuilder<Float64Type>),
    Decimal(PrimitiveBuilder<Decimal128Type>),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    List { field: FieldRef, offsets: Vec<i32>, valid: Vec<bool>, elements: Box<Reader> },
    Struct { fields: Fields, valid: Vec<bool>, columns: Vec<Reader> },
}

impl Reader {
    /// Contract: as `ValueWriter::new`.
    fn new(field: &Field, place: Place) -> Self {
        Self { name: field.name().clone(), nullable: field.is_nullable(), values: Values::new(field.data_type(), place) }
    }

    fn read(&mut self, bytes: &mut Bytes<'_>) -> Result<(), BadRow> {
        if bytes.mark(&self.name)? {
            return self.value(bytes);
        }
        if !self.nullable {
            return Err(BadRow::Value { column: self.name.clone(), found: "null".into() });
        }
        self.null();
        Ok(())
    }

    #[inline]
    fn value(&mut self, bytes: &mut Bytes<'_>) -> Result<(), BadRow> {
        let name = &self.name;
        let narrow = |found: i64| BadRow::Value { column: name.clone(), found: found.to_string() };
        let word = |bytes: &mut Bytes<'_>| bytes.array(name).map(i64::from_le_bytes);
        match &mut self.values {
            Values::Boolean(values) => match bytes.array::<1>(name)? {
                [bit @ (0 | 1)] => values.append_value(bit == 1),
                [other] => return Err(narrow(other.into())),
            },
            Values::I8(values) => narrowed(word(bytes)?, values, narrow)?,
            Values::I16(values) => narrowed(word(bytes)?, values, narrow)?,
            Values::I32(values) => narrowed(word(bytes)?, values, narrow)?,
            Values::Date(values) => narrowed(word(bytes)?, values, narrow)?,
            Values::I64(values) => values.append_value(word(bytes)?),
            Values::Time(values) => values.append_value(word(bytes)?),
            Values::U64(values) => values.append_value(u64::from_le_bytes(bytes.array(name)?)),
            Values::F32(values, Place::Value) => values.append_value(f32::from_bits(u32::from_le_bytes(bytes.array(name)?))),
            Values::F32(values, Place::Key) => {
                values.append_value(f64::from_bits(u64::from_le_bytes(bytes.array(name)?)) as f32);
            }
            Values::F64(values) => values.append_value(f64::from_bits(u64::from_le_bytes(bytes.array(name)?))),
            Values::Decimal(values) => values.append_value(i128::from_le_bytes(bytes.array(name)?)),
            Values::Text(values) => {
                let found = bytes.sized(name)?;
                let bad = |_| BadRow::Value { column: name.clone(), found: "bytes that are no UTF-8".into() };
                values.append_value(std::str::from_utf8(found).map_err(bad)?);
            }
            Values::Bytes(values) => values.append_value(bytes.sized(name)?),
            Values::List { offsets, valid, elements, .. } => {
                let count = u32::from_le_bytes(bytes.array(name)?);
                for _ in 0..count {
                    elements.read(bytes)?;
                }
                offsets.push(list_end(offsets, count).ok_or_else(|| narrow(i64::from(count)))?);
                valid.push(true);
            }
            Values::Struct { valid, columns, .. } => {
                columns.iter_mut().try_for_each(|column| column.read(bytes))?;
                valid.push(true);
            }
        }
        Ok(())
    }

    fn null(&mut self) {
        match &mut self.values {
            Values::Boolean(values) => values.append_null(),
            Values::I8(values) => values.append_null(),
            Values::I16(values) => values.append_null(),
            Values::I32(values) => values.append_null(),
            Values::Date(values) => values.append_null(),
            Values::I64(values) => values.append_null(),
            Values::Time(values) => values.append_null(),
            Values::U64(values) => values.append_null(),
            Values::F32(values, _) => values.append_null(),
            Values::F64(values) => values.append_null(),
            Values::Decimal(values) => values.append_null(),
            Values::Text(values) => values.append_null(),
            Values::Bytes(values) => values.append_null(),
            Values::List { offsets, valid, .. } => {
                offsets.push(*offsets.last().expect("offsets begin with 0"));
                valid.push(false);
            }
            Values::Struct { valid, columns, .. } => {
                columns.iter_mut().for_each(Self::null);
                valid.push(false);
            }
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Boolean(values) => Arc::new(values.finish()),
            Values::I8(values) => Arc::new(values.finish()),
            Values::I16(values) => Arc::new(values.finish()),
            Values::I32(values) => Arc::new(values.finish()),
            Values::Date(values) => Arc::new(values.finish()),
            Values::I64(values) => Arc::new(values.finish()),
            Values::Time(values) => Arc::new(values.finish()),
            Values::U64(values) => Arc::new(values.finish()),
            Values::F32(values, _) => Arc::new(values.finish()),
            Values::F64(values) => Arc::new(values.finish()),
            Values::Decimal(values) => Arc::new(values.finish()),
            Values::Text(values) => Arc::new(values.finish()),
            Values::Bytes(values) => Arc::new(values.finish()),
            Values::List { field, offsets, valid, elements } => {
                let offsets = OffsetBuffer::new(std::mem::replace(offsets, vec![0]).into());
                Arc::new(ListArray::new(Arc::clone(field), offsets, elements.finish(), nulls(valid)))
            }
            Values::Struct { fields, valid, columns } => {
                let columns: Vec<ArrayRef> = columns.iter_mut().map(Self::finish).collect();
                let length = valid.len();
                let nulls = nulls(valid);
                Arc::new(
                    StructArray::try_new_with_length(fields.clone(), columns, nulls, length).expect("one length, checked nulls"),
                )
            }
        }
    }
}

/// The offset behind a list of `count` elements.
fn list_end(offsets: &[i32], count: u32) -> Option<i32> {
    offsets.last()?.checked_add(i32::try_from(count).ok()?)
}

fn narrowed<T: ArrowPrimitiveType>(
    found: i64,
    values: &mut PrimitiveBuilder<T>,
    error: impl Fn(i64) -> BadRow,
) -> Result<(), BadRow>
where
    T::Native: TryFrom<i64>,
{
    values.append_value(T::Native::try_from(found).map_err(|_| error(found))?);
    Ok(())
}

fn nulls(valid: &mut Vec<bool>) -> Option<NullBuffer> {
    let nulls: NullBuffer = std::mem::take(valid).into();
    (nulls.null_count() > 0).then_some(nulls)
}

impl Values {
    fn new(data_type: &DataType, place: Place) -> Self {
        match data_type {
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Int8 => Self::I8(PrimitiveBuilder::new()),
            DataType::Int16 => Self::I16(PrimitiveBuilder::new()),
            DataType::Int32 => Self::I32(PrimitiveBuilder::new()),
            DataType::Date32 => Self::Date(PrimitiveBuilder::new()),
            DataType::Int64 => Self::I64(PrimitiveBuilder::new()),
            DataType::Timestamp(TimeUnit::Millisecond, None) => Self::Time(PrimitiveBuilder::new()),
            DataType::UInt64 => Self::U64(PrimitiveBuilder::new()),
            DataType::Float32 => Self::F32(PrimitiveBuilder::new(), place),
            DataType::Float64 => Self::F64(PrimitiveBuilder::new()),
            DataType::Decimal128(_, _) => Self::Decimal(PrimitiveBuilder::new().with_data_type(data_type.clone())),
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            DataType::Binary => Self::Bytes(BinaryBuilder::new()),
            DataType::List(field) => Self::List {
                field: Arc::clone(field),
                offsets: vec![0],
                valid: Vec::new(),
                elements: Box::new(Reader::new(field, place)),
            },
            DataType::Struct(fields) => Self::Struct {
                fields: fields.clone(),
                valid: Vec::new(),
                columns: fields.iter().map(|field| Reader::new(field, place)).collect(),
            },
            other => panic!("no state has a column of type {other}"),
        }
    }
}
