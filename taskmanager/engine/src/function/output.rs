//! What a function gives: rows value by value, or whole columns.
//!
//! Invariant: rows of an output leave in the order in which they were given; no batch has more than `batch_rows_max` rows.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Float32Builder, Float64Builder, Int8Builder, Int16Builder,
    Int32Builder, Int64Builder, RecordBatchOptions, StringBuilder, TimestampMillisecondBuilder, UInt64Builder,
};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use levada_common::function::SideDeclaration;
use levada_common::plan::SideOutput;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::types::{Date, Timestamp};

use super::error::FunctionError;

/// Collects the rows that a function gives.
#[derive(Debug)]
pub struct Output {
    schema: SchemaRef,
    columns: Vec<Column>,
    builders: Vec<Builder>,
    /// Rows in the builders.
    rows: usize,
    rows_max: usize,
    full: VecDeque<RecordBatch>,
    /// The outputs beside this one.
    sides: Vec<Side>,
}

/// An output beside the main one.
#[derive(Debug)]
struct Side {
    name: String,
    /// Its place among those that are read, and its rows; `None` where nothing reads it.
    read: Option<(usize, Output)>,
}

/// An output beside the main one, to be written to. What nothing reads is dropped at once.
#[derive(Debug)]
pub struct SideRows<'a>(Option<&'a mut Output>);

impl SideRows<'_> {
    /// Gives a row, as `Output::push` does.
    #[inline]
    pub fn push<R: Row>(&mut self, row: R) -> Result<(), FunctionError> {
        match &mut self.0 {
            Some(output) => output.push(row),
            None => Ok(()),
        }
    }

    /// Gives rows as whole columns, as `Output::columns` does.
    pub fn columns(&mut self, columns: Vec<ArrayRef>) -> Result<(), FunctionError> {
        match &mut self.0 {
            Some(output) => output.columns(columns),
            None => Ok(()),
        }
    }

    /// Whether anything reads it: rows that cost something to make need not be made where nothing does.
    pub fn is_read(&self) -> bool {
        self.0.is_some()
    }
}

/// A column in the making.
#[derive(Debug)]
pub enum Builder {
    /// BOOLEAN
    Boolean(BooleanBuilder),
    /// INT8
    Int8(Int8Builder),
    /// INT16
    Int16(Int16Builder),
    /// INT32
    Int32(Int32Builder),
    /// INT64
    Int64(Int64Builder),
    /// UINT64
    UInt64(UInt64Builder),
    /// FLOAT32
    Float32(Float32Builder),
    /// FLOAT64
    Float64(Float64Builder),
    /// STRING
    String(StringBuilder),
    /// BINARY
    Binary(BinaryBuilder),
    /// DATE
    Date(Date32Builder),
    /// TIMESTAMP
    Timestamp(TimestampMillisecondBuilder),
    /// A type that is given as whole columns only.
    Whole,
}

impl Builder {
    fn new(ty: &LogicalType) -> Self {
        match ty {
            LogicalType::Boolean => Self::Boolean(BooleanBuilder::new()),
            LogicalType::Int8 => Self::Int8(Int8Builder::new()),
            LogicalType::Int16 => Self::Int16(Int16Builder::new()),
            LogicalType::Int32 => Self::Int32(Int32Builder::new()),
            LogicalType::Int64 => Self::Int64(Int64Builder::new()),
            LogicalType::UInt64 => Self::UInt64(UInt64Builder::new()),
            LogicalType::Float32 => Self::Float32(Float32Builder::new()),
            LogicalType::Float64 => Self::Float64(Float64Builder::new()),
            LogicalType::String => Self::String(StringBuilder::new()),
            LogicalType::Binary => Self::Binary(BinaryBuilder::new()),
            LogicalType::Date => Self::Date(Date32Builder::new()),
            LogicalType::Timestamp => Self::Timestamp(TimestampMillisecondBuilder::new()),
            LogicalType::Decimal(..) | LogicalType::List(_) | LogicalType::Struct(_) => Self::Whole,
        }
    }

