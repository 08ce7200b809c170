//! What planning must know of a user's function: its declaration.
//!
//! A TaskManager's own binary registers functions by name (`levada_taskmanager::Builder`); their declarations travel with its
//! registration, as those of connectors do, and stand in the plan. Must never know code: that stays in the binary.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::Uid;
use crate::state_schema::StateDeclaration;
use crate::types::{Column, LogicalType, OP_COLUMN};

/// Most columns of a function's input or output.
const COLUMNS_MAX: usize = 1_000;

/// Which of the traits a function has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FunctionKind {
    /// `KeyedProcessFunction`.
    KeyedProcess,
    /// `FlatMapFunction`.
    FlatMap,
    /// `ReduceFunction`.
    Reduce,
    /// `FoldFunction`.
    Fold,
    /// `AggregateFunction`.
    Aggregate,
    /// `BroadcastProcessFunction`.
    BroadcastProcess,
    /// `KeyedCoProcessFunction`.
    KeyedCoProcess,
    /// `CoFlatMapFunction`.
    CoFlatMap,
    /// `WindowFunction`.
    Window,
    /// `CoGroupFunction`.
    CoGroup,
    /// `WindowTrigger`: no function of a node by itself, it belongs to the window of one.
    Trigger,
    /// `WindowEvictor`: likewise.
    Evictor,
}

impl FunctionKind {
    /// The word in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::KeyedProcess => "keyed process",
            Self::FlatMap => "flat map",
            Self::Reduce => "reduce",
            Self::Fold => "fold",
            Self::Aggregate => "aggregate",
            Self::BroadcastProcess => "broadcast process",
            Self::KeyedCoProcess => "keyed co-process",
            Self::CoFlatMap => "co-flat map",
            Self::Window => "window function",
            Self::CoGroup => "co-group",
            Self::Trigger => "trigger",
            Self::Evictor => "evictor",
        }
    }

    /// Whether its node has a window: always, never, or as its author likes.
    pub fn takes_window(self) -> Option<bool> {
        match self {
            Self::Window | Self::CoGroup | Self::Trigger | Self::Evictor => Some(true),
            Self::Reduce | Self::Fold | Self::Aggregate => None,
            Self::KeyedProcess | Self::FlatMap | Self::BroadcastProcess | Self::KeyedCoProcess | Self::CoFlatMap => Some(false),
        }
    }
}

impl FunctionKind {
    /// The key of the job graph under which such a one is named.
    pub fn clause(self) -> &'static str {
        match self {
            Self::Trigger => "window.trigger",
            Self::Evictor => "evict.function",
            _ => "process",
        }
    }

    /// Whether it belongs to the window of another function's node, and gives no rows of its own.
    pub fn is_of_window(self) -> bool {
        matches!(self, Self::Trigger | Self::Evictor)
    }
}

impl fmt::Display for FunctionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An output of a function beside its main one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SideDeclaration {
    /// Its name: other nodes read it as `node/name`.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// The column that is event time; as with the main output, each row's is at least the watermark under which it is given.
    pub event_time: Option<String>,
}

/// A function's declaration: what it takes, what it gives, what it keeps.
///
/// Shape: a batch that it is given has at least the columns of `inputs`, found by name. What it gives has the columns of
/// `outputs`, with `keys_first` after the key's columns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionDeclaration {
    /// Its name in job graphs.
    pub name: String,
    /// Which trait it has.
    pub kind: FunctionKind,
    /// Whether its node needs a `key_by`; otherwise it takes none.
    pub keyed: bool,
    /// Keys that its options may have.
    pub options: Vec<String>,
    /// Columns that it requires of its input; one that is not nullable here may not be nullable there.
    pub inputs: Vec<Column>,
    /// Columns that it requires of its broadcast input; `None` where it has no such input.
    pub broadcast: Option<Vec<Column>>,
    /// Columns that it requires of its second input, which has the same key as the first, or none as that; `None` where it has no such
    /// input.
    #[serde(default)]
    pub second: Option<Vec<Column>>,
    /// Whether the key's columns stand before `outputs`.
    pub keys_first: bool,
    /// Columns that it gives.
    pub outputs: Vec<Column>,
    /// The output column that is event time: each row's is at least the watermark under which the row is given.
    pub event_time: Option<String>,
    /// Its outputs beside that one, by name.
    #[serde(default)]
    pub sides: Vec<SideDeclaration>,
    /// Whether it sets timers of event time.
    pub event_timers: bool,
    /// Whether it sets timers of processing time.
    pub processing_timers: bool,
    /// Whether its timers belong to windows: each is set for the window that is current then, and comes back with it.
    #[serde(default)]
    pub window_timers: bool,
    /// Whether a trigger merges what it keeps of windows that become one, as sessions do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub merging: bool,
    /// Its states, as it bound them when it was registered; timers are not among them.
    #[serde(default)]
    pub states: Vec<StateDeclaration>,
}

