//! A harness for functions: runs one without a cluster, subtask by subtask, on the very operator that a job runs it on.
//!
//! Rows go in as JSON objects or batches, time moves when it is told to, snapshots can be restored at another parallelism, and
//! what the function gives is read back.
//!
//! ```
//! # use levada_engine::function::*;
//! # use levada_state::descriptor::{BindError, Binder, ValueState, ValueStateDescriptor};
//! use levada_common::function::{FunctionDeclaration, FunctionKind};
//! use levada_common::types::LogicalType;
//! use levada_engine::function::RegisteredFunction;
//! use levada_engine::harness::Harness;
//! use serde_json::json;
//!
//! struct Sum;
//! impl ReduceFunction for Sum {
//!     type Value = i64;
//!     fn reduce(so_far: &mut i64, next: i64) {
//!         *so_far += next;
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let declaration = FunctionDeclaration::new("sum", FunctionKind::Reduce).input("n", LogicalType::Int64).output("sum", LogicalType::Int64);
//! let function = RegisteredFunction::reduce::<Sum>(declaration)?;
//! let harness = Harness::new(function).key("user", LogicalType::String);
//! let mut run = harness.clone().start()?;
//! run.push(&[json!({"user": "ann", "n": 1}), json!({"user": "ann", "n": 2})])?;
//! assert_eq!(run.output()?, [json!({"user": "ann", "sum": 1}), json!({"user": "ann", "sum": 3})]);
//! let snapshot = run.snapshot()?;
//! let mut wider = harness.parallelism(3).restore(&snapshot)?;
//! wider.push(&[json!({"user": "ann", "n": 4})])?;
//! assert_eq!(wider.output()?, [json!({"user": "ann", "sum": 7})]);
//! # Ok(()) }
//! ```

mod run;
mod snapshot;

/// Windows, which rows of one a function gets, and when: what a harness takes.
pub use levada_common::plan::{Evict, FiringSpec, SessionGap, Trigger, WindowSpec};
pub use run::HarnessRun;
pub use snapshot::HarnessSnapshot;

use std::sync::Arc;

use levada_common::declaration::Options;
use levada_common::function::SideDeclaration;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{
    BadRecordPolicy, JoinSide, OperatorKind, OperatorSpec, ProcessSpec, ProcessWindow, SecondInput, SideOutput, WindowPart,
    WindowTime,
};
use levada_common::state_schema::StateDeclaration;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::cold::memory::MemoryColdStores;
use levada_state::cold::{ColdStores, OverlayBudget};
use levada_state::keyed::HeapBudget;
use levada_state::snapshot::DatabaseSnapshot;
use serde_json::Value;

use crate::error::EngineError;
use crate::function::{Functions, RegisteredFunction};

