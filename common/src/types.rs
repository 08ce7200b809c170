//! The types of columns, and the schema of a stream.
//!
//! A type's text (`DECIMAL(10,2)`) is what users write and what plans carry; Arrow's type is what batches have.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The column that carries a change's kind in a changelog stream, always the first.
///
/// Shape: Int8, not null: 0 insert `+I`, 1 update-before `-U`, 2 update-after `+U`, 3 delete `-D`. Users cannot name a column so.
pub const OP_COLUMN: &str = "_op";

/// The kind of a change in a changelog stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i8)]
pub enum RowKind {
    /// A row appears.
    Insert = 0,
    /// The row that an update replaces.
    UpdateBefore = 1,
    /// The row that replaces another of the same key.
    UpdateAfter = 2,
    /// A row is gone.
    Delete = 3,
}

impl RowKind {
    /// The sign that files and terminals show.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Insert => "+I",
            Self::UpdateBefore => "-U",
            Self::UpdateAfter => "+U",
            Self::Delete => "-D",
        }
    }

    /// The kind of this code, if it is one.
    pub fn from_code(code: i8) -> Option<Self> {
        [Self::Insert, Self::UpdateBefore, Self::UpdateAfter, Self::Delete].into_iter().find(|kind| *kind as i8 == code)
    }
}

/// The type of a column. Strings are Arrow Utf8 and bytes Binary everywhere outside a single expression.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LogicalType {
    /// BOOLEAN
    Boolean,
    /// INT8
    Int8,
    /// INT16
    Int16,
    /// INT32
    Int32,
    /// INT64
    Int64,
    /// UINT64
    UInt64,
    /// FLOAT32
    Float32,
    /// FLOAT64
    Float64,
    /// DECIMAL(precision, scale), precision 1 to 38
    Decimal(u8, i8),
    /// STRING
    String,
    /// BINARY
    Binary,
    /// DATE, days since 1970
    Date,
    /// TIMESTAMP, milliseconds, UTC
    Timestamp,
    /// LIST(element), elements nullable
    List(Box<LogicalType>),
    /// STRUCT(name TYPE, ...)
    Struct(Vec<Column>),
}

/// A named, typed column.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Column {
    /// Its name, matched exactly.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub ty: LogicalType,
    /// Whether it may be null.
    pub nullable: bool,
}

impl Column {
    /// A column.
    pub fn new(name: impl Into<String>, ty: LogicalType, nullable: bool) -> Self {
        Self { name: name.into(), ty, nullable }
    }

    /// The Arrow field of this column.
    pub fn to_field(&self) -> Field {
        Field::new(&self.name, self.ty.to_arrow(), self.nullable)
    }
}

impl LogicalType {
    /// The Arrow type that batches carry.
    pub fn to_arrow(&self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Int8 => DataType::Int8,
            Self::Int16 => DataType::Int16,
            Self::Int32 => DataType::Int32,
            Self::Int64 => DataType::Int64,
            Self::UInt64 => DataType::UInt64,
            Self::Float32 => DataType::Float32,
            Self::Float64 => DataType::Float64,
            Self::Decimal(precision, scale) => DataType::Decimal128(*precision, *scale),
            Self::String => DataType::Utf8,
            Self::Binary => DataType::Binary,
            Self::Date => DataType::Date32,
            Self::Timestamp => DataType::Timestamp(TimeUnit::Millisecond, None),
            Self::List(element) => DataType::List(Arc::new(Field::new("item", element.to_arrow(), true))),
            Self::Struct(columns) => DataType::Struct(columns.iter().map(Column::to_field).collect::<Fields>()),
        }
    }

    /// The type that holds what `data_type` holds, widening views, dictionaries, and unsigned and time types of other units;
    /// `None` where no type of ours does. An expression's result is cast to `to_arrow()` of it.
    pub fn from_arrow(data_type: &DataType) -> Option<Self> {
        Some(match data_type {
            DataType::Boolean => Self::Boolean,
            DataType::Int8 => Self::Int8,
            DataType::Int16 | DataType::UInt8 => Self::Int16,
            DataType::Int32 | DataType::UInt16 => Self::Int32,
            DataType::Int64 | DataType::UInt32 => Self::Int64,
            DataType::UInt64 => Self::UInt64,
            DataType::Float16 | DataType::Float32 => Self::Float32,
            DataType::Float64 => Self::Float64,
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => Self::Decimal(*p, *s),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::String,
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Self::Binary,
            DataType::Date32 | DataType::Date64 => Self::Date,
            DataType::Timestamp(_, _) => Self::Timestamp,
            DataType::Dictionary(_, value) => Self::from_arrow(value)?,
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _)
            | DataType::ListView(field) => Self::List(Box::new(Self::from_arrow(field.data_type())?)),
            DataType::Struct(fields) => Self::Struct(
                fields
                    .iter()
                    .map(|field| Some(Column::new(field.name(), Self::from_arrow(field.data_type())?, field.is_nullable())))
                    .collect::<Option<Vec<_>>>()?,
            ),
            _ => return None,
        })
    }

    /// Whether this is an integer type.
    pub fn is_integer(&self) -> bool {
        matches!(self, Self::Int8 | Self::Int16 | Self::Int32 | Self::Int64 | Self::UInt64)
    }

    /// Whether this is FLOAT32 or FLOAT64.
    pub fn is_float(&self) -> bool {
        matches!(self, Self::Float32 | Self::Float64)
    }
}

