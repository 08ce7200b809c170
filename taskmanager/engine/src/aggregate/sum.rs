//! `sum`, and the totals under `avg`: exact for integers and decimals, FLOAT64 for floats.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array, Float64Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, Decimal128Type, Float32Type, Float64Type, UInt64Type};
use levada_common::types::LogicalType;
use levada_state::fixed;
use levada_state::rows::Rows;

use super::presence::Presence;
use super::{Accumulator, Groups, Overflow, nulls_of};

/// Sums beyond this many digits are refused: 10^38 - 1 is the greatest DECIMAL(38, s).
const LIMIT: i128 = 10i128.pow(38);

/// A total per group.
#[derive(Debug)]
pub(super) enum Totals {
    /// Integers: added in 64 bits; what leaves them goes to `wide`, which is empty until then.
    Integer { low: Vec<i64>, wide: Vec<i128> },
    /// Decimals of this scale, and UINT64.
    Wide { totals: Vec<i128>, scale: i8 },
    /// Floats.
    Float(Vec<f64>),
}

impl Totals {
    /// Totals of a column of this type.
    pub(super) fn new(argument: &LogicalType) -> Self {
        match argument {
            LogicalType::Decimal(_, scale) => Self::Wide { totals: Vec::new(), scale: *scale },
            LogicalType::UInt64 => Self::Wide { totals: Vec::new(), scale: 0 },
            LogicalType::Float32 | LogicalType::Float64 => Self::Float(Vec::new()),
            _ => Self::Integer { low: Vec::new(), wide: Vec::new() },
        }
    }

    pub(super) fn resize(&mut self, groups: usize) {
        match self {
            Self::Integer { low, wide } => {
                low.resize(groups, 0);
                if !wide.is_empty() {
                    wide.resize(groups, 0);
                }
            }
            Self::Wide { totals, .. } => totals.resize(groups, 0),
            Self::Float(totals) => totals.resize(groups, 0.0),
        }
    }

    /// Adds a column of the argument's type.
    pub(super) fn update(&mut self, groups: Groups<'_>, column: &ArrayRef) -> Result<(), Overflow> {
        self.add::<false>(groups, column)
    }

    /// Takes a column of the argument's type away.
    pub(super) fn retract(&mut self, groups: Groups<'_>, column: &ArrayRef) -> Result<(), Overflow> {
        self.add::<true>(groups, column)
    }

    fn add<const BACK: bool>(&mut self, groups: Groups<'_>, column: &ArrayRef) -> Result<(), Overflow> {
        let nulls = nulls_of(column);
        match self {
            Self::Integer { low, wide } => {
                let mut scratch = Vec::new();
                add_integers::<BACK>(low, wide, groups, fixed::ordered(column, &mut scratch), nulls);
                Ok(())
            }
            Self::Wide { totals, .. } => match column.data_type() {
                DataType::UInt64 => {
                    let values = column.as_primitive::<UInt64Type>().values();
                    add_wide(totals, groups, nulls, |row| signed::<BACK>(i128::from(values[row])))
                }
                _ => {
                    let values = column.as_primitive::<Decimal128Type>().values();
                    add_wide(totals, groups, nulls, |row| signed::<BACK>(values[row]))
                }
            },
            Self::Float(totals) => {
                match column.data_type() {
                    DataType::Float32 => {
                        let values = column.as_primitive::<Float32Type>().values();
                        add_floats(totals, groups, nulls, |row| signed_float::<BACK>(f64::from(values[row])));
                    }
                    _ => {
                        let values = column.as_primitive::<Float64Type>().values();
                        add_floats(totals, groups, nulls, |row| signed_float::<BACK>(values[row]));
                    }
                }
                Ok(())
            }
        }
    }

