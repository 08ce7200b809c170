//! How the columns of a chosen row lie in its words.

use arrow::datatypes::DataType;

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
    /// The columns of a row, those of the order first.
    pub(super) cells: Vec<Cell>,
    /// How many of `cells` are order columns.
    pub(super) orders: usize,
    /// The cell that answers each call.
    pub(super) answers: Vec<usize>,
    /// Words of a row.
    pub(super) width: usize,
    /// Number of string and binary columns.
    pub(super) texts: usize,
    /// Whether of equal rows the later one is taken.
    pub(super) is_last: bool,
}

impl Layout {
    /// The layout of rows of `columns` (type, and whether it may be null), chosen by the first of them, of which `descending` says
    /// which way; `answers` says which column answers each call.
    pub(in crate::aggregate) fn new(
        columns: &[(DataType, bool)],
        descending: &[bool],
        answers: Vec<usize>,
        is_last: bool,
    ) -> Self {
        let mut layout = Self { cells: Vec::new(), orders: descending.len(), answers, width: 0, texts: 0, is_last };
        for (at, (data_type, nullable)) in columns.iter().enumerate() {
            let greater_is_better = descending.get(at).is_some_and(|descending| *descending != is_last);
            layout.add(data_type, *nullable, if greater_is_better { -1 } else { 0 });
        }
        layout
    }

    fn add(&mut self, data_type: &DataType, nullable: bool, flip: i64) {
        let presence = nullable.then_some(self.width);
        self.width += usize::from(nullable);
        let (place, mut text) = (self.width, None);
        match data_type {
            DataType::Utf8 | DataType::Binary => {
                text = Some(self.texts);
                self.texts += 1;
            }
            DataType::Decimal128(_, _) => self.width += 2,
            _ => self.width += 1,
        }
        self.cells.push(Cell { data_type: data_type.clone(), presence, place, text, flip });
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
