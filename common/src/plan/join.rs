//! Joins as planned: two streams, rows of which meet where their keys are equal and a window, an interval or a table allows it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{WindowSpec, WindowTime};
use crate::checkpoint::StateKind;
use crate::state_schema::{Stamps, StateDeclaration, StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

/// Which rows of a join go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinKind {
    /// Pairs of rows that meet.
    #[default]
    Inner,
    /// These, and left rows that meet none, the right side's columns null.
    Left,
    /// These, and right rows that meet none, the left side's columns null.
    Right,
    /// These, and rows of either side that meet none.
    Full,
    /// Left rows that meet a right one, each once.
    Semi,
    /// Left rows that meet none.
    Anti,
}

impl JoinKind {
    /// Every kind, in the order in which messages list them.
    pub const ALL: [Self; 6] = [Self::Inner, Self::Left, Self::Right, Self::Full, Self::Semi, Self::Anti];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inner => "inner",
            Self::Left => "left",
            Self::Right => "right",
            Self::Full => "full",
            Self::Semi => "semi",
            Self::Anti => "anti",
        }
    }

    /// Whether pairs go out, with the columns of both sides.
    pub fn gives_pairs(self) -> bool {
        matches!(self, Self::Inner | Self::Left | Self::Right | Self::Full)
    }

    /// Whether left rows that meet none go out.
    pub fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }

    /// Whether right rows that meet none go out.
    pub fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }

    /// Whether it must be known of a row of this side that it has met one.
    pub fn marks(self, side: JoinSide) -> bool {
        match side {
            JoinSide::Left => self.keeps_left() || self == Self::Semi,
            JoinSide::Right => self.keeps_right(),
        }
    }
}

impl fmt::Display for JoinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A side of a join; its number is that of the operator's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinSide {
    /// Input 0, the node's `inputs`.
    Left,
    /// Input 1, what stands under `with`.
    Right,
}

impl JoinSide {
    /// Both, in the order of their inputs.
    pub const ALL: [Self; 2] = [Self::Left, Self::Right];

    /// The name of the output for the side's rows that came too late.
    pub fn late_output(self) -> &'static str {
        match self {
            Self::Left => "late_left",
            Self::Right => "late_right",
        }
    }

    /// The name of the state that holds the side's rows.
    pub fn state_name(self) -> &'static str {
        match self {
            Self::Left => "left",
            Self::Right => "right",
        }
    }
}

/// What beside equal keys makes two rows meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinScope {
    /// Both are in one tumbling window, of their event times or of when they come in; they meet when it fires.
    Tumbling {
        /// Length in milliseconds, at least 1.
        size_ms: i64,
        /// Shift in milliseconds, 0 ≤ offset < size.
        offset_ms: i64,
        /// What time it is of.
        #[serde(flatten)]
        time: WindowTime,
    },
    /// Both are in one sliding or cumulating window, and meet in each of those when it fires.
    Overlapping {
        /// They.
        windows: WindowSpec,
        /// What time they are of.
        #[serde(flatten)]
        time: WindowTime,
    },
    /// Both have one window in their columns `window_start` and `window_end`; they meet when it fires.
    Same,
    /// The right row's event time less the left one's lies in `[from, to]`; they meet when the later of them comes.
    Within {
        /// Milliseconds.
        from_ms: i64,
        /// Milliseconds, not less.
        to_ms: i64,
    },
    /// Nothing: a row meets all that stand. The sides may be changelogs.
    Standing {
        /// How long a row stands at least, in milliseconds of processing time; `None` = until it is deleted.
        ttl_ms: Option<i64>,
        /// Of a left side that is a changelog: the columns by which a change finds the row that it replaces.
        left_unique: Option<Vec<String>>,
        /// The same of the right side.
        right_unique: Option<Vec<String>>,
    },
    /// The right side is a table, all of it in every instance, with one row of a key, the newest. A left row meets the one that is
    /// there when it comes.
    Lookup {
        /// Whether left rows wait until the table has ended.
        whole: bool,
        /// Whether an update of the table may give a row another key, so that the row which it replaces is deleted.
        moves: bool,
    },
}

