//! Batches to records.
//!
//! Arrays are looked through once a batch; then a row is a walk over plain slices, without allocation.

use std::io::Write;

use arrow::array::{Array, AsArray, BinaryArray, BooleanArray, ListArray, StringArray, StructArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMillisecondType, UInt64Type,
};
use arrow::record_batch::RecordBatch;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use levada_common::types::{OP_COLUMN, RowKind, StreamSchema};

use super::calendar::{push_date, push_timestamp};

/// Writes batches of one stream as NDJSON.
pub struct NdjsonEncoder {
    line_prefix: Vec<u8>,
    /// What stands before each column's value: `{"a":`, `,"b":`.
    keys: Vec<Vec<u8>>,
    changelog: bool,
}

impl NdjsonEncoder {
    /// An encoder of this stream; of a changelog `_op` is the first field.
    pub fn new(schema: &StreamSchema) -> Self {
        let op = schema.changelog.then_some(OP_COLUMN);
        let names = op.into_iter().chain(schema.columns.iter().map(|column| column.name.as_str()));
        Self { line_prefix: Vec::new(), keys: keys(names), changelog: schema.changelog }
    }

    /// What stands before each line.
    pub fn set_line_prefix(&mut self, prefix: &str) {
        self.line_prefix = prefix.as_bytes().to_vec();
    }

    /// Appends a line per row.
    pub fn encode(&self, batch: &RecordBatch, out: &mut Vec<u8>) {
        let cells: Vec<Cells<'_>> = batch
            .columns()
            .iter()
            .enumerate()
            .map(|(place, array)| match (place, self.changelog) {
                (0, true) => Cells { nulls: None, kind: Kind::Op(array.as_primitive::<Int8Type>().values()) },
                _ => Cells::new(array.as_ref()),
            })
            .collect();
        for row in 0..batch.num_rows() {
            out.extend_from_slice(&self.line_prefix);
            push_object(out, &self.keys, &cells, row);
            out.push(b'\n');
        }
    }
}

/// An array, looked through.
struct Cells<'a> {
    nulls: Option<&'a NullBuffer>,
    kind: Kind<'a>,
}