impl FunctionDeclaration {
    /// A function that has no columns yet.
    pub fn new(name: impl Into<String>, kind: FunctionKind) -> Self {
        use FunctionKind::{Aggregate, BroadcastProcess, CoFlatMap, CoGroup, Fold, KeyedCoProcess, KeyedProcess, Reduce, Window};
        Self {
            name: name.into(),
            kind,
            keyed: matches!(kind, KeyedProcess | KeyedCoProcess | Reduce | Fold | Aggregate | Window | CoGroup),
            options: Vec::new(),
            inputs: Vec::new(),
            broadcast: (kind == BroadcastProcess).then(Vec::new),
            second: matches!(kind, KeyedCoProcess | CoFlatMap | CoGroup).then(Vec::new),
            keys_first: matches!(kind, Reduce | Fold | Aggregate | Window | CoGroup),
            outputs: Vec::new(),
            event_time: None,
            sides: Vec::new(),
            event_timers: false,
            processing_timers: false,
            window_timers: false,
            merging: false,
            states: Vec::new(),
        }
    }

    /// Requires a column, never null.
    #[must_use]
    pub fn input(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.inputs.push(Column::new(name, ty, false));
        self
    }

    /// Requires a column in which there may be nulls.
    #[must_use]
    pub fn nullable_input(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.inputs.push(Column::new(name, ty, true));
        self
    }

    /// Requires a column of the broadcast input, never null.
    #[must_use]
    pub fn broadcast_input(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.broadcast.get_or_insert_default().push(Column::new(name, ty, false));
        self
    }

    /// Requires a column of the second input, never null.
    #[must_use]
    pub fn second_input(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.second.get_or_insert_default().push(Column::new(name, ty, false));
        self
    }

    /// Requires a column of the second input in which there may be nulls.
    #[must_use]
    pub fn nullable_second_input(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.second.get_or_insert_default().push(Column::new(name, ty, true));
        self
    }

    /// Gives a column, never null.
    #[must_use]
    pub fn output(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.outputs.push(Column::new(name, ty, false));
        self
    }

    /// Gives a column in which there may be nulls.
    #[must_use]
    pub fn nullable_output(mut self, name: impl Into<String>, ty: LogicalType) -> Self {
        self.outputs.push(Column::new(name, ty, true));
        self
    }