/// Why a harness does not go on.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// The function or its states failed, as they would in a job.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Rows that are not those of the declared input.
    #[error("the rows do not fit the function's input")]
    Rows(#[source] arrow::error::ArrowError),
    /// What the function gave cannot be written as JSON.
    #[error("the output cannot be written as JSON")]
    Output(#[source] arrow::error::ArrowError),
    /// A snapshot that was given up.
    #[error("state \"{state}\" was not written whole")]
    Snapshot {
        /// The state.
        state: String,
    },
    /// An output is asked for that the function does not have.
    #[error("function \"{function}\" has no output \"{side}\" beside its main one")]
    NoSide {
        /// The function.
        function: String,
        /// The output.
        side: String,
    },
    /// Rows for an input that the function does not have.
    #[error("function \"{function}\" has no {input} input")]
    NoInput {
        /// The function.
        function: String,
        /// broadcast or second
        input: &'static str,
    },
}

/// How often one asks in vain whether a store has written something: a real one takes its time too.
const STORE_LAG: u32 = 2;

/// A function and how it is to run.
#[derive(Clone)]
pub struct Harness {
    function: RegisteredFunction,
    keys: Vec<Column>,
    /// Their names in the second input.
    second_keys: Vec<String>,
    /// The event time of the second input.
    second_time: Option<String>,
    window: Option<ProcessWindow>,
    trigger: Option<(RegisteredFunction, Options)>,
    evictor: Option<(RegisteredFunction, Options)>,
    firing: Option<FiringSpec>,
    options: Options,
    event_time: Option<String>,
    parallelism: u32,
    max_parallelism: u32,
    batch_rows_max: usize,
    overlay_bytes: Option<usize>,
    /// Whether databases of a snapshot are restored as such.
    in_databases: bool,
}

impl Harness {
    /// At parallelism 1 of 128, without key, options and event time.
    pub fn new(function: RegisteredFunction) -> Self {
        let (keys, options) = (Vec::new(), Options::new());
        Self {
            function,
            keys,
            second_keys: Vec::new(),
            second_time: None,
            window: None,
            trigger: None,
            evictor: None,
            firing: None,
            options,
            event_time: None,
            parallelism: 1,
            max_parallelism: 128,
            batch_rows_max: 8192,
            overlay_bytes: None,
            in_databases: false,
        }
    }

    /// Keys the input by one more column.
    #[must_use]
    pub fn key(self, name: &str, ty: LogicalType) -> Self {
        self.key_pair(name, name, ty)
    }

    /// The same, where the column has another name in the second input.
    #[must_use]
    pub fn key_pair(mut self, name: &str, second: &str, ty: LogicalType) -> Self {
        self.keys.push(Column::new(name, ty, false));
        self.second_keys.push(second.into());
        self
    }

    /// Makes this column of the second input its event time.
    #[must_use]
    pub fn second_event_time(mut self, column: &str) -> Self {
        self.second_time = Some(column.into());
        self
    }

    /// Gives the function the rows of these windows at once, in place of rows as they come.
    #[must_use]
    pub fn window(mut self, window: WindowSpec, evict: Option<Evict>) -> Self {
        self.window = Some(ProcessWindow::once(window, evict));
        self
    }

    /// Has its windows go by processing time: by when rows come in.
    ///
    /// Contract: behind `window`.
    #[must_use]
    pub fn by_clock(mut self) -> Self {
        let window = self.window.as_mut().expect("windows come before what they go by");
        window.time = WindowTime::processing();
        self
    }

    /// Lets this trigger say when a window gives its rows.
    #[must_use]
    pub fn trigger(mut self, trigger: RegisteredFunction, options: Options) -> Self {
        self.trigger = Some((trigger, options));
        self
    }

    /// Lets this evictor say which rows of a window go.
    #[must_use]
    pub fn evictor(mut self, evictor: RegisteredFunction, options: Options) -> Self {
        self.evictor = Some((evictor, options));
        self
    }

    /// Takes rows of a window in until event time is so far past its end.
    #[must_use]
    pub fn allowed_lateness(mut self, ms: i64) -> Self {
        let none = FiringSpec { early: None, lateness_ms: 0, late: None, accumulate: true };
        self.firing = (ms > 0).then(|| FiringSpec { lateness_ms: ms, ..self.firing.unwrap_or(none) });
        self
    }

    /// Gives the rows of windows early and late, as `early`, `allowed_lateness`, `late` and `accumulate` of a job say.
    #[must_use]
    pub fn firing(mut self, firing: FiringSpec) -> Self {
        self.firing = Some(firing);
        self
    }

    fn process_window(&self) -> Option<ProcessWindow> {
        let part = |part: &Option<(RegisteredFunction, Options)>| {
            let (function, options) = part.as_ref()?;
            Some(Box::new(WindowPart { function: function.declaration().clone(), options: options.clone() }))
        };
        let window = self.window.clone()?;
        let (trigger, evictor) = (part(&self.trigger), part(&self.evictor));
        Some(ProcessWindow { firing: self.firing, trigger, evictor, ..window })
    }

    /// Gives the function an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.options.insert(name.into(), value.into());
        self
    }

    /// Makes this column of the input its event time.
    #[must_use]
    pub fn event_time(mut self, column: &str) -> Self {
        self.event_time = Some(column.into());
        self
    }

    /// Runs so many instances.
    ///
    /// Contract: 1 to 128.
    #[must_use]
    pub fn parallelism(mut self, parallelism: u32) -> Self {
        assert!((1..=self.max_parallelism).contains(&parallelism), "parallelism {parallelism} is not between 1 and 128");
        self.parallelism = parallelism;
        self
    }

    /// Gives and takes batches of at most so many rows.
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows_max = rows.max(1);
        self
    }

    /// Keeps keyed state as the rocksdb backend does, in a store (here one in memory) before which all instances together have so
    /// many bytes: what was not used lately leaves memory and comes back.
    #[must_use]
    pub fn store(mut self, overlay_bytes: usize) -> Self {
        self.overlay_bytes = Some(overlay_bytes);
        self
    }

    /// Starts from databases where a snapshot has some and there is a store, not from their rows.
    #[cfg(test)]
    pub(crate) fn in_databases(mut self) -> Self {
        self.in_databases = true;
        self
    }

    /// Starts with empty state.
    ///
    /// Errors: what the function answers when it is made and opened.
    pub fn start(self) -> Result<HarnessRun, HarnessError> {
        HarnessRun::open(self, None)
    }

    /// Starts with the state of a snapshot, whatever parallelism it was taken at.
    ///
    /// Errors: as `start`; a state that does not fit.
    pub fn restore(self, snapshot: &HarnessSnapshot) -> Result<HarnessRun, HarnessError> {
        HarnessRun::open(self, Some(snapshot))
    }

    fn input(&self) -> StreamSchema {
        let declared = &self.function.declaration().inputs;
        let own = self.keys.iter().cloned().chain(self.window_columns()).chain(self.window_time(&self.event_time));
        let own = own.filter(|own| !declared.iter().any(|column| column.name == own.name));
        let mut columns: Vec<Column> = Vec::new();
        for column in own.chain(declared.iter().cloned()) {
            if !columns.iter().any(|known| known.name == column.name) {
                columns.push(column);
            }
        }
        StreamSchema { columns, event_time: self.event_time.clone(), changelog: false }
    }

    /// What the window needs of rows beside their times: what its trigger and evictor declare, and the column of a session's gap.
    fn window_columns(&self) -> impl Iterator<Item = Column> + '_ {
        let gap = self.window.iter().filter_map(|process| match &process.window {
            WindowSpec::Session { gap: SessionGap::Column { name } } => Some(Column::new(name, LogicalType::Int64, true)),
            _ => None,
        });
        let parts = self.trigger.iter().chain(&self.evictor).flat_map(|(function, _)| &function.declaration().inputs);
        parts.cloned().chain(gap)
    }

    /// The event time of an input in windows: a function need not take it.
    fn window_time(&self, name: &Option<String>) -> Option<Column> {
        name.as_ref().filter(|_| self.window.is_some()).map(|name| Column::new(name, LogicalType::Timestamp, false))
    }

    fn second(&self) -> Option<SecondInput> {
        let declared = self.function.declaration().second.as_ref()?;
        let own = self.keys.iter().zip(&self.second_keys).map(|(key, name)| Column { name: name.clone(), ..key.clone() });
        let own = own.chain(self.window_columns()).chain(self.window_time(&self.second_time));
        let own = own.filter(|own| !declared.iter().any(|column| column.name == own.name));
        let columns = own.chain(declared.iter().cloned()).collect();
        let schema = StreamSchema { columns, event_time: self.second_time.clone(), changelog: false };
        Some(SecondInput { schema, keys: self.second_keys.clone() })
    }

    pub(crate) fn spec(&self) -> OperatorSpec {
        let function = self.function.declaration().clone();
        let keys = if function.keys_first { self.keys.clone() } else { Vec::new() };
        let bounds = ["window_start", "window_end", "window_time"].map(|name| Column::new(name, LogicalType::Timestamp, false));
        let bounds = bounds.iter().filter(|_| self.window.is_some());
        let output = StreamSchema {
            columns: keys.iter().chain(bounds).chain(&function.outputs).cloned().collect(),
            event_time: match &self.window {
                Some(window) => (!window.time.processing).then(|| "window_time".into()),
                None => function.event_time.clone(),
            },
            changelog: false,
        };
        let broadcast = function.broadcast.clone().map(StreamSchema::append);
        let side = |side: &SideDeclaration| SideOutput {
            name: side.name.clone(),
            schema: StreamSchema { columns: side.columns.clone(), event_time: side.event_time.clone(), changelog: false },
        };
        let mut sides: Vec<SideOutput> = function.sides.iter().map(side).collect();
        if self.window.as_ref().is_some_and(|window| !window.time.processing) {
            let second = self.second();
            let names = match second {
                None => vec![SideOutput::LATE],
                Some(_) => JoinSide::ALL.map(|side| side.late_output()).to_vec(),
            };
            let inputs = std::iter::once(self.input()).chain(second.map(|second| second.schema));
            sides.extend(names.into_iter().zip(inputs).map(|(name, schema)| SideOutput { name: name.into(), schema }));
        }
        OperatorSpec {
            uid: Uid::new(function.name.as_str()),
            clause: "process".into(),
            kind: OperatorKind::Process(Box::new(ProcessSpec {
                function,
                options: self.options.clone(),
                keys: self.keys.clone(),
                broadcast,
                second: self.second(),
                window: self.process_window(),
            })),
            input: self.input(),
            output,
            sides,
            bad_records: BadRecordPolicy::Fail,
        }
    }

    pub(crate) fn functions(&self) -> Functions {
        let parts = self.trigger.iter().chain(&self.evictor).map(|(function, _)| function);
        parts.chain([&self.function]).map(|function| (function.declaration().name.clone(), function.clone())).collect()
    }

    /// The states of the function and of its window's trigger.
    fn states(&self) -> Vec<StateDeclaration> {
        let functions = self.trigger.iter().map(|(function, _)| function).chain([&self.function]);
        functions.flat_map(|function| function.declaration().states.iter().cloned()).collect()
    }

    fn budget() -> Arc<HeapBudget> {
        Arc::new(HeapBudget::unlimited())
    }

    fn overlay(&self) -> Option<Arc<OverlayBudget>> {
        self.overlay_bytes.map(OverlayBudget::new)
    }

    /// The stores of an instance, with what these databases have of its key groups.
    fn stores(
        &self,
        overlay: Arc<OverlayBudget>,
        databases: &[Arc<dyn DatabaseSnapshot>],
        key_groups: KeyGroupRange,
    ) -> Arc<dyn ColdStores> {
        let stores = MemoryColdStores::new(self.max_parallelism, STORE_LAG, overlay);
        Arc::new(stores.restored(databases.to_vec(), key_groups))
    }
}
