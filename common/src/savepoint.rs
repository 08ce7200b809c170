//! Where a savepoint is, and what people read of it: `manifest.json` beside `_metadata`.
//!
//! Shape of a savepoint: a folder with `_metadata`, `manifest.json` and a file for each (operator, state, subtask); every path in
//! it is relative to the folder, so that it can be moved. Must never know how state is encoded.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::checkpoint::{CheckpointMetadata, Handle, StateHandle};
use crate::ids::{CheckpointId, JobId, Uid};
use crate::state_schema::StateSchema;

/// The file that makes a checkpoint or savepoint.
pub const METADATA_FILE: &str = "_metadata";

/// What the folder of a checkpoint is called before its id.
pub const CHECKPOINT_PREFIX: &str = "chk-";

/// The file that tells people what a savepoint has.
pub const MANIFEST_FILE: &str = "manifest.json";

/// The folder of a checkpoint, below the job's.
pub fn checkpoint_folder(checkpoint: CheckpointId) -> String {
    format!("{CHECKPOINT_PREFIX}{checkpoint}")
}

/// Digits of the job's id in a folder's name: the first ones are the time, the last ones tell jobs apart.
const JOB_DIGITS: usize = 12;

/// The URI of the folder of a job's savepoint below `directory`.
pub fn folder(directory: &str, job: JobId, checkpoint: CheckpointId) -> String {
    let job = job.to_string();
    format!("{}/savepoint-{}-{checkpoint}", directory.trim_end_matches('/'), &job[job.len() - JOB_DIGITS..])
}

#[derive(Serialize)]
struct Manifest<'a> {
    format: u32,
    levada: &'a str,
    job: Job<'a>,
    checkpoint: u64,
    triggered_at_ms: u64,
    max_parallelism: u32,
    bytes: u64,
    operators: BTreeMap<&'a Uid, Operator<'a>>,
}

#[derive(Serialize)]
struct Job<'a> {
    id: String,
    name: &'a str,
}

#[derive(Serialize, Default)]
struct Operator<'a> {
    states: BTreeMap<&'a str, State<'a>>,
}

#[derive(Serialize)]
struct State<'a> {
    kind: &'static str,
    shape: &'static str,
    schema: &'a StateSchema,
    rows: u64,
    bytes: u64,
    files: Vec<File<'a>>,
}

#[derive(Serialize)]
struct File<'a> {
    subtask: u32,
    key_groups: [u16; 2],
    path: &'a str,
    rows: u64,
    bytes: u64,
    crc32c: String,
}

/// The text of a savepoint's `manifest.json`. Nothing reads it but people: `_metadata` is what is restored from.
///
/// Units: `levada` is the version that wrote it.
pub fn manifest(metadata: &CheckpointMetadata, job_name: &str, levada: &str) -> String {
    let mut operators: BTreeMap<&Uid, Operator<'_>> = BTreeMap::new();
    for handle in metadata.states() {
        let states = &mut operators.entry(&handle.uid).or_default().states;
        let state = states.entry(&handle.name).or_insert_with(|| State {
            kind: handle.kind.name(),
            shape: handle.schema.shape.name(),
            schema: &handle.schema,
            rows: 0,
            bytes: 0,
            files: Vec::new(),
        });
        state.rows += handle.rows;
        state.bytes += handle.handle.length();
        state.files.push(file(handle));
    }
    let manifest = Manifest {
        format: 1,
        levada,
        job: Job { id: metadata.job.to_string(), name: job_name },
        checkpoint: metadata.id.0,
        triggered_at_ms: metadata.triggered_at_ms,
        max_parallelism: metadata.max_parallelism,
        bytes: metadata.bytes(),
        operators,
    };
    serde_json::to_string_pretty(&manifest).expect("a manifest has string keys only") + "\n"
}

fn file(handle: &StateHandle) -> File<'_> {
    let path = match &handle.handle {
        Handle::File { path, .. } => path,
        // Savepoints have files only; what else there may be is in `_metadata`.
        Handle::Inline(_) | Handle::Database { .. } => METADATA_FILE,
    };
    File {
        subtask: handle.subtask.0,
        key_groups: [handle.key_groups.start, handle.key_groups.end],
        path,
        rows: handle.rows,
        bytes: handle.handle.length(),
        crc32c: format!("{:08x}", handle.crc32c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_named_after_job_and_checkpoint() {
        let job = JobId::from_u128(0x0190_0000_0000_7000_8000_0000_0000_00ab);
        assert_eq!(folder("s3://b/sp/", job, CheckpointId(7)), "s3://b/sp/savepoint-0000000000ab-7");
    }
}
