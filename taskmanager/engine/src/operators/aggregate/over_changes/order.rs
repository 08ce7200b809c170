//! The distinct values of each group, in order: trees of (group, value), whose ends are found at once.
//!
//! Values order as `min` and `max` order them: floats by arrow's total order, strings and bytes byte by byte.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type};
use levada_state::fixed::{from_ordered, is_fixed, ordered_cow};

use crate::aggregate::bytes_column;

/// The values by the type's width.
#[derive(Debug)]
enum Values {
    /// Words of `fixed`.
    Words(BTreeSet<(u32, i64)>),
    Wide(BTreeSet<(u32, i128)>),
    Bytes(BTreeSet<(u32, Vec<u8>)>),
}

/// The values.
#[derive(Debug)]
pub(super) struct Order {
    data_type: DataType,
    values: Values,
}

impl Order {
    /// For values of this type; `None` where they have no order.
    pub(super) fn new(data_type: &DataType) -> Option<Self> {
        let values = match data_type {
            DataType::Decimal128(_, _) => Values::Wide(BTreeSet::new()),
            DataType::Utf8 | DataType::Binary => Values::Bytes(BTreeSet::new()),
            fixed if is_fixed(fixed) => Values::Words(BTreeSet::new()),
            _ => return None,
        };
        Some(Self { data_type: data_type.clone(), values })
    }

    /// The values in these rows of a column come to be there, or cease to be; `group` gives a row's group and which of both.
    pub(super) fn turn(&mut self, column: &ArrayRef, rows: &[u32], group: impl Fn(u32) -> (u32, bool)) {
        match &mut self.values {
            Values::Words(values) => {
                let words = ordered_cow(column);
                turn(values, rows, group, |row| words[row as usize]);
            }
            Values::Wide(values) => {
                let column = column.as_primitive::<Decimal128Type>().values();
                turn(values, rows, group, |row| column[row as usize]);
            }
            Values::Bytes(values) => match column.data_type() {
                DataType::Utf8 => {
                    let column = column.as_string::<i32>();
                    turn(values, rows, group, |row| column.value(row as usize).as_bytes().to_vec());
                }
                _ => {
                    let column = column.as_binary::<i32>();
                    turn(values, rows, group, |row| column.value(row as usize).to_vec());
                }
            },
        }
    }

    /// The least or the greatest value of each of these groups; null where there is none.
    pub(super) fn ends(&self, groups: &[u32], is_greatest: bool) -> ArrayRef {
        let nulls = |there: Vec<bool>| there.contains(&false).then(|| NullBuffer::from(there));
        match &self.values {
            Values::Words(values) => {
                let found = groups.iter().map(|group| end(values, (*group, i64::MIN), (*group, i64::MAX), is_greatest));
                let (words, there): (Vec<i64>, Vec<bool>) = found.map(|end| (end.copied().unwrap_or(0), end.is_some())).unzip();
                from_ordered(words, nulls(there), &self.data_type)
            }
            Values::Wide(values) => {
                let found = groups.iter().map(|group| end(values, (*group, i128::MIN), (*group, i128::MAX), is_greatest));
                let (words, there): (Vec<i128>, Vec<bool>) = found.map(|end| (end.copied().unwrap_or(0), end.is_some())).unzip();
                Arc::new(Decimal128Array::new(words.into(), nulls(there)).with_data_type(self.data_type.clone()))
            }
            Values::Bytes(values) => {
                let found = groups.iter().map(|group| {
                    let mut range = values.range((*group, Vec::new())..(*group + 1, Vec::new()));
                    let found = if is_greatest { range.next_back() } else { range.next() };
                    found.map(|(_, value)| value.as_slice())
                });
                bytes_column(&self.data_type, found)
            }
        }
    }

    /// The group is gone, and its number may be given to another.
    pub(super) fn forget(&mut self, group: u32) {
        match &mut self.values {
            Values::Words(values) => forget(values, group, i64::MIN),
            Values::Wide(values) => forget(values, group, i128::MIN),
            Values::Bytes(values) => forget(values, group, Vec::new()),
        }
    }
}

fn turn<V: Ord>(values: &mut BTreeSet<(u32, V)>, rows: &[u32], group: impl Fn(u32) -> (u32, bool), value: impl Fn(u32) -> V) {
    for row in rows {
        let (group, comes) = group(*row);
        match comes {
            true => values.insert((group, value(*row))),
            false => values.remove(&(group, value(*row))),
        };
    }
}

fn end<V: Ord>(values: &BTreeSet<(u32, V)>, first: (u32, V), last: (u32, V), is_greatest: bool) -> Option<&V> {
    let mut range = values.range(first..=last);
    let found = if is_greatest { range.next_back() } else { range.next() };
    found.map(|(_, value)| value)
}

/// Of a group whose rows were all taken back nothing is left, and this costs one look.
fn forget<V: Ord + Clone>(values: &mut BTreeSet<(u32, V)>, group: u32, least: V) {
    while let Some(left) = values.range((group, least.clone())..(group + 1, least.clone())).next().cloned() {
        values.remove(&left);
    }
}
