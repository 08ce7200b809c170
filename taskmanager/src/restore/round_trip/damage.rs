//! Damage: one bit in any file that a snapshot has is found before anything of the file is used, and the file is named.

use std::collections::BTreeSet;

use levada_common::checkpoint::{Handle, StateHandle};
use levada_common::fault::Retry;
use levada_common::plan::BackendKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::BEFORE;
use super::functions::{EVERYTHING, LISTS};
use super::rig::{Place, Rig, Snapshot};
use super::run::feeds;

/// Tasks.
const WIDTH: u32 = 2;

/// A snapshot of some tasks.
async fn taken(rig: &mut Rig, rng: &mut StdRng) -> Snapshot {
    let mut run = rig.start(WIDTH, None).await.unwrap();
    feeds(rng, 0, BEFORE).iter().for_each(|feed| run.feed(feed));
    rig.snapshot(&mut run, &[]).await
}

/// Every file of the states, by path below the snapshot's folder.
fn files(snapshot: &Snapshot) -> BTreeSet<String> {
    let handles = snapshot.metadata.states().map(|state| &state.handle);
    handles.flat_map(|handle| handle.own_paths().chain(handle.shared_paths()).map(str::to_owned)).collect()
}

/// Flips this many bits of each file, one at a time, and cuts it; of each restore wants an error that names it.
async fn each_flip_is_named(rig: &mut Rig, rng: &mut StdRng, snapshot: &Snapshot, flips: usize) {
    for file in files(snapshot) {
        let path = snapshot.path(&file);
        let bytes = std::fs::read(&path).unwrap();
        for _ in 0..flips {
            let bit = rng.random_range(0..bytes.len() * 8);
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, damaged).unwrap();
            let failure = rig.start(WIDTH, Some(snapshot)).await.err().unwrap_or_else(|| panic!("{file}, bit {bit}: not found"));
            let text = &failure.message;
            assert!(
                text.contains(&file) && text.contains("CRC-32C") && text.contains("operator \""),
                "{file}, bit {bit}: {text}"
            );
            assert_eq!(failure.retry, Retry::Never, "{text}");
        }
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        let failure = rig.start(WIDTH, Some(snapshot)).await.err().unwrap_or_else(|| panic!("{file}, cut: not found"));
        assert!(failure.message.contains(&file), "{failure}");
        std::fs::write(&path, bytes).unwrap();
    }
    rig.start(WIDTH, Some(snapshot)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_file_of_a_checkpoint_is_named() {
    let seed = 0xF11B;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut rig = Rig::new(BackendKind::Fs, Place::Files).await;
    let snapshot = taken(&mut rig, &mut rng).await;
    assert_eq!(files(&snapshot).len(), WIDTH as usize, "the states of a task are in one file");
    each_flip_is_named(&mut rig, &mut rng, &snapshot, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_file_of_a_savepoint_is_named() {
    let seed = 0xF11C;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    for backend in [BackendKind::Memory, BackendKind::Rocksdb] {
        let mut rig = Rig::new(backend, Place::Savepoint).await;
        rig.operators.retain(|spec| [EVERYTHING, LISTS, "sessions", "standing"].contains(&spec.uid.as_str()));
        let snapshot = taken(&mut rig, &mut rng).await;
        assert_eq!(files(&snapshot).len(), snapshot.metadata.states().count(), "each state is a file");
        rig.backend = BackendKind::Fs;
        each_flip_is_named(&mut rig, &mut rng, &snapshot, 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_file_of_a_database_is_named() {
    let seed = 0xF11D;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut rig = Rig::new(BackendKind::Rocksdb, Place::Files).await;
    rig.operators.retain(|spec| [EVERYTHING, "panes"].contains(&spec.uid.as_str()));
    let snapshot = taken(&mut rig, &mut rng).await;
    let is_database = |state: &&StateHandle| matches!(state.handle, Handle::Database { .. });
    let kinds: BTreeSet<String> = snapshot.metadata.states().filter(is_database).flat_map(|state| kinds(&state.handle)).collect();
    assert_eq!(kinds.iter().map(String::as_str).collect::<Vec<_>>(), ["CURRENT", "MANIFEST", "sst"]);
    each_flip_is_named(&mut rig, &mut rng, &snapshot, 1).await;
}

/// The kinds of files of a database.
fn kinds(handle: &Handle) -> Vec<String> {
    let Handle::Database { files, .. } = handle else { return Vec::new() };
    let kind = |name: &str| match name.rsplit_once('.') {
        Some((_, end)) => end.to_owned(),
        None => name.split('-').next().unwrap_or(name).to_owned(),
    };
    files.iter().map(|file| kind(&file.name)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_flipped_bit_in_any_inline_state_is_named() {
    let seed = 0xF11E;
    println!("seed {seed:#x}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut rig = Rig::new(BackendKind::Memory, Place::Files).await;
    let whole = taken(&mut rig, &mut rng).await;
    for at in 0..whole.metadata.states().count() {
        let mut snapshot = whole.clone();
        let state = snapshot.metadata.tasks.iter_mut().flat_map(|task| &mut task.states).nth(at).expect("there are so many");
        let Handle::Inline(bytes) = &state.handle else { panic!("{:?}", state.handle) };
        let (mut damaged, bit) = (bytes.to_vec(), rng.random_range(0..bytes.len() * 8));
        damaged[bit / 8] ^= 1 << (bit % 8);
        state.handle = Handle::Inline(damaged.into());
        let named = format!("operator \"{}\", state \"{}\", subtask {}", state.uid, state.name, state.subtask);
        let failure = rig.start(WIDTH, Some(&snapshot)).await.err().unwrap_or_else(|| panic!("{named}, bit {bit}: not found"));
        assert!(failure.message.contains(&named) && failure.message.contains("CRC-32C"), "{named}, bit {bit}: {failure}");
    }
}
