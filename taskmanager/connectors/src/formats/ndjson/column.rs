//! Columns that are filled from JSON, value by value.
//!
//! Invariant: a column can be cut back to any earlier length (`truncate`), also after a failed `read`, so that a bad record
//! leaves nothing behind.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, StringArray, StructArray, TimestampMillisecondArray, UInt64Array,
};
use arrow::array::{BooleanBufferBuilder, NullBufferBuilder};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{Field, Fields};
use arrow::error::ArrowError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use levada_common::time::calendar::{parse_date, parse_timestamp};
use levada_common::types::{Column, LogicalType};

use super::number::{decimal, double, integer, shown, single};
use super::scan::{Scanner, check_depth};
use crate::formats::Reason;

/// A column that is being filled.
pub(super) struct ColumnReader {
    ty: LogicalType,
    nullable: bool,
    nulls: NullBufferBuilder,
    values: Values,
}

enum Values {
    Boolean(BooleanBufferBuilder),
    Int8(Vec<i8>),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    UInt64(Vec<u64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>),
    /// STRING and BINARY: the end of each value in the bytes, a 0 before them.
    Bytes(Vec<i32>, Vec<u8>),
    Date(Vec<i32>),
    Timestamp(Vec<i64>),
    /// The end of each list in the items, a 0 before them.
    List(Vec<i32>, Box<ColumnReader>),
    Struct(FieldReaders),
}

impl ColumnReader {
    pub fn new(ty: &LogicalType, nullable: bool) -> Self {
        let values = match ty {
            LogicalType::Boolean => Values::Boolean(BooleanBufferBuilder::new(0)),
            LogicalType::Int8 => Values::Int8(Vec::new()),
            LogicalType::Int16 => Values::Int16(Vec::new()),
            LogicalType::Int32 => Values::Int32(Vec::new()),
            LogicalType::Int64 => Values::Int64(Vec::new()),
            LogicalType::UInt64 => Values::UInt64(Vec::new()),
            LogicalType::Float32 => Values::Float32(Vec::new()),
            LogicalType::Float64 => Values::Float64(Vec::new()),
            LogicalType::Decimal(..) => Values::Decimal(Vec::new()),
            LogicalType::String | LogicalType::Binary => Values::Bytes(vec![0], Vec::new()),
            LogicalType::Date => Values::Date(Vec::new()),
            LogicalType::Timestamp => Values::Timestamp(Vec::new()),
            LogicalType::List(item) => Values::List(vec![0], Box::new(Self::new(item, true))),
            LogicalType::Struct(columns) => Values::Struct(FieldReaders::new(columns)),
        };
        Self { ty: ty.clone(), nullable, nulls: NullBufferBuilder::new(0), values }
    }

    /// Values that are complete.
    pub fn len(&self) -> usize {
        self.nulls.len()
    }

    /// Forgets all values but the first `len`, half-read ones too.
    pub fn truncate(&mut self, len: usize) {
        if self.nulls.len() > len {
            self.nulls.truncate(len);
        }
        match &mut self.values {
            Values::Boolean(values) => values.truncate(len.min(values.len())),
            Values::Int8(values) => values.truncate(len),
            Values::Int16(values) => values.truncate(len),
            Values::Int32(values) | Values::Date(values) => values.truncate(len),
            Values::Int64(values) | Values::Timestamp(values) => values.truncate(len),
            Values::UInt64(values) => values.truncate(len),
            Values::Float32(values) => values.truncate(len),
            Values::Float64(values) => values.truncate(len),
            Values::Decimal(values) => values.truncate(len),
            Values::Bytes(ends, bytes) => {
                ends.truncate(len + 1);
                bytes.truncate(last(ends));
            }
            Values::List(ends, items) => {
                ends.truncate(len + 1);
                items.truncate(last(ends));
            }
            Values::Struct(fields) => fields.truncate(len),
        }
    }