impl fmt::Display for LogicalType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("BOOLEAN"),
            Self::Int8 => f.write_str("INT8"),
            Self::Int16 => f.write_str("INT16"),
            Self::Int32 => f.write_str("INT32"),
            Self::Int64 => f.write_str("INT64"),
            Self::UInt64 => f.write_str("UINT64"),
            Self::Float32 => f.write_str("FLOAT32"),
            Self::Float64 => f.write_str("FLOAT64"),
            Self::Decimal(precision, scale) => write!(f, "DECIMAL({precision},{scale})"),
            Self::String => f.write_str("STRING"),
            Self::Binary => f.write_str("BINARY"),
            Self::Date => f.write_str("DATE"),
            Self::Timestamp => f.write_str("TIMESTAMP"),
            Self::List(element) => write!(f, "LIST({element})"),
            Self::Struct(columns) => {
                f.write_str("STRUCT(")?;
                for (index, column) in columns.iter().enumerate() {
                    let comma = if index == 0 { "" } else { ", " };
                    let null = if column.nullable { "" } else { " NOT NULL" };
                    write!(f, "{comma}{} {}{null}", column.name, column.ty)?;
                }
                f.write_str(")")
            }
        }
    }
}

/// The text names no type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "\"{0}\" is not a type; types: BOOLEAN, INT8, INT16, INT32, INT64, UINT64, FLOAT32, FLOAT64, DECIMAL(p,s), STRING, BINARY, DATE, TIMESTAMP, LIST(type), STRUCT(name type, ...)"
)]
pub struct BadType(pub String);

impl FromStr for LogicalType {
    type Err = BadType;

    fn from_str(text: &str) -> Result<Self, BadType> {
        parse_type(text.trim(), 0).ok_or_else(|| BadType(text.into()))
    }
}

/// Parses a column's type as written in `columns:`: a type, and `NOT NULL` after it where it may not be null.
pub fn parse_column_type(text: &str) -> Result<(LogicalType, bool), BadType> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let not_null = words.len() > 2
        && words[words.len() - 2].eq_ignore_ascii_case("NOT")
        && words[words.len() - 1].eq_ignore_ascii_case("NULL");
    let body = if not_null { words[..words.len() - 2].join(" ") } else { words.join(" ") };
    body.parse().map(|ty| (ty, !not_null)).map_err(|_| BadType(text.into()))
}

/// Nesting of LIST and STRUCT allowed in a type.
const TYPE_DEPTH_MAX: usize = 16;

