//! The clauses that filter: `where` and `having`.

use std::collections::BTreeSet;

use levada_common::graph::TransformNode;
use levada_common::plan::{Changelog, OperatorKind, Partition};
use levada_common::types::LogicalType;

use super::graph::{NewOperator, Planner};
use super::stream::{Checked, Stream};

impl Planner<'_> {
    /// Puts a filter behind `stream`.
    pub(super) fn add_filter(&mut self, node: &TransformNode, clause: &'static str, predicate: &str, stream: &mut Stream) {
        let path = format!("transforms.{}.{clause}", node.uid);
        let Some(columns) = self.condition(&path, "the condition", predicate, stream) else { return };
        let parts_updates = stream.changes.as_ref().is_some_and(|changes| may_part(changes, &columns));
        if parts_updates && let Err(reason) = self.ask_for_replaced(stream) {
            return self.error(path, reason);
        }
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause,
            kind: OperatorKind::Filter { predicate: predicate.to_string(), parts_updates },
            output: stream.schema.clone(),
            uses: vec![columns.into_iter().collect::<BTreeSet<_>>()],
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }

    /// The columns that a condition on rows reads; `None` where it cannot be one, which is reported, or nothing is known of it. `what` it
    /// is called in messages.
    pub(super) fn condition(&mut self, path: &str, what: &str, predicate: &str, stream: &Stream) -> Option<Vec<String>> {
        let typed = match stream.check(&self.compiler, predicate) {
            Ok(Checked::Known(typed)) => typed,
            Ok(Checked::Unknown) => return None,
            Err(reason) => {
                self.error(path, reason);
                return None;
            }
        };
        if typed.ty != LogicalType::Boolean {
            self.error(path, format!("{what} is {}, not BOOLEAN", typed.ty));
            return None;
        }
        Some(typed.columns)
    }
}

/// Whether a filter on these columns may let one row of an update pass and not the other.
pub(super) fn may_part(changes: &Changelog, columns: &[String]) -> bool {
    columns.iter().any(|column| !changes.key.contains(column))
}
