//! When a window gives results, where it does not give them once, when time has passed its end.

use serde::{Deserialize, Serialize};

use super::{AggregatePhase, AggregateSpec, ProcessSpec, WindowPart, WindowSpec};
use crate::checkpoint::StateKind;
use crate::state_schema::{StateDeclaration, StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

/// When a window gives results beside the one time at which it is over. What is given is always what has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiringSpec {
    /// While the window is open; `None` = not.
    pub early: Option<Trigger>,
    /// How far time may be past the window's end with rows still taken in, in milliseconds of event time.
    pub lateness_ms: i64,
    /// Once the window is over; `None` = with each batch.
    pub late: Option<Trigger>,
    /// Whether a result is over all rows of the window so far, and replaces the one before; where not, it is over the rows since
    /// the one before, and rows that were given are forgotten.
    pub accumulate: bool,
}

/// What makes a window give results; at least one is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trigger {
    /// So much processing time has passed, in milliseconds, at least 1: whatever has changed is given.
    pub every_ms: Option<i64>,
    /// A group has taken in so many rows since it was last given, at least 1: that group is given.
    pub rows: Option<u32>,
}

impl FiringSpec {
    /// The state of a group beside its aggregates: rows taken in since it was last given (INT64), and whether it was (BOOLEAN).
    pub fn state_columns() -> [Column; 2] {
        [Column::new(Self::ROWS_COLUMN, LogicalType::Int64, false), Column::new(Self::GIVEN_COLUMN, LogicalType::Boolean, false)]
    }

    /// Whether a state's column of this name is what is noted of a group's results, and nothing that is computed of its rows.
    pub fn is_state_column(name: &str) -> bool {
        [Self::ROWS_COLUMN, Self::GIVEN_COLUMN, Self::RESULT_COLUMN].contains(&name)
    }

    /// The triggers.
    pub fn triggers(&self) -> impl Iterator<Item = Trigger> {
        self.early.into_iter().chain(self.late)
    }

    /// Whether results are given by processing time.
    pub fn goes_by_clock(&self) -> bool {
        self.triggers().any(|trigger| trigger.every_ms.is_some())
    }

    const ROWS_COLUMN: &str = "firing.rows";
    const GIVEN_COLUMN: &str = "firing.given";

    /// The name of `AggregateSpec::result_column`.
    pub const RESULT_COLUMN: &str = "firing.result";
}

/// A trigger of a user that says when each key's window of an aggregation gives its result, in place of a `FiringSpec`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TriggerSpec {
    /// The trigger.
    pub part: WindowPart,
    /// As in a `FiringSpec`.
    pub lateness_ms: i64,
    /// As in a `FiringSpec`.
    pub accumulate: bool,
}

impl TriggerSpec {
    /// The state that holds of which windows of keys a result was given, where results replace earlier ones.
    pub const GIVEN: &str = "given";
}

impl AggregateSpec {
    /// Whether results replace earlier ones.
    pub fn is_changelog(&self) -> bool {
        match (&self.firing, &self.trigger) {
            (Some(firing), _) => firing.accumulate,
            (None, Some(trigger)) => trigger.accumulate,
            (None, None) => self.window == WindowSpec::Running,
        }
    }

    /// The state of a group beside its aggregates and marks where a result goes out with the one that it replaces: the result that
    /// was given last. STRUCT of the calls' results, of a session of the end before them, which moves; null where none was given, or
    /// it is not known which, since it was given before it was kept. A partial gives no results.
    pub fn result_column(&self) -> Option<Column> {
        let keeps = self.changelog_full && self.phase != AggregatePhase::Partial && self.firing.is_some() && self.is_changelog();
        let moves = matches!(self.window, WindowSpec::Session { .. });
        let end = moves.then(|| Column::new("window_end", LogicalType::Timestamp, true));
        let results = self.calls.iter().map(|call| Column::new(&call.name, call.result.clone(), true));
        let fields = LogicalType::Struct(end.into_iter().chain(results).collect());
        keeps.then(|| Column::new(FiringSpec::RESULT_COLUMN, fields, true))
    }

    /// The states beside the aggregates where a trigger says when results are given, over an input of this schema: the windows of each
    /// key, of which of them a result was given, what the trigger keeps, and its timers.
    pub fn trigger_states(&self, input: &StreamSchema) -> Vec<StateDeclaration> {
        let Some(trigger) = &self.trigger else { return Vec::new() };
        let keys: Vec<Column> = self.keys.iter().filter_map(|key| input.column(key).cloned()).collect();
        let given = trigger.accumulate.then(|| StateDeclaration {
            name: TriggerSpec::GIVEN.into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Value,
                windowed: true,
                values: vec![Column::new("value", LogicalType::Boolean, false)],
                ..StateSchema::default()
            },
        });
        let states = ProcessSpec::trigger_key_states(&trigger.part).chain(given);
        states.map(|state| StateDeclaration { schema: state.schema(&keys), ..state }).collect()
    }
}
