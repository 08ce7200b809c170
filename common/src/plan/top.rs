//! The best rows of each key: kept up to date (running top-N, and deduplication), or of each window.

use serde::{Deserialize, Serialize};

use super::{OrderSpec, WindowSpec, WindowTime};
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
    /// Whose rows they are beside the key's; the output is append then, when a window fires: without the input's columns of a
    /// window, with `window_start`, `window_end` and `window_time` at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<TopWindow>,
    /// Whether rows that are equal to the last of the best ones are among them, whatever the limit; equal rows share a place.
    #[serde(default)]
    pub with_ties: bool,
    /// Whether it is only the local half of one in windows without a key: what cannot be among the best is left out, and all other
    /// rows go on as they came, to the other half. It has no state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub local: bool,
}

/// The windows of a top-N. Times are milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TopWindow {
    /// Tumbling ones, of the event time or of when rows come in.
    Tumbling {
        /// Length, at least 1.
        size_ms: i64,
        /// Shift, 0 ≤ offset < size.
        offset_ms: i64,
        /// What time it is of, and by whose clocks.
        #[serde(flatten)]
        time: WindowTime,
    },
    /// Sliding or cumulating ones: a row is in several, and kept in each of them.
    Overlapping {
        /// They.
        windows: WindowSpec,
        /// What time they are of, and by whose clocks.
        #[serde(flatten)]
        time: WindowTime,
    },
    /// The input's own, from its columns `window_start` and `window_end`.
    Same,
}

impl TopWindow {
    /// What time they are of, where they are none of the input.
    pub fn time(&self) -> Option<&WindowTime> {
        match self {
            Self::Tumbling { time, .. } | Self::Overlapping { time, .. } => Some(time),
            Self::Same => None,
        }
    }
}

impl TopSpec {
    /// Most rows of a key.
    pub const LIMIT_MAX: u32 = 10_000;

    /// Of the state: the number under which a row arrived.
    pub const ARRIVAL: &str = "_arrival";

    /// Whether the windows are of processing time: of when rows come in.
    pub fn is_by_clock(&self) -> bool {
        self.window.as_ref().and_then(TopWindow::time).is_some_and(|time| time.processing)
    }

    /// The columns that rows which are kept in several windows have behind their own: of which one each is.
    pub const WINDOW: [&str; 2] = ["_window_start", "_window_end"];

    /// The columns of rows that are kept in windows, where `input` is what comes: they are followed by those that say of which window a
    /// row is, where it may be in several, else in windows of processing time by one that says when it came in, which is its time then.
    pub fn kept(&self, input: &StreamSchema) -> StreamSchema {
        let (own, event_time) = match &self.window {
            Some(TopWindow::Overlapping { .. }) => {
                let bounds = Self::WINDOW.map(|name| Column::new(name, LogicalType::Timestamp, false));
                (bounds.to_vec(), input.event_time.clone())
            }
            Some(TopWindow::Tumbling { time, .. }) if time.processing => {
                (vec![WindowTime::arrived()], Some(WindowTime::ARRIVED.into()))
            }
            Some(TopWindow::Tumbling { .. } | TopWindow::Same) | None => return input.clone(),
        };
        StreamSchema { columns: input.columns.iter().cloned().chain(own).collect(), event_time, changelog: false }
    }

    /// Whether a row that is in stays in, so that the output is append: the first ones of each key.
    pub fn is_append(&self) -> bool {
        self.order.is_empty() && !self.newest_wins && self.place.is_none() && self.window.is_none()
    }

    /// Whether the output is a changelog.
    pub fn is_changelog(&self) -> bool {
        self.window.is_none() && !self.is_append()
    }

    /// Whether every replaced row comes out too: always where rows have no place of their own.
    pub fn is_full(&self) -> bool {
        self.changelog_full || (self.limit > 1 && self.place.is_none())
    }

    /// The rows that are in, where `input` is what comes; of rows that stay in whatever comes, only the key.
    pub fn state(&self, input: &StreamSchema) -> StateDeclaration {
        let key = |name: &String| input.column(name).cloned();
        let kept = self.kept(input);
        let others = kept.columns.iter().filter(|column| !self.keys.contains(&column.name) && !self.is_append());
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
