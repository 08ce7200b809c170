//! What has expired: in the database until compaction comes past it, and read by no one.

use std::sync::Arc;
use std::task::Waker;

use arrow::array::AsArray;
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{Stamps, StateSchema};
use levada_state::cold::contract::{MAX_PARALLELISM, Pair, TOUCHED_AT_MS, all_rows, states};
use levada_state::cold::{Change, ColdExpiry, ColdStateId, ColdStore, ColdStores, Scope, Within};
use levada_state::row_codec::TTL_COLUMN;
use levada_state::snapshot::DatabaseSnapshot;

use super::{all, fetch, names, rocksdb, store, task, uid};
use crate::database::Database;
use crate::store::RocksdbStore;
use crate::{TaskDatabases, read_database};

/// The state that expires.
const WINDOWS: ColdStateId = ColdStateId(1);

fn schema() -> Arc<StateSchema> {
    states().swap_remove(1).1
}

/// A new store of the task with entries.
fn worked(databases: &TaskDatabases) -> Pair {
    let mut pair = Pair::empty(store(databases), 6).unwrap();
    pair.work(8).unwrap();
    pair
}

/// When each of these rows was touched last, ascending.
fn stamps(rows: &[RecordBatch]) -> Vec<i64> {
    let times = rows.iter().flat_map(|rows| rows[TTL_COLUMN].as_primitive::<TimestampMillisecondType>().values().to_vec());
    let mut times: Vec<i64> = times.collect();
    times.sort_unstable();
    times
}

fn found(store: &mut dyn ColdStore, state: ColdStateId) -> Vec<RecordBatch> {
    store.scan(state, Scope { groups: all(), within: Within::Any }).unwrap().collect::<Result<_, _>>().unwrap()
}

fn after(stamps: &[i64], until: i64) -> Vec<i64> {
    let living: Vec<i64> = stamps.iter().copied().filter(|touched| *touched > until).collect();
    assert!(!living.is_empty() && living.len() < stamps.len(), "something has expired at {until}, and something has not");
    living
}

fn expire(store: &mut dyn ColdStore, expired_until_ms: i64) {
    store.expire(WINDOWS, ColdExpiry { expired_until_ms });
}

fn snapshot(store: &mut dyn ColdStore) -> Arc<dyn DatabaseSnapshot> {
    let taken = store.begin_snapshot();
    store.complete_snapshot();
    taken.files().unwrap();
    taken
}

fn compact(database: &Database) {
    database.db.compact_range_cf(&database.handle("windows"), None::<&[u8]>, None::<&[u8]>);
}

#[test]
fn compaction_drops_what_has_expired() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let database = databases.open_database(&uid()).unwrap();
    let store = RocksdbStore::start(Arc::clone(&database), Waker::noop().clone()).unwrap();
    let mut pair = Pair::empty(Box::new(store), 6).unwrap();
    pair.work(8).unwrap();
    let before = stamps(&found(pair.store(), WINDOWS));
    let at = |tenths: usize| before[before.len() * tenths / 10];
    compact(&database);
    assert_eq!(stamps(&found(pair.store(), WINDOWS)), before, "nothing expires by itself");
    expire(pair.store(), at(3));
    expire(pair.store(), at(1));
    compact(&database);
    assert_eq!(stamps(&found(pair.store(), WINDOWS)), after(&before, at(3)));
    // What a barrier has stays until its files are taken, whatever expires meanwhile.
    let taken = pair.store().begin_snapshot();
    expire(pair.store(), at(6));
    compact(&database);
    pair.store().complete_snapshot();
    assert_eq!(stamps(&all_rows(taken.as_ref(), "windows").unwrap()), after(&before, at(3)));
    expire(pair.store(), at(6));
    compact(&database);
    assert_eq!(stamps(&found(pair.store(), WINDOWS)), after(&before, at(6)));
}

