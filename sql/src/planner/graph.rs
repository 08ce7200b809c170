//! The planner: walks the nodes of a graph in the order of their inputs and collects stages, errors and warnings.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::declaration::{Declarations, OptionError, Options};
use levada_common::graph::{GraphErrors, InputRef, JobGraph, TransformNode};
use levada_common::ids::Uid;
use levada_common::keys::{MAX_PARALLELISM_LIMIT, default_max_parallelism};
use levada_common::plan::{BackendKind, BadRecordPolicy, JobSettings, OperatorKind, OperatorSpec, Partition};
use levada_common::types::StreamSchema;

use super::lookup::Waits;
use super::outputs::Outputs;
use super::settings::{self, PlanOverrides};
use super::stream::{Outlet, Stage, StageKind, Stream};
use crate::expression::Compiler;
use levada_common::nearest::did_you_mean;

/// A plan in the making.
pub(super) struct Planner<'a> {
    pub(super) graph: &'a JobGraph,
    pub(super) declarations: &'a Declarations,
    pub(super) compiler: Compiler,
    pub(super) settings: JobSettings,
    pub(super) max_parallelism: u32,
    pub(super) stages: Vec<Stage>,
    /// Output of each node done so far; `None` where errors leave nothing known of it.
    pub(super) streams: BTreeMap<Uid, Option<Stream>>,
    /// Their outputs beside the main ones.
    pub(super) outputs: Outputs,
    /// Rows that wait for tables.
    pub(super) waits: Vec<Waits>,
    pub(super) errors: GraphErrors,
    pub(super) warnings: Vec<String>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(graph: &'a JobGraph, declarations: &'a Declarations, overrides: &PlanOverrides) -> Self {
        let (mut defects, mut warnings) = (Vec::new(), Vec::new());
        let settings = settings::resolve(&graph.settings, overrides, &mut defects, &mut warnings);
        let mut planner = Self {
            graph,
            declarations,
            compiler: Compiler::new(),
            settings,
            max_parallelism: 0,
            stages: Vec::new(),
            streams: BTreeMap::new(),
            outputs: Outputs::of(graph),
            waits: Vec::new(),
            errors: GraphErrors::default(),
            warnings,
        };
        for (path, message) in defects {
            planner.error(path, message);
        }
        planner.resolve_parallelism();
        planner
    }

    /// Notes a defect.
    pub(super) fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(&self.graph.lines, path, message);
    }

    /// Notes what a node keeps otherwise with `rocksdb` than one would think.
    pub(super) fn warn_with_rocksdb(&mut self, node: &TransformNode, what: &str) {
        if self.settings.backend == BackendKind::Rocksdb {
            self.warnings.push(format!("transform \"{}\": {what}", node.uid));
        }
    }

    /// Plans every node.
    pub(super) fn add_nodes(&mut self) {
        for node in &self.graph.sources {
            let stream = self.add_source(node);
            self.streams.insert(node.uid.clone(), stream);
        }
        let mut waiting: Vec<_> = self.graph.transforms.iter().collect();
        while !waiting.is_empty() {
            let ready = waiting.iter().position(|node| node.reads().all(|input| self.streams.contains_key(&input.node)));
            // In a graph that was not read whole an input may name nothing, or a cycle: then nothing is known of it.
            let node = waiting.remove(ready.unwrap_or(0));
            let stream = self.add_transform(node);
            self.streams.insert(node.uid.clone(), stream);
        }
        for node in &self.graph.sinks {
            self.add_sink(node);
        }
        self.check_outputs_read();
        self.check_waits();
    }

    /// The streams that these stand for; `None` where one of them is not known, or there is none.
    pub(super) fn inputs(&self, inputs: &[InputRef]) -> Option<Vec<(InputRef, Stream)>> {
        if inputs.is_empty() {
            return None;
        }
        inputs.iter().map(|input| Some((input.clone(), self.stream(input)?))).collect()
    }

    /// The stream that this stands for, where it is known.
    pub(super) fn stream(&self, input: &InputRef) -> Option<Stream> {
        match &input.output {
            None => self.streams.get(&input.node)?.clone(),
            Some(output) => self.outputs.stream(&input.node, output),
        }
    }

    /// Adds a stage and gives its main output.
    pub(super) fn push_stage(&mut self, stage: Stage) -> Outlet {
        self.stages.push(stage);
        Outlet { stage: self.stages.len() - 1, output: 0 }
    }

    /// Puts an operator behind `stream`, rows going to it as `partition` says.
    pub(super) fn push_operator(&mut self, stream: &mut Stream, operator: NewOperator, partition: Partition, parallelism: u32) {
        let NewOperator { uid, clause, kind, output, uses, bad_records } = operator;
        let spec = OperatorSpec {
            uid: uid.clone(),
            clause: clause.into(),
            kind,
            input: stream.schema.clone(),
            output: output.clone(),
            sides: Vec::new(),
            bad_records,
        };
        let inputs = vec![(stream.stage, partition)];
        let stage = Stage { uid, kind: StageKind::Operator(spec), parallelism, inputs, output: output.clone(), uses };
        stream.stage = self.push_stage(stage);
        stream.schema = output;
        stream.parallelism = parallelism;
    }

    /// The parallelism of a node that may set one.
    pub(super) fn parallelism(&mut self, path: &str, written: Option<u32>) -> Option<u32> {
        let written = written?;
        if (1..=self.max_parallelism).contains(&written) {
            return Some(written);
        }
        let limit = self.max_parallelism;
        self.error(
            format!("{path}.parallelism"),
            format!("parallelism {written} is not between 1 and {limit}, the max parallelism"),
        );
        None
    }

    /// Notes defects of a connector's options: unknown keys first, then what its reader found.
    pub(super) fn option_errors(
        &mut self,
        path: &str,
        connector: &str,
        options: &Options,
        known: &[String],
        found: Vec<OptionError>,
    ) {
        let unknown: Vec<&String> = options.keys().filter(|key| !known.contains(key)).collect();
        for key in &unknown {
            let near = did_you_mean(key, known.iter().map(String::as_str));
            let list = if known.is_empty() { "it has none".into() } else { format!("options: {}", known.join(", ")) };
            self.error(format!("{path}.{key}"), format!("unknown option \"{key}\" of {connector}{near}; {list}"));
        }
        for OptionError { key, message } in found {
            if unknown.iter().any(|unknown| **unknown == key) {
                continue;
            }
            let path = if key.is_empty() { path.to_string() } else { format!("{path}.{key}") };
            self.error(path, message);
        }
    }

    fn resolve_parallelism(&mut self) {
        let graph = self.graph;
        let nodes = graph.sources.iter().map(|node| node.parallelism);
        let nodes = nodes.chain(graph.transforms.iter().map(|node| node.parallelism));
        let nodes = nodes.chain(graph.sinks.iter().map(|node| node.parallelism));
        let highest = nodes.flatten().chain([self.settings.parallelism]).max().unwrap_or(1);
        self.max_parallelism = graph.settings.max_parallelism.unwrap_or_else(|| default_max_parallelism(highest));
        if !(1..=MAX_PARALLELISM_LIMIT).contains(&self.max_parallelism) {
            let message = format!("max parallelism {} is not between 1 and {MAX_PARALLELISM_LIMIT}", self.max_parallelism);
            self.error("settings.max_parallelism", message);
            self.max_parallelism = MAX_PARALLELISM_LIMIT;
        }
        let (wanted, limit) = (self.settings.parallelism, self.max_parallelism);
        if !(1..=limit).contains(&wanted) {
            self.error("settings.parallelism", format!("parallelism {wanted} is not between 1 and {limit}, the max parallelism"));
            self.settings.parallelism = wanted.clamp(1, limit);
        }
    }
}

/// An operator to put behind a stream.
pub(super) struct NewOperator {
    pub(super) uid: Uid,
    pub(super) clause: &'static str,
    pub(super) kind: OperatorKind,
    pub(super) output: StreamSchema,
    pub(super) uses: Vec<BTreeSet<String>>,
    pub(super) bad_records: BadRecordPolicy,
}
