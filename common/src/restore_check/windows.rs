//! What windows have kept that has the columns which the job's keep, and would mean something else there.

use super::report::Mismatch;
use super::{States, by_name};
use crate::checkpoint::{CheckpointMetadata, Handle, StateHandle};
use crate::ids::Uid;
use crate::plan::{AggregatePhase, AggregateSpec, FiringSpec, OperatorKind, Plan, ProcessSpec, WindowSpec};
use crate::planned_state::{PlannedState, ROW_NUMBERS};

/// Why a trigger cannot go on with windows that had early or late results.
const RESULTS_GIVEN: &str = "which results its windows gave early or late the job's `trigger` would not know, and give them as new \
                             ones; restore once without `early`, `allowed_lateness` and `trigger` first";

/// Why sessions of a trigger cannot go on without one.
const SESSIONS_OF_TRIGGER: &str = "its sessions were kept for a `trigger`, by what they were when they began, and the job has none; \
                                   give the window its trigger again";

/// Why rows of a database cannot go on without their numbers.
const NUMBERS_MISSING: &str = "it is dropped, and numbers the rows that a database has; restore it too";

/// What is found of an operator: what it cannot go on with, and whether that is all that is to be said of states which the job does not
/// have.
#[derive(Default)]
pub(super) struct OfWindows {
    pub(super) mismatches: Vec<Mismatch>,
    pub(super) is_all: bool,
}

/// Looks at the states of an operator that are `kept` of the snapshot `all`.
pub(super) fn check(
    uid: &Uid,
    kept: &States<'_>,
    (plan, planned): (&Plan, &[PlannedState]),
    all: &CheckpointMetadata,
) -> OfWindows {
    let mut found = OfWindows::default();
    let mut push =
        |state: &str, reason| found.mismatches.push(Mismatch::Window { uid: uid.clone(), state: state.into(), reason });
    let all = by_name(all);
    let was_there = |name: &str| all.get(uid).is_some_and(|states| states.contains_key(name));
    if let Some(aggregate) = aggregate(plan, uid)
        && let Some(name) = aggregate.state_name()
        && let Some(handles) = kept.get(name).filter(|handles| handles.iter().any(|handle| handle.rows > 0))
    {
        if aggregate.trigger.is_some() && handles.iter().any(|handle| has_marks(handle)) {
            push(name, RESULTS_GIVEN);
        }
        let is_session = matches!(aggregate.window, WindowSpec::Session { .. });
        if is_session && aggregate.trigger.is_none() && was_there(ProcessSpec::WINDOWS) {
            push(name, SESSIONS_OF_TRIGGER);
            return OfWindows { is_all: true, ..found };
        }
    }
    let is_numbered = planned.iter().any(|state| state.uid == *uid && state.name == ROW_NUMBERS);
    let in_database = |handle: &&StateHandle| matches!(handle.handle, Handle::Database { .. });
    if is_numbered && was_there(ROW_NUMBERS) && !kept.contains_key(ROW_NUMBERS) && kept.values().flatten().any(in_database) {
        push(ROW_NUMBERS, NUMBERS_MISSING);
    }
    found
}

/// The aggregation of a node, of two halves the one that keeps state.
fn aggregate<'a>(plan: &'a Plan, uid: &Uid) -> Option<&'a AggregateSpec> {
    let operators = plan.vertices.iter().flat_map(|vertex| &vertex.operators).filter(|operator| operator.uid == *uid);
    operators.into_iter().find_map(|operator| match &operator.kind {
        OperatorKind::Aggregate(spec) if spec.phase != AggregatePhase::Partial => Some(spec),
        _ => None,
    })
}

/// Whether it is noted of each group which results it gave.
fn has_marks(handle: &StateHandle) -> bool {
    handle.schema.values.iter().any(|column| FiringSpec::is_state_column(&column.name))
}
