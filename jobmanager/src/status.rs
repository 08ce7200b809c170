//! A job's status as clients see it: what the core says, and the counters that tasks report.

use std::collections::{BTreeMap, HashMap};

use levada_common::checkpoint::CheckpointMetadata;
use levada_common::ids::{CheckpointId, TaskId, Uid};
use levada_common::plan::Plan;
use levada_common::time::Watermark;
use levada_jobmanager_core::status::{CheckpointRecord, CheckpointsStatus, StartedFrom, TaskStatus};
use levada_jobmanager_core::{JobSnapshot, JobState, SavepointPhase, SavepointStatus};
use levada_proto::convert::task_of_index;
use levada_proto::v1;

use crate::driver::Job;

/// The newest counters of each task of the current attempt.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    tasks: HashMap<TaskId, Counters>,
}

#[derive(Debug)]
struct Counters {
    report: v1::TaskReport,
    busy: f64,
    blocked: f64,
}

impl Reports {
    /// A new attempt begins from nothing.
    pub(crate) fn clear(&mut self) {
        self.tasks.clear();
    }

    /// A task's counters; the shares are those of the time since its last report.
    pub(crate) fn take(&mut self, task: TaskId, report: v1::TaskReport) {
        let (busy, blocked, idle) = match self.tasks.get(&task) {
            Some(Counters { report: last, .. }) => (
                report.busy_ns.saturating_sub(last.busy_ns),
                report.blocked_ns.saturating_sub(last.blocked_ns),
                report.idle_ns.saturating_sub(last.idle_ns),
            ),
            None => (report.busy_ns, report.blocked_ns, report.idle_ns),
        };
        let all = (busy + blocked + idle).max(1) as f64;
        self.tasks.insert(task, Counters { report, busy: busy as f64 / all, blocked: blocked as f64 / all });
    }
}

/// A job's status at `wall_ms`, in milliseconds since 1970.
pub(crate) fn job_status(job: &Job, snapshot: &JobSnapshot, reports: &Reports, wall_ms: u64) -> v1::JobStatus {
    v1::JobStatus {
        job_id: job.id.to_string(),
        name: job.plan.name.clone(),
        state: job_state(snapshot.state).into(),
        degraded: snapshot.degraded.is_some(),
        degraded_reason: snapshot.degraded.clone().unwrap_or_default(),
        failure: snapshot.failure.clone().unwrap_or_default(),
        attempt: snapshot.attempt.0,
        restarts: snapshot.restarts,
        waiting_for: snapshot.waiting_for.clone().unwrap_or_default(),
        submitted_at_ms: job.submitted_at_ms,
        ended_at_ms: snapshot.ended_at_ms.unwrap_or(0),
        checkpoints: Some(checkpoints(&snapshot.checkpoints)),
        nodes: nodes(&job.plan, reports),
        tasks: snapshot.tasks.iter().map(|status| task(status, &job.plan, reports, wall_ms)).collect(),
        savepoints: snapshot.savepoints.iter().map(savepoint).collect(),
        started_from: snapshot.started_from.as_ref().map(started_from).unwrap_or_default(),
        restored_checkpoint: snapshot.restored.map_or(0, |id| id.0),
    }
}

/// What a job was submitted with, as `from` takes it.
fn started_from(from: &StartedFrom) -> String {
    if from.savepoint { from.directory.clone() } else { checkpoint_path(&from.directory, from.checkpoint) }
}

fn checkpoint_path(directory: &str, checkpoint: CheckpointId) -> String {
    format!("{directory}/chk-{checkpoint}")
}

/// A savepoint.
pub(crate) fn savepoint(status: &SavepointStatus) -> v1::SavepointStatus {
    let (state, failure) = match &status.phase {
        SavepointPhase::Waiting => (v1::SavepointState::Waiting, String::new()),
        SavepointPhase::InProgress => (v1::SavepointState::InProgress, String::new()),
        SavepointPhase::Completed => (v1::SavepointState::Completed, String::new()),
        SavepointPhase::Failed(failure) => (v1::SavepointState::Failed, failure.clone()),
    };
    v1::SavepointStatus {
        request_id: status.request.id.clone(),
        state: state.into(),
        id: status.checkpoint.map_or(0, |id| id.0),
        path: status.folder.clone(),
        failure,
        requested_at_ms: status.requested_at_ms,
        duration_ms: status.duration_ms,
        bytes: status.bytes,
        mode: status.request.mode.name().into(),
    }
}

