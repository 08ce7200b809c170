//! How a job and a cluster are shown: text for people, JSON for programs.

use std::fmt::Write;

use levada_proto::v1::{
    CheckpointStatus, DescribeClusterResponse, JobStatus, NodeStatus, SavepointState, SavepointStatus, TaskStatus,
};
use serde_json::{Value, json};

use crate::client::state_name;
use crate::progress::{count, time};

/// A job as text.
pub fn job(status: &JobStatus) -> String {
    let mut text =
        format!("job        {}\nname       {}\nstate      {}\n", status.job_id, status.name, state_name(status.state()));
    let mut line = |key: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{key:10} {value}");
        }
    };
    line("degraded", if status.degraded { &status.degraded_reason } else { "" });
    line("failure", &status.failure);
    line("waiting", &status.waiting_for);
    line("started from", &status.started_from);
    line("attempt", &attempt(status));
    line("restarts", &status.restarts.to_string());
    if let Some(all) = &status.checkpoints {
        line(
            "checkpoints",
            &format!(
                "{} triggered, {} completed, {} failed, {} in progress",
                all.triggered, all.completed, all.failed, all.in_progress
            ),
        );
        for checkpoint in &all.history {
            line("", &checkpoint_line(checkpoint));
        }
    }
    for savepoint in &status.savepoints {
        line("savepoint", &savepoint_line(savepoint));
    }
    text += "\nNODE                      ROWS IN      ROWS OUT          LATE  FUTURE   BAD        KEYS   STATE BYTES\n";
    for node in &status.nodes {
        let _ = writeln!(
            text,
            "{:20} {:>12} {:>13} {:>13} {:>7} {:>5} {:>11} {:>13}{}",
            node.uid,
            count(node.rows_in),
            count(node.rows_out),
            count(node.late_rows),
            count(node.future_rows),
            count(node.bad_records),
            count(node.state_keys),
            count(node.state_bytes),
            if node.last_bad_record.is_empty() { String::new() } else { format!("  last bad record: {}", node.last_bad_record) },
        );
    }
    text +=
        "\nTASK      STATE       BUSY  BLOCKED  WATERMARK                        LAG  TASKMANAGER                       NAME\n";
    for task in &status.tasks {
        let _ = writeln!(
            text,
            "{:9} {:10} {:>4.0}% {:>7.0}%  {:24} {:>11}  {:32}  {}{}",
            format!("{}.{}", task.vertex, task.subtask),
            task.state,
            task.busy * 100.0,
            task.blocked * 100.0,
            task.watermark_ms.map(time).unwrap_or_default(),
            task.watermark_lag_ms.map(lag).unwrap_or_default(),
            task.task_manager,
            task.name,
            held_back(task)
        );
    }
    text
}

/// A lag in seconds, or in days where it is one of days: a job that catches up.
fn lag(ms: i64) -> String {
    match ms {
        ms if ms.abs() < 86_400_000 => format!("{:.1} s", ms as f64 / 1e3),
        ms => format!("{:.1} d", ms as f64 / 86_400_000.0),
    }
}

/// Why a task's time is where it is, as far as it is not its rows.
fn held_back(task: &TaskStatus) -> String {
    let mut text = String::new();
    if !task.held_back_by.is_empty() {
        let _ = write!(text, "  held back by {}", task.held_back_by);
    }
    if task.idle {
        text += "  idle";
    }
    if !task.paused_for.is_empty() {
        let _ = write!(text, "  waits for group \"{}\"", task.paused_for);
    }
    text
}

fn attempt(status: &JobStatus) -> String {
    match status.restored_checkpoint {
        0 => status.attempt.to_string(),
        id => format!("{}, restored from {id}", status.attempt),
    }
}

fn savepoint_line(savepoint: &SavepointStatus) -> String {
    let (mode, request) = (&savepoint.mode, &savepoint.request_id);
    match savepoint.state() {
        SavepointState::Completed => {
            let (bytes, ms) = (count(savepoint.bytes), savepoint.duration_ms);
            format!("{mode} {}: {bytes} bytes in {ms} ms, {}", savepoint.id, savepoint.path)
        }
        SavepointState::Failed => format!("{mode} failed (request {request}): {}", savepoint.failure),
        state => {
            let state = state.as_str_name().trim_start_matches("SAVEPOINT_STATE_").to_lowercase().replace('_', " ");
            format!("{mode} {state} (request {request})")
        }
    }
}

fn checkpoint_line(checkpoint: &CheckpointStatus) -> String {
    if checkpoint.failure.is_empty() {
        let place = if checkpoint.metadata.is_empty() { "in the JobManager" } else { &checkpoint.metadata };
        format!("{}: {} bytes in {} ms, {place}", checkpoint.id, count(checkpoint.bytes), checkpoint.duration_ms)
    } else {
        format!("{}: failed: {}", checkpoint.id, checkpoint.failure)
    }
}

