//! `split`: a condition for each output, and what is left for the main one.

use levada_common::graph::TransformNode;
use levada_common::plan::{OperatorKind, Partition, SplitBranch};

use super::clauses::may_part;
use super::graph::{NewOperator, Planner};
use super::stream::Stream;

impl Planner<'_> {
    /// Puts a split behind `stream`, which stands for its main output then.
    pub(super) fn add_split(&mut self, node: &TransformNode, branches: &[(String, Option<String>)], stream: &mut Stream) {
        let path = format!("transforms.{}.split", node.uid);
        let errors = self.errors.0.len();
        let (mut uses, mut parts_updates) = (Vec::new(), false);
        for (output, sql) in branches {
            if let Some(columns) =
                sql.as_ref().and_then(|sql| self.condition(&format!("{path}.{output}"), "the condition", sql, stream))
            {
                let parts = stream.changes.as_ref().is_some_and(|changes| may_part(changes, &columns));
                if parts && let Err(reason) = self.ask_for_replaced(stream) {
                    self.error(format!("{path}.{output}"), reason);
                }
                parts_updates |= parts;
                uses.push(columns.into_iter().collect());
            }
        }
        let sides = branches.iter().map(|(output, _)| (output.clone(), stream.clone())).collect();
        if let Some((output, None)) = branches.last() {
            self.outputs.leave_no_main(&node.uid, output);
        }
        if self.errors.0.len() > errors {
            branches.iter().for_each(|(output, _)| self.outputs.offer(&node.uid, output, None));
            return;
        }
        let branch =
            |(output, predicate): &(String, Option<String>)| SplitBranch { output: output.clone(), predicate: predicate.clone() };
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause: "split",
            kind: OperatorKind::Split { branches: branches.iter().map(branch).collect(), parts_updates },
            output: stream.schema.clone(),
            uses,
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
        self.add_sides(&node.uid, stream, sides);
    }
}
