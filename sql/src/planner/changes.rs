//! Changelogs whose reader needs the rows that updates replace.

use levada_common::plan::{OperatorKind, OperatorSpec};

use super::graph::Planner;
use super::stream::{Outlet, Stage, StageKind, Stream};

/// Nobody on the way knows them.
const WITHOUT_REPLACED: &str = "the input is a changelog without the rows that its updates replace";

/// Why there are none where a trigger says when results come.
const OF_TRIGGER: &str = "the input is a changelog of a window with a `trigger`, which does not give the rows that its updates replace, \
                          and these are needed here; act on its key only, or take its results in parts with `accumulate: false`";

impl Planner<'_> {
    /// Has every update of a changelog come with the row that it replaces: the node that makes the changes gives them then to all
    /// of its readers.
    ///
    /// Errors: the reason as text, where they cannot be had.
    pub(super) fn ask_for_replaced(&mut self, stream: &mut Stream) -> Result<(), String> {
        let Some(changes) = stream.changes.as_mut().filter(|changes| !changes.full) else { return Ok(()) };
        let made = maker(&self.stages, stream.stage);
        let (kind, maker) = match made.map(|at| (&mut self.stages[at].kind, at)) {
            Some((StageKind::Operator(OperatorSpec { kind, .. }), at)) => (kind, at),
            _ => return Err(WITHOUT_REPLACED.into()),
        };
        match kind {
            OperatorKind::Aggregate(spec) if spec.trigger.is_some() => return Err(OF_TRIGGER.into()),
            OperatorKind::Aggregate(spec) => spec.changelog_full = true,
            OperatorKind::Top(spec) => spec.changelog_full = true,
            _ => return Err(WITHOUT_REPLACED.into()),
        }
        changes.full = true;
        for other in self.streams.values_mut().flatten() {
            if let Some(changes) = &mut other.changes {
                changes.full |= self::maker(&self.stages, other.stage) == Some(maker);
            }
        }
        Ok(())
    }
}

/// The stage that makes the changes which come out here, where others only let them through.
fn maker(stages: &[Stage], mut at: Outlet) -> Option<usize> {
    loop {
        let stage = &stages[at.stage];
        match &stage.kind {
            StageKind::Pass => {}
            StageKind::Operator(operator) => match &operator.kind {
                OperatorKind::Filter { .. } | OperatorKind::Project { .. } | OperatorKind::Split { .. } => {}
                _ => return (at.output == 0).then_some(at.stage),
            },
            StageKind::Source(_) | StageKind::Sink(_) => return None,
        }
        at = stage.inputs.first()?.0;
    }
}