#[test]
fn what_had_expired_at_a_barrier_is_read_by_no_one() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut pair = worked(&databases);
    let before = stamps(&found(pair.store(), WINDOWS));
    expire(pair.store(), 50);
    let taken = snapshot(pair.store());
    expire(pair.store(), 80);
    let living = after(&before, 50);
    assert_eq!(stamps(&found(pair.store(), WINDOWS)), before, "it is still in the database");
    assert_eq!(stamps(&all_rows(taken.as_ref(), "windows").unwrap()), living, "savepoints and states inline");

    let folder = fetch(taken.as_ref(), &databases, 0);
    let mut rows = Vec::new();
    read_database(&shared, &uid(), &folder, ("windows", &StateSchema::default()), (all(), MAX_PARALLELISM), &mut |batch| {
        rows.push(batch);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(stamps(&rows), living, "another backend, and tools");

    let wider = task(&shared, "wider", KeyGroupRange::all(2 * MAX_PARALLELISM), 2 * MAX_PARALLELISM);
    wider.restore(&uid(), &[fetch(taken.as_ref(), &wider, 0)], &names()).unwrap();
    let mut restored = store(&wider);
    let state = restored.open_state("windows", &schema(), TOUCHED_AT_MS).unwrap();
    let everything = Scope { groups: KeyGroupRange::all(2 * MAX_PARALLELISM), within: Within::Any };
    let rows = restored.scan(state, everything).unwrap().collect::<Result<Vec<_>, _>>().unwrap();
    assert_eq!(stamps(&rows), living, "more key groups");

    // A state that ceases to expire must not bring back what nobody saw any more.
    let forever = task(&shared, "forever", all(), MAX_PARALLELISM);
    forever.restore(&uid(), &[fetch(taken.as_ref(), &forever, 0)], &names()).unwrap();
    let mut restored = store(&forever);
    let plain = Arc::new(StateSchema { ttl: Stamps::None, ..(*schema()).clone() });
    let state = restored.open_state("windows", &plain, TOUCHED_AT_MS).unwrap();
    let rows: usize = found(restored.as_mut(), state).iter().map(RecordBatch::num_rows).sum();
    assert_eq!(rows, living.len());
}

#[test]
fn a_database_made_of_several_says_no_more_than_had_expired_in_each() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let whole = task(&shared, "whole", all(), MAX_PARALLELISM);
    let mut pair = worked(&whole);
    expire(pair.store(), 20);
    let taken = snapshot(pair.store());
    // The part that is taken over is ahead, or behind.
    for (name, untils) in [("ahead", [60, 40]), ("behind", [40, 60])] {
        let ranges = [KeyGroupRange { start: 0, end: 24 }, KeyGroupRange { start: 25, end: 31 }];
        let parts = ranges.iter().zip(untils).map(|(groups, until)| {
            let part = task(&shared, &format!("{name}-{groups}"), *groups, MAX_PARALLELISM);
            part.restore(&uid(), &[fetch(taken.as_ref(), &part, 0)], &names()).unwrap();
            let mut store = store(&part);
            for (name, schema) in states() {
                store.open_state(name, &schema, TOUCHED_AT_MS).unwrap();
            }
            expire(store.as_mut(), until);
            snapshot(store.as_mut())
        });
        let parts: Vec<_> = parts.collect();
        let both = task(&shared, &format!("{name}-both"), all(), MAX_PARALLELISM);
        let fetched: Vec<_> = parts.iter().enumerate().map(|(number, part)| fetch(part.as_ref(), &both, number)).collect();
        assert_eq!(both.restore(&uid(), &fetched, &names()).unwrap(), Some(0));
        let mut store = both.open(&uid()).unwrap().store;
        store.open_state("windows", &schema(), TOUCHED_AT_MS).unwrap();
        // No one has said yet what time it is.
        let found = stamps(&all_rows(snapshot(store.as_mut()).as_ref(), "windows").unwrap());
        let expected: Vec<i64> = parts.iter().flat_map(|part| stamps(&all_rows(part.as_ref(), "windows").unwrap())).collect();
        assert!(expected.iter().all(|touched| found.contains(touched)), "{name}: nothing that had not expired is lost");
        assert!(found.iter().all(|touched| *touched > 40), "{name}: {found:?}");
        assert!(name == "ahead" || found.len() == expected.len(), "{name}: {found:?}");
    }
}

/// A store on the database that was restored, with all states, beside that database.
fn restored(databases: &TaskDatabases) -> (RocksdbStore, Arc<Database>) {
    let database = databases.take_database(&uid()).unwrap();
    let mut store = RocksdbStore::start(Arc::clone(&database), Waker::noop().clone()).unwrap();
    for (name, schema) in states() {
        store.open_state(name, &schema, TOUCHED_AT_MS).unwrap();
    }
    (store, database)
}