    /// Takes these options; any other is refused with the job.
    #[must_use]
    pub fn options<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.options.extend(names.into_iter().map(Into::into));
        self
    }

    /// The output column `name` is event time.
    #[must_use]
    pub fn event_time(mut self, name: impl Into<String>) -> Self {
        self.event_time = Some(name.into());
        self
    }

    /// Gives a column of the output `side` beside the main one, never null. The first one declares the output.
    #[must_use]
    pub fn side_output(mut self, side: &str, name: impl Into<String>, ty: LogicalType) -> Self {
        self.side(side).columns.push(Column::new(name, ty, false));
        self
    }

    /// Gives a column of the output `side` in which there may be nulls.
    #[must_use]
    pub fn nullable_side_output(mut self, side: &str, name: impl Into<String>, ty: LogicalType) -> Self {
        self.side(side).columns.push(Column::new(name, ty, true));
        self
    }

    /// The column `name` of the output `side` is event time.
    #[must_use]
    pub fn side_event_time(mut self, side: &str, name: impl Into<String>) -> Self {
        self.side(side).event_time = Some(name.into());
        self
    }

    fn side(&mut self, name: &str) -> &mut SideDeclaration {
        let at = self.sides.iter().position(|side| side.name == name).unwrap_or_else(|| {
            self.sides.push(SideDeclaration { name: name.into(), columns: Vec::new(), event_time: None });
            self.sides.len() - 1
        });
        &mut self.sides[at]
    }

    /// Sets timers of event time.
    #[must_use]
    pub fn event_timers(mut self) -> Self {
        self.event_timers = true;
        self
    }

    /// Sets timers of processing time.
    #[must_use]
    pub fn processing_timers(mut self) -> Self {
        self.processing_timers = true;
        self
    }

    /// Its timers belong to windows: the one that is current when a timer is set comes back with it.
    #[must_use]
    pub fn window_timers(mut self) -> Self {
        self.window_timers = true;
        self
    }

    /// A trigger that merges what it keeps of windows that become one: it can be that of sessions.
    #[must_use]
    pub fn merging(mut self) -> Self {
        self.merging = true;
        self
    }

    /// Needs a key, or takes none: for a broadcast process and a window function, which may be either.
    #[must_use]
    pub fn keyed(mut self, keyed: bool) -> Self {
        self.keyed = keyed;
        self
    }

    /// Why this cannot be the declaration of a function.
    pub fn defect(&self) -> Option<String> {
        if let Some(defect) = Uid::defect(&self.name) {
            return Some(defect);
        }
        let lists = [
            ("input", Some(&self.inputs)),
            ("broadcast input", self.broadcast.as_ref()),
            ("second input", self.second.as_ref()),
            ("output", Some(&self.outputs)),
        ];
        let lists = lists.into_iter().filter_map(|(what, columns)| Some((what.to_string(), columns?)));
        let sides = self.sides.iter().map(|side| (format!("output \"{}\"", side.name), &side.columns));
        if let Some(defect) = lists.chain(sides).find_map(|(what, columns)| columns_defect(&what, columns)) {
            return Some(defect);
        }
        if self.kind.is_of_window() {
            return self.of_window_defect();
        }
        if self.outputs.is_empty() {
            return Some("it declares no output column".into());
        }
        let main = self.event_time.as_ref().map(|time| (time, "", &self.outputs));
        let sides = self.sides.iter().filter_map(|side| Some((side.event_time.as_ref()?, side.name.as_str(), &side.columns)));
        if let Some(defect) = main.into_iter().chain(sides).find_map(|(time, side, columns)| time_defect(time, side, columns)) {
            return Some(defect);
        }
        for side in &self.sides {
            if let Some(defect) = Uid::defect(&side.name) {
                return Some(format!("its output \"{}\": {defect}", side.name));
            }
            if side.columns.is_empty() {
                return Some(format!("its output \"{}\" has no column", side.name));
            }
        }
        if !self.keyed && (self.event_timers || self.processing_timers) {
            return Some("timers belong to a key, and it has none".into());
        }
        if self.window_timers && !self.event_timers && !self.processing_timers {
            return Some("its timers belong to windows, and it declares none: add `event_timers` or `processing_timers`".into());
        }
        self.kind_defect()
    }

    /// Why this cannot be the declaration of a trigger or evictor.
    fn of_window_defect(&self) -> Option<String> {
        let kind = self.kind;
        if !self.outputs.is_empty() || !self.sides.is_empty() || self.event_time.is_some() {
            return Some(format!("a {kind} gives no rows: leave outputs and event time out"));
        }
        if self.broadcast.is_some() || self.second.is_some() {
            return Some(format!("a {kind} has no inputs of its own but the rows of its window"));
        }
        if kind == FunctionKind::Evictor && (self.event_timers || self.processing_timers || self.merging) {
            return Some(format!("an {kind} sets no timers and merges nothing: what it is given are rows"));
        }
        None
    }

    fn kind_defect(&self) -> Option<String> {
        use FunctionKind::{Aggregate, BroadcastProcess, CoFlatMap, CoGroup, FlatMap, Fold, KeyedCoProcess, Reduce, Window};
        let kind = self.kind;
        if let (Reduce | Fold | Aggregate, Some(side)) = (kind, self.sides.first()) {
            return Some(format!("a {kind} gives a row for each that it takes, and has no output \"{}\"", side.name));
        }
        match (kind, self.keyed) {
            (FlatMap | CoFlatMap, true) => return Some(format!("a {kind} takes no key")),
            (FlatMap | CoFlatMap | BroadcastProcess | Window, _) | (_, true) => {}
            (_, false) => return Some(format!("a {kind} needs a key")),
        }
        if self.keys_first && !self.keyed && kind != Window {
            return Some("its output begins with the key, and it has none".into());
        }
        if matches!(kind, Window | CoGroup) && (self.event_time.is_some() || self.event_timers || self.processing_timers) {
            return Some(format!("the event time of a {kind} is that of the window, and it sets no timers"));
        }
        if self.merging {
            return Some(format!("a {kind} is no trigger, and merges nothing"));
        }
        if self.second.is_some() && !matches!(kind, KeyedCoProcess | CoFlatMap | CoGroup) {
            return Some(format!("a {kind} has no second input"));
        }
        match (&self.broadcast, kind) {
            (Some(columns), BroadcastProcess) if columns.is_empty() => {
                Some("it declares no column of its broadcast input".into())
            }
            (Some(_), BroadcastProcess) | (None, _) => None,
            (Some(_), _) => Some(format!("a {kind} has no broadcast input")),
        }
    }
}

