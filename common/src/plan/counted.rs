//! Values that are counted one by one: what `distinct`, and `min` and `max` over a changelog, are made of.
//!
//! Invariant: the state of a counted column is a map under the key that the groups have, so a group and its values always belong to
//! one subtask.

use serde::{Deserialize, Serialize};

use super::{AggregateCall, AggregateFunction, AggregateSpec, WindowSpec, WindowTime};
use crate::state_schema::{StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

/// Gives each row once for each of its windows, which overlap.
///
/// Shape of the output: the input's columns, and behind them `window_start` and `window_end` (TIMESTAMP, not null).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignSpec {
    /// `Sliding` or `Cumulate`.
    pub window: WindowSpec,
    /// By what time and whose clocks.
    #[serde(default, skip_serializing_if = "WindowTime::is_default")]
    pub time: WindowTime,
    /// How far event time may be past a window's end with rows still given to it, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lateness_ms: i64,
}

impl AssignSpec {
    /// The columns that it adds.
    pub const COLUMNS: [&str; 2] = ["window_start", "window_end"];

    /// The output over an input of this schema.
    pub fn output(&self, input: &StreamSchema) -> StreamSchema {
        let bounds = Self::COLUMNS.map(|name| Column::new(name, LogicalType::Timestamp, false));
        StreamSchema { columns: input.columns.iter().cloned().chain(bounds).collect(), ..input.clone() }
    }
}

/// Marks the rows with which a value comes to be among those of its group, or ceases to be.
///
/// Shape of the output: the input's columns, and behind them, for each of `values`, a column `distinct(<value>)` that has the value
/// in these rows and null in all others. On a changelog a value is there as long as more rows came with it than went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistinctSpec {
    /// Key columns; empty = one group.
    pub keys: Vec<String>,
    /// The windows in which groups are: `Running`, `Global`, `Tumbling` or `Same`.
    pub window: WindowSpec,
    /// By what time and whose clocks these are.
    #[serde(default, skip_serializing_if = "WindowTime::is_default")]
    pub time: WindowTime,
    /// How far event time may be past a window's end with its values still known, in milliseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lateness_ms: i64,
    /// The columns whose values are told apart.
    pub values: Vec<String>,
}

impl DistinctSpec {
    /// The column that has a value where it is told apart.
    pub fn output_name(value: &str) -> String {
        format!("distinct({value})")
    }

    /// The output over an input of this schema.
    pub fn output(&self, input: &StreamSchema) -> StreamSchema {
        Self::marked(&self.values, input)
    }

    /// An input of this schema with a column for each of `values` where it is told apart.
    pub fn marked(values: &[String], input: &StreamSchema) -> StreamSchema {
        let marked = values.iter().filter_map(|value| input.column(value));
        let marked = marked.map(|column| Column { name: Self::output_name(&column.name), nullable: true, ..column.clone() });
        StreamSchema { columns: input.columns.iter().cloned().chain(marked).collect(), ..input.clone() }
    }

    /// What is counted.
    pub fn counted(&self) -> Vec<CountedValues> {
        let counted = |value: &String| CountedValues {
            state: Self::output_name(value),
            keys: self.keys.clone(),
            value: value.clone(),
            window: self.window.clone(),
            time: self.time.clone(),
        };
        self.values.iter().map(counted).collect()
    }
}

/// The values of a column, by key and window, each with the number of rows that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedValues {
    /// The name of the state.
    pub state: String,
    /// Key columns.
    pub keys: Vec<String>,
    /// The column; null is no value.
    pub value: String,
    /// The windows.
    pub window: WindowSpec,
    /// By whose clocks these are.
    pub time: WindowTime,
}

impl CountedValues {
    /// The column of the value, in its state.
    pub const VALUE: &str = "value";

    /// The column of the number of rows, in its state.
    pub const COUNT: &str = "count";

    /// The column of the set that a value is in, in its state, where windows are not known by bounds that stay: a moment of its
    /// session, or the number of its chunk of rows.
    pub const SET: &str = "set";

    /// Whether values are in sets: the bounds of a session move, and chunks of rows have none. A value counts once in its set then.
    pub fn has_sets(&self) -> bool {
        matches!(self.window, WindowSpec::Session { .. } | WindowSpec::Count { .. })
    }

    /// What the state holds, over an input of this schema: a map from values to numbers of rows.
    pub fn state_schema(&self, input: &StreamSchema) -> StateSchema {
        let set = self.has_sets().then(|| Column::new(Self::SET, LogicalType::Int64, false));
        let value = input.column(&self.value).map(|column| Column::new(Self::VALUE, column.ty.clone(), false));
        StateSchema {
            shape: StateShape::Map,
            keys: self.keys.iter().filter_map(|key| input.column(key).cloned()).collect(),
            windowed: self.window.is_windowed() && !self.has_sets(),
            map_key: set.into_iter().chain(value).collect(),
            values: vec![Column::new(Self::COUNT, LogicalType::Int64, false)],
            ..StateSchema::default()
        }
    }
}

impl AggregateSpec {
    /// Over a changelog: the name of the call that counts a group's rows.
    pub const ROWS: &str = "count(*)";

    /// What is kept of a group: the calls themselves, or over a changelog those of which rows can be taken back, the number of the
    /// group's rows, and for each sum over a column that may be null the number of its values.
    pub fn kept_calls(&self) -> Vec<AggregateCall> {
        if !self.takes_changes {
            return self.calls.clone();
        }
        let values = |sum: &AggregateCall| AggregateCall {
            argument: sum.argument.clone(),
            argument_type: sum.argument_type.clone(),
            argument_nullable: true,
            ..AggregateCall::count(&Self::values_of(&sum.name))
        };
        let mut kept = vec![AggregateCall::count(Self::ROWS)];
        for call in &self.calls {
            match call.function {
                AggregateFunction::Min | AggregateFunction::Max => continue,
                AggregateFunction::Sum if call.argument_nullable => {
                    kept.extend([call.clone(), values(call)]);
                }
                _ => kept.push(call.clone()),
            }
        }
        kept
    }

    /// Over a changelog: the name of the call that counts the values under a sum.
    pub fn values_of(sum: &str) -> String {
        format!("{sum}.count")
    }

    /// What is kept value by value: of sessions and windows of rows the distinct values, and over a changelog those of which the
    /// least or the greatest is asked, since the next best one must be known when the best one goes. Each column once.
    pub fn counted(&self) -> Vec<CountedValues> {
        let told_apart = |value: &String| CountedValues {
            state: DistinctSpec::output_name(value),
            keys: self.keys.clone(),
            value: value.clone(),
            window: self.window.clone(),
            time: self.time.clone(),
        };
        let mut counted: Vec<CountedValues> = self.distinct.iter().map(told_apart).collect();
        let is_extreme = |call: &&AggregateCall| matches!(call.function, AggregateFunction::Min | AggregateFunction::Max);
        for value in self.calls.iter().filter(|_| self.takes_changes).filter(is_extreme).filter_map(|call| call.argument.as_ref())
        {
            if counted.iter().all(|other| other.value != *value) {
                let (state, keys, window) = (format!("values({value})"), self.keys.clone(), self.window.clone());
                counted.push(CountedValues { state, keys, value: value.clone(), window, time: WindowTime::default() });
            }
        }
        counted
    }
}

fn is_zero(ms: &i64) -> bool {
    *ms == 0
}
