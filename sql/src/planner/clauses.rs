//! The clauses that filter: `where` and `having`.

use std::collections::BTreeSet;

use levada_common::graph::TransformNode;
use levada_common::plan::{OperatorKind, Partition};
use levada_common::types::LogicalType;

use super::graph::{NewOperator, Planner};
use super::stream::{Changes, Checked, Stream};

impl Planner<'_> {
    /// Puts a filter behind `stream`.
    pub(super) fn add_filter(&mut self, node: &TransformNode, clause: &'static str, predicate: &str, stream: &mut Stream) {
        let Some(columns) = self.condition(&format!("transforms.{}.{clause}", node.uid), predicate, stream) else { return };
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause,
            kind: OperatorKind::Filter { predicate: predicate.to_string() },
            output: stream.schema.clone(),
            uses: vec![columns.into_iter().collect::<BTreeSet<_>>()],
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }

    /// The columns that a condition on rows reads; `None` where it cannot be one, which is reported, or nothing is known of it.
    pub(super) fn condition(&mut self, path: &str, predicate: &str, stream: &Stream) -> Option<Vec<String>> {
        let typed = match stream.check(&self.compiler, predicate) {
            Ok(Checked::Known(typed)) => typed,
            Ok(Checked::Unknown) => return None,
            Err(reason) => {
                self.error(path, reason);
                return None;
            }
        };
        if typed.ty != LogicalType::Boolean {
            self.error(path, format!("the condition is {}, not BOOLEAN", typed.ty));
            return None;
        }
        if let Some(reason) = stream.changes.as_ref().and_then(|changes| misleads(changes, &typed.columns)) {
            self.error(path, reason);
            return None;
        }
        Some(typed.columns)
    }
}

/// Why a filter on these columns would mislead: an update that no longer passes would leave the row before it in place.
fn misleads(changes: &Changes, columns: &[String]) -> Option<String> {
    let changing = columns.iter().find(|column| !changes.key.contains(column))?;
    (!changes.full).then(|| {
        format!(
            "the input is a changelog, and an update whose \"{changing}\" no longer passes would leave the old row in place; \
             filter by its key, or set `changelog: full` on the aggregate"
        )
    })
}