    /// Takes the value that stands next; `depth` arrays and objects are open around it.
    #[inline]
    pub fn read(&mut self, scanner: &mut Scanner<'_>, depth: usize, scratch: &mut String) -> Result<(), Reason> {
        let Some(begin) = scanner.peek() else { return Err(scanner.unexpected(&self.expected())) };
        if begin == b'n' {
            scanner.literal("null")?;
            return self.push_null();
        }
        match &mut self.values {
            Values::Int64(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, i64::MIN.into(), i64::MAX.into(), "INT64")? as i64);
            }
            Values::Bytes(ends, bytes) if begin == b'"' => {
                let text = scanner.string(scratch)?;
                match self.ty {
                    LogicalType::Binary => BASE64
                        .decode_vec(text, bytes)
                        .map_err(|error| Reason::new(format!("\"{}\" is not base64: {error}", shown(text))))?,
                    _ => bytes.extend_from_slice(text.as_bytes()),
                }
                ends.push(end(bytes.len())?);
            }
            Values::List(ends, items) if begin == b'[' => {
                scanner.expect(b'[')?;
                check_depth(depth + 1)?;
                let mut more = !scanner.take(b']');
                while more {
                    items.read(scanner, depth + 1, scratch)?;
                    more = scanner.more(b']')?;
                }
                ends.push(end(items.len())?);
            }
            Values::Struct(fields) if begin == b'{' => fields.read(scanner, self.nulls.len(), depth, scratch)?,
            _ => self.read_other(begin, scanner, scratch)?,
        }
        self.nulls.append_non_null();
        Ok(())
    }

    /// The types that are met less often.
    fn read_other(&mut self, begin: u8, scanner: &mut Scanner<'_>, scratch: &mut String) -> Result<(), Reason> {
        match &mut self.values {
            Values::Boolean(values) if begin == b't' => {
                scanner.literal("true")?;
                values.append(true);
            }
            Values::Boolean(values) if begin == b'f' => {
                scanner.literal("false")?;
                values.append(false);
            }
            Values::Int8(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, i8::MIN.into(), i8::MAX.into(), "INT8")? as i8);
            }
            Values::Int16(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, i16::MIN.into(), i16::MAX.into(), "INT16")? as i16);
            }
            Values::Int32(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, i32::MIN.into(), i32::MAX.into(), "INT32")? as i32);
            }
            Values::UInt64(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, 0, u64::MAX.into(), "UINT64")? as u64);
            }
            Values::Float32(values) if is_number(begin) => values.push(single(scanner.number()?)?),
            Values::Float64(values) if is_number(begin) => values.push(double(scanner.number()?)?),
            Values::Float32(values) if begin == b'"' => values.push(special(scanner.string(scratch)?)? as f32),
            Values::Float64(values) if begin == b'"' => values.push(special(scanner.string(scratch)?)?),
            Values::Decimal(values) if is_number(begin) => {
                let LogicalType::Decimal(precision, scale) = self.ty else { unreachable!("decimals are of type DECIMAL") };
                values.push(decimal(scanner.number()?, precision, scale)?);
            }
            Values::Date(values) if begin == b'"' => {
                let text = scanner.string(scratch)?;
                values.push(parse_date(text).ok_or_else(|| Reason::new(format!("\"{}\" is not a date", shown(text))))?);
            }
            Values::Timestamp(values) if begin == b'"' => {
                let text = scanner.string(scratch)?;
                values.push(parse_timestamp(text).ok_or_else(|| Reason::new(format!("\"{}\" is not a time", shown(text))))?);
            }
            Values::Timestamp(values) if is_number(begin) => {
                values.push(integer(scanner.number()?, i64::MIN.into(), i64::MAX.into(), "TIMESTAMP")? as i64);
            }
            _ => return Err(scanner.unexpected(&self.expected())),
        }
        Ok(())
    }

    /// Appends null, if the column may have it.
    pub fn push_null(&mut self) -> Result<(), Reason> {
        if !self.nullable {
            return Err(Reason::new(format!("null, the column is {} NOT NULL", self.ty)));
        }
        self.push_blank();
        Ok(())
    }

    /// Appends null, or below a null the empty value of a column that has none.
    fn push_blank(&mut self) {
        match &mut self.values {
            Values::Boolean(values) => values.append(false),
            Values::Int8(values) => values.push(0),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values) | Values::Timestamp(values) => values.push(0),
            Values::UInt64(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal(values) => values.push(0),
            Values::Bytes(ends, _) | Values::List(ends, _) => ends.push(ends[ends.len() - 1]),
            Values::Struct(fields) => fields.columns.iter_mut().for_each(Self::push_blank),
        }
        self.nulls.append(!self.nullable);
    }

    /// The column; empty afterwards.
    pub fn take(&mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        use std::mem::take;
        Ok(match &mut self.values {
            Values::Boolean(values) => Arc::new(BooleanArray::new(values.finish(), nulls)),
            Values::Int8(values) => Arc::new(Int8Array::new(take(values).into(), nulls)),
            Values::Int16(values) => Arc::new(Int16Array::new(take(values).into(), nulls)),
            Values::Int32(values) => Arc::new(Int32Array::new(take(values).into(), nulls)),
            Values::Int64(values) => Arc::new(Int64Array::new(take(values).into(), nulls)),
            Values::UInt64(values) => Arc::new(UInt64Array::new(take(values).into(), nulls)),
            Values::Float32(values) => Arc::new(Float32Array::new(take(values).into(), nulls)),
            Values::Float64(values) => Arc::new(Float64Array::new(take(values).into(), nulls)),
            Values::Decimal(values) => {
                Arc::new(Decimal128Array::new(take(values).into(), nulls).with_data_type(self.ty.to_arrow()))
            }
            Values::Bytes(ends, bytes) => {
                let (offsets, bytes) = (take_offsets(ends), take(bytes).into());
                match self.ty {
                    LogicalType::Binary => Arc::new(BinaryArray::try_new(offsets, bytes, nulls)?),
                    _ => Arc::new(StringArray::try_new(offsets, bytes, nulls)?),
                }
            }
            Values::Date(values) => Arc::new(Date32Array::new(take(values).into(), nulls)),
            Values::Timestamp(values) => Arc::new(TimestampMillisecondArray::new(take(values).into(), nulls)),
            Values::List(ends, items) => {
                let field = Arc::new(Field::new("item", items.ty.to_arrow(), true));
                Arc::new(ListArray::try_new(field, take_offsets(ends), items.take()?, nulls)?)
            }
            Values::Struct(fields) => Arc::new(fields.take_struct(nulls)?),
        })
    }

    fn expected(&self) -> String {
        let null = if self.nullable { " or null" } else { "" };
        let value = match self.ty {
            LogicalType::Boolean => "a boolean",
            LogicalType::Float32 | LogicalType::Float64 => "a number, \"NaN\", \"Infinity\" or \"-Infinity\"",
            LogicalType::String => "a string",
            LogicalType::Binary => "a string in base64",
            LogicalType::Date => "a date as a string",
            LogicalType::Timestamp => "a time as a string, or milliseconds",
            LogicalType::List(_) => "an array",
            LogicalType::Struct(_) => "an object",
            _ => "a number",
        };
        format!("{value}{null} ({})", self.ty)
    }
}

