//! The square: a state of every type, through every backend and storage, from every width to every other.

mod operators;
mod rig;

use levada_common::checkpoint::{Handle, StateKind};
use levada_common::plan::BackendKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use operators::LISTS;
use rig::{Place, Rig, feeds, rows_of};

const WIDTHS: [u32; 5] = [1, 2, 3, 5, 8];

/// Feeds before the snapshot, and after it.
const BEFORE: i64 = 10;
const AFTER: i64 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_memory_at_every_width() {
    square(BackendKind::Memory, Place::Files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_files_at_every_width() {
    square(BackendKind::Fs, Place::Files).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_objects_at_every_width() {
    square(BackendKind::Fs, Place::Objects).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_databases_at_every_width() {
    square(BackendKind::Rocksdb, Place::Files).await;
}

/// From each width to each: what comes out after a restore is what comes out where nothing is interrupted.
async fn square(backend: BackendKind, place: Place) {
    let seed = 0x5C0A_12E5;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let (before, after) = (feeds(&mut rng, 0, BEFORE), feeds(&mut rng, BEFORE, AFTER));
    let mut twin = Rig::new(BackendKind::Memory, Place::Files).await.start(1, None).await.unwrap();
    before.iter().for_each(|feed| twin.feed(feed));
    let expected_before = twin.take();
    after.iter().for_each(|feed| twin.feed(feed));
    twin.finish();
    let expected_after = twin.take();
    assert!(expected_before.len() > 800 && expected_after.len() > 500, "{}, {}", expected_before.len(), expected_after.len());

    for from in WIDTHS {
        let mut rig = Rig::new(backend, place).await;
        let mut run = rig.start(from, None).await.unwrap();
        before.iter().for_each(|feed| run.feed(feed));
        assert!(run.take() == expected_before, "{from} wide: the rows differ");
        let snapshot = rig.snapshot(&mut run, 1).await;
        drop(run);
        let same = rig.start(from, Some(&snapshot)).await.unwrap();
        for to in WIDTHS {
            let what = format!("{from} to {to}");
            let mut next = rig.start(to, Some(&snapshot)).await.unwrap();
            assert_lists(&same, &next, &what);
            after.iter().for_each(|feed| next.feed(feed));
            next.finish();
            assert!(next.take() == expected_after, "{what}: the rows differ");
        }
    }
}

/// Split lists come back once, in order; a union comes back whole to everyone; what is broadcast is the same everywhere.
fn assert_lists(before: &rig::Run, after: &rig::Run, what: &str) {
    for name in ["split", "variables"] {
        let all = |run| rows_of(run, LISTS, name, StateKind::OperatorList).concat();
        assert_eq!(all(after), all(before), "{what}: {name}");
    }
    let union = rows_of(before, LISTS, "union", StateKind::OperatorUnion);
    assert!(union[0].len() as i64 == 40 * BEFORE, "{what}: {}", union[0].len());
    assert!(rows_of(after, LISTS, "union", StateKind::OperatorUnion).iter().all(|of_task| *of_task == union[0]), "{what}: union");
    let rates = rows_of(before, operators::EVERYTHING, "rates", StateKind::OperatorBroadcast);
    assert!(!rates[0].is_empty(), "{what}: nothing was broadcast");
    let broadcast = rows_of(after, operators::EVERYTHING, "rates", StateKind::OperatorBroadcast);
    assert!(broadcast.iter().all(|of_task| *of_task == rates[0]), "{what}: broadcast");
}

/// One bit in any file of a checkpoint or savepoint is found before anything of the file is used, and the file is named.
#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_file_of_a_snapshot_is_found_and_named() {
    let seed = 0xF11B;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let before = feeds(&mut rng, 0, BEFORE);
    for place in [Place::Files, Place::Savepoint] {
        let mut rig = Rig::new(BackendKind::Fs, place).await;
        let mut run = rig.start(3, None).await.unwrap();
        before.iter().for_each(|feed| run.feed(feed));
        let snapshot = rig.snapshot(&mut run, 1).await;
        let mut files: Vec<&str> = snapshot.metadata.states().flat_map(|state| state.handle.own_paths()).collect();
        files.sort_unstable();
        files.dedup();
        let expected = if place == Place::Files { 3 } else { snapshot.metadata.states().count() };
        assert_eq!(files.len(), expected, "a segment of each task, or a file of each state: {files:?}");
        assert!(snapshot.metadata.states().all(|state| place == Place::Files || !matches!(state.handle, Handle::Inline(_))));
        for file in files {
            let path = std::path::Path::new(snapshot.directory.trim_start_matches("file://")).join(file);
            let bytes = std::fs::read(&path).unwrap();
            for _ in 0..4 {
                let bit = rng.random_range(0..bytes.len() * 8);
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                std::fs::write(&path, damaged).unwrap();
                let failure = rig.start(3, Some(&snapshot)).await.err().unwrap_or_else(|| panic!("{file}, bit {bit}: not found"));
                let text = failure.to_string();
                assert!(
                    text.contains(file) && text.contains("CRC-32C") && text.contains("operator"),
                    "{file}, bit {bit}: {text}"
                );
            }
            std::fs::write(&path, bytes).unwrap();
        }
        rig.start(3, Some(&snapshot)).await.unwrap();
    }
}
