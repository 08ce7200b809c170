//! A job's status as JSON: the names are those of the protobuf messages.

use levada_proto::v1;
use serde_json::{Value, json};

use crate::status::state_name;

/// A job.
pub(super) fn job(status: &v1::JobStatus) -> Value {
    json!({
        "job_id": status.job_id,
        "name": status.name,
        "state": state_name(status),
        "degraded": status.degraded,
        "degraded_reason": status.degraded_reason,
        "failure": status.failure,
        "attempt": status.attempt,
        "restarts": status.restarts,
        "waiting_for": status.waiting_for,
        "submitted_at_ms": status.submitted_at_ms,
        "ended_at_ms": status.ended_at_ms,
        "checkpoints": status.checkpoints.as_ref().map(checkpoints),
        "nodes": status.nodes.iter().map(node).collect::<Vec<_>>(),
        "tasks": status.tasks.iter().map(task).collect::<Vec<_>>(),
        "savepoints": status.savepoints.iter().map(savepoint).collect::<Vec<_>>(),
        "started_from": status.started_from,
        "restored_checkpoint": status.restored_checkpoint,
    })
}

fn savepoint(status: &v1::SavepointStatus) -> Value {
    json!({
        "request_id": status.request_id,
        "state": status.state().as_str_name().trim_start_matches("SAVEPOINT_STATE_"),
        "mode": status.mode,
        "id": status.id,
        "path": status.path,
        "failure": status.failure,
        "requested_at_ms": status.requested_at_ms,
        "duration_ms": status.duration_ms,
        "bytes": status.bytes,
    })
}

fn checkpoints(status: &v1::CheckpointsStatus) -> Value {
    json!({
        "triggered": status.triggered,
        "completed": status.completed,
        "failed": status.failed,
        "in_progress": status.in_progress,
        "consecutive_failures": status.consecutive_failures,
        "age_ms": status.age_ms,
        "last_completed": status.last_completed.as_ref().map(checkpoint),
        "last_failed": status.last_failed.as_ref().map(checkpoint),
        "history": status.history.iter().map(checkpoint).collect::<Vec<_>>(),
    })
}

fn checkpoint(status: &v1::CheckpointStatus) -> Value {
    json!({
        "id": status.id,
        "triggered_at_ms": status.triggered_at_ms,
        "duration_ms": status.duration_ms,
        "bytes": status.bytes,
        "inline_bytes": status.inline_bytes,
        "failure": status.failure,
        "metadata": status.metadata,
        "savepoint": status.savepoint,
    })
}

fn node(status: &v1::NodeStatus) -> Value {
    json!({
        "uid": status.uid,
        "rows_in": status.rows_in,
        "rows_out": status.rows_out,
        "late_rows": status.late_rows,
        "future_rows": status.future_rows,
        "bad_records": status.bad_records,
        "last_bad_record": status.last_bad_record,
        "state_keys": status.state_keys,
        "state_bytes": status.state_bytes,
        "watermark_ms": status.watermark_ms,
    })
}

fn task(status: &v1::TaskStatus) -> Value {
    json!({
        "vertex": status.vertex,
        "subtask": status.subtask,
        "name": status.name,
        "state": status.state,
        "task_manager": status.task_manager,
        "busy": status.busy,
        "blocked": status.blocked,
        "watermark_ms": status.watermark_ms,
        "watermark_lag_ms": status.watermark_lag_ms,
        "held_back_by": status.held_back_by,
        "idle": status.idle,
        "paused_for": status.paused_for,
        "rows_in": status.rows_in,
    })
}
