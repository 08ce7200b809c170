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
        let path = format!("transforms.{}.{clause}", node.uid);
        let typed = match stream.check(&self.compiler, predicate) {
            Ok(Checked::Known(typed)) => typed,
            Ok(Checked::Unknown) => return,
            Err(reason) => return self.error(path, reason),
        };
        if typed.ty != LogicalType::Boolean {
            return self.error(path, format!("the condition is {}, not BOOLEAN", typed.ty));
        }
        if let Some(reason) = stream.changes.as_ref().and_then(|changes| misleads(changes, &typed.columns)) {
            return self.error(path, reason);
        }
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause,
            kind: OperatorKind::Filter { predicate: predicate.to_string() },
            output: stream.schema.clone(),
            uses: vec![typed.columns.into_iter().collect::<BTreeSet<_>>()],
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
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
