//! How the columns of a chosen row lie in its words.

use arrow::datatypes::DataType;

/// A column of a chosen row, as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::aggregate) struct ColumnType {
    /// Its name in the input.
    pub(in crate::aggregate) name: String,
    /// Its type.
    pub(in crate::aggregate) data_type: DataType,
    /// Whether it may be null.
    pub(in crate::aggregate) nullable: bool,
}

/// Where a column stands in the words.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) data_type: DataType,
    /// The word that is 0 where the column is null; `None` where it cannot be.
    pub(super) presence: Option<usize>,
    /// Its word, or the first of two for decimals; not used for texts.
    pub(super) place: usize,
    /// Which text it is, for strings and bytes.
    pub(super) text: Option<usize>,
    /// XORed to its words: −1 where greater values are better.
    pub(super) flip: i64,
}

/// The words of a chosen row.
#[derive(Debug, Clone)]
pub(in crate::aggregate) struct Layout {
    /// The order columns, then value columns that are not among them.
    pub(super) cells: Vec<Cell>,
    /// How many of `cells` are order columns.
    pub(super) orders: usize,
    /// The cell of each call's value.
    pub(super) values: Vec<usize>,
    /// For each of `cells`, which input column it is read from.
    pub(super) inputs: Vec<usize>,
    /// Words of a row.
    pub(super) width: usize,
    /// Number of string and binary columns.
    pub(super) texts: usize,
    /// Whether of equal rows the later one is taken.
    pub(super) is_last: bool,
}

impl Layout {
    /// The layout of rows chosen by `order` (with whether it descends), from which the columns `values` are read.
    pub(in crate::aggregate) fn new(order: &[(ColumnType, bool)], values: &[ColumnType], is_last: bool) -> Self {
        let mut layout =
            Self { cells: Vec::new(), orders: order.len(), values: Vec::new(), inputs: Vec::new(), width: 0, texts: 0, is_last };
        for (at, (column, descending)) in order.iter().enumerate() {
            layout.add(column, if *descending == is_last { 0 } else { -1 }, at);
        }
        for (at, value) in values.iter().enumerate() {
            // A value that is also an order column is kept once.
            let cell = order.iter().position(|(column, _)| column == value).unwrap_or_else(|| {
                layout.add(value, 0, order.len() + at);
                layout.cells.len() - 1
            });
            layout.values.push(cell);
        }
        layout
    }

    fn add(&mut self, column: &ColumnType, flip: i64, input: usize) {
        let presence = column.nullable.then_some(self.width);
        self.width += usize::from(column.nullable);
        let (place, mut text) = (self.width, None);
        match column.data_type {
            DataType::Utf8 | DataType::Binary => {
                text = Some(self.texts);
                self.texts += 1;
            }
            DataType::Decimal128(_, _) => self.width += 2,
            _ => self.width += 1,
        }
        self.cells.push(Cell { data_type: column.data_type.clone(), presence, place, text, flip });
        self.inputs.push(input);
    }
}

/// The two words of a decimal; they order as it does.
#[inline]
pub(super) fn split(value: i128) -> (i64, i64) {
    ((value >> 64) as i64, value as i64 ^ i64::MIN)
}

/// The decimal of two words.
#[inline]
pub(super) fn join(high: i64, low: i64) -> i128 {
    i128::from(high) << 64 | i128::from((low ^ i64::MIN) as u64)
}
