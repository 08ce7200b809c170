//! A batch seen as words, to be compared with chosen rows.

use std::borrow::Cow;
use std::cmp::Ordering;

use arrow::array::{ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type};
use levada_common::keys::normalise_key_column;
use levada_state::fixed;

use super::layout::{Cell, Layout, split};
use crate::aggregate::nulls_of;

/// Where a word of each row comes from.
enum Source<'a> {
    /// The same in every row.
    Same(i64),
    /// One per row.
    Each(Cow<'a, [i64]>),
}

/// One word column.
struct WordColumn<'a> {
    source: Source<'a>,
    flip: i64,
}

impl WordColumn<'_> {
    #[inline]
    fn at(&self, row: usize) -> i64 {
        match &self.source {
            Source::Same(word) => word ^ self.flip,
            Source::Each(words) => words[row] ^ self.flip,
        }
    }
}

/// One text column.
struct TextColumn<'a> {
    offsets: &'a [i32],
    data: &'a [u8],
    nulls: Option<&'a NullBuffer>,
}

/// What is compared, in order.
enum Step {
    /// The word at this place.
    Word(usize),
    /// This text; `true` where greater is better.
    Text(usize, bool),
}

/// The columns of a batch, laid out as chosen rows are.
pub(super) struct Incoming<'a> {
    words: Vec<WordColumn<'a>>,
    texts: Vec<TextColumn<'a>>,
    steps: Vec<Step>,
    is_last: bool,
}

impl<'a> Incoming<'a> {
    /// Shape: the columns of a row, as laid out.
    pub(super) fn new(layout: &Layout, columns: &'a [ArrayRef]) -> Self {
        let mut incoming = Self { words: Vec::new(), texts: Vec::new(), steps: Vec::new(), is_last: layout.is_last };
        for (at, (cell, column)) in layout.cells.iter().zip(columns).enumerate() {
            let (words, texts) = (incoming.words.len(), incoming.texts.len());
            incoming.add(cell, column, at < layout.orders);
            if at < layout.orders {
                incoming.steps.extend((words..incoming.words.len()).map(Step::Word));
                incoming.steps.extend((texts..incoming.texts.len()).map(|text| Step::Text(text, cell.flip != 0)));
            }
        }
        incoming
    }

    fn add(&mut self, cell: &Cell, column: &'a ArrayRef, is_order: bool) {
        let nulls = nulls_of(column);
        let mut push = |source| self.words.push(WordColumn { source, flip: cell.flip });
        if cell.presence.is_some() {
            push(match nulls {
                None => Source::Same(1),
                Some(nulls) => Source::Each(nulls.iter().map(i64::from).collect()),
            });
        }
        match &cell.data_type {
            DataType::Utf8 => {
                let values = column.as_string::<i32>();
                self.texts.push(TextColumn { offsets: values.value_offsets(), data: values.value_data(), nulls });
            }
            DataType::Binary => {
                let values = column.as_binary::<i32>();
                self.texts.push(TextColumn { offsets: values.value_offsets(), data: values.value_data(), nulls });
            }
            DataType::Decimal128(_, _) => {
                let values = column.as_primitive::<Decimal128Type>().values();
                let (high, low): (Vec<i64>, Vec<i64>) = values.iter().map(|value| split(*value)).unzip();
                push(Source::Each(without_nulls(Cow::Owned(high), nulls)));
                push(Source::Each(without_nulls(Cow::Owned(low), nulls)));
            }
            DataType::Float32 | DataType::Float64 if is_order => {
                let normal = normalise_key_column(ArrayRef::clone(column));
                let words = Cow::Owned(fixed::ordered_cow(&normal).into_owned());
                push(Source::Each(without_nulls(words, nulls)));
            }
            _ => push(Source::Each(without_nulls(fixed::ordered_cow(column), nulls))),
        }
    }

    /// The first step's words, their place and flip, where the first step that differs between rows is a word.
    #[inline]
    pub(super) fn leading(&self) -> Option<(usize, &[i64], i64)> {
        match self.steps.first() {
            Some(Step::Word(place)) => match &self.words[*place] {
                WordColumn { source: Source::Each(words), flip } => Some((*place, words, *flip)),
                WordColumn { source: Source::Same(_), .. } => None,
            },
            _ => None,
        }
    }

    /// The row that is chosen among the first `rows` rows; there is at least one.
    pub(super) fn best(&self, rows: usize) -> usize {
        let differs = self.steps.iter().position(|step| match step {
            Step::Word(place) => matches!(self.words[*place].source, Source::Each(_)),
            Step::Text(..) => true,
        });
        let Some(differs) = differs else { return if self.is_last { rows - 1 } else { 0 } };
        let (rest, mut best) = (&self.steps[differs..], None);
        let mut choose = |row: usize| {
            best = Some(best.map_or(row, |best| match self.compare(rest, row, best) {
                Ordering::Less => row,
                Ordering::Equal if self.is_last => row,
                _ => best,
            }));
        };
        match &rest[0] {
            Step::Word(place) => {
                let WordColumn { source: Source::Each(words), flip } = &self.words[*place] else { unreachable!("it differs") };
                let least = words.iter().map(|word| word ^ flip).min().expect("a batch has a row") ^ flip;
                words.iter().enumerate().filter(|(_, word)| **word == least).for_each(|(row, _)| choose(row));
            }
            Step::Text(..) => (0..rows).for_each(choose),
        }
        best.expect("a batch has a row")
    }

    fn compare(&self, steps: &[Step], row: usize, other: usize) -> Ordering {
        for step in steps {
            let ordering = match step {
                Step::Word(place) => self.words[*place].at(row).cmp(&self.words[*place].at(other)),
                Step::Text(text, greater) => flip_if(*greater, self.text(*text, row).cmp(self.text(*text, other))),
            };
            if ordering != Ordering::Equal {
                return ordering;
            }
        }
        Ordering::Equal
    }

    /// Whether the row takes the place of the chosen one with these words and texts.
    #[inline]
    pub(super) fn replaces<'t>(&self, row: usize, chosen: &[i64], chosen_text: impl Fn(usize) -> &'t Vec<u8>) -> bool {
        for step in &self.steps {
            let ordering = match step {
                Step::Word(place) => self.words[*place].at(row).cmp(&chosen[*place]),
                Step::Text(text, greater) => flip_if(*greater, self.text(*text, row).cmp(chosen_text(*text).as_slice())),
            };
            if ordering != Ordering::Equal {
                return ordering == Ordering::Less;
            }
        }
        self.is_last
    }

    /// Writes the row's words.
    #[inline]
    pub(super) fn words(&self, row: usize, out: &mut [i64]) {
        for (word, column) in out.iter_mut().zip(&self.words) {
            *word = column.at(row);
        }
    }

    /// The row's text; empty where it is null.
    pub(super) fn text(&self, text: usize, row: usize) -> &'a [u8] {
        let column = &self.texts[text];
        if column.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return &[];
        }
        &column.data[column.offsets[row] as usize..column.offsets[row + 1] as usize]
    }
}

fn flip_if(flip: bool, ordering: Ordering) -> Ordering {
    if flip { ordering.reverse() } else { ordering }
}

/// Words under nulls as zeros, so that two nulls are equal.
fn without_nulls<'a>(words: Cow<'a, [i64]>, nulls: Option<&NullBuffer>) -> Cow<'a, [i64]> {
    match nulls {
        None => words,
        Some(nulls) => words.iter().zip(nulls.iter()).map(|(word, valid)| if valid { *word } else { 0 }).collect(),
    }
}
