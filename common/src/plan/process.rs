//! Functions of users as planned: their inputs, their windows, what they keep.

use serde::{Deserialize, Serialize};

use super::WindowSpec;
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessWindow {
    /// Tumbling, sliding or cumulating ones, or the input's own.
    pub window: WindowSpec,
    /// Which rows of a group the function does not get.
    pub evict: Option<Evict>,
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
    /// Those whose event time is less than so much before the last one's.
    Time {
        /// Milliseconds, at least 1.
        ms: i64,
    },
}

impl ProcessSpec {
    /// Names of the states that hold the rows of windows, by input.
    pub const WINDOW_ROWS: [&str; 2] = ["rows", "second_rows"];

    /// What of each input waits for its window, where `input` is what the first one carries: keys, what the function takes, and
    /// what rows are put into windows by. With the names of the keys.
    pub fn window_inputs(&self, input: &StreamSchema) -> Vec<(StreamSchema, Vec<String>)> {
        let by_time = self
            .window
            .as_ref()
            .is_some_and(|process| process.window != WindowSpec::Same || matches!(process.evict, Some(Evict::Time { .. })));
        let same = self.window.as_ref().is_some_and(|process| process.window == WindowSpec::Same);
        let kept = |input: &StreamSchema, keys: Vec<String>, taken: &[Column]| {
            let event_time = input.event_time.clone().filter(|_| by_time);
            let is_kept = |name: &String| {
                let is_bound = same && ["window_start", "window_end"].contains(&name.as_str());
                is_bound
                    || keys.contains(name)
                    || event_time.as_ref() == Some(name)
                    || taken.iter().any(|column| column.name == *name)
            };
            let columns = input.columns.iter().filter(|column| is_kept(&column.name)).cloned().collect();
            (StreamSchema { columns, event_time: event_time.clone(), changelog: false }, keys.clone())
        };
        let keys = self.keys.iter().map(|key| key.name.clone()).collect();
        let first = kept(input, keys, &self.function.inputs);
        let second = self.second.as_ref().zip(self.function.second.as_ref());
        let second = second.map(|(second, taken)| kept(&second.schema, second.keys.clone(), taken));
        std::iter::once(first).chain(second).collect()
    }

    /// The rows that wait for their window, by input, where `input` is what the first one carries.
    pub fn window_states(&self, input: &StreamSchema) -> Vec<StateDeclaration> {
        let state = |((input, keys), name): ((StreamSchema, Vec<String>), &str)| StateDeclaration {
            name: name.into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Rows,
                keys: keys.iter().filter_map(|key| input.column(key).cloned()).collect(),
                values: input.columns.iter().filter(|column| !keys.contains(&column.name)).cloned().collect(),
                ..StateSchema::default()
            },
        };
        self.window_inputs(input).into_iter().zip(Self::WINDOW_ROWS).map(state).collect()
    }

    /// The state that holds timers of event time.
    pub const EVENT_TIMERS: &str = "_timers.event";

    /// The state that holds how far event time had come, where the function has keys.
    pub const WATERMARK: &str = "_watermark";

    /// The state that holds timers of processing time.
    pub const PROCESSING_TIMERS: &str = "_timers.processing";

    /// Every state of the function, its timers included, with the key's columns where a state belongs to keys.
    pub fn states(&self) -> Vec<StateDeclaration> {
        let timers = |name: &str| StateDeclaration {
            name: name.into(),
            kind: StateKind::Keyed,
            schema: StateSchema {
                shape: StateShape::Timers,
                windowed: self.function.window_timers,
                values: vec![Column::new("time", LogicalType::Timestamp, false)],
                ..StateSchema::default()
            },
        };
        let event = self.function.event_timers.then(|| timers(Self::EVENT_TIMERS));
        let processing = self.function.processing_timers.then(|| timers(Self::PROCESSING_TIMERS));
        let states = self.function.states.iter().cloned().chain(event).chain(processing);
        states.map(|state| StateDeclaration { schema: state.schema(&self.keys), ..state }).collect()
    }
}
