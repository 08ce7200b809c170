//! Makes a task from its part of the plan: sink, operators and source are opened in this order, from the tail to the head,
//! so that nothing is read before everything that it flows into has taken its state.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{OperatorKind, OperatorSpec, Plan, SinkSpec, SourceSpec, Vertex};
use levada_state::cold::{ColdStores, SharedStores};

use crate::error::EngineError;
use crate::gate::input::InputGate;
use crate::gate::output::{Outlet, OutputGate};
use crate::gate::partition::Partitioner;
use crate::metrics::NodeMetrics;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators;
use crate::operators::chain::{Chain, RowCount};
use crate::sink::SinkContext;
use crate::source::SourceContext;
use crate::task::entries;
use crate::task::gate_head::GateHead;
use crate::task::head::{Head, SourceHead};
use crate::task::pace::Pace;
use crate::task::silence::Silence;
use crate::task::split_silence::SplitSilences;
use crate::task::tail::{GateTail, SinkTail, Tail};
use crate::task::{Environment, TaskParts};

/// A task's three pieces.
pub(crate) struct Built {
    pub(crate) head: Head,
    pub(crate) chain: Chain,
    pub(crate) tail: Tail,
}

/// What every piece is built from.
struct Builder<'a> {
    env: &'a Environment,
    plan: &'a Plan,
    vertex: &'a Vertex,
    parts: &'a mut TaskParts,
    metrics: BTreeMap<Uid, Arc<NodeMetrics>>,
    /// The operators' stores; those of one node share one.
    cold: Option<Arc<dyn ColdStores>>,
}

/// Builds and opens all of a task.
pub(crate) fn build(env: &Environment, parts: &mut TaskParts) -> Result<Built, EngineError> {
    let plan = Arc::clone(&parts.plan);
    let vertex = plan.vertex(parts.vertex);
    let metrics = parts.node_metrics.iter().map(|metrics| (metrics.uid.clone(), Arc::clone(metrics))).collect();
    let cold = parts.cold.clone().map(|stores| Arc::new(SharedStores::new(stores)) as Arc<dyn ColdStores>);
    let mut builder = Builder { env, plan: &plan, vertex, parts, metrics, cold };
    let tail = builder.tail()?;
    let chain = builder.chain()?;
    let head = builder.head()?;
    Ok(Built { head, chain, tail })
}

