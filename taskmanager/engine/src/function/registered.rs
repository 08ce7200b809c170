//! Functions under their names, as a TaskManager's binary registers them.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::declaration::Options;
use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::plan::ProcessSpec;
use levada_common::planned_state::{PROCESSING_TIME, ROW_NUMBERS, SESSION_BOUNDS, WATERMARK};
use levada_common::state_schema::StateDeclaration;
use levada_common::types::Column;
use levada_state::descriptor::{BindError, Binder, Recorder};
use levada_state::types::{StateType, TypeError};

use super::adapters::{Accumulating, Adapter, Aggregating, Folding, Reducing};
use super::erased::{Broadcast, CoFlatMap, Connected, FlatMap, Function, Keyed};
use super::error::FunctionError;
use super::traits::{
    AggregateFunction, BroadcastProcessFunction, CoFlatMapFunction, FlatMapFunction, FoldFunction, KeyedCoProcessFunction,
    KeyedProcessFunction, ReduceFunction,
};
use super::trigger::{Evicting, EvictorWork, TriggerWork, Triggering, WindowEvictor, WindowTrigger};
use super::window::{Accumulated, CoGroupFunction, CoGrouped, WindowFunction, WindowWork, Windowed};

/// Functions by name.
pub type Functions = BTreeMap<String, RegisteredFunction>;

type CreateRows = Arc<dyn Fn(&Options) -> Result<Box<dyn Function>, FunctionError> + Send + Sync>;

type CreateWindows = Arc<dyn Fn(&Options) -> Result<Box<dyn WindowWork>, FunctionError> + Send + Sync>;

type CreateTrigger = Arc<dyn Fn(&Options) -> Result<Box<dyn TriggerWork>, FunctionError> + Send + Sync>;

type CreateEvictor = Arc<dyn Fn(&Options) -> Result<Box<dyn EvictorWork>, FunctionError> + Send + Sync>;

/// What makes an instance: for rows as they come, for whole windows, or for whichever its node wants; or for the window of a node.
#[derive(Clone, Default)]
struct Creates {
    rows: Option<CreateRows>,
    windows: Option<CreateWindows>,
    trigger: Option<CreateTrigger>,
    evictor: Option<CreateEvictor>,
}

impl Creates {
    fn rows(create: impl Fn(&Options) -> Result<Box<dyn Function>, FunctionError> + Send + Sync + 'static) -> Self {
        Self { rows: Some(Arc::new(create)), ..Self::default() }
    }

    fn windows(create: impl Fn(&Options) -> Result<Box<dyn WindowWork>, FunctionError> + Send + Sync + 'static) -> Self {
        Self { windows: Some(Arc::new(create)), ..Self::default() }
    }
}

/// A function's declaration and what makes an instance of it for each task.
#[derive(Clone)]
pub struct RegisteredFunction {
    declaration: FunctionDeclaration,
    creates: Creates,
}

/// Why a function cannot be registered. The author's fault.
#[derive(Debug, thiserror::Error)]
pub enum RegistrationError {
    /// The declaration cannot be one.
    #[error("function \"{function}\" cannot be registered: {defect}")]
    Declaration {
        /// The function.
        function: String,
        /// What is wrong.
        defect: String,
    },
    /// A state cannot be bound.
    #[error("function \"{function}\" cannot be registered: a state of it cannot be bound")]
    Bind {
        /// The function.
        function: String,
        /// Why.
        #[source]
        source: Box<BindError>,
    },
    /// The Rust type of a value has no columns.
    #[error("function \"{function}\" cannot be registered: its {what} has no columns")]
    Type {
        /// The function.
        function: String,
        /// input, output
        what: &'static str,
        /// Why.
        #[source]
        source: Box<TypeError>,
    },
}

