//! The states that a plan's operators keep across a checkpoint: what a snapshot is compared with before anything starts.
//!
//! Invariant: whatever an operator puts into a snapshot is named here, with its kind.

use crate::checkpoint::StateKind;
use crate::ids::{Uid, VertexId};
use crate::plan::{
    AggregateSpec, CountedValues, JoinScope, JoinSide, JoinSpec, OperatorKind, OperatorSpec, Plan, ProcessSpec, ProcessWindow,
    Vertex, WindowSpec,
};
use crate::state_schema::{StateDeclaration, StateSchema, StateShape};
use crate::types::{Column, LogicalType};

/// Name of a source's positions.
pub const SPLITS: &str = "splits";

/// Name of what a sink has prepared.
pub const TRANSACTIONS: &str = "transactions";

/// Name of how far event time had come in a window or a join.
pub const WATERMARK: &str = "watermark";

/// Name of the rows of an input that wait until another one has ended, read up to a barrier.
pub const WAITING: &str = "waiting";

/// Name of how far processing time had come in a window that goes by it.
pub const PROCESSING_TIME: &str = "processing_time";

/// Name of how far rows that wait are numbered: kept where a store tells them apart by it.
pub const ROW_NUMBERS: &str = "row_numbers";

/// Name of by what rows of windows were put into these: kept where a store has each in its window, whatever the job says of windows when it
/// goes on.
pub const PLACED_BY: &str = "placed_by";

/// Name of where each key's sessions are: kept by a store only, which finds by it the sessions of a batch's keys.
pub const SESSION_BOUNDS: &str = "session_bounds";

/// What that state holds, for sessions with these keys: the end of each session by its start.
pub fn session_bounds_schema(keys: &[Column]) -> StateSchema {
    let time = |name: &str| vec![Column::new(name, LogicalType::Timestamp, false)];
    let (map_key, values) = (time("start"), time("end"));
    StateSchema { shape: StateShape::Map, keys: keys.to_vec(), map_key, values, ..StateSchema::default() }
}

/// A state of one operator of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedState {
    /// The vertex that runs the operator.
    pub vertex: VertexId,
    /// The operator.
    pub uid: Uid,
    /// The state's name within the operator.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// What it holds.
    pub schema: StateSchema,
}

impl Vertex {
    /// The nodes that it runs, each once, from source to sink.
    pub fn uids(&self) -> Vec<Uid> {
        let source = self.source.iter().map(|source| &source.uid);
        let operators = self.operators.iter().map(|operator| &operator.uid);
        let sink = self.sink.iter().map(|sink| &sink.uid);
        let mut uids: Vec<Uid> = Vec::new();
        for uid in source.chain(operators).chain(sink) {
            if !uids.contains(uid) {
                uids.push(uid.clone());
            }
        }
        uids
    }
}

impl Plan {
    /// Every state of every operator, by vertex.
    pub fn states(&self) -> Vec<PlannedState> {
        self.vertices.iter().flat_map(of_vertex).collect()
    }

    /// Whether a node of this name is in the plan.
    pub fn has(&self, uid: &Uid) -> bool {
        self.vertices.iter().any(|vertex| vertex.uids().contains(uid))
    }
}

fn of_vertex(vertex: &Vertex) -> Vec<PlannedState> {
    let planned = |uid: &Uid, name: &str, kind, schema| PlannedState {
        vertex: vertex.id,
        uid: uid.clone(),
        name: name.into(),
        kind,
        schema,
    };
    let list = |uid: &Uid, name: &str| planned(uid, name, StateKind::OperatorList, StateSchema::default());
    let mut states: Vec<PlannedState> = vertex.source.iter().map(|source| list(&source.uid, SPLITS)).collect();
    for operator in &vertex.operators {
        states.extend(of_operator(operator).into_iter().map(|(name, kind, schema)| planned(&operator.uid, &name, kind, schema)));
    }
    states.extend(vertex.sink.iter().map(|sink| list(&sink.uid, TRANSACTIONS)));
    states
}

impl OperatorKind {
    /// The names of states that another operator of the node saves, and that this one starts from too.
    pub fn heard_states(&self) -> impl Iterator<Item = &'static str> {
        let times: &[&str] = match self {
            Self::Assign(_) | Self::Distinct(_) => &[WATERMARK, PROCESSING_TIME],
            _ => &[],
        };
        times.iter().copied()
    }
}

impl OperatorSpec {
    /// The rows of its first input that may wait until the second one has ended.
    pub fn waiting(&self) -> Option<StateDeclaration> {
        let OperatorKind::Join(spec) = &self.kind else { return None };
        let schema = StateSchema { shape: StateShape::Rows, values: self.input.columns.clone(), ..StateSchema::default() };
        spec.waits().then(|| StateDeclaration { name: WAITING.into(), kind: StateKind::OperatorList, schema })
    }

    /// The names of its states.
    pub fn state_names(&self) -> Vec<String> {
        of_operator(self).into_iter().map(|(name, _, _)| name).collect()
    }
}

