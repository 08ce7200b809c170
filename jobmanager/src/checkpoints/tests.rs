//! What is written is found again, what is not wanted goes, and a loss of power at any step leaves one checkpoint or the next.

use levada_common::checkpoint::{DatabaseFile, Handle, StateHandle, StateKind};
use levada_common::ids::{SubtaskIndex, TaskId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::storage::power::Disk;
use levada_proto::snapshot::SnapshotError;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

fn snapshot(path: &str) -> TaskSnapshot {
    let state = StateHandle {
        uid: Uid::new("counts"),
        name: "count".into(),
        kind: StateKind::Keyed,
        schema: Arc::default(),
        subtask: SubtaskIndex(0),
        key_groups: KeyGroupRange { start: 0, end: 127 },
        rows: 1,
        crc32c: 0,
        handle: Handle::File { path: path.into(), offset: 0, length: 1 },
    };
    TaskSnapshot { task: TaskId::new(VertexId(0), 0), finished: false, states: vec![state] }
}

fn checkpoint(id: u64) -> CheckpointMetadata {
    CheckpointMetadata {
        job: JobId::from_u128(1),
        epoch: Epoch(1),
        id: CheckpointId(id),
        triggered_at_ms: 5,
        max_parallelism: 128,
        savepoint: false,
        vertices: Vec::new(),
        tasks: vec![snapshot(&format!("chk-{id}/a"))],
    }
}

async fn paths(storage: &Storage) -> Vec<String> {
    storage.list("").await.unwrap().into_iter().map(|stored| stored.path).collect()
}

#[tokio::test]
async fn metadata_is_read_back_and_a_discard_leaves_nothing() {
    let storage = Storage::in_memory();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    for id in [1, 2] {
        storage.put(&format!("chk-{id}/a"), Bytes::from_static(b"x")).await.unwrap();
        let uri = checkpoints.write(checkpoint(id), &CheckpointKind::Checkpoint, 10_000).unwrap().await.unwrap();
        assert!(uri.ends_with(&format!("/chk-{id}/_metadata")), "{uri}");
    }
    let bytes = storage.get("chk-2/_metadata").await.unwrap();
    assert_eq!(metadata::decode(bytes).unwrap(), checkpoint(2));
    checkpoints.discard(CheckpointId(1), &CheckpointKind::Checkpoint, &[snapshot("chk-1/a")], true).unwrap().await;
    checkpoints.discarded();
    assert_eq!(paths(&storage).await, ["chk-2/_metadata", "chk-2/a"]);
    checkpoints.discard(CheckpointId(2), &CheckpointKind::Checkpoint, &[snapshot("chk-2/a")], false).unwrap().await;
    assert_eq!(paths(&storage).await, ["chk-2/_metadata"]);
}

#[tokio::test]
async fn shared_files_go_when_the_metadata_that_names_them_is_gone() {
    let storage = Storage::in_memory();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    let of = async |id, shared| write_files(&storage, id, shared).await;
    let kind = CheckpointKind::Checkpoint;
    let delete = |checkpoints: &mut Checkpoints, file: &str| {
        Box::pin(checkpoints.delete_shared(vec![format!("shared/1-1-{file}")]).expect("there is a directory"))
    };
    let left = async || paths(&storage).await.into_iter().filter(|path| path.starts_with("shared")).collect::<Vec<_>>();
    let (one, two) = (of(1, "a").await, of(2, "b").await);
    checkpoints.write(checkpoint(1), &kind, 10_000).unwrap().await.unwrap();
    let discard = checkpoints.discard(CheckpointId(1), &kind, std::slice::from_ref(&one), true).unwrap();
    let mut shared = delete(&mut checkpoints, "a");
    assert!(futures::poll!(&mut shared).is_pending());
    delete(&mut checkpoints, "b").await;
    assert_eq!(left().await, ["shared/1-1-a"], "nothing that goes names the other one");
    // The next one that goes names the file, too, and another is deleted at the same time.
    let again = checkpoints.discard(CheckpointId(3), &kind, std::slice::from_ref(&one), true).unwrap();
    let mut both = delete(&mut checkpoints, "a");
    again.await;
    assert!(futures::poll!(&mut both).is_pending(), "the first one is there yet");
    discard.await;
    shared.await;
    both.await;
    assert_eq!(left().await, Vec::<String>::new());
    // Where it could not be deleted what it names stays.
    of(2, "b").await;
    drop(checkpoints.discard(CheckpointId(2), &kind, &[two], true).unwrap());
    delete(&mut checkpoints, "b").await;
    assert_eq!(left().await, ["shared/1-1-b"]);
}

#[tokio::test]
async fn metadata_waits_while_deletions_are_behind() {
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(Storage::in_memory()));
    let discards: Vec<_> = (0..BACKLOG_MAX as u64)
        .map(|id| checkpoints.discard(CheckpointId(id), &CheckpointKind::Checkpoint, &[], true).unwrap())
        .collect();
    let error = checkpoints.write(checkpoint(99), &CheckpointKind::Checkpoint, 20).unwrap().await.unwrap_err();
    assert!(error.to_string().contains("behind"), "{error}");
    let writing = checkpoints.write(checkpoint(100), &CheckpointKind::Checkpoint, 60_000).unwrap();
    discards.into_iter().next().unwrap().await;
    checkpoints.discarded();
    writing.await.unwrap();
}