/// The completed checkpoints that are kept, newest first, in this directory where they are in one.
pub(crate) fn retained<'a>(
    checkpoints: impl Iterator<Item = &'a CheckpointMetadata>,
    directory: Option<&str>,
) -> Vec<v1::RetainedCheckpoint> {
    let retained = |metadata: &CheckpointMetadata| v1::RetainedCheckpoint {
        id: metadata.id.0,
        epoch: metadata.epoch.0,
        triggered_at_ms: metadata.triggered_at_ms,
        bytes: metadata.bytes(),
        path: directory.map(|directory| checkpoint_path(directory, metadata.id)).unwrap_or_default(),
        states: retained_states(metadata),
    };
    let mut all: Vec<v1::RetainedCheckpoint> = checkpoints.map(retained).collect();
    all.reverse();
    all
}

fn retained_states(metadata: &CheckpointMetadata) -> Vec<v1::RetainedState> {
    let mut states: BTreeMap<(&Uid, &str), v1::RetainedState> = BTreeMap::new();
    for handle in metadata.states() {
        let state = states.entry((&handle.uid, &handle.name)).or_insert_with(|| v1::RetainedState {
            uid: handle.uid.to_string(),
            name: handle.name.clone(),
            kind: handle.kind.name().into(),
            shape: handle.schema.shape.name().into(),
            ..Default::default()
        });
        state.rows += handle.rows;
        state.bytes += handle.handle.length();
        state.subtasks += 1;
    }
    states.into_values().collect()
}

/// The state as it travels.
fn job_state(state: JobState) -> v1::JobState {
    match state {
        JobState::Scheduled => v1::JobState::Scheduled,
        JobState::Deploying => v1::JobState::Deploying,
        JobState::Running => v1::JobState::Running,
        JobState::Restarting => v1::JobState::Restarting,
        JobState::Failing => v1::JobState::Failing,
        JobState::Cancelling => v1::JobState::Cancelling,
        JobState::Finished => v1::JobState::Finished,
        JobState::Failed => v1::JobState::Failed,
        JobState::Canceled => v1::JobState::Canceled,
    }
}

fn checkpoints(status: &CheckpointsStatus) -> v1::CheckpointsStatus {
    v1::CheckpointsStatus {
        triggered: status.triggered,
        completed: status.completed,
        failed: status.failed,
        in_progress: status.in_progress,
        consecutive_failures: status.consecutive_failures,
        last_completed: status.last_completed.as_ref().map(checkpoint),
        last_failed: status.last_failed.as_ref().map(checkpoint),
        history: status.history.iter().map(checkpoint).collect(),
        age_ms: status.age_ms.unwrap_or(0),
    }
}

fn checkpoint(record: &CheckpointRecord) -> v1::CheckpointStatus {
    v1::CheckpointStatus {
        id: record.id.0,
        triggered_at_ms: record.triggered_at_ms,
        duration_ms: record.duration_ms,
        bytes: record.bytes,
        inline_bytes: record.inline_bytes,
        failure: record.failure.clone().unwrap_or_default(),
        metadata: record.metadata.clone(),
        savepoint: record.savepoint,
    }
}

fn task(status: &TaskStatus, plan: &Plan, reports: &Reports, wall_ms: u64) -> v1::TaskStatus {
    let counters = reports.tasks.get(&status.task);
    let report = counters.map(|counters| &counters.report);
    let align = plan.vertex(status.task.vertex).watermark().and_then(|watermark| watermark.align.as_ref());
    let group = align.filter(|_| report.is_some_and(|report| report.paused)).map(|align| align.group.clone());
    let holder = report.and_then(|report| report.held_back_by.as_ref()).map(task_of_index);
    v1::TaskStatus {
        vertex: status.task.vertex.0,
        subtask: status.task.subtask.0,
        name: status.name.clone(),
        state: status.phase.name().into(),
        task_manager: status.task_manager.map(|id| id.to_string()).unwrap_or_default(),
        busy: counters.map_or(0.0, |counters| counters.busy),
        blocked: counters.map_or(0.0, |counters| counters.blocked),
        watermark_ms: report.and_then(|report| known(report.watermark_ms)),
        rows_in: report.and_then(|report| report.nodes.first()).map_or(0, |node| node.rows_in),
        watermark_lag_ms: report.and_then(|report| lag_ms(report.watermark_ms, wall_ms)),
        held_back_by: holder.and_then(|holder| task_name(plan, holder)).unwrap_or_default(),
        idle: report.is_some_and(|report| report.idle),
        paused_for: group.unwrap_or_default(),
    }
}