impl RegisteredFunction {
    /// A keyed process function.
    ///
    /// Errors: a declaration of another kind or with a defect, and states that cannot be bound; the author's fault.
    pub fn keyed_process<F: KeyedProcessFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::rows(move |options| Ok(Box::new(Keyed::new(create(options)?))));
        Self::new(declaration, FunctionKind::KeyedProcess, F::bind, creates)
    }

    /// A flat map.
    ///
    /// Errors: as `keyed_process`.
    pub fn flat_map<F: FlatMapFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::rows(move |options| Ok(Box::new(FlatMap::new(create(options)?))));
        Self::new(declaration, FunctionKind::FlatMap, F::bind, creates)
    }

    /// A broadcast process function.
    ///
    /// Errors: as `keyed_process`.
    pub fn broadcast_process<F: BroadcastProcessFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::rows(move |options| Ok(Box::new(Broadcast::new(create(options)?))));
        Self::new(declaration, FunctionKind::BroadcastProcess, F::bind, creates)
    }

    /// A keyed co-process function.
    ///
    /// Errors: as `keyed_process`.
    pub fn keyed_co_process<F: KeyedCoProcessFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::rows(move |options| Ok(Box::new(Connected::new(create(options)?))));
        Self::new(declaration, FunctionKind::KeyedCoProcess, F::bind, creates)
    }

    /// A co-flat map.
    ///
    /// Errors: as `keyed_process`.
    pub fn co_flat_map<F: CoFlatMapFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::rows(move |options| Ok(Box::new(CoFlatMap::new(create(options)?))));
        Self::new(declaration, FunctionKind::CoFlatMap, F::bind, creates)
    }

    /// A window function.
    ///
    /// Errors: as `keyed_process`.
    pub fn window<F: WindowFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::windows(move |options| Ok(Box::new(Windowed(create(options)?))));
        Self::new(declaration, FunctionKind::Window, |_| Ok(()), creates)
    }

    /// A co-group function.
    ///
    /// Errors: as `keyed_process`.
    pub fn co_group<F: CoGroupFunction>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let creates = Creates::windows(move |options| Ok(Box::new(CoGrouped(create(options)?))));
        Self::new(declaration, FunctionKind::CoGroup, |_| Ok(()), creates)
    }

    /// A trigger of windows.
    ///
    /// Errors: as `keyed_process`; states that are not kept per window.
    pub fn trigger<T: WindowTrigger>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<T, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let create: CreateTrigger = Arc::new(move |options| Ok(Box::new(Triggering::new(create(options)?))));
        let creates = Creates { trigger: Some(create), ..Creates::default() };
        let registered = Self::new(declaration, FunctionKind::Trigger, T::bind, creates)?;
        match registered.declaration.states.iter().find_map(trigger_state_defect) {
            None => Ok(registered),
            Some(defect) => Err(RegistrationError::Declaration { function: registered.declaration.name, defect }),
        }
    }

    /// An evictor of windows.
    ///
    /// Errors: as `keyed_process`.
    pub fn evictor<E: WindowEvictor>(
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<E, FunctionError> + Send + Sync + 'static,
    ) -> Result<Self, RegistrationError> {
        let create: CreateEvictor = Arc::new(move |options| Ok(Box::new(Evicting(create(options)?))));
        let creates = Creates { evictor: Some(create), ..Creates::default() };
        Self::new(declaration, FunctionKind::Evictor, |_| Ok(()), creates)
    }

    /// A reduce. It has no instance and no options.
    ///
    /// Errors: as `keyed_process`; inputs or outputs that are not the columns of its value.
    pub fn reduce<F: ReduceFunction>(declaration: FunctionDeclaration) -> Result<Self, RegistrationError> {
        Self::accumulating::<Reducing<F>>(declaration, FunctionKind::Reduce)
    }

    /// A fold. It has no instance and no options.
    ///
    /// Errors: as `keyed_process`; inputs or outputs that are not the columns of its input and accumulator.
    pub fn fold<F: FoldFunction>(declaration: FunctionDeclaration) -> Result<Self, RegistrationError> {
        Self::accumulating::<Folding<F>>(declaration, FunctionKind::Fold)
    }

    /// An aggregate. It has no options.
    ///
    /// Errors: as `keyed_process`; inputs or outputs that are not the columns of its input and output.
    pub fn aggregate<A>(declaration: FunctionDeclaration) -> Result<Self, RegistrationError>
    where
        A: AggregateFunction<Input: StateType, Output: StateType> + Default,
    {
        Self::accumulating::<Aggregating<A>>(declaration, FunctionKind::Aggregate)
    }

    fn accumulating<A: Accumulating>(declaration: FunctionDeclaration, kind: FunctionKind) -> Result<Self, RegistrationError> {
        check::<A::Input>(&declaration, "input", &declaration.inputs)?;
        check::<A::Output>(&declaration, "output", &declaration.outputs)?;
        let windows = Creates::windows(|_| Ok(Box::new(Accumulated::<A>::default()))).windows;
        let creates = Creates { windows, ..Creates::rows(|_| Ok(Box::new(Keyed::new(Adapter::<A>::default())))) };
        Self::new(declaration, kind, A::bind, creates)
    }

    /// What it declares, its states among it.
    pub fn declaration(&self) -> &FunctionDeclaration {
        &self.declaration
    }

    /// An instance for a task that takes rows as they come.
    pub(crate) fn create(&self, options: &Options) -> Result<Box<dyn Function>, FunctionError> {
        let create = self.creates.rows.as_ref();
        create.ok_or_else(|| FunctionError::failed("it takes the rows of windows, and its node has no window"))?(options)
    }

    /// An instance for a task that takes whole windows.
    pub(crate) fn create_windowed(&self, options: &Options) -> Result<Box<dyn WindowWork>, FunctionError> {
        let create = self.creates.windows.as_ref();
        create.ok_or_else(|| FunctionError::failed("it takes rows as they come, and its node has a window"))?(options)
    }

    /// An instance for a task whose function is in windows that are given by it.
    pub(crate) fn create_trigger(&self, options: &Options) -> Result<Box<dyn TriggerWork>, FunctionError> {
        self.creates.trigger.as_ref().ok_or_else(|| FunctionError::failed("it is no trigger"))?(options)
    }

    /// An instance for a task whose function does not get all rows of windows.
    pub(crate) fn create_evictor(&self, options: &Options) -> Result<Box<dyn EvictorWork>, FunctionError> {
        self.creates.evictor.as_ref().ok_or_else(|| FunctionError::failed("it is no evictor"))?(options)
    }

    fn new<S>(
        mut declaration: FunctionDeclaration,
        kind: FunctionKind,
        bind: fn(&mut dyn Binder) -> Result<S, BindError>,
        creates: Creates,
    ) -> Result<Self, RegistrationError> {
        let function = || declaration.name.clone();
        if declaration.kind != kind {
            let defect = format!("it is declared as a {} and is a {kind}", declaration.kind);
            return Err(RegistrationError::Declaration { function: function(), defect });
        }
        if let Some(defect) = declaration.defect() {
            return Err(RegistrationError::Declaration { function: function(), defect });
        }
        let mut recorder = Recorder::new();
        bind(&mut recorder).map_err(|source| RegistrationError::Bind { function: function(), source: Box::new(source) })?;
        let states = recorder.into_declarations();
        let has_keys = declaration.keyed || kind.is_of_window();
        if let Some(keyed) = states.iter().find(|state| state.kind.is_keyed() && !has_keys) {
            let defect = format!("its state \"{}\" belongs to keys, and it has none", keyed.name);
            return Err(RegistrationError::Declaration { function: function(), defect });
        }
        declaration.states = states;
        Ok(Self { declaration, creates })
    }
}