/// Why these cannot be the columns of an input or output.
fn columns_defect(what: &str, columns: &[Column]) -> Option<String> {
    if columns.len() > COLUMNS_MAX {
        return Some(format!("it has {} {what} columns; at most {COLUMNS_MAX} are allowed", columns.len()));
    }
    let mut seen = BTreeSet::new();
    columns.iter().find_map(|Column { name, .. }| {
        if name == OP_COLUMN {
            Some(format!("the {what} column name \"{OP_COLUMN}\" is reserved for changelogs"))
        } else if !seen.insert(name) {
            Some(format!("the {what} column \"{name}\" is declared twice"))
        } else {
            None
        }
    })
}

/// Why `time` cannot be the event time of an output; `side` is its name, empty for the main one.
fn time_defect(time: &str, side: &str, columns: &[Column]) -> Option<String> {
    let column = columns.iter().find(|column| column.name == time);
    let fits = |column: &Column| matches!(column.ty, LogicalType::Timestamp | LogicalType::Int64) && !column.nullable;
    let of = if side.is_empty() { String::new() } else { format!(" of its output \"{side}\"") };
    let reason = format!("its event time \"{time}\"{of} is no output column of type TIMESTAMP or INT64 that is never null");
    (!column.is_some_and(fits)).then_some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> FunctionDeclaration {
        FunctionDeclaration::new("detect", FunctionKind::KeyedProcess)
            .input("amount", LogicalType::Int64)
            .output("at", LogicalType::Timestamp)
            .event_time("at")
    }

    #[test]
    fn a_good_declaration_survives_its_way() {
        let side = |declaration: FunctionDeclaration| declaration.side_output("late", "at", LogicalType::Timestamp);
        let declaration = side(good()).side_event_time("late", "at").event_timers().options(["limit"]);
        assert_eq!(declaration.defect(), None);
        let json = serde_json::to_string(&declaration).unwrap();
        assert_eq!(serde_json::from_str::<FunctionDeclaration>(&json).unwrap(), declaration);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let kind = |kind| FunctionDeclaration::new("f", kind).output("x", LogicalType::Int64);
        for (declaration, expected) in [
            (FunctionDeclaration { name: "a/b".into(), ..good() }, "/"),
            (FunctionDeclaration { outputs: vec![], event_time: None, ..good() }, "no output column"),
            (good().output("at", LogicalType::Int64), "\"at\" is declared twice"),
            (good().output("_op", LogicalType::Int64), "reserved"),
            (good().nullable_output("b", LogicalType::Int64).event_time("b"), "its event time \"b\""),
            (good().event_time("none"), "its event time \"none\""),
            (good().side_output("a/b", "x", LogicalType::Int64), "must not contain /"),
            (good().side_event_time("late", "x"), "its event time \"x\" of its output \"late\""),
            (
                good().side_output("s", "x", LogicalType::Int64).side_output("s", "x", LogicalType::Int64),
                "\"x\" is declared twice",
            ),
            (good().broadcast_input("x", LogicalType::Int64), "a keyed process has no broadcast input"),
            (good().second_input("x", LogicalType::Int64), "a keyed process has no second input"),
            (kind(FunctionKind::KeyedCoProcess).keyed(false), "a keyed co-process needs a key"),
            (kind(FunctionKind::Window).event_timers(), "the event time of a window function is that of the window"),
            (kind(FunctionKind::CoGroup).keyed(false), "a co-group needs a key"),
            (good().keyed(false), "a keyed process needs a key"),
            (kind(FunctionKind::FlatMap).keyed(true), "takes no key"),
            (kind(FunctionKind::CoFlatMap).keyed(true), "a co-flat map takes no key"),
            (kind(FunctionKind::CoFlatMap).broadcast_input("x", LogicalType::Int64), "a co-flat map has no broadcast input"),
            (kind(FunctionKind::FlatMap).event_timers(), "timers belong to a key"),
            (kind(FunctionKind::KeyedProcess).window_timers(), "its timers belong to windows, and it declares none"),
            (kind(FunctionKind::BroadcastProcess), "no column of its broadcast input"),
        ] {
            let defect = declaration.defect().unwrap_or_default();
            assert!(defect.contains(expected), "{expected}: {defect}");
        }
    }
}