enum Kind<'a> {
    Op(&'a [i8]),
    Boolean(&'a BooleanArray),
    Int8(&'a [i8]),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    UInt64(&'a [u64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(&'a [i128], usize),
    String(&'a StringArray),
    Binary(&'a BinaryArray),
    Date(&'a [i32]),
    Timestamp(&'a [i64]),
    List(&'a ListArray, Box<Cells<'a>>),
    Struct(Vec<Vec<u8>>, Vec<Cells<'a>>),
}

impl<'a> Cells<'a> {
    /// Contract: the array is of a type that `LogicalType::to_arrow` gives.
    fn new(array: &'a dyn Array) -> Self {
        let kind = match array.data_type() {
            DataType::Boolean => Kind::Boolean(array.as_boolean()),
            DataType::Int8 => Kind::Int8(array.as_primitive::<Int8Type>().values()),
            DataType::Int16 => Kind::Int16(array.as_primitive::<Int16Type>().values()),
            DataType::Int32 => Kind::Int32(array.as_primitive::<Int32Type>().values()),
            DataType::Int64 => Kind::Int64(array.as_primitive::<Int64Type>().values()),
            DataType::UInt64 => Kind::UInt64(array.as_primitive::<UInt64Type>().values()),
            DataType::Float32 => Kind::Float32(array.as_primitive::<Float32Type>().values()),
            DataType::Float64 => Kind::Float64(array.as_primitive::<Float64Type>().values()),
            DataType::Decimal128(_, scale) => {
                Kind::Decimal(array.as_primitive::<Decimal128Type>().values(), usize::from(scale.unsigned_abs()))
            }
            DataType::Utf8 => Kind::String(array.as_string()),
            DataType::Binary => Kind::Binary(array.as_binary()),
            DataType::Date32 => Kind::Date(array.as_primitive::<Date32Type>().values()),
            DataType::Timestamp(_, _) => Kind::Timestamp(array.as_primitive::<TimestampMillisecondType>().values()),
            DataType::List(_) => {
                let list = array.as_list::<i32>();
                Kind::List(list, Box::new(Cells::new(list.values().as_ref())))
            }
            DataType::Struct(fields) => {
                let columns: &'a StructArray = array.as_struct();
                let cells = columns.columns().iter().map(|column| Cells::new(column.as_ref())).collect();
                Kind::Struct(keys(fields.iter().map(|field| field.name().as_str())), cells)
            }
            other => panic!("streams have no columns of Arrow type {other}"),
        };
        Self { nulls: array.nulls(), kind }
    }

    #[inline]
    fn push(&self, out: &mut Vec<u8>, row: usize) {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return;
        }
        match &self.kind {
            Kind::Op(values) => {
                let kind = RowKind::from_code(values[row]).expect("`_op` of a changelog is the code of a row kind");
                out.push(b'"');
                out.extend_from_slice(kind.sign().as_bytes());
                out.push(b'"');
            }
            Kind::Boolean(values) => out.extend_from_slice(if values.value(row) { b"true" } else { b"false" }),
            Kind::Int8(values) => push_integer(out, values[row].into()),
            Kind::Int16(values) => push_integer(out, values[row].into()),
            Kind::Int32(values) => push_integer(out, values[row].into()),
            Kind::Int64(values) => push_integer(out, values[row]),
            Kind::UInt64(values) => push_digits(out, values[row]),
            Kind::Float32(values) => push_float(out, values[row].into(), &values[row]),
            Kind::Float64(values) => push_float(out, values[row], &values[row]),
            Kind::Decimal(values, scale) => push_decimal(out, values[row], *scale),
            Kind::String(values) => push_string(out, values.value(row)),
            Kind::Binary(values) => push_base64(out, values.value(row)),
            Kind::Date(values) => {
                out.push(b'"');
                push_date(out, values[row].into());
                out.push(b'"');
            }
            Kind::Timestamp(values) => {
                out.push(b'"');
                push_timestamp(out, values[row]);
                out.push(b'"');
            }
            Kind::List(list, items) => {
                let offsets = list.value_offsets();
                out.push(b'[');
                for item in offsets[row]..offsets[row + 1] {
                    if item > offsets[row] {
                        out.push(b',');
                    }
                    items.push(out, item as usize);
                }
                out.push(b']');
            }
            Kind::Struct(keys, cells) => push_object(out, keys, cells, row),
        }
    }
}

fn push_object(out: &mut Vec<u8>, keys: &[Vec<u8>], cells: &[Cells<'_>], row: usize) {
    if cells.is_empty() {
        out.push(b'{');
    }
    for (key, cells) in keys.iter().zip(cells) {
        out.extend_from_slice(key);
        cells.push(out, row);
    }
    out.push(b'}');
}

/// What stands before each value of an object.
fn keys<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
    names
        .enumerate()
        .map(|(place, name)| {
            let mut key = vec![if place == 0 { b'{' } else { b',' }];
            push_string(&mut key, name);
            key.push(b':');
            key
        })
        .collect()
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.push(b'"');
    let mut from = 0;
    for (at, byte) in bytes.iter().enumerate() {
        if *byte >= 0x20 && *byte != b'"' && *byte != b'\\' {
            continue;
        }
        out.extend_from_slice(&bytes[from..at]);
        from = at + 1;
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(control >> 4)], HEX[usize::from(control & 15)]]);
            }
        }
    }
    out.extend_from_slice(&bytes[from..]);
    out.push(b'"');
}

fn push_integer(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    push_digits(out, value.unsigned_abs());
}

/// Appends a number's decimal digits.
pub(super) fn push_digits(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

fn push_decimal(out: &mut Vec<u8>, value: i128, scale: usize) {
    let mut digits = [b'0'; 40];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    // A u128 is divided by hand, a u64 by multiplication: 18 digits at a time.
    const PIECE: u128 = 1_000_000_000_000_000_000;
    while rest > 0 {
        let mut piece = (rest % PIECE) as u64;
        rest /= PIECE;
        let end = at;
        while piece > 0 {
            at -= 1;
            digits[at] = b'0' + (piece % 10) as u8;
            piece /= 10;
        }
        if rest > 0 {
            at = end - 18;
        }
    }
    at = at.min(digits.len() - scale - 1);
    if value < 0 {
        out.push(b'-');
    }
    let point = digits.len() - scale;
    out.extend_from_slice(&digits[at..point]);
    if scale > 0 {
        out.push(b'.');
        out.extend_from_slice(&digits[point..]);
    }
}

/// Appends the shortest digits that are read back as the same float, with a point or an exponent.
fn push_float(out: &mut Vec<u8>, value: f64, shortest: &dyn std::fmt::Debug) {
    if value.is_nan() {
        out.extend_from_slice(b"\"NaN\"");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"\"Infinity\"" } else { b"\"-Infinity\"" });
    } else {
        write!(out, "{shortest:?}").expect("a Vec takes everything");
    }
}

fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    let from = out.len();
    out.resize(from + bytes.len().div_ceil(3) * 4, 0);
    BASE64.encode_slice(bytes, &mut out[from..]).expect("four letters for every three bytes");
    out.push(b'"');
}