fn parse_type(text: &str, depth: usize) -> Option<LogicalType> {
    if depth > TYPE_DEPTH_MAX {
        return None;
    }
    let (head, arguments) = match text.split_once(['(', '<']) {
        Some((head, rest)) => (head.trim(), Some(rest.trim().strip_suffix([')', '>'])?)),
        None => (text, None),
    };
    Some(match (head.to_ascii_uppercase().as_str(), arguments) {
        ("BOOLEAN" | "BOOL", None) => LogicalType::Boolean,
        ("INT8" | "TINYINT", None) => LogicalType::Int8,
        ("INT16" | "SMALLINT", None) => LogicalType::Int16,
        ("INT32" | "INT" | "INTEGER", None) => LogicalType::Int32,
        ("INT64" | "BIGINT", None) => LogicalType::Int64,
        ("UINT64", None) => LogicalType::UInt64,
        ("FLOAT32" | "REAL", None) => LogicalType::Float32,
        ("FLOAT64" | "DOUBLE" | "FLOAT", None) => LogicalType::Float64,
        ("STRING" | "VARCHAR" | "TEXT", None) => LogicalType::String,
        ("BINARY" | "BYTES", None) => LogicalType::Binary,
        ("DATE", None) => LogicalType::Date,
        ("TIMESTAMP", None) => LogicalType::Timestamp,
        ("DECIMAL" | "NUMERIC", Some(arguments)) => {
            let (precision, scale) = arguments.split_once(',').unwrap_or((arguments, "0"));
            let (precision, scale) = (precision.trim().parse::<u8>().ok()?, scale.trim().parse::<i8>().ok()?);
            let fits = (1..=38).contains(&precision) && scale >= 0 && scale as u8 <= precision;
            fits.then_some(LogicalType::Decimal(precision, scale))?
        }
        ("LIST" | "ARRAY", Some(element)) => LogicalType::List(Box::new(parse_type(element.trim(), depth + 1)?)),
        ("STRUCT" | "ROW", Some(arguments)) => LogicalType::Struct(
            split_top_level(arguments)
                .into_iter()
                .map(|part| {
                    let (name, ty) = part.trim().split_once(char::is_whitespace)?;
                    let upper = ty.trim().to_ascii_uppercase();
                    let (body, nullable) = match upper.strip_suffix("NOT NULL") {
                        Some(body) => (&ty.trim()[..body.trim_end().len()], false),
                        None => (ty.trim(), true),
                    };
                    Some(Column::new(name, parse_type(body, depth + 1)?, nullable))
                })
                .collect::<Option<Vec<_>>>()?,
        ),
        _ => return None,
    })
}

/// Cuts at the commas that stand in no bracket.
fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '<' => depth += 1,
            ')' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

impl Serialize for LogicalType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LogicalType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What flows on a stream: its columns, which of them is its time, and whether rows are changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSchema {
    /// The user's columns, in order; `_op` is not among them.
    pub columns: Vec<Column>,
    /// The column that is the stream's event time (TIMESTAMP, or INT64 taken as milliseconds); `None` where there is none.
    pub event_time: Option<String>,
    /// Whether batches carry `_op` before the columns.
    pub changelog: bool,
}

impl StreamSchema {
    /// An append stream without event time.
    pub fn append(columns: Vec<Column>) -> Self {
        Self { columns, event_time: None, changelog: false }
    }

    /// The Arrow schema of this stream's batches: `_op` first on a changelog, then the columns.
    pub fn to_arrow(&self) -> SchemaRef {
        let op = self.changelog.then(|| Field::new(OP_COLUMN, DataType::Int8, false));
        Arc::new(Schema::new(op.into_iter().chain(self.columns.iter().map(Column::to_field)).collect::<Vec<_>>()))
    }

    /// The column of this name.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The place of the column of this name in a *batch* of this stream (one further on a changelog).
    pub fn batch_index(&self, name: &str) -> Option<usize> {
        let place = self.columns.iter().position(|column| column.name == name)?;
        Some(place + usize::from(self.changelog))
    }

    /// The names of the columns, comma separated, for messages.
    pub fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_its_text() {
        for text in
            ["BOOLEAN", "INT64", "UINT64", "DECIMAL(38,2)", "LIST(STRING)", "STRUCT(a INT64, b LIST(STRUCT(c DATE NOT NULL)))"]
        {
            let ty: LogicalType = text.parse().expect(text);
            assert_eq!(ty.to_string(), text);
            assert_eq!(LogicalType::from_arrow(&ty.to_arrow()), Some(ty));
        }
        for text in ["", "INT", "DECIMAL(39,0)", "DECIMAL(2,3)", "LIST", "LIST(", "STRUCT(a)", "FOO"] {
            assert_eq!(text.parse::<LogicalType>().is_ok(), text == "INT", "{text}");
        }
        assert!(format!("{}STRING{}", "LIST(".repeat(40), ")".repeat(40)).parse::<LogicalType>().is_err());
    }

    #[test]
    fn not_null_follows_the_type() {
        assert_eq!(parse_column_type("STRING NOT NULL"), Ok((LogicalType::String, false)));
        assert_eq!(parse_column_type("DECIMAL(10, 2)"), Ok((LogicalType::Decimal(10, 2), true)));
    }
}