#[tokio::test]
async fn what_killed_tasks_left_is_swept_up() {
    let storage = Storage::in_memory();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    for file in ["1-1-kept", "1-1-left", "1-2-left", "1-3-new", "other"] {
        storage.put(&format!("shared/{file}"), Bytes::from_static(b"x")).await.unwrap();
    }
    let keep = BTreeSet::from(["shared/1-1-kept".to_owned()]);
    checkpoints.sweep_shared(Some((Epoch(1), Attempt(3))), keep.clone()).unwrap().await;
    assert_eq!(paths(&storage).await, ["shared/1-1-kept", "shared/1-3-new", "shared/other"]);
    checkpoints.sweep_shared(None, keep).unwrap().await;
    assert_eq!(paths(&storage).await, ["shared/1-1-kept", "shared/other"]);
    checkpoints.sweep_shared(None, BTreeSet::new()).unwrap().await;
    assert_eq!(paths(&storage).await, Vec::<String>::new());
}

#[tokio::test]
async fn what_a_killed_task_had_begun_is_swept_up_and_what_a_living_one_writes_is_not() {
    let (seen, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let disk = Disk::new(seen.path());
    // Two attempts write; power is lost before either has ended.
    let mut begun = Vec::new();
    for file in ["shared/1-2-dead", "shared/1-3-alive"] {
        disk.storage().put(file, Bytes::from_static(b"x")).await.unwrap();
        begun.push(disk.steps());
    }
    let storage = Storage::open(&format!("file://{}", dir.path().display())).unwrap();
    for (step, file) in begun.into_iter().zip(["dead", "alive"]) {
        let left = tempfile::tempdir().unwrap();
        // The last steps are the name and its sync.
        disk.lose_power(step - 2, left.path(), || true).unwrap();
        let temporary = all_files(left.path()).into_iter().find(|name| name.contains(".levada-tmp-") && name.ends_with(file));
        let temporary = temporary.expect("it was being written");
        std::fs::create_dir_all(dir.path().join("shared")).unwrap();
        let name = std::path::Path::new(&temporary).file_name().unwrap();
        std::fs::copy(&temporary, dir.path().join("shared").join(name)).unwrap();
    }
    storage.put("shared/1-1-kept", Bytes::from_static(b"x")).await.unwrap();
    let keep = BTreeSet::from(["shared/1-1-kept".to_owned()]);
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage));
    checkpoints.sweep_shared(Some((Epoch(1), Attempt(3))), keep.clone()).unwrap().await;
    let left = all_files(dir.path());
    assert!(left.len() == 2 && left.iter().any(|file| file.ends_with("-1-3-alive")), "{left:?}");
    checkpoints.sweep_shared(None, keep).unwrap().await;
    assert_eq!(all_files(dir.path()), [dir.path().join("shared/1-1-kept").display().to_string()]);
}

#[tokio::test]
async fn a_savepoint_is_a_folder_that_can_be_moved_and_goes_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("file://{}/sp/savepoint-1", dir.path().display());
    let kind = CheckpointKind::Savepoint { directory: uri.as_str().into(), stops: false };
    let metadata = CheckpointMetadata { savepoint: true, tasks: vec![snapshot("state/a.arrow")], ..checkpoint(3) };
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), None);
    let file = checkpoints.write(metadata.clone(), &kind, 10_000).unwrap().await.unwrap();
    assert_eq!(file, format!("{uri}/_metadata"));
    let found = levada_proto::snapshot::open(&uri).await.unwrap();
    assert_eq!((found.metadata, found.directory), (metadata, uri.clone()));
    let manifest = std::fs::read_to_string(dir.path().join("sp/savepoint-1/manifest.json")).unwrap();
    assert!(manifest.contains("\"name\": \"job\"") && manifest.contains("state/a.arrow"), "{manifest}");
    std::fs::rename(dir.path().join("sp"), dir.path().join("moved")).unwrap();
    let moved = format!("file://{}/moved/savepoint-1/_metadata", dir.path().display());
    let found = levada_proto::snapshot::open(&moved).await.unwrap();
    assert_eq!(found.directory, moved.trim_end_matches("/_metadata"));
    std::fs::rename(dir.path().join("moved"), dir.path().join("sp")).unwrap();
    checkpoints.discard(CheckpointId(3), &kind, &[], true).unwrap().await;
    assert_eq!(std::fs::read_dir(dir.path().join("sp")).unwrap().count(), 0);
}

