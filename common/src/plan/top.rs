//! The best rows of each key, kept up to date: running top-N, and deduplication.

use serde::{Deserialize, Serialize};

use super::OrderSpec;
use crate::checkpoint::StateKind;
use crate::state_schema::{Stamps, StateDeclaration, StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

/// The best rows of each key. The output has the input's columns, and the place behind them where it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopSpec {
    /// Key columns; empty = one group.
    pub keys: Vec<String>,
    /// The order, the best first; empty = by arrival.
    pub order: Vec<OrderSpec>,
    /// Of equal rows, whether the one that came last is the better one.
    pub newest_wins: bool,
    /// How many rows of a key are kept, at least 1.
    pub limit: u32,
    /// The output column for a row's place among those of its key, from 1.
    pub place: Option<String>,
    /// Whether `-U` rows are emitted too.
    pub changelog_full: bool,
    /// How long a row is kept, in milliseconds of processing time.
    pub ttl_ms: Option<i64>,
}

impl TopSpec {
    /// Most rows of a key.
    pub const LIMIT_MAX: u32 = 10_000;

    /// Of the state: the number under which a row arrived.
    pub const ARRIVAL: &str = "_arrival";

    /// Whether a row that is in stays in, so that the output is append: the first ones of each key.
    pub fn is_append(&self) -> bool {
        self.order.is_empty() && !self.newest_wins && self.place.is_none()
    }

    /// Whether every replaced row comes out too: always where rows have no place of their own.
    pub fn is_full(&self) -> bool {
        self.changelog_full || (self.limit > 1 && self.place.is_none())
    }

    /// The rows that are in, where `input` is what comes; of rows that stay in whatever comes, only the key.
    pub fn state(&self, input: &StreamSchema) -> StateDeclaration {
        let key = |name: &String| input.column(name).cloned();
        let others = input.columns.iter().filter(|column| !self.keys.contains(&column.name) && !self.is_append());
        let arrival = Column::new(Self::ARRIVAL, LogicalType::Int64, false);
        StateDeclaration {
            name: "top".into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Rows,
                keys: self.keys.iter().filter_map(key).collect(),
                values: others.cloned().chain([arrival]).collect(),
                ttl: if self.ttl_ms.is_some() { Stamps::Processing } else { Stamps::None },
                ..StateSchema::default()
            },
        }
    }
}