impl JoinScope {
    /// The windows in which rows meet, where they do.
    pub fn windows(&self) -> Option<WindowSpec> {
        match self {
            Self::Tumbling { size_ms, offset_ms, .. } => Some(WindowSpec::Tumbling { size_ms: *size_ms, offset_ms: *offset_ms }),
            Self::Overlapping { windows, .. } => Some(windows.clone()),
            Self::Same => Some(WindowSpec::Same),
            Self::Within { .. } | Self::Standing { .. } | Self::Lookup { .. } => None,
        }
    }

    /// What time they are of, where they are none of the input.
    pub fn window_time(&self) -> Option<&WindowTime> {
        match self {
            Self::Tumbling { time, .. } | Self::Overlapping { time, .. } => Some(time),
            Self::Same | Self::Within { .. } | Self::Standing { .. } | Self::Lookup { .. } => None,
        }
    }

    /// Whether rows meet in windows.
    pub fn is_in_windows(&self) -> bool {
        matches!(self, Self::Tumbling { .. } | Self::Overlapping { .. } | Self::Same)
    }
}

/// Where a column of a join's output comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinColumn {
    /// This column of the left row.
    Left(String),
    /// This column of the right row.
    Right(String),
    /// The key's column of this number, of whichever row there is.
    Key(usize),
    /// The start of the window.
    WindowStart,
    /// Its end.
    WindowEnd,
    /// Its last millisecond.
    WindowTime,
}

/// A join. The operator's `input` is the left side's schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinSpec {
    /// Which rows go out.
    pub kind: JoinKind,
    /// Key columns of the left side; null meets nothing.
    pub left_keys: Vec<String>,
    /// Key columns of the right side, of the same types in the same order.
    pub right_keys: Vec<String>,
    /// What beside equal keys makes two rows meet.
    pub scope: JoinScope,
    /// What the second input carries.
    pub right: StreamSchema,
    /// What the output's columns are, in their order.
    pub columns: Vec<JoinColumn>,
}

impl JoinSpec {
    /// Of a state, where rows wait for time to pass: whether its row has met one.
    pub const MATCHED: &str = "_matched";

    /// Name of the state that holds the table of a lookup.
    pub const TABLE: &str = "table";

    /// Of a state, where rows stand: whether its row has gone out without one of the other side, and was not taken back.
    pub const ALONE: &str = "_alone";

    /// The key columns of a side.
    pub fn keys(&self, side: JoinSide) -> &[String] {
        match side {
            JoinSide::Left => &self.left_keys,
            JoinSide::Right => &self.right_keys,
        }
    }