    /// Adds totals, as `states` gives them.
    pub(super) fn merge(&mut self, groups: Groups<'_>, state: &ArrayRef) -> Result<(), Overflow> {
        let nulls = nulls_of(state);
        match self {
            Self::Float(totals) => {
                let values = state.as_primitive::<Float64Type>().values();
                add_floats(totals, groups, nulls, |row| values[row]);
                Ok(())
            }
            Self::Wide { totals, .. } => {
                let values = state.as_primitive::<Decimal128Type>().values();
                add_wide(totals, groups, nulls, |row| values[row])
            }
            Self::Integer { low, wide } => {
                let values = state.as_primitive::<Decimal128Type>().values();
                let mut overflow = None;
                groups.each_valid(nulls, |row, group| match i64::try_from(values[row]) {
                    Ok(value) => add_integer(low, wide, group, value),
                    Err(_) => {
                        spill(low, wide, group, values[row]);
                        if total(low, wide, group).is_none() {
                            overflow.get_or_insert(Overflow::of(group));
                        }
                    }
                });
                overflow.map_or(Ok(()), Err)
            }
        }
    }

    /// Gives these groups these totals, zero where one is null.
    pub(super) fn assign(&mut self, groups: &[u32], state: &ArrayRef) {
        let nulls = nulls_of(state);
        let each = groups.iter().map(|group| *group as usize).enumerate();
        let is_valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
        match self {
            Self::Float(totals) => {
                let values = state.as_primitive::<Float64Type>().values();
                each.for_each(|(row, group)| totals[group] = if is_valid(row) { values[row] } else { 0.0 });
            }
            Self::Wide { totals, .. } => {
                let values = state.as_primitive::<Decimal128Type>().values();
                each.for_each(|(row, group)| totals[group] = if is_valid(row) { values[row] } else { 0 });
            }
            Self::Integer { low, wide } => {
                let values = state.as_primitive::<Decimal128Type>().values();
                for (row, group) in each {
                    low[group] = 0;
                    if let Some(wide) = wide.get_mut(group) {
                        *wide = 0;
                    }
                    match i64::try_from(values[row]) {
                        Ok(value) => low[group] = if is_valid(row) { value } else { 0 },
                        Err(_) if is_valid(row) => spill(low, wide, group, values[row]),
                        Err(_) => {}
                    }
                }
            }
        }
    }

    /// The totals of these groups: DECIMAL(38, s) or FLOAT64.
    pub(super) fn states(&self, rows: Rows<'_>, nulls: Option<NullBuffer>) -> ArrayRef {
        let (totals, scale) = match self {
            Self::Float(totals) => return Arc::new(Float64Array::new(rows.gather(totals).into(), nulls)),
            Self::Wide { totals, scale } => (rows.gather(totals), *scale),
            Self::Integer { low, wide } => (rows.map(|group| total(low, wide, group).expect("checked when added")), 0),
        };
        Arc::new(Decimal128Array::new(totals.into(), nulls).with_data_type(DataType::Decimal128(38, scale)))
    }

    /// A group's total divided by `count`, once.
    pub(super) fn mean(&self, group: usize, count: i64) -> f64 {
        match self {
            Self::Float(totals) => totals[group] / count as f64,
            Self::Wide { totals, scale } => totals[group] as f64 / (count as f64 * 10f64.powi(i32::from(*scale))),
            Self::Integer { low, wide } => total(low, wide, group).expect("checked when added") as f64 / count as f64,
        }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Integer { low, wide } => {
                low.clear();
                wide.clear();
            }
            Self::Wide { totals, .. } => totals.clear(),
            Self::Float(totals) => totals.clear(),
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Integer { low, wide } => low.capacity() * size_of::<i64>() + wide.capacity() * size_of::<i128>(),
            Self::Wide { totals, .. } => totals.capacity() * size_of::<i128>(),
            Self::Float(totals) => totals.capacity() * size_of::<f64>(),
        }
    }
}

/// The value, or where it is taken back, what cancels it.
#[inline(always)]
fn signed<const BACK: bool>(value: i128) -> i128 {
    if BACK { -value } else { value }
}

/// As `signed`.
#[inline(always)]
fn signed_float<const BACK: bool>(value: f64) -> f64 {
    if BACK { -value } else { value }
}

