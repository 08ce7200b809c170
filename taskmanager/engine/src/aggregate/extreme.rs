//! `min` and `max` of every scalar type.
//!
//! Floats order as −∞ … 0.0 … ∞, NaN, with one zero and one NaN, as they do among keys; so the maximum over a NaN is NaN. Strings
//! and bytes order byte by byte.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BinaryArray, Decimal128Array, StringArray};
use arrow::datatypes::{DataType, Decimal128Type};
use levada_common::keys::normalise_key_column;
use levada_state::fixed;
use levada_state::rows::Rows;

use super::presence::Presence;
use super::{Accumulator, Groups, Overflow, nulls_of};

/// The best value per group, by the type's width.
#[derive(Debug)]
enum Best {
    /// Words of `fixed`, all bits flipped for `max`, so that less is better.
    Words(Vec<i64>),
    /// Decimals, flipped likewise.
    Wide(Vec<i128>),
    /// Strings and bytes, and the bytes that they hold in all.
    Bytes { best: Vec<Vec<u8>>, set: Vec<bool>, bytes: usize },
}

/// `min` or `max`: null over no value.
#[derive(Debug)]
pub(super) struct Extreme {
    data_type: DataType,
    is_max: bool,
    best: Best,
    presence: Presence,
}

impl Extreme {
    /// The least, or greatest, value of a column of this type.
    pub(super) fn new(data_type: DataType, is_max: bool) -> Self {
        let best = match data_type {
            DataType::Decimal128(_, _) => Best::Wide(Vec::new()),
            DataType::Utf8 | DataType::Binary => Best::Bytes { best: Vec::new(), set: Vec::new(), bytes: 0 },
            _ => Best::Words(Vec::new()),
        };
        Self { data_type, is_max, best, presence: Presence::default() }
    }

    fn take_in(&mut self, groups: Groups<'_>, column: &ArrayRef) {
        let nulls = nulls_of(column);
        self.presence.mark(groups, nulls);
        match &mut self.best {
            Best::Words(best) => {
                let (mut scratch, flip) = (Vec::new(), -i64::from(self.is_max));
                let column = normalise_key_column(ArrayRef::clone(column));
                let words = fixed::ordered(&column, &mut scratch);
                match (groups, nulls) {
                    (Groups::One { group, .. }, None) => {
                        let least = words.iter().map(|word| word ^ flip).min().unwrap_or(i64::MAX);
                        best[group as usize] = best[group as usize].min(least);
                    }
                    _ => groups.each_valid(nulls, |row, group| best[group] = best[group].min(words[row] ^ flip)),
                }
            }
            Best::Wide(best) => {
                let (values, flip) = (column.as_primitive::<Decimal128Type>().values(), -i128::from(self.is_max));
                groups.each_valid(nulls, |row, group| best[group] = best[group].min(values[row] ^ flip));
            }
            Best::Bytes { best, set, bytes } => {
                let is_max = self.is_max;
                let mut offer = |group: usize, value: &[u8]| {
                    let kept = &mut best[group];
                    if !set[group] || (if is_max { value > kept.as_slice() } else { value < kept.as_slice() }) {
                        set[group] = true;
                        *bytes += value.len();
                        *bytes -= kept.len();
                        kept.clear();
                        kept.extend_from_slice(value);
                    }
                };
                match column.data_type() {
                    DataType::Utf8 => {
                        let values = column.as_string::<i32>();
                        groups.each_valid(nulls, |row, group| offer(group, values.value(row).as_bytes()));
                    }
                    _ => {
                        let values = column.as_binary::<i32>();
                        groups.each_valid(nulls, |row, group| offer(group, values.value(row)));
                    }
                }
            }
        }
    }
}

impl Accumulator for Extreme {
    fn resize(&mut self, groups: usize) {
        self.presence.resize(groups);
        match &mut self.best {
            Best::Words(best) => best.resize(groups, i64::MAX),
            Best::Wide(best) => best.resize(groups, i128::MAX),
            Best::Bytes { best, set, .. } => {
                best.resize(groups, Vec::new());
                set.resize(groups, false);
            }
        }
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.take_in(groups, &columns[0]);
        Ok(())
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        self.take_in(groups, &states[0]);
        Ok(())
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        for group in groups {
            match &mut self.best {
                Best::Words(best) => best[*group as usize] = i64::MAX,
                Best::Wide(best) => best[*group as usize] = i128::MAX,
                Best::Bytes { best, set, bytes } => {
                    *bytes -= best[*group as usize].len();
                    best[*group as usize].clear();
                    set[*group as usize] = false;
                }
            }
        }
        self.take_in(Groups::Each(groups), &states[0]);
        self.presence.assign(groups, nulls_of(&states[0]));
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        let nulls = self.presence.nulls(rows);
        vec![match &self.best {
            Best::Words(best) => {
                let flip = -i64::from(self.is_max);
                fixed::from_ordered(rows.map(|group| best[group] ^ flip), nulls, &self.data_type)
            }
            Best::Wide(best) => {
                let flip = -i128::from(self.is_max);
                let values = rows.map(|group| best[group] ^ flip);
                Arc::new(Decimal128Array::new(values.into(), nulls).with_data_type(self.data_type.clone()))
            }
            Best::Bytes { best, set, .. } => {
                let values = rows.map(|group| set[group].then_some(best[group].as_slice())).into_iter();
                bytes_column(&self.data_type, values)
            }
        }]
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.read(rows)
    }

    fn clear(&mut self) {
        self.presence.clear();
        match &mut self.best {
            Best::Words(best) => best.clear(),
            Best::Wide(best) => best.clear(),
            Best::Bytes { best, set, bytes } => {
                best.clear();
                set.clear();
                *bytes = 0;
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.presence.memory_bytes()
            + match &self.best {
                Best::Words(best) => best.capacity() * size_of::<i64>(),
                Best::Wide(best) => best.capacity() * size_of::<i128>(),
                Best::Bytes { best, set, bytes } => best.capacity() * size_of::<Vec<u8>>() + set.capacity() + bytes,
            }
    }
}

/// A Utf8 or Binary column of these values, which came from such a column.
pub(crate) fn bytes_column<'a>(data_type: &DataType, values: impl Iterator<Item = Option<&'a [u8]>>) -> ArrayRef {
    match data_type {
        DataType::Utf8 => Arc::new(
            values
                .map(|value| value.map(|bytes| std::str::from_utf8(bytes).expect("it was a string when it came")))
                .collect::<StringArray>(),
        ),
        _ => Arc::new(values.collect::<BinaryArray>()),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Float64Array;
    use arrow::datatypes::Float64Type;

    use super::*;

    /// As over a changelog, where each value is a key.
    #[test]
    fn floats_have_one_zero_and_one_nan() {
        for (of, least, most) in [([-f64::NAN, 1.0], 1.0, f64::NAN), ([0.0, -0.0], 0.0, 0.0), ([-0.0, -0.0], 0.0, 0.0)] {
            let column: ArrayRef = Arc::new(Float64Array::from(of.to_vec()));
            let found = [false, true].map(|is_max| {
                let mut extreme = Extreme::new(DataType::Float64, is_max);
                extreme.resize(1);
                extreme.update(Groups::One { group: 0, rows: 2 }, &[ArrayRef::clone(&column)]).expect("nothing overflows");
                extreme.read(Rows::first(1))[0].as_primitive::<Float64Type>().value(0).to_bits()
            });
            assert_eq!(found, [f64::to_bits(least), f64::to_bits(most)], "{of:?}");
        }
    }
}
