//! The contract suite and what only a database on disk can do wrong.

mod expiry;
mod keyed;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::Waker;

use arrow::array::{ArrayRef, AsArray, Int64Array, new_null_array};
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_common::config::RocksdbProfile;
use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{Stamps, StateSchema, StateShape};
use levada_common::types::{Column, LogicalType};
use levada_state::cold::contract::{self, MAX_PARALLELISM, Pair, TOUCHED_AT_MS, all_rows, compare_snapshots, states};
use levada_state::cold::{Addresses, Change, ColdError, ColdStore, ColdStores, Scope, Within};
use levada_state::row_codec::{LayoutError, RowBytes, TTL_COLUMN};
use levada_state::snapshot::DatabaseSnapshot;

use crate::database::database_path;
use crate::generation::Generation;
use crate::tables::{Batches, Tables};
use crate::{Rocksdb, RocksdbSettings, TaskDatabases, read_database};

fn rocksdb(path: &Path, owner: &str) -> Arc<Rocksdb> {
    with_memory(path, owner, 64 << 20)
}

fn with_memory(path: &Path, owner: &str, memory_bytes: u64) -> Arc<Rocksdb> {
    let settings = RocksdbSettings {
        data_dirs: vec![path.to_owned()],
        owner: owner.into(),
        memory_bytes,
        overlay_bytes: memory_bytes / 2,
        profile: RocksdbProfile::Default,
        open_files: Some(4096),
    };
    Rocksdb::start(&settings).expect("a folder can be made")
}

fn task(shared: &Arc<Rocksdb>, name: &str, groups: KeyGroupRange, max_parallelism: u32) -> Arc<TaskDatabases> {
    let parts = ["job".to_owned(), "1-1".to_owned(), name.to_owned()];
    TaskDatabases::new(shared, &parts, (groups, max_parallelism), Waker::noop().clone()).expect("a folder can be made")
}

fn all() -> KeyGroupRange {
    KeyGroupRange::all(MAX_PARALLELISM)
}

fn uid() -> Uid {
    Uid::new("co/unts")
}

fn names() -> Vec<String> {
    states().into_iter().map(|(name, _)| name.into()).collect()
}

fn store(databases: &TaskDatabases) -> Box<dyn ColdStore> {
    databases.open(&uid()).expect("a database can be made").store
}

/// Copies a snapshot's files into a folder of a task, as a restore does.
fn fetch(snapshot: &dyn DatabaseSnapshot, into: &TaskDatabases, number: usize) -> PathBuf {
    fetch_of(&uid(), snapshot, into, number)
}

fn fetch_of(uid: &Uid, snapshot: &dyn DatabaseSnapshot, into: &TaskDatabases, number: usize) -> PathBuf {
    let folder = into.fetch_folder(uid, number);
    std::fs::create_dir_all(&folder).unwrap();
    for file in snapshot.files().unwrap() {
        assert_eq!(std::fs::copy(&file.path, folder.join(&file.name)).unwrap(), file.length);
    }
    folder
}

/// Every entry's bytes of a store's states.
fn contents(store: &mut dyn ColdStore, groups: KeyGroupRange) -> Vec<(usize, Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    for (place, (name, schema)) in states().into_iter().enumerate() {
        let state = store.open_state(name, &schema, TOUCHED_AT_MS).unwrap();
        let layout = store.layout(state).clone();
        for rows in store.scan(state, Scope { groups, within: Within::Any }).unwrap() {
            let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
            layout.write(&rows.unwrap(), &mut keys, &mut values).unwrap();
            found.extend(keys.iter().zip(values.iter()).map(|(key, value)| (place, key.to_vec(), value.to_vec())));
        }
    }
    found
}

/// A store with entries, and a snapshot of it.
fn filled(databases: &TaskDatabases, seed: u64) -> (Pair, [Arc<dyn DatabaseSnapshot>; 2]) {
    let mut pair = Pair::empty(store(databases), seed).unwrap();
    pair.work(8).unwrap();
    let taken = pair.snapshot().unwrap();
    compare_snapshots(&taken).unwrap();
    (pair, taken)
}

#[test]
fn it_keeps_the_contract() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    for seed in 0..4 {
        let databases = task(&shared, &format!("{seed}"), all(), MAX_PARALLELISM);
        contract::check(store(&databases), seed).unwrap();
        let path = databases.path().to_owned();
        drop(databases);
        assert!(!path.exists(), "nothing is left when the task ends");
    }
}