    fn finish(&mut self) -> Option<ArrayRef> {
        Some(match self {
            Self::Boolean(builder) => Arc::new(builder.finish()),
            Self::Int8(builder) => Arc::new(builder.finish()),
            Self::Int16(builder) => Arc::new(builder.finish()),
            Self::Int32(builder) => Arc::new(builder.finish()),
            Self::Int64(builder) => Arc::new(builder.finish()),
            Self::UInt64(builder) => Arc::new(builder.finish()),
            Self::Float32(builder) => Arc::new(builder.finish()),
            Self::Float64(builder) => Arc::new(builder.finish()),
            Self::String(builder) => Arc::new(builder.finish()),
            Self::Binary(builder) => Arc::new(builder.finish()),
            Self::Date(builder) => Arc::new(builder.finish()),
            Self::Timestamp(builder) => Arc::new(builder.finish()),
            Self::Whole => return None,
        })
    }
}

/// A value that can be given in a row.
pub trait Cell {
    /// Puts it at the end of a column; `false` where the column is of another type.
    fn append(self, builder: &mut Builder) -> bool;
}

macro_rules! cells {
    ($($rust:ty, $variant:ident, $value:ident => $native:expr;)*) => {$(
        impl Cell for $rust {
            #[inline]
            fn append(self, builder: &mut Builder) -> bool {
                match builder {
                    Builder::$variant(builder) => {
                        let $value = self;
                        builder.append_value($native);
                        true
                    }
                    _ => false,
                }
            }
        }

        impl Cell for Option<$rust> {
            #[inline]
            fn append(self, builder: &mut Builder) -> bool {
                match builder {
                    Builder::$variant(builder) => {
                        match self {
                            Some($value) => builder.append_value($native),
                            None => builder.append_null(),
                        }
                        true
                    }
                    _ => false,
                }
            }
        }
    )*};
}

cells! {
    bool, Boolean, value => value;
    i8, Int8, value => value;
    i16, Int16, value => value;
    i32, Int32, value => value;
    i64, Int64, value => value;
    u64, UInt64, value => value;
    f32, Float32, value => value;
    f64, Float64, value => value;
    &str, String, value => value;
    String, String, value => value;
    &[u8], Binary, value => value;
    Vec<u8>, Binary, value => value;
    Date, Date, value => value.0;
    Timestamp, Timestamp, value => value.0;
}

/// A row: a tuple of cells.
pub trait Row {
    /// Its columns.
    const WIDTH: usize;

    /// Puts each cell at the end of its column; the place of the first one that does not fit, with its Rust type.
    fn append(self, builders: &mut [Builder]) -> Result<(), (usize, &'static str)>;
}

macro_rules! rows {
    ($($width:literal: $($cell:ident $at:tt),*;)*) => {$(
        impl<$($cell: Cell),*> Row for ($($cell,)*) {
            const WIDTH: usize = $width;

            #[inline]
            fn append(self, builders: &mut [Builder]) -> Result<(), (usize, &'static str)> {
                $(if !self.$at.append(&mut builders[$at]) {
                    return Err(($at, std::any::type_name::<$cell>()));
                })*
                Ok(())
            }
        }
    )*};
}

rows! {
    1: A 0;
    2: A 0, B 1;
    3: A 0, B 1, C 2;
    4: A 0, B 1, C 2, D 3;
    5: A 0, B 1, C 2, D 3, E 4;
    6: A 0, B 1, C 2, D 3, E 4, F 5;
    7: A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    8: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
    9: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8;
    10: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9;
    11: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10;
    12: A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11;
}

impl Output {
    /// For rows of `schema`, in batches of at most `rows_max`.
    pub fn new(schema: &StreamSchema, rows_max: usize) -> Self {
        let builders = schema.columns.iter().map(|column| Builder::new(&column.ty)).collect();
        let columns = schema.columns.clone();
        Self {
            schema: schema.to_arrow(),
            columns,
            builders,
            rows: 0,
            rows_max: rows_max.max(1),
            full: VecDeque::new(),
            sides: Vec::new(),
        }
    }

