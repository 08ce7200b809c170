//! `levada checkpoints` and `levada checkpoint`: what of a job could be restored, and one more of it.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use levada_proto::v1::RetainedCheckpoint;
use serde_json::{Value, json};

use super::Remote;
use crate::client::Client;
use crate::progress::count;

/// What `levada checkpoints` takes.
#[derive(Args)]
pub struct CheckpointsArguments {
    /// The job's id or name.
    job: String,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Takes one now.
pub async fn checkpoint(job: &str, remote: &Remote) -> anyhow::Result<ExitCode> {
    let checkpoint = Client::connect(&remote.jobmanager).await?.checkpoint(job).await?;
    eprintln!("levada: checkpoint {}: {} bytes in {} ms", checkpoint.id, count(checkpoint.bytes), checkpoint.duration_ms);
    println!("{}", place(&checkpoint.metadata));
    Ok(ExitCode::SUCCESS)
}

/// Where a checkpoint is.
fn place(path: &str) -> &str {
    if path.is_empty() { "in the JobManager" } else { path }
}

/// Lists them, newest first.
pub async fn checkpoints(arguments: CheckpointsArguments) -> anyhow::Result<ExitCode> {
    let checkpoints = Client::connect(&arguments.remote.jobmanager).await?.checkpoints(&arguments.job).await?;
    print!("{}", if arguments.json { as_json(&checkpoints) } else { as_text(&checkpoints) });
    Ok(ExitCode::SUCCESS)
}

fn as_text(checkpoints: &[RetainedCheckpoint]) -> String {
    let mut text = String::new();
    for checkpoint in checkpoints {
        let place = place(&checkpoint.path);
        let _ = writeln!(text, "checkpoint {}  {} bytes  {place}", checkpoint.id, count(checkpoint.bytes));
        for state in &checkpoint.states {
            let _ = writeln!(
                text,
                "  {:20} {:16} {:18} {:14} {:>13} rows {:>15} bytes {:>4} subtasks",
                state.uid,
                state.name,
                state.kind,
                state.shape,
                count(state.rows),
                count(state.bytes),
                state.subtasks
            );
        }
    }
    text
}

fn as_json(checkpoints: &[RetainedCheckpoint]) -> String {
    let checkpoint = |checkpoint: &RetainedCheckpoint| {
        let states: Vec<Value> = checkpoint
            .states
            .iter()
            .map(|state| {
                json!({
                    "uid": state.uid, "name": state.name, "kind": state.kind, "shape": state.shape, "rows": state.rows,
                    "bytes": state.bytes, "subtasks": state.subtasks,
                })
            })
            .collect();
        json!({
            "id": checkpoint.id, "epoch": checkpoint.epoch, "triggered_at_ms": checkpoint.triggered_at_ms,
            "bytes": checkpoint.bytes, "path": checkpoint.path, "states": states,
        })
    };
    format!("{:#}\n", Value::Array(checkpoints.iter().map(checkpoint).collect()))
}

#[cfg(test)]
mod tests {
    use levada_proto::v1::RetainedState;

    use super::*;

    #[test]
    fn each_state_has_a_line() {
        let state = RetainedState {
            uid: "counts".into(),
            name: "panes".into(),
            kind: "keyed".into(),
            shape: "accumulators".into(),
            rows: 1200,
            bytes: 34_567,
            subtasks: 2,
        };
        let checkpoint = RetainedCheckpoint { id: 7, bytes: 34_567, states: vec![state], ..Default::default() };
        assert_eq!(
            as_text(&[checkpoint]),
            "checkpoint 7  34,567 bytes  in the JobManager\n  counts               panes            keyed              accumulators           1,200 rows          34,567 bytes    2 subtasks\n"
        );
    }
}