#[test]
fn a_snapshot_outlives_its_task_and_then_goes() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (pair, [taken, model]) = filled(&databases, 1);
    let path = databases.path().to_owned();
    drop((pair, databases));
    assert!(taken.files().unwrap().iter().all(|file| file.path.exists()));
    let both = [taken, model];
    compare_snapshots(&both).unwrap();
    drop(both);
    assert!(!path.exists());
    drop(shared);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn later_snapshots_have_the_same_files_where_nothing_changed() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (mut pair, [first, _]) = filled(&databases, 2);
    let tables = |snapshot: &dyn DatabaseSnapshot| {
        let files = snapshot.files().unwrap().into_iter().filter(|file| file.is_immutable);
        files.map(|file| (file.name, std::fs::read(file.path).unwrap())).collect::<Vec<_>>()
    };
    let snapshot = |store: &mut dyn ColdStore| {
        let taken = store.begin_snapshot();
        store.complete_snapshot();
        taken
    };
    let second = snapshot(pair.store());
    let third = snapshot(pair.store());
    assert_eq!(tables(second.as_ref()), tables(third.as_ref()));
    let (had, has) = (tables(first.as_ref()), tables(second.as_ref()));
    for (name, bytes) in &has {
        assert!(had.iter().all(|(known, before)| known != name || before == bytes), "{name} is another file");
    }
}

#[test]
fn every_range_is_restored_from_every_other() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let whole = task(&shared, "whole", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&whole, 7);
    let copied = task(&shared, "copied", all(), MAX_PARALLELISM);
    copied.restore(&uid(), &[fetch(taken.as_ref(), &copied, 0)], &names()).unwrap();
    let expected = contents(store(&copied).as_mut(), all());
    assert!(expected.len() > 60, "{}", expected.len());
    for (from, to) in [(1, 1), (1, 3), (3, 1), (2, 3), (3, 2), (5, 8)] {
        let sources = (0..from).map(|subtask| (KeyGroupRange::of_subtask(subtask, from, MAX_PARALLELISM), taken.as_ref()));
        let sources: Vec<_> = sources
            .map(|(groups, taken)| {
                let databases = task(&shared, &format!("from-{groups}"), groups, MAX_PARALLELISM);
                databases.restore(&uid(), &[fetch(taken, &databases, 0)], &names()).unwrap();
                let mut store = store(&databases);
                let taken = store.begin_snapshot();
                store.complete_snapshot();
                taken.files().unwrap();
                (groups, databases, taken)
            })
            .collect();
        let mut found = Vec::new();
        for subtask in 0..to {
            let groups = KeyGroupRange::of_subtask(subtask, to, MAX_PARALLELISM);
            let databases = task(&shared, &format!("to-{subtask}"), groups, MAX_PARALLELISM);
            let of_range = sources.iter().filter(|(of, ..)| of.intersects(groups));
            let fetched = of_range.enumerate().map(|(number, (_, _, taken))| fetch(taken.as_ref(), &databases, number));
            let fetched: Vec<_> = fetched.collect();
            assert!(databases.restore(&uid(), &fetched, &names()).unwrap().is_some());
            assert!(fetched.iter().all(|folder| !folder.exists()));
            let mut restored = store(&databases);
            let own = contents(restored.as_mut(), all());
            assert!(own == contents(restored.as_mut(), groups), "{from} to {to}: nothing beyond the range is left");
            found.extend(own);
        }
        found.sort();
        assert!(found == expected, "{from} to {to}: {} entries of {}", found.len(), expected.len());
    }
}

#[test]
fn more_key_groups_are_encoded_anew() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&databases, 3);
    let max = MAX_PARALLELISM * 4;
    let mut rows = 0;
    for subtask in 0..3 {
        let groups = KeyGroupRange::of_subtask(subtask, 3, max);
        let wider = task(&shared, &format!("wider-{subtask}"), groups, max);
        let fetched = fetch(taken.as_ref(), &wider, 0);
        assert_eq!(wider.restore(&uid(), &[fetched], &names()).unwrap(), None);
        let mut restored = store(&wider);
        let (own, within) = (contents(restored.as_mut(), KeyGroupRange::all(max)), contents(restored.as_mut(), groups));
        assert!(own == within, "nothing beyond the range is left");
        rows += own.len();
    }
    let expected: usize =
        states().iter().flat_map(|(name, _)| all_rows(taken.as_ref(), name).unwrap()).map(|rows| rows.num_rows()).sum();
    assert_eq!(rows, expected);
}