/// A job as JSON.
pub fn job_json(status: &JobStatus) -> String {
    let checkpoint = |checkpoint: &CheckpointStatus| {
        json!({
            "id": checkpoint.id, "triggered_at_ms": checkpoint.triggered_at_ms, "duration_ms": checkpoint.duration_ms,
            "bytes": checkpoint.bytes, "inline_bytes": checkpoint.inline_bytes, "failure": checkpoint.failure,
            "metadata": checkpoint.metadata, "savepoint": checkpoint.savepoint,
        })
    };
    let checkpoints = status.checkpoints.as_ref().map(|all| {
        json!({
            "triggered": all.triggered, "completed": all.completed, "failed": all.failed, "in_progress": all.in_progress,
            "consecutive_failures": all.consecutive_failures, "age_ms": all.age_ms,
            "last_completed": all.last_completed.as_ref().map(checkpoint), "last_failed": all.last_failed.as_ref().map(checkpoint),
            "history": all.history.iter().map(checkpoint).collect::<Vec<_>>(),
        })
    });
    let tasks: Vec<Value> = status
        .tasks
        .iter()
        .map(|task| {
            json!({
                "vertex": task.vertex, "subtask": task.subtask, "name": task.name, "state": task.state,
                "task_manager": task.task_manager, "busy": task.busy, "blocked": task.blocked, "watermark_ms": task.watermark_ms,
                "watermark_lag_ms": task.watermark_lag_ms, "held_back_by": task.held_back_by, "idle": task.idle,
                "paused_for": task.paused_for, "rows_in": task.rows_in,
            })
        })
        .collect();
    let value = json!({
        "job_id": status.job_id, "name": status.name, "state": state_name(status.state()), "degraded": status.degraded,
        "degraded_reason": status.degraded_reason, "failure": status.failure, "attempt": status.attempt, "restarts": status.restarts,
        "waiting_for": status.waiting_for, "submitted_at_ms": status.submitted_at_ms, "ended_at_ms": status.ended_at_ms,
        "started_from": status.started_from, "restored_checkpoint": status.restored_checkpoint,
        "savepoints": status.savepoints.iter().map(savepoint_json).collect::<Vec<_>>(),
        "checkpoints": checkpoints, "nodes": status.nodes.iter().map(node_json).collect::<Vec<_>>(), "tasks": tasks,
    });
    format!("{value:#}\n")
}

fn savepoint_json(savepoint: &SavepointStatus) -> Value {
    json!({
        "request_id": savepoint.request_id, "mode": savepoint.mode, "id": savepoint.id, "path": savepoint.path,
        "state": savepoint.state().as_str_name().trim_start_matches("SAVEPOINT_STATE_"), "failure": savepoint.failure,
        "requested_at_ms": savepoint.requested_at_ms, "duration_ms": savepoint.duration_ms, "bytes": savepoint.bytes,
    })
}

fn node_json(node: &NodeStatus) -> Value {
    json!({
        "uid": node.uid, "rows_in": node.rows_in, "rows_out": node.rows_out, "late_rows": node.late_rows,
        "future_rows": node.future_rows,
        "bad_records": node.bad_records, "last_bad_record": node.last_bad_record, "state_keys": node.state_keys,
        "state_bytes": node.state_bytes, "watermark_ms": node.watermark_ms,
    })
}

/// A cluster as text.
pub fn cluster(cluster: &DescribeClusterResponse) -> String {
    let mut text = format!("JobManager {} epoch {}\n", cluster.version, cluster.epoch);
    let _ = writeln!(text, "frame size      {:>16} bytes", count(cluster.frame_size_bytes));
    let _ = writeln!(
        text,
        "inline state    {:>16} of {} bytes",
        count(cluster.inline_used_bytes),
        count(cluster.inline_budget_bytes)
    );
    text += "\nTASKMANAGER                       ADDRESS                   SLOTS   FREE   MEMORY TOTAL        NETWORK           HEAP\n";
    for tm in &cluster.task_managers {
        let _ = writeln!(
            text,
            "{:32}  {:24} {:>6} {:>6} {:>14} {:>14} {:>14}",
            tm.id,
            tm.address,
            tm.slots,
            tm.slots_free,
            count(tm.memory_total_bytes),
            count(tm.network_memory_bytes),
            count(tm.heap_state_bytes)
        );
    }
    text
}

/// A cluster as JSON.
pub fn cluster_json(cluster: &DescribeClusterResponse) -> String {
    let task_managers: Vec<Value> = cluster
        .task_managers
        .iter()
        .map(|tm| {
            json!({
                "id": tm.id, "address": tm.address, "slots": tm.slots, "slots_free": tm.slots_free, "version": tm.version,
                "memory_total_bytes": tm.memory_total_bytes, "network_memory_bytes": tm.network_memory_bytes,
                "heap_state_bytes": tm.heap_state_bytes,
            })
        })
        .collect();
    let value = json!({
        "version": cluster.version, "epoch": cluster.epoch, "frame_size_bytes": cluster.frame_size_bytes,
        "inline_budget_bytes": cluster.inline_budget_bytes, "inline_used_bytes": cluster.inline_used_bytes,
        "task_managers": task_managers,
    });
    format!("{value:#}\n")
}