#[tokio::test]
async fn a_job_s_directory_stands_for_its_newest_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let uri = format!("file://{}/job", dir.path().display());
    let missing = levada_proto::snapshot::open(&uri).await.unwrap_err().to_string();
    assert!(missing.contains(&uri), "{missing}");
    let storage = Storage::open(&uri).unwrap();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    for id in [9, 10, 2] {
        checkpoints.write(checkpoint(id), &CheckpointKind::Checkpoint, 10_000).unwrap().await.unwrap();
    }
    let found = levada_proto::snapshot::open(&uri).await.unwrap();
    assert_eq!((found.metadata.id, found.directory.as_str()), (CheckpointId(10), uri.as_str()));
    let newest = storage.get("chk-10/_metadata").await.unwrap();
    let mut damaged = newest.to_vec();
    damaged[20] ^= 4;
    storage.put("chk-10/_metadata", damaged.into()).await.unwrap();
    let refused = levada_proto::snapshot::open(&uri).await.unwrap_err().to_string();
    assert!(refused.contains("chk-10/_metadata") && refused.contains("damaged"), "{refused}");
    assert!(refused.contains(&format!("{uri}/chk-9, {uri}/chk-2")), "{refused}");
    let older = levada_proto::snapshot::open(&format!("{uri}/chk-9/")).await.unwrap();
    assert_eq!((older.metadata, older.directory), (checkpoint(9), uri));
}

#[test]
fn without_a_directory_nothing_is_written() {
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), None);
    assert!(checkpoints.write(checkpoint(1), &CheckpointKind::Checkpoint, 1_000).is_none());
    assert!(checkpoints.discard(CheckpointId(1), &CheckpointKind::Checkpoint, &[snapshot("chk-1/a")], true).is_none());
}

/// Files of a snapshot as tasks write them: of the checkpoint's own, and one that later ones share.
async fn write_files(storage: &Storage, id: u64, shared: &str) -> TaskSnapshot {
    let file = |name: &str, path: String, seed: u64| {
        let bytes = Bytes::from(vec![(seed % 251) as u8; 1_000 + seed as usize]);
        (DatabaseFile { name: name.into(), path, length: bytes.len() as u64, crc32c: crc32c::crc32c(&bytes) }, bytes)
    };
    let packed = file("segment", format!("chk-{id}/1-1-segment"), id);
    let manifest = file("MANIFEST", format!("chk-{id}/1-1-manifest"), id + 100);
    let table = file("1.sst", format!("shared/1-1-{shared}"), 7);
    for (file, bytes) in [&packed, &manifest, &table] {
        if storage.size(&file.path).await.is_err() {
            storage.put(&file.path, bytes.clone()).await.unwrap();
        }
    }
    let mut snapshot = snapshot(&packed.0.path);
    let in_segment = snapshot.states[0].clone();
    snapshot.states[0].handle = Handle::File { path: packed.0.path, offset: 0, length: packed.0.length };
    snapshot.states[0].crc32c = packed.0.crc32c;
    let files = Arc::from([manifest.0, table.0]);
    snapshot.states.push(StateHandle {
        name: "table".into(),
        handle: Handle::Database { files, family: "table".into() },
        ..in_segment
    });
    snapshot
}

/// Whether every byte that the checkpoint names is there.
async fn assert_whole(storage: &Storage, metadata: &CheckpointMetadata, place: &str) {
    for state in metadata.states() {
        let files: Vec<(String, u64, u32)> = match &state.handle {
            Handle::Inline(_) => Vec::new(),
            Handle::File { path, length, .. } => vec![(path.clone(), *length, state.crc32c)],
            Handle::Database { files, .. } => files.iter().map(|file| (file.path.clone(), file.length, file.crc32c)).collect(),
        };
        for (path, length, crc32c) in files {
            let bytes = storage.get(&path).await.unwrap_or_else(|error| panic!("{place}: {path}: {error}"));
            assert_eq!((bytes.len() as u64, crc32c::crc32c(&bytes)), (length, crc32c), "{place}: {path}");
        }
    }
}

