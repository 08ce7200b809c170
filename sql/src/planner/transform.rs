//! Transforms: the clauses of one node in their order, where, join, key_by, window, aggregate,
//! having, process, order_by or deduplicate, select, split.

use levada_common::graph::{GraphWindow, TransformNode};
use levada_common::ids::Uid;
use levada_common::plan::Partition;

use super::graph::Planner;
use super::stream::{Stage, StageKind, Stream};

impl Planner<'_> {
    /// Plans a transform; `None` where its output is not known.
    pub(super) fn add_transform(&mut self, node: &TransformNode) -> Option<Stream> {
        let path = format!("transforms.{}", node.uid);
        let wanted = self.parallelism(&path, node.parallelism);
        if node.window == Some(GraphWindow::Global) {
            self.warn_unbounded(node);
        }
        let inputs = self.inputs(&node.inputs)?;
        let stages = self.stages.len();
        // A join's, an aggregate's or a function's own parallelism begins behind its exchange; what is before runs where the rows are.
        let keeps_best = node.top.is_some() || node.deduplicate.is_some();
        let exchanges = node.join.is_some() || node.aggregate.is_some() || node.process.is_some() || keeps_best;
        let before = if exchanges { None } else { wanted };
        let mut stream = self.unite(&path, "inputs", &node.uid, inputs, before)?;
        if !exchanges {
            self.move_to(&path, &node.uid, &mut stream, wanted);
        }
        if let Some(predicate) = &node.filter {
            self.add_filter(node, "where", predicate, &mut stream);
        }
        if let Some(join) = &node.join {
            stream = self.add_join(node, join, stream, wanted)?;
        }
        if let Some(calls) = &node.aggregate {
            stream = self.add_aggregate(node, calls, stream, wanted)?;
        }
        if let Some(predicate) = &node.having {
            self.add_filter(node, "having", predicate, &mut stream);
        }
        if let Some(process) = &node.process {
            stream = self.add_process(node, process, stream, wanted)?;
        }
        if node.top.is_some() || node.deduplicate.is_some() {
            stream = self.add_top(node, stream, wanted)?;
        }
        if let Some(columns) = &node.select {
            self.add_select(node, columns, &mut stream);
        }
        if let Some(branches) = &node.split {
            self.add_split(node, branches, &mut stream);
        }
        if self.stages.len() == stages {
            self.pass(&node.uid, &mut stream);
        }
        Some(stream)
    }

    fn warn_unbounded(&mut self, node: &TransformNode) {
        let endless = node.inputs.iter().filter_map(|input| self.stream(input)).any(|stream| !stream.bounded);
        if endless {
            self.warnings.push(format!(
                "transform \"{}\": `window: global` gives its result at the end of the data, and the input does not end",
                node.uid
            ));
        }
    }

    /// Brings the rows of a node without aggregate to the instances that it runs on.
    fn move_to(&mut self, path: &str, uid: &Uid, stream: &mut Stream, wanted: Option<u32>) {
        let parallelism = wanted.unwrap_or(if stream.single { stream.parallelism } else { self.settings.parallelism });
        if parallelism == stream.parallelism {
            return;
        }
        let partition = match stream.spread(parallelism) {
            Ok(partition) => partition,
            Err(reason) => return self.error(format!("{path}.parallelism"), reason),
        };
        let partitioned = match &partition {
            Partition::Hash { columns } => Some(columns.clone()),
            _ => None,
        };
        let stage = Stage {
            uid: uid.clone(),
            kind: StageKind::Pass,
            parallelism,
            inputs: vec![(stream.stage, partition)],
            output: stream.schema.clone(),
            uses: Vec::new(),
        };
        stream.stage = self.push_stage(stage);
        stream.parallelism = parallelism;
        stream.partitioned_by = partitioned;
        stream.single = false;
    }

    /// A node that changes nothing still has its place in the chain.
    fn pass(&mut self, uid: &Uid, stream: &mut Stream) {
        let stage = Stage {
            uid: uid.clone(),
            kind: StageKind::Pass,
            parallelism: stream.parallelism,
            inputs: vec![(stream.stage, Partition::Forward)],
            output: stream.schema.clone(),
            uses: Vec::new(),
        };
        stream.stage = self.push_stage(stage);
    }
}