/// Stamps are by a clock, and that of the machine where the job goes on may be behind.
#[test]
fn what_is_touched_by_a_clock_that_is_behind_lives() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut pair = worked(&databases);
    let before = stamps(&found(pair.store(), WINDOWS));
    expire(pair.store(), before[before.len() - 1] + 1_000);
    let taken = snapshot(pair.store());

    let behind = task(&shared, "behind", all(), MAX_PARALLELISM);
    behind.restore(&uid(), &[fetch(taken.as_ref(), &behind, 0)], &names()).unwrap();
    let (mut store, database) = restored(&behind);
    let now = before[before.len() / 2];
    expire(&mut store, now);
    compact(&database);
    let living = after(&before, now);
    assert_eq!(stamps(&found(&mut store, WINDOWS)), living);
    assert_eq!(stamps(&all_rows(snapshot(&mut store).as_ref(), "windows").unwrap()), living, "in snapshots, too");
    expire(&mut store, now - 1);
    compact(&database);
    assert_eq!(stamps(&found(&mut store, WINDOWS)), living, "from then on it does not go back");
}

#[test]
fn a_state_that_was_dropped_and_is_there_again_expires() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut pair = worked(&databases);
    let taken = snapshot(pair.store());
    let others: Vec<String> = names().into_iter().filter(|name| name != "windows").collect();
    let anew = task(&shared, "anew", all(), MAX_PARALLELISM);
    anew.restore(&uid(), &[fetch(taken.as_ref(), &anew, 0)], &others).unwrap();
    let (mut store, database) = restored(&anew);
    assert!(found(&mut store, WINDOWS).is_empty());
    for rows in all_rows(taken.as_ref(), "windows").unwrap() {
        store.change(WINDOWS, Change { upserts: Some(rows), ..Change::default() }).unwrap();
    }
    let written = store.seal();
    store.wait_written(written).unwrap();
    let before = stamps(&found(&mut store, WINDOWS));
    let until = before[before.len() / 2];
    expire(&mut store, until);
    compact(&database);
    assert_eq!(stamps(&found(&mut store, WINDOWS)), after(&before, until));
}

/// RocksDB knows of no entries in a family that has not changed since it was opened.
#[test]
fn a_snapshot_says_that_a_state_has_entries_though_nothing_has_changed_since_a_restore() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut pair = worked(&databases);
    let taken = snapshot(pair.store());
    let again = task(&shared, "again", all(), MAX_PARALLELISM);
    again.restore(&uid(), &[fetch(taken.as_ref(), &again, 0)], &names()).unwrap();
    let (mut store, _database) = restored(&again);
    let taken = snapshot(&mut store);
    for name in names() {
        assert!(taken.entries(&name) > 0, "{name}");
    }
}

#[test]
fn states_may_be_called_as_families_are() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let plain = Arc::new(StateSchema { ttl: Stamps::None, ..(*schema()).clone() });
    let open = |databases: &TaskDatabases, schemas: [&Arc<StateSchema>; 4]| {
        let database = databases.take_database(&uid()).unwrap();
        let mut store = RocksdbStore::start(database, Waker::noop().clone()).unwrap();
        for (name, schema) in ["default", "default+", "n", "n+"].into_iter().zip(schemas) {
            store.open_state(name, schema, TOUCHED_AT_MS).unwrap();
        }
        store
    };
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut store = open(&databases, [&plain; 4]);
    let taken = snapshot(&mut store);
    let again = task(&shared, "again", all(), MAX_PARALLELISM);
    let kept = ["default", "default+", "n", "n+"].map(str::to_owned);
    again.restore(&uid(), &[fetch(taken.as_ref(), &again, 0)], &kept).unwrap();
    let mut store = open(&again, [&plain, &schema(), &schema(), &plain]);
    assert!(snapshot(&mut store).files().is_ok());
}

/// Of a checkpoint some subtasks may have a state in a database, others in files.
#[test]
fn rows_of_files_leave_what_databases_have_of_their_state() {
    let dir = tempfile::tempdir().unwrap();
    let shared = rocksdb(dir.path(), "a");
    let databases = task(&shared, "x", all(), MAX_PARALLELISM);
    let mut pair = worked(&databases);
    let before: usize = found(pair.store(), WINDOWS).iter().map(RecordBatch::num_rows).sum();
    let taken = snapshot(pair.store());
    let both = task(&shared, "both", all(), MAX_PARALLELISM);
    both.restore(&uid(), &[fetch(taken.as_ref(), &both, 0)], &names()).unwrap();
    let plain = Arc::new(StateSchema { ttl: Stamps::None, ..(*schema()).clone() });
    both.put_rows(&uid(), "windows", &plain, || Ok(None)).unwrap();
    let mut restored = store(&both);
    let state = restored.open_state("windows", &plain, TOUCHED_AT_MS).unwrap();
    assert_eq!(found(restored.as_mut(), state).iter().map(RecordBatch::num_rows).sum::<usize>(), before);
}