impl Builder<'_> {
    fn tail(&mut self) -> Result<Tail, EngineError> {
        match &self.vertex.sink {
            Some(spec) => self.sink(spec),
            None => self.output_gate(),
        }
    }

    fn sink(&mut self, spec: &SinkSpec) -> Result<Tail, EngineError> {
        if !self.parts.outputs.is_empty() {
            return Err(broken(&spec.uid, "a sink has no output channels".into()));
        }
        let factory = self.env.sinks.get(&spec.connector);
        let factory = factory.ok_or_else(|| broken(&spec.uid, format!("there is no sink \"{}\" here", spec.connector)))?;
        let mut sink = factory(spec)?;
        let restored = entries::read(&spec.uid, entries::TRANSACTIONS, self.restored(&spec.uid))?;
        let context = SinkContext {
            spec: Arc::new(spec.clone()),
            subtask: self.parts.subtask,
            parallelism: self.vertex.parallelism,
            attempt: self.parts.attempt,
            restored_from: self.parts.restored_from,
            metrics: self.metrics(&spec.uid)?,
            waker: self.parts.waker.clone(),
        };
        sink.open(context, restored)?;
        let count = self.row_count(&spec.uid, self.places() - 1)?;
        Ok(Tail::Sink(SinkTail { sink, uid: spec.uid.clone(), count, dirty: false }))
    }

    fn output_gate(&mut self) -> Result<Tail, EngineError> {
        let uid = self.vertex.uids().pop().unwrap_or_else(|| Uid::new(self.vertex.name.as_str()));
        if self.parts.outputs.is_empty() {
            return Err(broken(&uid, format!("vertex \"{}\" has neither sink nor output channels", self.vertex.name)));
        }
        let mut outlets = Vec::new();
        for output in std::mem::take(&mut self.parts.outputs) {
            let (edge, subtask) = (&output.edge, self.parts.subtask);
            let targets = edge.targets(subtask, self.vertex.parallelism, self.plan.vertex(edge.to).parallelism).len();
            if targets != output.channels.len() {
                let found = output.channels.len();
                return Err(broken(&uid, format!("{found} channels for the {targets} targets of an edge")));
            }
            let partitioner = Partitioner::new(edge, subtask, targets, self.plan.max_parallelism);
            let partitioner = partitioner.map_err(|column| broken(&uid, format!("no key column \"{column}\" in an edge")))?;
            let of_output = output.edge.output as usize;
            if of_output > self.vertex.operators.last().map_or(0, |operator| operator.sides.len()) {
                return Err(broken(&uid, format!("an edge takes output {of_output}, which the vertex does not have")));
            }
            outlets.push(Outlet { output: of_output, partitioner, channels: output.channels });
        }
        Ok(Tail::Gate(GateTail { gate: OutputGate::new(outlets), uid }))
    }

    fn chain(&mut self) -> Result<Chain, EngineError> {
        let mut chain = Chain::default();
        let first = usize::from(self.vertex.source.is_some());
        for (index, spec) in self.vertex.operators.iter().enumerate() {
            let mut operator = operators::build(spec, self.env.compiler.as_ref(), &self.env.functions)?;
            let restored = self.restored_of(index, spec);
            operator.open(&self.operator_context(spec)?, restored)?;
            let makes_time = matches!(spec.kind, OperatorKind::Watermark(_));
            chain.push(operator, self.row_count(&spec.uid, first + index)?, makes_time);
            if !spec.sides.is_empty() {
                if index + 1 < self.vertex.operators.len() || self.vertex.sink.is_some() {
                    return Err(broken(&spec.uid, "an operator with side outputs is not the last of its vertex".into()));
                }
                chain.give_sides();
            }
        }
        match self.cold.as_ref().and_then(|stores| stores.unopened()) {
            Some(uid) => Err(broken(&uid, "what was restored into its database is used by no operator".into())),
            None => Ok(chain),
        }
    }

    /// What the operator at this place has in the snapshot: what it knows, and what no other part of its node knows, so that it is
    /// refused there. Rows of its keys it has alone, and may give them up as it takes them in.
    fn restored_of(&mut self, index: usize, spec: &OperatorSpec) -> Vec<RestoredState> {
        let mut own = spec.state_names();
        // What tells values apart has its node's time, which the aggregation saves.
        own.extend(spec.kind.heard_states().map(String::from));
        let of_node =
            self.vertex.operators.iter().enumerate().filter(|(other, of_node)| *other != index && of_node.uid == spec.uid);
        let mut others: Vec<String> = of_node.flat_map(|(_, of_node)| of_node.state_names()).collect();
        others.extend([entries::SPLITS, entries::TRANSACTIONS].map(String::from));
        let is_own = |state: &RestoredState| own.contains(&state.name) || !others.contains(&state.name);
        let of_node = self.parts.restored.get_mut(&spec.uid);
        let mut restored = Vec::new();
        for state in of_node.into_iter().flatten().filter(|state| is_own(state)) {
            let is_alone = state.kind.is_keyed() && own.contains(&state.name) && !others.contains(&state.name);
            restored.push(if is_alone {
                RestoredState { batches: std::mem::take(&mut state.batches), ..state.clone() }
            } else {
                state.clone()
            });
        }
        restored
    }

    fn operator_context(&self, spec: &OperatorSpec) -> Result<OperatorContext, EngineError> {
        let (subtask, parallelism, max_parallelism) = (self.parts.subtask, self.vertex.parallelism, self.plan.max_parallelism);
        Ok(OperatorContext {
            subtask,
            parallelism,
            max_parallelism,
            key_groups: KeyGroupRange::of_subtask(subtask, parallelism, max_parallelism),
            batch_rows_max: self.plan.settings.batch_rows_max,
            metrics: self.metrics(&spec.uid)?,
            cold: self.cold.clone(),
            heap_budget: Arc::clone(&self.env.heap_budget),
        })
    }

    fn head(&mut self) -> Result<Head, EngineError> {
        let Some(spec) = &self.vertex.source else {
            let inputs = std::mem::take(&mut self.parts.inputs).into_iter();
            let (roles, readers): (Vec<_>, Vec<_>) = inputs.map(|input| (input.role, input.reader)).unzip();
            if readers.is_empty() {
                let uid = Uid::new(self.vertex.name.as_str());
                return Err(broken(&uid, "the vertex has neither source nor input channels".into()));
            }
            let gate = InputGate::new(readers, self.plan.settings.checkpoint.mode);
            let first = self.vertex.operators.first();
            let restored = first.map_or(&[][..], |first| self.restored(&first.uid));
            let head = GateHead::new(gate.with_roles(roles), first, restored, &self.env.heap_budget)?;
            return Ok(Head::Gate(Box::new(head)));
        };
        self.source(spec)
    }

    fn source(&mut self, spec: &SourceSpec) -> Result<Head, EngineError> {
        if !self.parts.inputs.is_empty() {
            return Err(broken(&spec.uid, "a source has no input channels".into()));
        }
        let factory = self.env.sources.get(&spec.connector);
        let factory = factory.ok_or_else(|| broken(&spec.uid, format!("there is no source \"{}\" here", spec.connector)))?;
        let mut source = factory(spec)?;
        let mut splits = entries::read(&spec.uid, entries::SPLITS, self.restored(&spec.uid))?;
        splits.append(&mut self.parts.splits);
        let settings = &self.plan.settings;
        let context = SourceContext {
            spec: Arc::new(spec.clone()),
            subtask: self.parts.subtask,
            parallelism: self.vertex.parallelism,
            batch_rows_max: settings.batch_rows_max,
            buffer_timeout_ms: settings.buffer_timeout_ms,
            metrics: self.metrics(&spec.uid)?,
            waker: self.parts.waker.clone(),
        };
        source.open(context, splits)?;
        let watermark = self.vertex.watermark();
        let silence = watermark.map(|watermark| Silence::new(settings.buffer_timeout_ms, watermark.idleness_ms));
        let splits = SplitSilences::new(watermark.and_then(|watermark| watermark.idleness_ms));
        let pace = watermark.and_then(|watermark| watermark.align.as_ref()).map(|_| Pace::new());
        let count = self.row_count(&spec.uid, 0)?;
        Ok(Head::Source(Box::new(SourceHead {
            source,
            uid: spec.uid.clone(),
            count,
            silence,
            splits,
            idle_next: false,
            pace,
            held: None,
            ended: false,
        })))
    }

    /// Nodes of the vertex by place: source, operators, sink.
    fn nodes(&self) -> impl DoubleEndedIterator<Item = &Uid> {
        uids(self.vertex)
    }

    fn places(&self) -> usize {
        self.nodes().count()
    }

    fn restored(&self, uid: &Uid) -> &[RestoredState] {
        self.parts.restored.get(uid).map_or(&[], Vec::as_slice)
    }

    fn metrics(&self, uid: &Uid) -> Result<Arc<NodeMetrics>, EngineError> {
        self.metrics.get(uid).cloned().ok_or_else(|| broken(uid, "the task was given no counters for this node".into()))
    }

    /// Which rows the node `uid` counts at this place of the chain: in at its first place in the plan, out at its last.
    fn row_count(&self, uid: &Uid, place: usize) -> Result<RowCount, EngineError> {
        let elsewhere = |vertex: &&Vertex| uids(vertex).any(|other| other == uid);
        let (id, vertices) = (self.vertex.id.0 as usize, &self.plan.vertices);
        let before = vertices[..id].iter().any(|vertex| elsewhere(&vertex)) || self.nodes().take(place).any(|other| other == uid);
        let after =
            vertices[id + 1..].iter().any(|vertex| elsewhere(&vertex)) || self.nodes().skip(place + 1).any(|other| other == uid);
        Ok(RowCount { metrics: self.metrics(uid)?, rows_in: !before, rows_out: !after })
    }
}

fn uids(vertex: &Vertex) -> impl DoubleEndedIterator<Item = &Uid> {
    let source = vertex.source.iter().map(|source| &source.uid);
    let operators = vertex.operators.iter().map(|operator| &operator.uid);
    source.chain(operators).chain(vertex.sink.iter().map(|sink| &sink.uid))
}

fn broken(uid: &Uid, message: String) -> EngineError {
    EngineError::Invariant { uid: uid.clone(), message }
}