#[test]
fn a_database_is_read_for_another_backend() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&databases, 4);
    let folder = fetch(taken.as_ref(), &databases, 0);
    let groups = KeyGroupRange { start: 5, end: 20 };
    let mut rows = 0;
    let read = |state: &str, rows: &mut usize| {
        let state = (state, &StateSchema::default());
        read_database(&shared, &uid(), &folder, state, (groups, MAX_PARALLELISM), &mut |batch| {
            *rows += batch.num_rows();
            std::ops::ControlFlow::Continue(())
        })
    };
    for (name, _) in states() {
        read(name, &mut rows).unwrap();
    }
    drop(databases);
    let whole = task(&shared, "whole", all(), MAX_PARALLELISM);
    let fetched = fetch(taken.as_ref(), &whole, 0);
    whole.restore(&uid(), &[fetched], &names()).unwrap();
    assert_eq!(rows, contents(store(&whole).as_mut(), groups).len());
    let error = read("nothing", &mut rows).unwrap_err();
    assert!(error.to_string().contains("no state \"nothing\"; it has"), "{error}");
}

#[test]
fn a_state_begins_and_ceases_to_expire_and_changes_the_clock() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let (name, plain) = states().swap_remove(0);
    let [by_event, by_processing] =
        [Stamps::Event, Stamps::Processing].map(|ttl| Arc::new(StateSchema { ttl, ..(*plain).clone() }));
    let mut databases = task(&shared, "first", all(), MAX_PARALLELISM);
    let (pair, [mut taken, _]) = filled(&databases, 5);
    let before = all_rows(taken.as_ref(), name).unwrap();
    drop(pair);
    // Where the clock is another one what was touched by the old one was touched now.
    let turns = [(&by_event, 0), (&plain, 1), (&plain, 2), (&by_processing, 3), (&by_processing, 3), (&by_event, 5)];
    for (turn, (schema, touched_at)) in turns.into_iter().enumerate() {
        let next = task(&shared, &format!("turn-{turn}"), all(), MAX_PARALLELISM);
        let fetched = fetch(taken.as_ref(), &next, 0);
        next.restore(&uid(), &[fetched], &names()).unwrap();
        let mut restored = store(&next);
        let state = restored.open_state(name, schema, turn as i64).unwrap();
        let everything = Scope { groups: all(), within: Within::Any };
        let rows: Vec<_> = restored.scan(state, everything).unwrap().collect::<Result<_, _>>().unwrap();
        for (rows, had) in rows.iter().zip(&before) {
            assert_eq!(rows.columns()[..3], had.columns()[..3], "turn {turn}");
            assert_eq!(rows.num_columns(), if schema.ttl.is_some() { 4 } else { 3 });
            let stamps = rows.column_by_name(TTL_COLUMN).map(|stamps| stamps.as_primitive::<TimestampMillisecondType>());
            assert!(stamps.is_none_or(|stamps| stamps.values().iter().all(|stamp| *stamp == touched_at)), "turn {turn}");
        }
        assert_eq!(rows.len(), before.len());
        taken = restored.begin_snapshot();
        restored.complete_snapshot();
        databases = next;
    }
    drop(databases);
}

