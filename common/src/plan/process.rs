//! Functions of users as planned: their inputs, their windows, what they keep.

use serde::{Deserialize, Serialize};

use super::{FiringSpec, WindowSpec, WindowTime};
use crate::checkpoint::StateKind;
use crate::declaration::Options;
use crate::function::FunctionDeclaration;
use crate::state_schema::{StateDeclaration, StateSchema, StateShape};
use crate::types::{Column, LogicalType, StreamSchema};

/// A function in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSpec {
    /// The function as it was declared at planning; a TaskManager whose own declares otherwise refuses the task.
    pub function: FunctionDeclaration,
    /// Its options as written.
    pub options: Options,
    /// Key columns of the input; empty where rows have no key.
    pub keys: Vec<Column>,
    /// What the second input carries, where it is broadcast: all of its rows, in every instance.
    pub broadcast: Option<StreamSchema>,
    /// The second input, where it has the key too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second: Option<SecondInput>,
    /// The windows whose rows it gets at once; without, it gets rows as they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<ProcessWindow>,
}

/// The second input of a function, which is spread by its key as the first one is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondInput {
    /// What it carries.
    pub schema: StreamSchema,
    /// Its key columns, one for each of the first input's, of the same type.
    pub keys: Vec<String>,
}

/// The windows of a function that gets all rows of one at once.
///
/// Shape of its output: the key's columns, `window_start`, `window_end`, `window_time`, then what the function gives; append.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessWindow {
    /// Tumbling, sliding or cumulating ones, sessions, or the input's own.
    pub window: WindowSpec,
    /// What time they are of.
    #[serde(default, skip_serializing_if = "WindowTime::is_default")]
    pub time: WindowTime,
    /// Which rows of a group the function does not get.
    pub evict: Option<Evict>,
    /// When a window of a key gives its rows beside the time at which it is over, and how long late rows are taken in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firing: Option<FiringSpec>,
    /// What says instead when a window gives its rows; `firing` then says of late rows alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Box<WindowPart>>,
    /// Which rows of a window go, in place of `evict`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evictor: Option<Box<WindowPart>>,
}

/// A trigger or evictor of a user in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowPart {
    /// As it was declared at planning.
    pub function: FunctionDeclaration,
    /// Its options as written.
    pub options: Options,
}

impl ProcessWindow {
    /// These windows of event time, each of which gives its rows once.
    pub fn once(window: WindowSpec, evict: Option<Evict>) -> Self {
        Self { window, time: WindowTime::default(), evict, firing: None, trigger: None, evictor: None }
    }

    /// Whether each key of a window gives its rows by itself, so that rows are kept by key and window: in sessions, with a trigger, with
    /// late rows that are taken in, and with an evictor of a user.
    pub fn is_by_key(&self) -> bool {
        let session = matches!(self.window, WindowSpec::Session { .. });
        session || self.firing.is_some() || self.trigger.is_some() || self.evictor.is_some()
    }

    /// How far time may be past a window's end with rows still taken in, in milliseconds of event time.
    pub fn lateness_ms(&self) -> i64 {
        self.firing.map_or(0, |firing| firing.lateness_ms)
    }

    /// What says when a window gives its rows, where that is more than its end and each batch of late rows and no trigger says it.
    pub fn results(&self) -> Option<FiringSpec> {
        let says = |firing: &FiringSpec| firing.early.is_some() || firing.late.is_some() || !firing.accumulate;
        self.firing.filter(|firing| self.trigger.is_none() && says(firing))
    }

    /// Its trigger and its evictor.
    pub fn parts(&self) -> impl Iterator<Item = &WindowPart> {
        self.trigger.iter().chain(&self.evictor).map(|part| &**part)
    }
}

/// Which rows of a group a function in windows gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evict {
    /// The last ones that came.
    Rows {
        /// At most so many, at least 1.
        rows: u32,
    },
    /// Those whose time, the one that windows go by, is less than so much before the last one's.
    Time {
        /// Milliseconds, at least 1.
        ms: i64,
    },
}

impl ProcessSpec {
    /// Names of the states that hold the rows of windows, by input.
    pub const WINDOW_ROWS: [&str; 2] = ["rows", "second_rows"];

    /// What of each input waits for its window, where `input` is what the first one carries: keys, what the function takes, and
    /// what rows are put into windows by. In windows of processing time that is a column behind the others, of when each row came in.
    /// With the names of the keys.
    pub fn window_inputs(&self, input: &StreamSchema) -> Vec<(StreamSchema, Vec<String>)> {
        let by_time = self
            .window
            .as_ref()
            .is_some_and(|process| process.window != WindowSpec::Same || matches!(process.evict, Some(Evict::Time { .. })));
        let same = self.window.as_ref().is_some_and(|process| process.window == WindowSpec::Same);
        let by_clock = self.window.as_ref().is_some_and(|process| process.time.processing);
        let kept = |input: &StreamSchema, keys: Vec<String>, taken: &[Column]| {
            let event_time = input.event_time.clone().filter(|_| by_time && !by_clock);
            let is_kept = |name: &String| {
                let is_bound = same && ["window_start", "window_end"].contains(&name.as_str());
                is_bound
                    || keys.contains(name)
                    || event_time.as_ref() == Some(name)
                    || taken.iter().any(|column| column.name == *name)
            };
            let arrived = by_clock.then(WindowTime::arrived);
            let columns = input.columns.iter().filter(|column| is_kept(&column.name)).cloned().chain(arrived).collect();
            let time = if by_clock { Some(WindowTime::ARRIVED.into()) } else { event_time.clone() };
            (StreamSchema { columns, event_time: time, changelog: false }, keys.clone())
        };
        let keys = self.keys.iter().map(|key| key.name.clone()).collect();
        // An evictor looks at rows that have waited; a trigger at those that come.
        let evictor = self.window.as_ref().and_then(|process| process.evictor.as_ref());
        let taken: Vec<Column> =
            self.function.inputs.iter().chain(evictor.iter().flat_map(|part| &part.function.inputs)).cloned().collect();
        let first = kept(input, keys, &taken);
        let second = self.second.as_ref().zip(self.function.second.as_ref());
        let second = second.map(|(second, taken)| kept(&second.schema, second.keys.clone(), taken));
        std::iter::once(first).chain(second).collect()
    }

