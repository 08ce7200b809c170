//! Keeps the sources of a job together that are to: how far each may go, given how far all have come.
//!
//! Pure. Must never know rows or rates. Invariants: the source of a group that is least far is never held; one that is idle or
//! has ended holds nobody, and where all are that no one is let go further for it; a limit never falls within an attempt, since
//! what a source has been allowed it may have read.

use std::collections::BTreeMap;

use levada_common::ids::{TaskId, VertexId};
use levada_common::plan::{AlignSpec, Plan};
use levada_common::time::Watermark;

/// A limit is told once it grew by this part of the drift: sources that are far from it need not hear of every step.
const DRIFT_PARTS: u64 = 8;

/// How far a source's task has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceTime {
    /// Its watermark; the greatest once its data has ended.
    pub watermark: Watermark,
    /// Whether it has had nothing to read for its idleness.
    pub idle: bool,
}

impl SourceTime {
    const UNKNOWN: Self = Self { watermark: Watermark::MIN, idle: false };

    /// Whether it reads on.
    fn is_live(self) -> bool {
        !self.idle && self.watermark != Watermark::MAX
    }
}

/// A task of a source that belongs to a group.
#[derive(Debug)]
struct Member {
    align: AlignSpec,
    time: SourceTime,
    /// The limit that it was told.
    told: Option<Watermark>,
}

/// The groups of one job's sources.
#[derive(Debug)]
pub struct SourceAlignment {
    members: BTreeMap<TaskId, Member>,
}

impl SourceAlignment {
    /// Of the sources of `plan` that have a group; most jobs have none.
    pub fn new(plan: &Plan) -> Self {
        let mut members = BTreeMap::new();
        for (id, vertex) in (0..).map(VertexId).zip(&plan.vertices) {
            let Some(align) = vertex.watermark().and_then(|watermark| watermark.align.as_ref()) else { continue };
            let member = || Member { align: align.clone(), time: SourceTime::UNKNOWN, told: None };
            members.extend((0..vertex.parallelism).map(|subtask| (TaskId::new(id, subtask), member())));
        }
        Self { members }
    }

    /// A new attempt begins: nothing is known of any source, and none has been told anything.
    pub fn restart(&mut self) {
        for member in self.members.values_mut() {
            (member.time, member.told) = (SourceTime::UNKNOWN, None);
        }
    }

    /// A task has come as far as `time`; that of another than a member says nothing.
    pub fn heard(&mut self, task: TaskId, time: SourceTime) {
        if let Some(member) = self.members.get_mut(&task) {
            member.time = time;
        }
    }

    /// The limits that are to be told now: new ones, far enough from those told before.
    pub fn limits(&mut self) -> Vec<(TaskId, Watermark)> {
        let mut least: BTreeMap<String, Watermark> = BTreeMap::new();
        for member in self.members.values().filter(|member| member.time.is_live()) {
            let least = least.entry(member.align.group.clone()).or_insert(Watermark::MAX);
            *least = member.time.watermark.min(*least);
        }
        let mut limits = Vec::new();
        for (task, member) in &mut self.members {
            // Whoever reads on first says how far the others may go.
            let Some(least) = least.get(&member.align.group) else { continue };
            let limit = Watermark(least.0.saturating_add_unsigned(member.align.max_drift_ms));
            if member.told.is_none_or(|told| is_news(told, limit, member.align.max_drift_ms)) {
                member.told = Some(limit);
                limits.push((*task, limit));
            }
        }
        limits
    }
}

fn is_news(told: Watermark, limit: Watermark, max_drift_ms: u64) -> bool {
    limit > told && limit.0.abs_diff(told.0) >= max_drift_ms.div_ceil(DRIFT_PARTS)
}

#[cfg(test)]
mod tests;