/// Name, kind and content of each state of an operator.
fn of_operator(operator: &OperatorSpec) -> Vec<(String, StateKind, StateSchema)> {
    match &operator.kind {
        OperatorKind::Watermark(_) | OperatorKind::Filter { .. } | OperatorKind::Project { .. } => Vec::new(),
        OperatorKind::Assign(_) | OperatorKind::Split { .. } => Vec::new(),
        OperatorKind::Distinct(spec) => of_counted(spec.counted(), operator),
        OperatorKind::Aggregate(spec) => of_aggregate(spec, operator),
        OperatorKind::Process(spec) if spec.window.is_some() => {
            let states = spec.window_states(&operator.input).into_iter().chain(spec.window_key_states());
            let by_clock = spec.window.as_ref().is_some_and(|window| window.time.processing);
            let by_key = spec.window.as_ref().is_some_and(ProcessWindow::is_by_key);
            let placed = by_key.then(|| (PLACED_BY.into(), StateKind::OperatorUnion, StateSchema::default()));
            states.map(|state| (state.name, state.kind, state.schema)).chain(of_waiting(by_clock)).chain(placed).collect()
        }
        OperatorKind::Process(spec) => {
            let watermark = (ProcessSpec::WATERMARK.into(), StateKind::OperatorUnion, StateSchema::default());
            let states = spec.states().into_iter().map(|state| (state.name, state.kind, state.schema));
            states.chain((!spec.keys.is_empty()).then_some(watermark)).collect()
        }
        OperatorKind::Join(spec) if matches!(spec.scope, JoinScope::Lookup { .. }) => of_lookup(spec, operator),
        OperatorKind::Join(spec) => of_join(spec, operator),
        OperatorKind::Top(spec) if spec.local => Vec::new(),
        OperatorKind::Top(spec) => {
            let state = spec.state(&operator.input);
            let time = if spec.is_by_clock() { PROCESSING_TIME } else { WATERMARK };
            let of_windows = [time, PLACED_BY].into_iter().filter(|_| spec.window.is_some());
            let of_windows = of_windows.map(|name| (name.into(), StateKind::OperatorUnion, StateSchema::default()));
            std::iter::once((state.name, state.kind, state.schema)).chain(of_windows).collect()
        }
    }
}

fn of_join(spec: &JoinSpec, operator: &OperatorSpec) -> Vec<(String, StateKind, StateSchema)> {
    let [left, right] = [(JoinSide::Left, &operator.input), (JoinSide::Right, &spec.right)].map(|(side, input)| {
        let state = spec.state(side, input);
        (state.name, state.kind, state.schema)
    });
    match spec.scope {
        JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same | JoinScope::Within { .. } => {
            [left, right].into_iter().chain(of_waiting(spec.is_by_clock())).collect()
        }
        JoinScope::Standing { .. } | JoinScope::Lookup { .. } => vec![left, right],
    }
}

/// What an operator has beside rows that wait, `by_clock` for processing time.
fn of_waiting(by_clock: bool) -> [(String, StateKind, StateSchema); 2] {
    let time = if by_clock { PROCESSING_TIME } else { WATERMARK };
    [time, ROW_NUMBERS].map(|name| (name.into(), StateKind::OperatorUnion, StateSchema::default()))
}

fn of_lookup(spec: &JoinSpec, operator: &OperatorSpec) -> Vec<(String, StateKind, StateSchema)> {
    let states = std::iter::once(spec.table(&spec.right)).chain(operator.waiting());
    states.map(|state| (state.name, state.kind, state.schema)).collect()
}

fn of_aggregate(spec: &AggregateSpec, operator: &OperatorSpec) -> Vec<(String, StateKind, StateSchema)> {
    let Some(name) = spec.state_name() else { return Vec::new() };
    let schema = spec.state_schema(&operator.input);
    let bounds = matches!(spec.window, WindowSpec::Session { .. }).then(|| session_bounds_schema(&schema.keys));
    let mut states = vec![(name.to_string(), StateKind::Keyed, schema)];
    states.extend(bounds.map(|schema| (SESSION_BOUNDS.into(), StateKind::Keyed, schema)));
    if spec.window.is_windowed() || spec.trigger.is_some() {
        // Every subtask needs it, however many there were.
        let time = if spec.time.processing { PROCESSING_TIME } else { WATERMARK };
        states.push((time.into(), StateKind::OperatorUnion, StateSchema::default()));
    }
    states.extend(spec.trigger_states(&operator.input).into_iter().map(|state| (state.name, state.kind, state.schema)));
    states.extend(of_counted(spec.counted(), operator));
    states
}

fn of_counted(counted: Vec<CountedValues>, operator: &OperatorSpec) -> Vec<(String, StateKind, StateSchema)> {
    let state = |counted: CountedValues| (counted.state.clone(), StateKind::Keyed, counted.state_schema(&operator.input));
    counted.into_iter().map(state).collect()
}