/// A key has one entry, or several by one of their columns: the columns are the same, their places are not.
#[test]
fn entries_get_a_place_below_their_key_and_lose_it() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let column = |name: &str| Column::new(name, LogicalType::Int64, false);
    let one = StateSchema {
        shape: StateShape::Accumulators,
        keys: vec![column("k")],
        values: vec![column("sum"), column("number")],
        ..StateSchema::default()
    };
    let several =
        StateSchema { shape: StateShape::Map, map_key: vec![column("number")], values: vec![column("sum")], ..one.clone() };
    let (one, several) = (Arc::new(one), Arc::new(several));
    let everything = Scope { groups: all(), within: Within::Any };
    // Columns by name: k, number, sum.
    let read = |store: &mut dyn ColdStore, schema| -> Result<Vec<[i64; 3]>, ColdError> {
        let state = store.open_state("chunks", schema, 0)?;
        let mut found = Vec::new();
        for rows in store.scan(state, everything)? {
            let rows = rows?;
            let of = |name| rows.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
            let (keys, numbers, sums) = (of("key.k"), of("number"), of("sum"));
            found.extend((0..keys.len()).map(|row| [keys[row], numbers[row], sums[row]]));
        }
        found.sort_unstable();
        Ok(found)
    };
    let put = |store: &mut dyn ColdStore, schema, rows: &[[i64; 3]]| {
        let state = store.open_state("chunks", schema, 0).unwrap();
        let columns = Arc::clone(store.layout(state).columns());
        let column = |at: usize| Arc::new(rows.iter().map(|row| row[at]).collect::<Int64Array>()) as ArrayRef;
        let places = columns.fields().iter().map(|field| match field.name().as_str() {
            "key.k" => column(0),
            "number" => column(1),
            _ => column(2),
        });
        let rows = RecordBatch::try_new(Arc::clone(&columns), places.collect()).unwrap();
        store.change(state, Change { deletes: None, upserts: Some(rows) }).unwrap();
        let taken = store.begin_snapshot();
        store.complete_snapshot();
        store.seal();
        taken
    };
    let names = ["chunks".to_owned()];
    let restored = |name: &str, taken: &dyn DatabaseSnapshot| {
        let databases = task(&shared, name, all(), MAX_PARALLELISM);
        let fetched = fetch(taken, &databases, 0);
        databases.restore(&uid(), &[fetched], &names).unwrap();
        databases
    };
    let rows: Vec<[i64; 3]> = (0..5_000).map(|key| [key, key % 3, 10 * key]).collect();
    let first = task(&shared, "first", all(), MAX_PARALLELISM);
    let mut of_first = store(&first);
    let taken = put(of_first.as_mut(), &one, &rows);
    let second = restored("second", taken.as_ref());
    let mut of_second = store(&second);
    assert_eq!(read(of_second.as_mut(), &several).unwrap(), rows);
    let taken = put(of_second.as_mut(), &several, &rows[..1]);
    let third = restored("third", taken.as_ref());
    assert_eq!(read(store(&third).as_mut(), &one).unwrap(), rows);
    // Two entries of one key cannot become one.
    let taken = put(of_second.as_mut(), &several, &[[4_321, 7, 0]]);
    let fourth = restored("fourth", taken.as_ref());
    let error = read(store(&fourth).as_mut(), &one).unwrap_err();
    assert!(matches!(error, ColdError::Layout { source: LayoutError::Several, .. }), "{error}");
}

#[test]
fn sorted_batches_write_what_sorted_files_do() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&databases, 11);
    let (name, schema) = states().swap_remove(2);
    let rows = all_rows(taken.as_ref(), name).unwrap();
    let other = task(&shared, "other", all(), MAX_PARALLELISM);
    let database = other.open_database(&uid()).unwrap();
    let (family, _) = database.family(name, &schema).unwrap();
    let mut generation = Generation::new(Arc::new(family.clone()));
    for rows in &rows {
        generation.add(&Change { deletes: None, upserts: Some(rows.clone()) }).unwrap();
    }
    // Everything below half of the keys goes, and what is written later stays.
    let half = rows[0].slice(0, rows[0].num_rows() / 2);
    let keys = Addresses { below: Vec::new(), ..family.layout.addresses(&half).unwrap() };
    let last = half.slice(half.num_rows() - 1, 1);
    generation.add(&Change { deletes: Some(keys), upserts: Some(last) }).unwrap();
    let written = |family: &str| {
        let mut entries = database.db.raw_iterator_cf(&database.handle(family));
        entries.seek_to_first();
        let mut found = Vec::new();
        while let Some((key, value)) = entries.item() {
            found.push((key.to_vec(), value.to_vec()));
            entries.next();
        }
        found
    };
    let mut batches = Batches::new(&database, &family.family);
    generation.write(&mut batches).unwrap();
    batches.flush().unwrap();
    let by_batches = written(&family.family);
    let (second, _) = database.family("second", &schema).unwrap();
    let options = crate::options::ingested(shared.profile, &shared.memory.cache, rocksdb::DBCompressionType::None, None);
    let mut tables = Tables::new(&options, &database).unwrap();
    generation.write(&mut tables).unwrap();
    tables.ingest(&database, &second.family).unwrap();
    assert!(by_batches == written(&second.family) && by_batches.len() > 3);
    assert!(by_batches.len() < rows.iter().map(|rows| rows.num_rows()).sum::<usize>(), "some were cleared");
    assert!(
        !std::fs::read_dir(&database.folder).unwrap().any(|entry| entry
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with("staging"))
    );
}

