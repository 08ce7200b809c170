//! Outputs beside a node's main one: which nodes have which, and which of them something reads.
//!
//! A node offers an output when it is planned, before anything that reads it is. Invariant: an output that nothing reads is in no
//! plan, so it costs nothing.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::graph::{InputRef, JobGraph};
use levada_common::ids::Uid;
use levada_common::nearest::did_you_mean;
use levada_common::plan::SideOutput;

use super::graph::Planner;
use super::stream::{Outlet, StageKind, Stream};

/// The outputs of all nodes beside their main ones.
#[derive(Default)]
pub(super) struct Outputs {
    /// Names that something reads.
    read: BTreeMap<Uid, BTreeSet<String>>,
    /// Those that there are; `None` where nothing is known of the rows.
    offered: BTreeMap<Uid, BTreeMap<String, Option<Stream>>>,
    /// Nodes whose main output never has a row, and the output that has what is left.
    without_main: BTreeMap<Uid, String>,
}

impl Outputs {
    /// Of a graph whose nodes are yet to be planned.
    pub(super) fn of(graph: &JobGraph) -> Self {
        let sinks = graph.sinks.iter().flat_map(|node| &node.inputs);
        let mut read: BTreeMap<Uid, BTreeSet<String>> = BTreeMap::new();
        for InputRef { node, output } in graph.transforms.iter().flat_map(|node| node.reads()).chain(sinks) {
            read.entry(node.clone()).or_default().extend(output.clone());
        }
        Self { read, ..Self::default() }
    }

    /// Whether something reads this output.
    pub(super) fn is_read(&self, node: &Uid, output: &str) -> bool {
        self.read.get(node).is_some_and(|read| read.contains(output))
    }

    /// A node has this output.
    pub(super) fn offer(&mut self, node: &Uid, output: &str, stream: Option<Stream>) {
        self.offered.entry(node.clone()).or_default().insert(output.to_string(), stream);
    }

    /// A node gives no row to its main output: all that is left goes to this one.
    pub(super) fn leave_no_main(&mut self, node: &Uid, output: &str) {
        self.without_main.insert(node.clone(), output.to_string());
    }

    /// The rows of an output; `None` where nothing is known of them.
    pub(super) fn stream(&self, node: &Uid, output: &str) -> Option<Stream> {
        self.offered.get(node)?.get(output)?.clone()
    }

    /// Why a node that is planned has no such output.
    fn defect(&self, InputRef { node, output }: &InputRef) -> Option<String> {
        let Some(output) = output else {
            let rest = self.without_main.get(node)?;
            return Some(format!("the `split` of \"{node}\" leaves no row for its main output; read \"{node}/{rest}\""));
        };
        let names = || self.offered.get(node).into_iter().flat_map(BTreeMap::keys).map(String::as_str);
        if names().any(|name| name == output) {
            return None;
        }
        let near = did_you_mean(output, names());
        let known = names().collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "no output beside its main one".into() } else { format!("the outputs {known}") };
        Some(format!("\"{node}\" has no output \"{output}\"{near}; it has {known}"))
    }
}

impl Planner<'_> {
    /// Gives the operator whose main output `stream` is these outputs beside it, as far as something reads them: each with its
    /// name and its rows, which come out where `stream` does.
    pub(super) fn add_sides(&mut self, node: &Uid, stream: &Stream, sides: Vec<(String, Stream)>) {
        let Outlet { stage, .. } = stream.stage;
        for (name, side) in sides {
            let is_read = self.outputs.is_read(node, &name);
            let StageKind::Operator(operator) = &mut self.stages[stage].kind else { unreachable!("an operator was pushed") };
            let output = operator.sides.len() + 1;
            if is_read {
                operator.sides.push(SideOutput { name: name.clone(), schema: side.schema.clone() });
            }
            let side = Stream { stage: Outlet { stage, output }, parallelism: stream.parallelism, ..side };
            self.outputs.offer(node, &name, is_read.then_some(side));
        }
    }

    /// Reports what is read and is no output of its node. Of a node that could not be planned it is not known.
    pub(super) fn check_outputs_read(&mut self) {
        let graph = self.graph;
        let transforms = graph
            .transforms
            .iter()
            .flat_map(|node| node.input_lists().map(|(list, inputs)| (format!("transforms.{}.{list}", node.uid), inputs)));
        let sinks = graph.sinks.iter().map(|node| (format!("sinks.{}.inputs", node.uid), node.inputs.as_slice()));
        for (path, inputs) in transforms.chain(sinks) {
            for (index, input) in inputs.iter().enumerate() {
                let is_planned = matches!(self.streams.get(&input.node), Some(Some(_)));
                if let Some(defect) = self.outputs.defect(input).filter(|_| is_planned) {
                    self.error(format!("{path}[{index}]"), defect);
                }
            }
        }
    }
}