/// The columns of an object: of a record, or of a STRUCT.
pub(super) struct FieldReaders {
    pub columns: Vec<ColumnReader>,
    names: Vec<String>,
    places: HashMap<String, usize>,
    fields: Fields,
}

impl FieldReaders {
    pub fn new(columns: &[Column]) -> Self {
        Self {
            columns: columns.iter().map(|column| ColumnReader::new(&column.ty, column.nullable)).collect(),
            names: columns.iter().map(|column| column.name.clone()).collect(),
            places: columns.iter().enumerate().map(|(place, column)| (column.name.clone(), place)).collect(),
            fields: columns.iter().map(Column::to_field).collect(),
        }
    }

    /// Takes an object as the values at `row` of the columns, which have `row` values each.
    #[inline]
    pub fn read(&mut self, scanner: &mut Scanner<'_>, row: usize, depth: usize, scratch: &mut String) -> Result<(), Reason> {
        if !scanner.take(b'{') {
            return Err(scanner.unexpected("an object"));
        }
        check_depth(depth + 1)?;
        let mut more = !scanner.take(b'}');
        let mut likely = 0;
        while more {
            if scanner.peek() != Some(b'"') {
                return Err(scanner.unexpected("a field's name"));
            }
            let name = scanner.string(scratch)?;
            let place = match self.names.get(likely) {
                Some(next) if next == name => Some(likely),
                _ => self.places.get(name).copied(),
            };
            scanner.expect(b':')?;
            match place {
                Some(place) => {
                    likely = place + 1;
                    let column = &mut self.columns[place];
                    // Of fields of the same name the last counts.
                    column.truncate(row);
                    column.read(scanner, depth + 1, scratch).map_err(|reason| named(&self.names[place], &reason))?;
                }
                None => scanner.skip(depth + 1)?,
            }
            more = scanner.more(b'}')?;
        }
        for (column, name) in self.columns.iter_mut().zip(&self.names) {
            if column.len() == row {
                column
                    .push_null()
                    .map_err(|_| Reason::new(format!("field \"{name}\" is absent, the column is {} NOT NULL", column.ty)))?;
            }
        }
        Ok(())
    }

    pub fn truncate(&mut self, len: usize) {
        self.columns.iter_mut().for_each(|column| column.truncate(len));
    }

    fn take_struct(&mut self, nulls: Option<NullBuffer>) -> Result<StructArray, ArrowError> {
        let columns = self.columns.iter_mut().map(ColumnReader::take).collect::<Result<Vec<_>, _>>()?;
        StructArray::try_new(self.fields.clone(), columns, nulls)
    }
}

fn named(name: &str, reason: &Reason) -> Reason {
    Reason::new(format!("field \"{name}\": {reason}"))
}

#[inline]
fn is_number(begin: u8) -> bool {
    begin == b'-' || begin.is_ascii_digit()
}

/// The floats that JSON has no numbers for.
fn special(text: &str) -> Result<f64, Reason> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        _ => Err(Reason::new(format!("\"{}\" is not a number, \"NaN\", \"Infinity\" or \"-Infinity\"", shown(text)))),
    }
}

fn end(len: usize) -> Result<i32, Reason> {
    i32::try_from(len).map_err(|_| Reason::new(format!("a batch cannot hold {len} bytes or items of one column")))
}

fn last(ends: &[i32]) -> usize {
    ends[ends.len() - 1] as usize
}

fn take_offsets(ends: &mut Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(std::mem::replace(ends, vec![0]).into())
}