    /// The rows that wait for their window, by input, where `input` is what the first one carries.
    pub fn window_states(&self, input: &StreamSchema) -> Vec<StateDeclaration> {
        // Of others a row's time, or its columns, say in which window it is.
        let windowed = self.window.as_ref().is_some_and(|process| process.is_by_key() && process.window.overlaps());
        let state = |((input, keys), name): ((StreamSchema, Vec<String>), &str)| StateDeclaration {
            name: name.into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Rows,
                windowed,
                keys: keys.iter().filter_map(|key| input.column(key).cloned()).collect(),
                values: input.columns.iter().filter(|column| !keys.contains(&column.name)).cloned().collect(),
                ..StateSchema::default()
            },
        };
        self.window_inputs(input).into_iter().zip(Self::WINDOW_ROWS).map(state).collect()
    }

    /// The state that holds the windows of each key, by what each was when it began: from when to when it is now. Only where each key
    /// gives its rows by itself.
    pub const WINDOWS: &str = "windows";

    /// The state that holds how many rows each window has taken in since it was last given; only where it is given more than once.
    pub const RESULTS: &str = "results";

    /// The states beside the rows where each key of a window gives them by itself: its windows, and what the trigger keeps.
    pub fn window_key_states(&self) -> Vec<StateDeclaration> {
        let Some(process) = self.window.as_ref().filter(|process| process.is_by_key()) else { return Vec::new() };
        let mut states: Vec<StateDeclaration> = match &process.trigger {
            Some(trigger) => Self::trigger_key_states(trigger).collect(),
            None => vec![key_windows()],
        };
        if let Some(firing) = process.results() {
            states.push(StateDeclaration {
                name: Self::RESULTS.into(),
                kind: StateKind::Keyed,
                schema: StateSchema {
                    shape: StateShape::Value,
                    windowed: true,
                    values: vec![Column::new("value", LogicalType::Int64, false)],
                    ..StateSchema::default()
                },
            });
            states.extend(timers(false, firing.goes_by_clock(), true));
        }
        states.into_iter().map(|state| StateDeclaration { schema: state.schema(&self.keys), ..state }).collect()
    }

    /// The windows of keys, and what a trigger keeps of them, without the keys' columns.
    pub(super) fn trigger_key_states(trigger: &WindowPart) -> impl Iterator<Item = StateDeclaration> {
        let WindowPart { function, .. } = trigger;
        let timers = timers(function.event_timers, function.processing_timers, true);
        std::iter::once(key_windows()).chain(function.states.iter().cloned()).chain(timers)
    }

    /// The state that holds timers of event time.
    pub const EVENT_TIMERS: &str = "_timers.event";

    /// The state that holds how far event time had come, where the function has keys.
    pub const WATERMARK: &str = "_watermark";

    /// The state that holds timers of processing time.
    pub const PROCESSING_TIMERS: &str = "_timers.processing";

    /// Every state of the function, its timers included, with the key's columns where a state belongs to keys.
    pub fn states(&self) -> Vec<StateDeclaration> {
        let FunctionDeclaration { states, event_timers, processing_timers, window_timers, .. } = &self.function;
        let states = states.iter().cloned().chain(timers(*event_timers, *processing_timers, *window_timers));
        states.map(|state| StateDeclaration { schema: state.schema(&self.keys), ..state }).collect()
    }
}

/// The state of the windows of keys: from when to when each is now.
fn key_windows() -> StateDeclaration {
    let bound = |at: usize| Column::new(format!("value.{at}"), LogicalType::Int64, false);
    let values = vec![bound(0), bound(1)];
    let schema = StateSchema { shape: StateShape::Value, windowed: true, values, ..StateSchema::default() };
    StateDeclaration { name: ProcessSpec::WINDOWS.into(), kind: StateKind::Keyed, schema }
}

/// The states of timers of event time and of processing time, where there are any.
fn timers(event: bool, processing: bool, windowed: bool) -> impl Iterator<Item = StateDeclaration> {
    let names = [event.then_some(ProcessSpec::EVENT_TIMERS), processing.then_some(ProcessSpec::PROCESSING_TIMERS)];
    names.into_iter().flatten().map(move |name| StateDeclaration {
        name: name.into(),
        kind: StateKind::Keyed,
        schema: StateSchema {
            shape: StateShape::Timers,
            windowed,
            values: vec![Column::new("time", LogicalType::Timestamp, false)],
            ..StateSchema::default()
        },
    })
}