    /// The same with outputs beside it, of which `read` are read.
    #[must_use]
    pub(crate) fn with_sides(mut self, declared: &[SideDeclaration], read: &[SideOutput]) -> Self {
        let side = |declared: &SideDeclaration| {
            let at = read.iter().position(|side| side.name == declared.name);
            let read = at.map(|at| (at, Self::new(&read[at].schema, self.rows_max)));
            Side { name: declared.name.clone(), read }
        };
        self.sides = declared.iter().map(side).collect();
        self
    }

    /// The output of this name beside the main one.
    ///
    /// Errors: `NoSide`.
    #[inline]
    pub fn side(&mut self, name: &str) -> Result<SideRows<'_>, FunctionError> {
        match self.sides.iter().position(|side| side.name == name) {
            Some(at) => Ok(SideRows(self.sides[at].read.as_mut().map(|(_, output)| output))),
            None => Err(self.no_side(name)),
        }
    }

    /// Gives a row.
    ///
    /// Errors: `OutputWidth`, `OutputType`; rows given before are lost with the task, which fails.
    #[inline]
    pub fn push<R: Row>(&mut self, row: R) -> Result<(), FunctionError> {
        if R::WIDTH != self.builders.len() {
            return Err(FunctionError::OutputWidth { expected: self.builders.len(), found: R::WIDTH });
        }
        if let Err((at, found)) = row.append(&mut self.builders) {
            return Err(self.mismatch(at, found));
        }
        self.rows += 1;
        if self.rows == self.rows_max { self.flush() } else { Ok(()) }
    }

    /// Gives rows as whole columns, in the order of the declared output, all of one length.
    ///
    /// Errors: `OutputColumns` where number, types, lengths or nulls are not as declared.
    pub fn columns(&mut self, columns: Vec<ArrayRef>) -> Result<(), FunctionError> {
        self.flush()?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(FunctionError::OutputColumns)?;
        for start in (0..batch.num_rows()).step_by(self.rows_max) {
            self.full.push_back(batch.slice(start, self.rows_max.min(batch.num_rows() - start)));
        }
        Ok(())
    }

