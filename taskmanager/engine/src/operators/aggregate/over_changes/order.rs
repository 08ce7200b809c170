//! The distinct values of each group, in order: trees of (group, value), whose ends are found at once.
//!
//! Values order as `min` and `max` order them: floats by arrow's total order, strings and bytes byte by byte.

use std::collections::BTreeSet;
use std::collections::btree_set::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
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
    /// Bytes that strings and the like hold by themselves.
    own_bytes: usize,
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
        Some(Self { data_type: data_type.clone(), values, own_bytes: 0 })
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
            Values::Bytes(values) => {
                let (text, bytes) = (column.as_string_opt::<i32>(), column.as_binary_opt::<i32>());
                let value = |row: u32| match (text, bytes) {
                    (Some(text), _) => text.value(row as usize).as_bytes(),
                    (None, Some(bytes)) => bytes.value(row as usize),
                    (None, None) => unreachable!("the column has the order's type"),
                };
                for row in rows {
                    let bytes = value(*row).len();
                    if group(*row).1 { self.own_bytes += bytes } else { self.own_bytes -= bytes }
                }
                turn(values, rows, group, |row| value(row).to_vec());
            }
        }
    }

    /// The least or the greatest value of each of these groups; null where there is none.
    pub(super) fn ends(&self, groups: &[u32], is_greatest: bool) -> ArrayRef {
        let nulls = |there: Vec<bool>| there.contains(&false).then(|| NullBuffer::from(there));
        match &self.values {
            Values::Words(values) => {
                let found = groups.iter().map(|group| end(values, *group, i64::MIN, is_greatest));
                let (words, there): (Vec<i64>, Vec<bool>) = found.map(|end| (end.copied().unwrap_or(0), end.is_some())).unzip();
                from_ordered(words, nulls(there), &self.data_type)
            }
            Values::Wide(values) => {
                let found = groups.iter().map(|group| end(values, *group, i128::MIN, is_greatest));
                let (words, there): (Vec<i128>, Vec<bool>) = found.map(|end| (end.copied().unwrap_or(0), end.is_some())).unzip();
                Arc::new(Decimal128Array::new(words.into(), nulls(there)).with_data_type(self.data_type.clone()))
            }
            Values::Bytes(values) => {
                let found = groups.iter().map(|group| end(values, *group, Vec::new(), is_greatest).map(Vec::as_slice));
                bytes_column(&self.data_type, found)
            }
        }
    }

    /// The group is gone, and its number may be given to another.
    pub(super) fn forget(&mut self, group: u32) {
        match &mut self.values {
            Values::Words(values) => forget(values, group, i64::MIN),
            Values::Wide(values) => forget(values, group, i128::MIN),
            Values::Bytes(values) => {
                let left: usize = of_group(values, group, Vec::new()).map(|(_, value)| value.len()).sum();
                self.own_bytes -= left;
                forget(values, group, Vec::new());
            }
        }
    }

    /// Bytes held, as near as trees tell.
    pub(super) fn memory_bytes(&self) -> usize {
        match &self.values {
            Values::Words(values) => values.len() * size_of::<(u32, i64)>(),
            Values::Wide(values) => values.len() * size_of::<(u32, i128)>(),
            Values::Bytes(values) => values.len() * size_of::<(u32, Vec<u8>)>() + self.own_bytes,
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

/// The values of a group.
fn of_group<V: Ord + Clone>(values: &BTreeSet<(u32, V)>, group: u32, least: V) -> Range<'_, (u32, V)> {
    values.range((group, least.clone())..(group + 1, least))
}

fn end<V: Ord + Clone>(values: &BTreeSet<(u32, V)>, group: u32, least: V, is_greatest: bool) -> Option<&V> {
    let mut range = of_group(values, group, least);
    let found = if is_greatest { range.next_back() } else { range.next() };
    found.map(|(_, value)| value)
}

/// Of a group whose rows were all taken back nothing is left, and this costs one look.
fn forget<V: Ord + Clone>(values: &mut BTreeSet<(u32, V)>, group: u32, least: V) {
    while let Some(left) = of_group(values, group, least.clone()).next().cloned() {
        values.remove(&left);
    }
}