    /// The column of the state that says something of each row of this side, where it must: where pairs go out as they come.
    pub fn mark(&self, side: JoinSide) -> Option<&'static str> {
        match self.scope {
            JoinScope::Within { .. } => self.kind.marks(side).then_some(Self::MATCHED),
            JoinScope::Standing { .. } => self.kind.marks(side).then_some(Self::ALONE),
            JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same | JoinScope::Lookup { .. } => None,
        }
    }

    /// By which columns a change of this side finds the row that it replaces, where the side is a changelog.
    pub fn unique(&self, side: JoinSide) -> Option<&Vec<String>> {
        let JoinScope::Standing { left_unique, right_unique, .. } = &self.scope else { return None };
        match side {
            JoinSide::Left => left_unique.as_ref(),
            JoinSide::Right => right_unique.as_ref(),
        }
    }

    /// How long a row stands.
    pub fn ttl_ms(&self) -> Option<i64> {
        let JoinScope::Standing { ttl_ms, .. } = self.scope else { return None };
        ttl_ms
    }

    /// Whether rows meet in windows of processing time: of when they come in.
    pub fn is_by_clock(&self) -> bool {
        self.scope.window_time().is_some_and(|time| time.processing)
    }

    /// The columns of a side that are kept, in their order, without `_op`, where `input` is what that side carries. In windows of
    /// processing time they are followed by one that says when a row came in, which is their time then.
    pub fn kept(&self, side: JoinSide, input: &StreamSchema) -> StreamSchema {
        let read = self.reads(side, input.event_time.as_ref());
        let columns = input.columns.iter().filter(|column| read.contains(&column.name)).cloned();
        if self.is_by_clock() {
            let columns = columns.chain([WindowTime::arrived()]).collect();
            return StreamSchema { columns, event_time: Some(WindowTime::ARRIVED.into()), changelog: false };
        }
        let event_time = input.event_time.clone().filter(|time| read.contains(time));
        StreamSchema { columns: columns.collect(), event_time, changelog: false }
    }

    /// The rows of a side that wait or stand, where `input` is what that side carries.
    pub fn state(&self, side: JoinSide, input: &StreamSchema) -> StateDeclaration {
        let (keys, input) = (self.keys(side), self.kept(side, input));
        let key = |name: &String| input.column(name).cloned();
        let others = input.columns.iter().filter(|column| !keys.contains(&column.name)).cloned();
        let mark = self.mark(side).map(|mark| Column::new(mark, LogicalType::Boolean, false));
        StateDeclaration {
            name: side.state_name().into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Rows,
                keys: keys.iter().filter_map(key).collect(),
                values: others.chain(mark).collect(),
                grid: self.grid(side),
                ttl: if self.ttl_ms().is_some() { Stamps::Processing } else { Stamps::None },
                ..StateSchema::default()
            },
        }
    }

    /// Where the windows lie in which a side has one row for each key: of others it would not have enough.
    fn grid(&self, side: JoinSide) -> String {
        let is_filter = side == JoinSide::Right && !self.kind.gives_pairs();
        let windows = self.scope.windows().zip(self.scope.window_time()).filter(|_| is_filter);
        windows.map(|(windows, time)| windows.grid(time)).unwrap_or_default()
    }

    /// The table of a lookup, where `input` is what the right side carries: the row of each key.
    pub fn table(&self, input: &StreamSchema) -> StateDeclaration {
        let kept = self.kept(JoinSide::Right, input);
        let map_key = self.right_keys.iter().filter_map(|name| kept.column(name).cloned()).collect();
        let values = kept.columns.into_iter().filter(|column| !self.right_keys.contains(&column.name)).collect();
        let schema = StateSchema { shape: StateShape::Map, map_key, values, ..StateSchema::default() };
        StateDeclaration { name: Self::TABLE.into(), kind: StateKind::OperatorBroadcast, schema }
    }

    /// Whether left rows wait until the right side has ended.
    pub fn waits(&self) -> bool {
        matches!(self.scope, JoinScope::Lookup { whole: true, .. })
    }

    /// The columns that it reads of a side beside the keys: those that go out, and those that say when two rows meet.
    pub fn reads(&self, side: JoinSide, event_time: Option<&String>) -> Vec<String> {
        let mut read = self.keys(side).to_vec();
        read.extend(self.columns.iter().filter_map(|column| match (column, side) {
            (JoinColumn::Left(name), JoinSide::Left) | (JoinColumn::Right(name), JoinSide::Right) => Some(name.clone()),
            _ => None,
        }));
        match self.scope {
            JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } if self.is_by_clock() => {}
            JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Within { .. } => {
                read.extend(event_time.cloned());
            }
            JoinScope::Same => read.extend(["window_start".into(), "window_end".into()]),
            JoinScope::Standing { .. } => read.extend(self.unique(side).into_iter().flatten().cloned()),
            JoinScope::Lookup { .. } => {}
        }
        read
    }
}