fn add_integers<const BACK: bool>(
    low: &mut [i64],
    wide: &mut Vec<i128>,
    groups: Groups<'_>,
    values: &[i64],
    nulls: Option<&NullBuffer>,
) {
    if let (Groups::One { group, .. }, None) = (groups, nulls) {
        let sum = signed::<BACK>(values.iter().map(|value| i128::from(*value)).sum());
        match i64::try_from(sum) {
            Ok(sum) => add_integer(low, wide, group as usize, sum),
            Err(_) => spill(low, wide, group as usize, sum),
        }
        return;
    }
    groups.each_valid(nulls, |row, group| match BACK {
        false => add_integer(low, wide, group, values[row]),
        true => match values[row].checked_neg() {
            Some(value) => add_integer(low, wide, group, value),
            None => spill(low, wide, group, -i128::from(values[row])),
        },
    });
}

#[inline]
fn add_integer(low: &mut [i64], wide: &mut Vec<i128>, group: usize, value: i64) {
    match low[group].checked_add(value) {
        Some(sum) => low[group] = sum,
        None => spill(low, wide, group, i128::from(value)),
    }
}

/// Adds where 64 bits do not do. No number of rows brings 128 bits to overflow from here: a state has at most 38 digits, and a
/// total is checked against that whenever one is merged or read.
#[cold]
fn spill(low: &[i64], wide: &mut Vec<i128>, group: usize, value: i128) {
    if wide.is_empty() {
        wide.resize(low.len(), 0);
    }
    wide[group] = wide[group].saturating_add(value);
}

/// A group's total, if it has at most 38 digits.
fn total(low: &[i64], wide: &[i128], group: usize) -> Option<i128> {
    let total = i128::from(low[group]) + wide.get(group).copied().unwrap_or(0).clamp(-LIMIT, LIMIT);
    (total.abs() < LIMIT).then_some(total)
}

fn add_wide(
    totals: &mut [i128],
    groups: Groups<'_>,
    nulls: Option<&NullBuffer>,
    value: impl Fn(usize) -> i128,
) -> Result<(), Overflow> {
    let mut overflow = None;
    groups.each_valid(nulls, |row, group| {
        totals[group] = match totals[group].checked_add(value(row)) {
            Some(total) if total > -LIMIT && total < LIMIT => total,
            _ => {
                overflow.get_or_insert(Overflow::of(group));
                0
            }
        };
    });
    overflow.map_or(Ok(()), Err)
}

fn add_floats(totals: &mut [f64], groups: Groups<'_>, nulls: Option<&NullBuffer>, value: impl Fn(usize) -> f64) {
    groups.each_valid(nulls, |row, group| totals[group] += value(row));
}

/// `sum`: null over no value.
#[derive(Debug)]
pub(super) struct Sum {
    totals: Totals,
    presence: Presence,
}

impl Sum {
    /// A sum of a column of this type.
    pub(super) fn new(argument: &LogicalType) -> Self {
        Self { totals: Totals::new(argument), presence: Presence::default() }
    }
}

impl Accumulator for Sum {
    fn resize(&mut self, groups: usize) {
        self.totals.resize(groups);
        self.presence.resize(groups);
    }

    fn update(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.presence.mark(groups, nulls_of(&columns[0]));
        self.totals.update(groups, &columns[0])
    }

    fn retract(&mut self, groups: Groups<'_>, columns: &[ArrayRef]) -> Result<(), Overflow> {
        self.totals.retract(groups, &columns[0])
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn merge(&mut self, groups: Groups<'_>, states: &[ArrayRef]) -> Result<(), Overflow> {
        self.presence.mark(groups, nulls_of(&states[0]));
        self.totals.merge(groups, &states[0])
    }

    fn assign(&mut self, groups: &[u32], states: &[ArrayRef]) {
        self.presence.assign(groups, nulls_of(&states[0]));
        self.totals.assign(groups, &states[0]);
    }

    fn read(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        vec![self.totals.states(rows, self.presence.nulls(rows))]
    }

    fn states(&self, rows: Rows<'_>) -> Vec<ArrayRef> {
        self.read(rows)
    }

    fn clear(&mut self) {
        self.totals.clear();
        self.presence.clear();
    }

    fn memory_bytes(&self) -> usize {
        self.totals.memory_bytes() + self.presence.memory_bytes()
    }
}
