//! Keyed state before databases on disk: the contract that every backend keeps, with as much memory as it wants and with none.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use levada_common::fault::{Faulty, Retry};
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::types::{Column, LogicalType};
use levada_state::cold::ColdStores;
use levada_state::descriptor::ValueStateDescriptor;
use levada_state::keyed::{HeapBudget, KeyedOptions, KeyedState, contract};
use levada_state::snapshot::DatabaseSnapshot;

use super::{fetch_of, task, with_memory};

/// Steps of a run: enough for some snapshots and restores.
const STEPS: usize = 100;

fn check(seed: u64, memory_bytes: u64) {
    println!("seed {seed}, {memory_bytes} bytes of memory");
    let dir = tempfile::tempdir().unwrap();
    let shared = with_memory(dir.path(), "a", memory_bytes);
    let tasks = Cell::new(0);
    let make = |options: KeyedOptions, snapshots: &[Arc<dyn DatabaseSnapshot>]| {
        tasks.set(tasks.get() + 1);
        let groups: KeyGroupRange = options.key_groups;
        let databases = task(&shared, &tasks.get().to_string(), groups, options.max_parallelism);
        if !snapshots.is_empty() {
            let fetched = snapshots.iter().enumerate();
            let folders = fetched.map(|(number, snapshot)| fetch_of(&options.uid, snapshot.as_ref(), &databases, number));
            let (folders, names) = (folders.collect::<Vec<_>>(), contract::STATES.map(String::from));
            databases.restore(&options.uid, &folders, &names).expect("the files are those of the snapshots");
        }
        let opened = databases.open(&options.uid).expect("a database can be made");
        KeyedState::with_store(options, opened)
    };
    contract::check(&make, seed, STEPS);
    drop(shared);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "seed {seed}: nothing is left");
}

#[test]
fn keyed_state_keeps_its_contract_where_everything_fits_memory() {
    (0..3).for_each(|seed| check(seed, 64 << 20));
}

#[test]
fn keyed_state_keeps_its_contract_where_nothing_stays_in_memory() {
    (100..103).for_each(|seed| check(seed, 0));
}

#[test]
fn a_disk_that_takes_nothing_fails_by_name_and_place() {
    let dir = tempfile::tempdir().unwrap();
    let shared = with_memory(dir.path(), "a", 64 << 20);
    let (uid, groups) = (Uid::new("counts"), KeyGroupRange::all(128));
    let databases = task(&shared, "x", groups, 128);
    let folder = databases.fetch_folder(&uid, 0).parent().unwrap().to_owned();
    let mut state = KeyedState::with_store(
        KeyedOptions {
            uid: uid.clone(),
            keys: vec![Column::new("k", LogicalType::Int64, false)],
            key_groups: groups,
            max_parallelism: 128,
            budget: Arc::new(HeapBudget::unlimited()),
        },
        databases.open(&uid).unwrap(),
    );
    // The first folder for new files cannot be made.
    std::fs::write(folder.join("staging-0"), "").unwrap();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut state).unwrap();
    let keys: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    state.enter(&[keys], 3).unwrap();
    for row in 0..3 {
        state.set_row(row);
        count.set(&mut state, 1).unwrap();
    }
    state.finish_batch(|_| false).unwrap();
    let part = state.snapshot(CheckpointId(1)).unwrap().remove(0);
    // No row comes any more: the work beside rows hears of it.
    let error = loop {
        match state.background() {
            Ok(_) => std::thread::yield_now(),
            Err(error) => break error.to_failure(),
        }
    };
    for text in ["operator \"counts\"", "state \"count\"", &folder.display().to_string()] {
        assert!(error.message.contains(text), "{error} does not say {text}");
    }
    assert_eq!(error.retry, Retry::Backoff);
    let declined = part.into_pieces().expect_err("there is no snapshot").to_failure();
    assert_eq!(declined.message, error.message.split_once(": ").unwrap().1);
}