/// Every file below a folder, those that a write has begun too.
fn all_files(folder: &std::path::Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(all_files(&path)) } else { files.push(path.display().to_string()) }
    }
    files.sort();
    files
}

#[tokio::test]
async fn a_loss_of_power_at_any_step_leaves_a_checkpoint_or_the_next_and_never_a_broken_one() {
    let seed = 0xC4E0;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(dir.path());
    let storage = disk.storage();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    // 1 and 2 share a table; 2 replaces 1; 3 is given up when its files are there; 4 replaces 2 and its table.
    let mut complete = Vec::new();
    let mut replaced: Option<CheckpointMetadata> = None;
    for (id, shared, wanted) in [(1, "a", true), (2, "a", true), (3, "b", false), (4, "b", true)] {
        let metadata = CheckpointMetadata { tasks: vec![write_files(&storage, id, shared).await], ..checkpoint(id) };
        if !wanted {
            checkpoints.discard(metadata.id, &CheckpointKind::Checkpoint, &metadata.tasks, true).unwrap().await;
            continue;
        }
        checkpoints.write(metadata.clone(), &CheckpointKind::Checkpoint, 60_000).unwrap().await.unwrap();
        complete.push((disk.steps(), metadata.clone()));
        if let Some(old) = replaced.replace(metadata) {
            checkpoints.discard(old.id, &CheckpointKind::Checkpoint, &old.tasks, true).unwrap().await;
        }
    }
    checkpoints.delete_shared(vec!["shared/1-1-a".into()]).unwrap().await;

    let mut found = std::collections::BTreeMap::<u64, u32>::new();
    for step in 0..=disk.steps() {
        let newest = complete.iter().rev().find(|(at, _)| *at <= step).map_or(0, |(_, metadata)| metadata.id.0);
        let next = complete.iter().find(|(at, _)| *at > step).map_or(newest, |(_, metadata)| metadata.id.0);
        for round in 0..12 {
            let left = tempfile::tempdir().unwrap();
            disk.lose_power(step, left.path(), || rng.random()).unwrap();
            let place = format!("step {step}, round {round}");
            let uri = format!("file://{}", left.path().display());
            let id = match levada_proto::snapshot::open(&uri).await {
                Ok(snapshot) => {
                    assert_whole(&Storage::open(&uri).unwrap(), &snapshot.metadata, &place).await;
                    snapshot.metadata.id.0
                }
                Err(SnapshotError::NotFound { .. }) => 0,
                Err(error) => panic!("{place}: {error}"),
            };
            assert!(id == newest || id == next, "{place}: {id} is found, {newest} is complete, {next} under way");
            *found.entry(id).or_default() += 1;
        }
    }
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 4], "{found:?}");
}

#[tokio::test]
async fn a_checkpoint_that_a_crash_interrupted_goes_with_all_that_was_begun() {
    let mut rng = StdRng::seed_from_u64(3);
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(dir.path());
    let storage = disk.storage();
    let snapshot = write_files(&storage, 1, "a").await;
    for step in 0..=disk.steps() {
        let left = tempfile::tempdir().unwrap();
        disk.lose_power(step, left.path(), || rng.random()).unwrap();
        let storage = Storage::open(&format!("file://{}", left.path().display())).unwrap();
        let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage));
        let tasks = std::slice::from_ref(&snapshot);
        checkpoints.discard(CheckpointId(1), &CheckpointKind::Checkpoint, tasks, true).unwrap().await;
        checkpoints.sweep_shared(None, BTreeSet::new()).unwrap().await;
        assert_eq!(all_files(left.path()), Vec::<String>::new(), "step {step}");
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_metadata_by_name_and_leaves_what_there_was() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Disk::new(dir.path());
    let storage = disk.storage();
    let mut checkpoints = Checkpoints::at(JobId::from_u128(1), "job".into(), Some(storage.clone()));
    let write =
        |checkpoints: &mut Checkpoints, id| checkpoints.write(checkpoint(id), &CheckpointKind::Checkpoint, 60_000).unwrap();
    write(&mut checkpoints, 1).await.unwrap();
    // Where the folder cannot be made, the file begun, or its bytes written.
    for room in 0..4 {
        let before = all_files(dir.path());
        disk.fill_from(disk.steps() + room);
        let error = write(&mut checkpoints, 2 + room as u64).await.unwrap_err();
        let DeclineReason::Finalize { path, cause } = &error else { panic!("{error}") };
        assert!(path.ends_with("_metadata") && cause.contains("os error 28"), "{error}");
        disk.fill_from(usize::MAX);
        assert_eq!(all_files(dir.path()), before, "room for {room} steps");
    }
    write(&mut checkpoints, 9).await.unwrap();
}
