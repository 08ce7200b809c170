use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::checkpoint::{Handle as Place, StateHandle, StateKind};
use levada_common::fault::{Fault, Retry};
use levada_common::ids::{SubtaskIndex, Uid};
use levada_common::plan::{BackendKind, JobSettings};
use levada_common::storage::power::Disk;
use levada_engine::error::EngineError;
use levada_proto::convert::{decline_from_json, state_from_message};
use levada_proto::encoded_len;
use levada_state::format::{FileBytes, SizeLimit, encode};
use levada_state::snapshot::{StateMeta, pieces, ready};

use super::*;
use crate::testing::{TestJobManager, Told, attempt, plan, settings, task};

const FRAME: u64 = 10 * 1024 * 1024;

fn meta(name: &str) -> StateMeta {
    StateMeta { uid: Uid::new("numbers"), name: name.into(), kind: StateKind::OperatorList, schema: Arc::default() }
}

fn text(bytes: usize) -> RecordBatch {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(bytes)]));
    RecordBatch::try_from_iter([("entry", column)]).unwrap()
}

/// A state whose text has `bytes` bytes; encoded it has some more.
fn part(name: &str, bytes: usize) -> StatePart {
    StatePart { meta: meta(name), contents: ready([text(bytes)]).into() }
}

fn encoded_bytes(name: &str, bytes: usize) -> u64 {
    let mut out = Vec::new();
    encode(&meta(name), 128, ready([text(bytes)]), SizeLimit { bytes_max: None }, &mut out).unwrap().bytes
}

fn taken(checkpoint: u64, parts: Vec<StatePart>) -> Taken {
    let checkpoint = CheckpointId(checkpoint);
    Taken {
        task: task(0, 0),
        checkpoint,
        kind: CheckpointKind::Checkpoint,
        finished: false,
        parts,
        durable: Vec::new(),
        sync_ns: 1,
    }
}

fn uploads(job_manager: &TestJobManager, settings: JobSettings, frame_bytes: u64) -> Arc<Uploads> {
    let plan = Arc::new(plan(settings, "end", "collect"));
    let destination = Destination::of(attempt(1).job, &plan.settings, frame_bytes).unwrap();
    Uploads::new(
        attempt(1),
        plan,
        job_manager.calls(frame_bytes),
        destination,
        Arc::default(),
        std::env::temp_dir(),
        Handle::current(),
    )
}

fn acknowledged(told: Told) -> (v1::AcknowledgeCheckpointRequest, Vec<StateHandle>) {
    match told {
        Told::Acknowledged(request) => {
            let states = request.states.iter().map(|state| state_from_message(SubtaskIndex(0), state.clone()).unwrap());
            let states = states.collect();
            (request, states)
        }
        other => panic!("not an acknowledgement: {other:?}"),
    }
}

fn declined(told: Told) -> DeclineReason {
    match told {
        Told::Declined(request) => decline_from_json(&request.reason_json).unwrap(),
        other => panic!("not a decline: {other:?}"),
    }
}

fn on_files(dir: &tempfile::TempDir) -> JobSettings {
    let mut settings = settings();
    settings.backend = BackendKind::Fs;
    settings.checkpoint.dir = Some(format!("file://{}", dir.path().display()));
    settings
}

fn files_below(dir: &tempfile::TempDir) -> Vec<std::path::PathBuf> {
    let folder = dir.path().join(attempt(1).job.to_string()).join("chk-1");
    std::fs::read_dir(folder).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
}

fn whole(bytes: Vec<u8>) -> FileBytes {
    Bytes::from(bytes).into()
}