/// Entries without windows would be read as if they had some.
#[test]
fn a_state_that_gets_windows_or_loses_them_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let databases = task(&rocksdb(dir.path(), "a"), "x", all(), MAX_PARALLELISM);
    let mut store = store(&databases);
    let (name, schema) = states().swap_remove(0);
    store.open_state(name, &schema, 0).unwrap();
    let windowed = Arc::new(StateSchema { windowed: !schema.windowed, ..(*schema).clone() });
    let error = store.open_state(name, &windowed, 0).unwrap_err();
    let says = format!("state \"{name}\" is without windows in the snapshot's database, by window in the job");
    assert!(error.to_string().contains(&says), "{error}");
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never), "it would be refused again");
}

#[test]
fn states_that_are_not_wanted_are_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&databases, 9);
    let next = task(&shared, "next", all(), MAX_PARALLELISM);
    let fetched = fetch(taken.as_ref(), &next, 0);
    next.restore(&uid(), &[fetched], &names()[1..]).unwrap();
    let found = contents(store(&next).as_mut(), all());
    assert!(found.iter().all(|(state, ..)| *state > 0) && !found.is_empty());
}

#[test]
fn a_damaged_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let (_pair, [taken, _]) = filled(&databases, 8);
    let files = taken.files().unwrap();
    for kind in ["sst", "MANIFEST", "CURRENT"] {
        let broken = task(&shared, kind, all(), MAX_PARALLELISM);
        let folder = fetch(taken.as_ref(), &broken, 0);
        for file in files.iter().filter(|file| file.name.contains(kind)) {
            let path = folder.join(&file.name);
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 3;
            bytes[middle] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
        }
        let restored = broken.restore(&uid(), &[folder], &names()).and_then(|_| {
            let mut store = broken.open(&uid())?.store;
            for (name, schema) in states() {
                let state = store.open_state(name, &schema, 0)?;
                store.scan(state, Scope { groups: all(), within: Within::Any })?.collect::<Result<Vec<_>, _>>()?;
            }
            Ok(())
        });
        let error = restored.expect_err(kind);
        assert!(error.to_string().contains("co/unts") && std::error::Error::source(&error).is_some(), "{error}");
    }
}

#[test]
fn a_compaction_that_fails_ends_the_writing() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut store = store(&databases);
    let (name, schema) = states().swap_remove(0);
    let state = store.open_state(name, &schema, TOUCHED_AT_MS).unwrap();
    // Many blocks: the first ones are in the cache once a file is taken over.
    let ids: ArrayRef = Arc::new((0..20_000).collect::<Int64Array>());
    let columns = vec![Arc::clone(&ids), Arc::clone(&ids), new_null_array(&DataType::Utf8, ids.len())];
    let rows = RecordBatch::try_new(Arc::clone(store.layout(state).columns()), columns).unwrap();
    let mut write = || {
        store.change(state, Change { deletes: None, upserts: Some(rows.clone()) }).unwrap();
        let seal = store.seal();
        store.wait_written(seal)
    };
    write().unwrap();
    let folder = database_path(databases.fetch_folder(&uid(), 0).parent().expect("a folder has one"));
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = std::fs::read(&path).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 0x10;
            std::fs::write(&path, bytes).unwrap();
        }
    }
    // Far more files than level 0 may have: without compaction none may follow.
    let error = (0..200).find_map(|_| write().err()).expect("no compaction goes on over a damaged file");
    assert!(error.to_string().contains(&folder.display().to_string()), "{error}");
}

#[test]
fn databases_beyond_the_descriptors_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let settings = RocksdbSettings {
        data_dirs: vec![dir.path().to_owned()],
        owner: "a".into(),
        memory_bytes: 16 << 20,
        overlay_bytes: 8 << 20,
        profile: RocksdbProfile::Flash,
        open_files: Some(64),
    };
    let shared = Rocksdb::start(&settings).unwrap();
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let open: Vec<_> = ["a", "b"].map(|uid| databases.open(&Uid::new(uid)).unwrap()).into();
    let error = databases.open(&Uid::new("c")).unwrap_err();
    let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(error.to_string().contains("\"c\"") && cause.contains("ulimit -n"), "{error}: {cause}");
    drop(open);
    assert!(databases.open(&Uid::new("c")).is_ok());
}