    /// Whether there are rows to take, of this output or of one beside it.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows == 0 && self.full.is_empty() && !self.has_side_rows()
    }

    /// How many rows of this output there are to take.
    pub(crate) fn waiting(&self) -> usize {
        self.rows + self.full.iter().map(RecordBatch::num_rows).sum::<usize>()
    }

    /// Whether there are rows to take of an output beside this one.
    pub(crate) fn has_side_rows(&self) -> bool {
        self.sides.iter().filter_map(|side| side.read.as_ref()).any(|(_, output)| !output.is_empty())
    }

    /// The next batch of an output beside this one, and its place among those that are read.
    pub(crate) fn take_side(&mut self) -> Result<Option<(usize, RecordBatch)>, FunctionError> {
        for (at, output) in self.sides.iter_mut().filter_map(|side| side.read.as_mut()) {
            if let Some(batch) = output.take()? {
                return Ok(Some((*at, batch)));
            }
        }
        Ok(None)
    }

    /// The next batch.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, FunctionError> {
        if self.full.is_empty() {
            self.flush()?;
        }
        Ok(self.full.pop_front())
    }

    fn flush(&mut self) -> Result<(), FunctionError> {
        if self.rows == 0 {
            return Ok(());
        }
        let columns = self.builders.iter_mut().map(|builder| builder.finish().expect("a row was given in every column"));
        let options = RecordBatchOptions::new().with_row_count(Some(std::mem::take(&mut self.rows)));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns.collect(), &options);
        self.full.push_back(batch.map_err(FunctionError::OutputColumns)?);
        Ok(())
    }

    #[cold]
    fn no_side(&self, name: &str) -> FunctionError {
        let known: Vec<&str> = self.sides.iter().map(|side| side.name.as_str()).collect();
        let known = if known.is_empty() { "none".into() } else { known.join(", ") };
        FunctionError::NoSide { side: name.into(), known }
    }

    #[cold]
    fn mismatch(&self, at: usize, found: &'static str) -> FunctionError {
        let Column { name, ty, .. } = &self.columns[at];
        let whole = if matches!(self.builders[at], Builder::Whole) { ", and is given by `columns` only" } else { "" };
        FunctionError::OutputType { column: name.clone(), expected: format!("{ty}{whole}"), found }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn output(rows_max: usize) -> Output {
        let columns = vec![Column::new("n", LogicalType::Int64, false), Column::new("text", LogicalType::String, true)];
        Output::new(&StreamSchema::append(columns), rows_max)
    }

    fn taken(output: &mut Output) -> Vec<Vec<i64>> {
        let numbers = |batch: RecordBatch| batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        std::iter::from_fn(|| output.take().unwrap().map(numbers)).collect()
    }

    #[test]
    fn rows_and_columns_keep_their_order_and_batches_their_size() {
        let mut output = output(3);
        for n in 0..4_i64 {
            output.push((n, (n % 2 == 0).then_some("even"))).unwrap();
        }
        let texts: ArrayRef = Arc::new(arrow::array::StringArray::from(vec!["x"; 5]));
        output.columns(vec![Arc::new(Int64Array::from_iter_values(4..9)), texts]).unwrap();
        output.push((9_i64, "last")).unwrap();
        assert_eq!(taken(&mut output), [vec![0, 1, 2], vec![3], vec![4, 5, 6], vec![7, 8], vec![9]]);
        assert!(output.is_empty());
    }

    #[test]
    fn rows_go_to_the_output_that_they_are_given_to() {
        let side = |name: &str| SideDeclaration {
            name: name.into(),
            columns: vec![Column::new("n", LogicalType::Int64, false)],
            event_time: None,
        };
        let declared = [side("odd"), side("unread"), side("large")];
        let read = |name: &str| SideOutput { name: name.into(), schema: StreamSchema::append(side(name).columns) };
        let mut output = output(3).with_sides(&declared, &[read("large"), read("odd")]);
        for n in 0..8_i64 {
            output.push((n, "x")).unwrap();
            output.side("unread").unwrap().push((n,)).unwrap();
            if n % 2 == 1 {
                output.side("odd").unwrap().push((n,)).unwrap();
            }
        }
        let mut large = output.side("large").unwrap();
        assert!(large.is_read());
        large.columns(vec![Arc::new(Int64Array::from(vec![100]))]).unwrap();
        assert!(!output.side("unread").unwrap().is_read());
        assert_eq!(taken(&mut output), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
        let mut sides = Vec::new();
        while let Some((at, batch)) = output.take_side().unwrap() {
            sides.push((at, batch.column(0).as_primitive::<Int64Type>().values().to_vec()));
        }
        assert_eq!(sides, [(1, vec![1, 3, 5]), (1, vec![7]), (0, vec![100])]);
        assert!(output.is_empty());
        let error = output.side("even").unwrap_err().to_string();
        assert!(error.contains("output \"even\", and its declaration has beside the main one: odd, unread, large"), "{error}");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let error = output(3).push((1_i64,)).unwrap_err().to_string();
        assert!(error.contains("a row of 1 columns, and its declaration has 2"), "{error}");
        let error = output(3).push((1_i64, 2_i64)).unwrap_err().to_string();
        assert!(error.contains("gives i64 for output column \"text\", which is declared STRING"), "{error}");
        let mut nulls = output(3);
        nulls.push((None::<i64>, "x")).unwrap();
        assert!(matches!(nulls.take(), Err(FunctionError::OutputColumns(_))));
    }
}
