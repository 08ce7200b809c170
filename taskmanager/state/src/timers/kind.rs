//! The two kinds of timers, and what their snapshots hold.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use levada_common::checkpoint::StateKind;
use levada_common::state_schema::{StateDeclaration, StateSchema, StateShape};
use levada_common::types::{Column, LogicalType};

use super::TimerNamespace;
use crate::format::KEY_PREFIX;

/// The column of a timer's time.
pub const TIME_COLUMN: &str = "time";

/// Which clock a timer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// The watermark.
    Event,
    /// The task's processing time.
    Processing,
}

impl TimerKind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Event, Self::Processing];

    /// The name of the state in snapshots. No function can name a state so.
    pub fn state_name(self) -> &'static str {
        match self {
            Self::Event => "_timers.event",
            Self::Processing => "_timers.processing",
        }
    }

    /// What a snapshot holds of them, without the key.
    pub fn declaration<N: TimerNamespace>(self) -> StateDeclaration {
        let schema = StateSchema {
            shape: StateShape::Timers,
            windowed: N::field().is_some(),
            values: vec![time_column()],
            ..StateSchema::default()
        };
        StateDeclaration { name: self.state_name().into(), kind: StateKind::Keyed, schema }
    }
}

fn time_column() -> Column {
    Column::new(TIME_COLUMN, LogicalType::Timestamp, false)
}

/// The schema of a snapshot's pieces.
pub(super) fn piece_schema<N: TimerNamespace>(keys: &[Column]) -> SchemaRef {
    let keys = keys.iter().map(|key| Field::new(format!("{KEY_PREFIX}{}", key.name), key.ty.to_arrow(), key.nullable));
    Arc::new(Schema::new(keys.chain(N::field()).chain([time_column().to_field()]).collect::<Vec<_>>()))
}
