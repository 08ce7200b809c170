//! `first` and `last` by an order: one chosen row per group, for all calls that it answers.
//!
//! A chosen row is kept as 64-bit words, order columns first, laid out so that the better row is the lexicographically lesser
//! one: descending columns, and all of them for `last`, have their bits flipped, and a nullable column has a word before it that
//! says whether it is null. Null is the least value in an order (as in Flink): first ascending, last descending. Floats order
//! with one zero and one NaN, the greatest, as they do among keys. Strings and bytes stand beside the words. Of equal rows `first`
//! keeps the one that came first, `last` takes the one that came last.

mod incoming;
mod layout;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use levada_state::rows::Rows;

use super::extreme::bytes_column;
use super::{Accumulator, Groups, Overflow};
use incoming::Incoming;
pub(super) use layout::Layout;

/// The chosen row of each group.
#[derive(Debug)]
pub(super) struct Ordered {
    layout: Layout,
    /// Words of group g: `words[g * width..(g + 1) * width]`.
    words: Vec<i64>,
    /// Strings and bytes: a vector per such column, by group.
    texts: Vec<Vec<Vec<u8>>>,
    /// Bytes in `texts`.
    text_bytes: usize,
    groups: usize,
    /// Groups before this one have a row.
    filled: usize,
}

impl Ordered {
    pub(super) fn new(layout: Layout) -> Self {
        let texts = vec![Vec::new(); layout.texts];
        Self { layout, words: Vec::new(), texts, text_bytes: 0, groups: 0, filled: 0 }
    }

    /// Shape: the columns of a row, as laid out.
    fn take_in(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) {
        if groups.rows() == 0 {
            return;
        }
        let incoming = Incoming::new(&self.layout, columns);
        match groups {
            Groups::One { group, rows } => self.offer(&incoming, incoming.best(rows), group as usize),
            Groups::Each(groups) => match incoming.leading() {
                Some((place, words, flip)) => {
                    for (row, group) in groups.iter().enumerate() {
                        let group = *group as usize;
                        if group < self.filled && words[row] ^ flip > self.words[group * self.layout.width + place] {
                            continue;
                        }
                        self.offer(&incoming, row, group);
                    }
                }
                None => groups.iter().enumerate().for_each(|(row, group)| self.offer(&incoming, row, *group as usize)),
            },
        }
    }

    /// Takes the row where it is the group's first, or better than the one it has.
    #[inline]
    fn offer(&mut self, incoming: &Incoming<'_>, row: usize, group: usize) {
        if group >= self.filled {
            self.filled = group + 1;
        } else {
            let words = &self.words[group * self.layout.width..(group + 1) * self.layout.width];
            if !incoming.replaces(row, words, |text| &self.texts[text][group]) {
                return;
            }
        }
        self.put(incoming, row, group);
    }

    /// Takes the row.
    fn put(&mut self, incoming: &Incoming<'_>, row: usize, group: usize) {
        incoming.words(row, &mut self.words[group * self.layout.width..(group + 1) * self.layout.width]);
        for (text, kept) in self.texts.iter_mut().enumerate() {
            let (kept, value) = (&mut kept[group], incoming.text(text, row));
            self.text_bytes = self.text_bytes + value.len() - kept.len();
            kept.clear();
            kept.extend_from_slice(value);
        }
    }

    /// A column of the chosen rows.
    fn column(&self, at: usize, rows: Rows<'_>) -> ArrayRef {
        let cell = &self.layout.cells[at];
        let word = |group: usize, place: usize| self.words[group * self.layout.width + place] ^ cell.flip;
        let valid = match cell.presence {
            Some(place) => Some(rows.map(|group| group < self.filled && word(group, place) != 0)),
            None if self.filled < self.groups => Some(rows.map(|group| group < self.filled)),
            None => None,
        };
        if let Some(text) = cell.text {
            let mut row = 0;
            let values = rows.map(|group| group).into_iter().map(|group| {
                row += 1;
                let is_valid = valid.as_ref().is_none_or(|valid| valid[row - 1]);
                is_valid.then(|| self.texts[text][group].as_slice())
            });
            return bytes_column(&cell.data_type, values);
        }
        let nulls = valid.filter(|valid| valid.contains(&false)).map(arrow::buffer::NullBuffer::from);
        match &cell.data_type {
            DataType::Decimal128(_, _) => {
                let values = rows.map(|group| layout::join(word(group, cell.place), word(group, cell.place + 1)));
                let values = arrow::array::Decimal128Array::new(values.into(), nulls);
                std::sync::Arc::new(values.with_data_type(cell.data_type.clone()))
            }
            data_type => levada_state::fixed::from_ordered(rows.map(|group| word(group, cell.place)), nulls, data_type),
        }
    }
}

impl Accumulator for Ordered {
    fn resize(&mut self, groups: usize) {
        self.groups = groups;
        self.words.resize(groups * self.layout.width, 0);
        self.texts.iter_mut().for_each(|texts| texts.resize(groups, Vec::new()));
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.take_in(groups, columns);
        Ok(())
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        self.take_in(groups, states);
        Ok(())
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        let incoming = Incoming::new(&self.layout, states);
        for (row, group) in groups.iter().enumerate() {
            self.put(&incoming, row, *group as usize);
            self.filled = self.filled.max(*group as usize + 1);
        }
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; self.layout.cells.len()];
        let answer = |cell: &usize| ArrayRef::clone(columns[*cell].get_or_insert_with(|| self.column(*cell, rows)));
        self.layout.answers.iter().map(answer).collect()
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        (0..self.layout.cells.len()).map(|at| self.column(at, rows)).collect()
    }

    fn clear(&mut self) {
        self.words.clear();
        self.texts.iter_mut().for_each(Vec::clear);
        (self.text_bytes, self.groups, self.filled) = (0, 0, 0);
    }

    fn memory_bytes(&self) -> usize {
        let texts: usize = self.texts.iter().map(|texts| texts.capacity() * size_of::<Vec<u8>>()).sum();
        self.words.capacity() * size_of::<i64>() + texts + self.text_bytes
    }
}