#[tokio::test]
async fn a_state_at_the_limit_passes_and_one_byte_over_it_is_declined() {
    let mut job_manager = TestJobManager::start().await;
    let bytes = encoded_bytes("splits", 300_000);
    let limited = |limit| JobSettings { max_state_size_bytes: limit, ..settings() };
    for limit in [bytes + 1, bytes] {
        uploads(&job_manager, limited(limit), FRAME).submit(taken(1, vec![part("splits", 300_000)]));
        let (request, states) = acknowledged(job_manager.told.recv().await.unwrap());
        assert_eq!((request.checkpoint, states.len(), states[0].handle.length()), (1, 1, bytes));
    }
    uploads(&job_manager, limited(bytes - 1), FRAME).submit(taken(2, vec![part("splits", 300_000)]));
    match declined(job_manager.told.recv().await.unwrap()) {
        DeclineReason::StateTooLarge { uid, state, subtask, size_bytes, limit_bytes } => {
            assert_eq!((uid.as_str(), state.as_str(), subtask.0), ("numbers", "splits", 0));
            assert!(size_bytes >= bytes && limit_bytes == bytes - 1, "{size_bytes} of {limit_bytes}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_state_is_never_larger_than_the_frame_less_its_reserve() {
    let mut job_manager = TestJobManager::start().await;
    let bytes = encoded_bytes("splits", 300_000);
    let least = bytes + 64 * 1024;
    for (frame, fits) in [(least + 1, true), (least, true), (least - 1, false)] {
        let settings = JobSettings { max_state_size_bytes: u64::MAX, ..settings() };
        uploads(&job_manager, settings, frame).submit(taken(1, vec![part("splits", 300_000)]));
        let told = job_manager.told.recv().await.unwrap();
        assert_eq!(matches!(told, Told::Acknowledged(_)), fits, "{told:?}");
    }
}

#[tokio::test]
async fn an_acknowledgement_over_the_frame_is_declined_naming_its_largest_state() {
    let mut job_manager = TestJobManager::start().await;
    let parts = || vec![part("small", 100_000), part("large", 110_000)];
    uploads(&job_manager, settings(), FRAME).submit(taken(1, parts()));
    let (request, _) = acknowledged(job_manager.told.recv().await.unwrap());
    let size = encoded_len(&request);
    for frame in [size + 1, size] {
        uploads(&job_manager, settings(), frame).submit(taken(1, parts()));
        acknowledged(job_manager.told.recv().await.unwrap());
    }
    uploads(&job_manager, settings(), size - 1).submit(taken(1, parts()));
    match declined(job_manager.told.recv().await.unwrap()) {
        DeclineReason::FrameTooLarge { state, size_bytes, limit_bytes, state_bytes, .. } => {
            assert_eq!((state.as_str(), size_bytes, limit_bytes), ("large", size, size - 1));
            assert_eq!(state_bytes, encoded_bytes("large", 110_000));
        }
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn files_hold_what_is_over_the_threshold() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let (at, over) = (encoded_bytes("at", 30_000), encoded_bytes("over", 60_000));
    let settings = JobSettings { inline_threshold_bytes: at, ..on_files(&dir) };
    let uploads = uploads(&job_manager, settings, FRAME);
    uploads.submit(taken(1, vec![part("at", 30_000), part("over", 60_000)]));
    let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
    assert!(matches!(&states[0].handle, Place::Inline(bytes) if bytes.len() as u64 == at), "{:?}", states[0]);
    match &states[1].handle {
        Place::File { path, offset: 0, length } => {
            assert!(path.starts_with("chk-1/1-1-"), "{path}");
            let bytes = std::fs::read(dir.path().join(attempt(1).job.to_string()).join(path)).unwrap();
            assert_eq!((bytes.len() as u64, *length), (over, over));
            whole(bytes).verify(states[1].crc32c).unwrap();
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_threshold_is_kept_to_the_byte() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let bytes = encoded_bytes("state", 30_000);
    for (threshold, is_inline) in [(bytes + 1, true), (bytes, true), (bytes - 1, false)] {
        let settings = JobSettings { inline_threshold_bytes: threshold, ..on_files(&dir) };
        uploads(&job_manager, settings, FRAME).submit(taken(1, vec![part("state", 30_000)]));
        let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
        assert_eq!(matches!(states[0].handle, Place::Inline(_)), is_inline, "{threshold}");
    }
}

#[tokio::test]
async fn a_savepoint_has_files_of_its_own_whatever_the_backend_and_however_small_its_states() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let folder = dir.path().join("savepoint-1");
    let kind = CheckpointKind::Savepoint { directory: format!("file://{}", folder.display()).into(), stops: false };
    let limited = JobSettings { max_state_size_bytes: 10, ..settings() };
    let uploads = uploads(&job_manager, limited, FRAME);
    uploads.submit(Taken { kind: kind.clone(), ..taken(1, vec![part("splits", 100_000), part("odd /../name", 5)]) });
    let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
    let mut paths = Vec::new();
    for state in &states {
        let Place::File { path, offset: 0, length } = &state.handle else { panic!("{:?}", state.handle) };
        let bytes = std::fs::read(folder.join(path)).unwrap();
        assert_eq!(bytes.len() as u64, *length);
        whole(bytes).verify(state.crc32c).unwrap();
        paths.push(path.as_str());
    }
    assert!(
        paths[0].starts_with("state/numbers.splits.0-") && paths[1].starts_with("state/numbers.odd_____name.0-"),
        "{paths:?}"
    );
    job_manager.accepts.store(false, std::sync::atomic::Ordering::SeqCst);
    uploads.submit(Taken { kind, ..taken(2, vec![part("late", 60_000)]) });
    acknowledged(job_manager.told.recv().await.unwrap());
    uploads.settled().await;
    assert_eq!(std::fs::read_dir(folder.join("state")).unwrap().count(), 2, "what is not wanted goes");
}

#[tokio::test]
async fn inline_states_beside_files_fill_half_a_frame_at_most() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let bytes = encoded_bytes("s0", 10_000);
    let uploads = uploads(&job_manager, on_files(&dir), 2 * (2 * bytes + bytes / 2));
    uploads.submit(taken(1, (0..5).map(|index| part(&format!("s{index}"), 10_000)).collect()));
    let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
    let inline = states.iter().filter(|state| matches!(state.handle, Place::Inline(_))).count();
    assert_eq!((states.len(), inline, files_below(&dir).len()), (5, 2, 1), "the others share a file");
    let mut end = 0;
    for state in &states {
        if let Place::File { path, offset, length } = &state.handle {
            assert_eq!(*offset, end);
            end = offset + length;
            let file = std::fs::read(dir.path().join(attempt(1).job.to_string()).join(path)).unwrap();
            whole(file[*offset as usize..end as usize].to_vec()).verify(state.crc32c).unwrap();
        }
    }
    assert_eq!(end, 3 * bytes);
}

#[tokio::test]
async fn a_snapshot_that_is_not_wanted_leaves_no_file() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    job_manager.accepts.store(false, std::sync::atomic::Ordering::SeqCst);
    let uploads = uploads(&job_manager, on_files(&dir), FRAME);
    uploads.submit(taken(1, vec![part("over", 60_000)]));
    let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
    assert!(matches!(states[0].handle, Place::File { .. }));
    uploads.settled().await;
    assert_eq!(files_below(&dir), Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn a_checkpoint_that_was_given_up_is_told_to_nobody() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let uploads = uploads(&job_manager, on_files(&dir), FRAME);
    let (sender, reader) = pieces();
    sender.send(text(60_000));
    uploads.submit(taken(1, vec![part("whole", 60_000), StatePart { meta: meta("endless"), contents: reader.into() }]));
    uploads.give_up(CheckpointId(1));
    uploads.submit(taken(1, vec![part("late", 60_000)]));
    uploads.settled().await;
    assert_eq!(files_below(&dir), Vec::<std::path::PathBuf>::new());
    drop(sender);
    drop(uploads);
    job_manager.told.close();
    assert!(job_manager.told.recv().await.is_none());
}

#[tokio::test]
async fn without_checkpoints_the_last_snapshot_is_inline_up_to_the_frame() {
    let (mut job_manager, dir) = (TestJobManager::start().await, tempfile::tempdir().unwrap());
    let mut settings = JobSettings { max_state_size_bytes: 10, ..on_files(&dir) };
    settings.checkpoint.interval_ms = None;
    uploads(&job_manager, settings, FRAME).submit(taken(1, vec![part("prepared", 1_000_000)]));
    let (_, states) = acknowledged(job_manager.told.recv().await.unwrap());
    assert!(matches!(states[0].handle, Place::Inline(_)));
}

#[tokio::test]
async fn durable_work_that_fails_declines_the_checkpoint() {
    let mut job_manager = TestJobManager::start().await;
    let failing: Durable = Box::new(|| {
        Err(EngineError::Connector {
            uid: Uid::new("out"),
            connector: "file".into(),
            message: "syncing \"a.tmp\": no space left on device".into(),
            fault: Fault::External,
            retry: Retry::Backoff,
        })
    });
    let with_durable = Taken { durable: vec![failing], ..taken(1, vec![part("splits", 10)]) };
    uploads(&job_manager, settings(), FRAME).submit(with_durable);
    let reason = declined(job_manager.told.recv().await.unwrap()).to_string();
    assert!(reason.contains("\"out\"") && reason.contains("no space left on device"), "{reason}");
}

/// Every file below a folder that is there under its name: a thread may still be taking away what it had begun.
fn all_files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let is_begun = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".levada-tmp-"));
        if path.is_dir() {
            files.extend(all_files(&path));
        } else if !is_begun {
            files.push(path);
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_declines_the_snapshot_by_name_at_once_and_later_ones_are_stored() {
    let mut job_manager = TestJobManager::start().await;
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(dir.path());
    let on_disk = || Destination::Files { storage: disk.storage(), inline_bytes_max: 0, inline_sum_max: 0 };
    let uploads = |job_manager: &TestJobManager| {
        let plan = Arc::new(plan(settings(), "end", "collect"));
        Uploads::new(
            attempt(1),
            plan,
            job_manager.calls(FRAME),
            on_disk(),
            Arc::default(),
            std::env::temp_dir(),
            Handle::current(),
        )
    };
    // Two states that share a file, and one with a file of its own.
    let parts = || vec![part("a", 1_000), part("b", 2_000), part("alone", 5 << 20)];
    let mut checkpoint = 0;
    // Both files are written at once: with room for more steps than these both may have had theirs.
    for room in 0..3 {
        disk.fill_from(disk.steps() + room);
        let one = uploads(&job_manager);
        checkpoint += 1;
        one.submit(taken(checkpoint, parts()));
        match declined(job_manager.told.recv().await.unwrap()) {
            DeclineReason::StorageWrite { path, cause } => {
                assert!(path.starts_with(&format!("chk-{checkpoint}/")) && cause.contains("os error 28"), "{path}: {cause}");
            }
            other => panic!("room for {room} steps: {other}"),
        }
        one.settled().await;
        assert_eq!(all_files(dir.path()), Vec::<std::path::PathBuf>::new(), "room for {room} steps");
        disk.fill_from(usize::MAX);
    }
    let one = uploads(&job_manager);
    one.submit(taken(checkpoint + 1, parts()));
    acknowledged(job_manager.told.recv().await.unwrap());
    assert_eq!(all_files(dir.path()).len(), 2);
}