/// Why this cannot be a state of a trigger.
fn trigger_state_defect(state: &StateDeclaration) -> Option<String> {
    let name = &state.name;
    let others = [ProcessSpec::WINDOWS, ProcessSpec::RESULTS, WATERMARK, PROCESSING_TIME, ROW_NUMBERS, SESSION_BOUNDS];
    let own: Vec<&str> = ProcessSpec::WINDOW_ROWS.into_iter().chain(others).collect();
    if own.contains(&name.as_str()) {
        return Some(format!("its state \"{name}\" has a name of the window's own ({}); give it another one", own.join(", ")));
    }
    let per_window = state.kind.is_keyed() && state.schema.windowed;
    let remedy = "bind it `per_window`: what a trigger keeps goes with its window";
    (!per_window).then(|| format!("its state \"{name}\" is not kept per window; {remedy}"))
}

/// Whether these columns, but for their names, are those of `T`.
fn check<T: StateType>(
    declaration: &FunctionDeclaration,
    what: &'static str,
    columns: &[Column],
) -> Result<(), RegistrationError> {
    let function = || declaration.name.clone();
    let expected =
        T::columns("value").map_err(|source| RegistrationError::Type { function: function(), what, source: Box::new(source) })?;
    let alike = |a: &Column, b: &Column| (&a.ty, a.nullable) == (&b.ty, b.nullable);
    if expected.len() == columns.len() && expected.iter().zip(columns).all(|(a, b)| alike(a, b)) {
        return Ok(());
    }
    let list = |columns: &[Column]| {
        let types = columns.iter().map(|column| format!("{}{}", column.ty, if column.nullable { "" } else { " NOT NULL" }));
        types.collect::<Vec<_>>().join(", ")
    };
    let (found, rust) = (list(columns), std::any::type_name::<T>());
    let defect = format!("its {what} columns are declared ({found}), and {rust} has ({})", list(&expected));
    Err(RegistrationError::Declaration { function: function(), defect })
}