/// How far the watermark is behind; `None` before the first and after the end.
fn lag_ms(watermark_ms: i64, wall_ms: u64) -> Option<i64> {
    let watermark_ms = known(watermark_ms).filter(|watermark_ms| *watermark_ms != Watermark::MAX.0)?;
    Some(i64::try_from(wall_ms).unwrap_or(i64::MAX).saturating_sub(watermark_ms))
}

/// A task as messages name it; `None` where the plan has no such vertex.
fn task_name(plan: &Plan, task: TaskId) -> Option<String> {
    let vertex = plan.vertices.get(task.vertex.0 as usize)?;
    Some(format!("\"{}\" subtask {}", vertex.name, task.subtask.0))
}

fn known(watermark_ms: i64) -> Option<i64> {
    (watermark_ms != Watermark::MIN.0).then_some(watermark_ms)
}

/// A node and the vertices that hold a part of it, first and last.
struct NodePlace {
    uid: Uid,
    first: u32,
    last: u32,
}

/// The nodes of a plan, sources first.
fn places(plan: &Plan) -> Vec<NodePlace> {
    let mut places: Vec<NodePlace> = Vec::new();
    let mut seen: BTreeMap<Uid, usize> = BTreeMap::new();
    for vertex in &plan.vertices {
        let source = vertex.source.iter().map(|source| &source.uid);
        let operators = vertex.operators.iter().map(|operator| &operator.uid);
        let sink = vertex.sink.iter().map(|sink| &sink.uid);
        for uid in source.chain(operators).chain(sink) {
            let at = *seen.entry(uid.clone()).or_insert(places.len());
            match places.get_mut(at) {
                Some(place) => place.last = vertex.id.0,
                None => places.push(NodePlace { uid: uid.clone(), first: vertex.id.0, last: vertex.id.0 }),
            }
        }
    }
    places
}

/// Sums over subtasks. A node that is cut in two by an exchange takes its rows in the first part and gives them in the last.
fn nodes(plan: &Plan, reports: &Reports) -> Vec<v1::NodeStatus> {
    let mut nodes: Vec<v1::NodeStatus> = Vec::new();
    for NodePlace { uid, first, last } in places(plan) {
        let mut node = v1::NodeStatus { uid: uid.to_string(), ..Default::default() };
        let mut least = Some(i64::MAX);
        let mut reported = 0;
        for (task, counters) in &reports.tasks {
            for part in counters.report.nodes.iter().filter(|part| part.uid == uid.as_str()) {
                if task.vertex.0 == first {
                    node.rows_in += part.rows_in;
                }
                if task.vertex.0 == last {
                    node.rows_out += part.rows_out;
                    reported += 1;
                    least = least.zip(known(counters.report.watermark_ms)).map(|(a, b)| a.min(b));
                }
                add(&mut node, part);
            }
        }
        node.watermark_ms = least.filter(|_| reported > 0);
        nodes.push(node);
    }
    nodes
}

fn add(node: &mut v1::NodeStatus, part: &v1::NodeReport) {
    node.late_rows += part.late_rows;
    node.future_rows += part.future_rows;
    node.bad_records += part.bad_records;
    node.state_keys += part.state_keys;
    node.state_bytes += part.state_bytes;
    if !part.last_bad_record.is_empty() {
        node.last_bad_record.clone_from(&part.last_bad_record);
    }
}

/// The state as people read it.
pub(crate) fn state_name(status: &v1::JobStatus) -> &'static str {
    status.state().as_str_name().trim_start_matches("JOB_STATE_")
}

#[cfg(test)]
mod tests {
    use levada_common::ids::VertexId;

    use super::*;

    fn report(busy_ns: u64, idle_ns: u64, watermark_ms: i64) -> v1::TaskReport {
        v1::TaskReport { busy_ns, idle_ns, watermark_ms, ..Default::default() }
    }

    #[test]
    fn shares_are_of_the_last_period() {
        let mut reports = Reports::default();
        let id = TaskId::new(VertexId(0), 0);
        reports.take(id, report(100, 0, 5));
        assert_eq!(reports.tasks[&id].busy, 1.0);
        reports.take(id, report(125, 75, 5));
        assert_eq!(reports.tasks[&id].busy, 0.25);
    }

    #[test]
    fn lag_is_that_of_a_watermark() {
        assert_eq!([lag_ms(400, 1_000), lag_ms(1_400, 1_000)], [Some(600), Some(-400)]);
        assert_eq!([lag_ms(i64::MIN, 1_000), lag_ms(i64::MAX, 1_000)], [None, None]);
    }

    #[test]
    fn no_watermark_is_none() {
        assert_eq!(known(i64::MIN), None);
        assert_eq!(known(i64::MAX), Some(i64::MAX));
    }
}
