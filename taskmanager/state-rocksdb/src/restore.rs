//! Reading databases of snapshots, and putting them together again for another range of key groups.
//!
//! One database that covers most of the range is taken as it is, and cut at both ends; the entries of others are copied into it
//! as sorted files. Where the number of key groups has changed every entry is encoded anew.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::{StateSchema, StateShape};
use levada_state::cold::{ColdError, RowLayout};
use levada_state::row_codec::{LayoutError, RowBytes, RowReader, to_open};
use levada_state::snapshot::VisitRows;
use rocksdb::{ColumnFamilyDescriptor, DBCompressionType};

use crate::database::{Cause, Database, Db, Family};
use crate::description::{DESCRIPTION_KEY, DescribedState, Description};
use crate::generation::Sink;
use crate::options::{self, long_read};
use crate::rows::Sorting;
use crate::shared::Rocksdb;
use crate::tables::Tables;

/// All key groups.
const EVERYTHING: KeyGroupRange = KeyGroupRange { start: 0, end: u16::MAX };

/// A database of a snapshot, only read.
pub struct ReadDatabase {
    db: Db,
    uid: Uid,
    path: PathBuf,
    description: Description,
}

impl ReadDatabase {
    /// Opens the database in `path`.
    ///
    /// Errors: `Open`.
    pub fn open(shared: &Arc<Rocksdb>, uid: &Uid, path: &Path) -> Result<Self, ColdError> {
        let fail = |source: Cause| ColdError::Open { uid: uid.clone(), path: path.to_owned(), source };
        let options = shared.read_only_options();
        let families = Db::list_cf(&options, path).map_err(|error| fail(Arc::new(error)))?;
        let with_options = families.into_iter().map(|family| {
            let never = Arc::new(std::sync::atomic::AtomicI64::new(options::NEVER_EXPIRED));
            ColumnFamilyDescriptor::new(family, options::family(shared.profile, &shared.memory, never))
        });
        let db = Db::open_cf_descriptors_read_only(&options, path, with_options, false).map_err(|error| fail(Arc::new(error)))?;
        let json = db.get(DESCRIPTION_KEY).map_err(|error| fail(Arc::new(error)))?;
        let description = Description::from_json(json.as_deref()).map_err(|error| fail(Arc::new(error)))?;
        Ok(Self { db, uid: uid.clone(), path: path.to_owned(), description })
    }

    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Visits the entries of a state in these groups, which are numbered as the database's are; not those that had expired when the
    /// snapshot was taken.
    ///
    /// Errors: `UnknownState`, `Read`, `Entry`.
    pub fn rows(&self, state: &str, groups: KeyGroupRange, visit: VisitRows<'_>) -> Result<(), ColdError> {
        let Some(found) = self.description.state(state) else {
            let known = self.description.states.iter().map(|state| state.name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(ColdError::UnknownState { uid: self.uid.clone(), state: state.into(), known });
        };
        let layout = RowLayout::new(Arc::clone(&found.schema), self.description.max_parallelism);
        let mut reader = RowReader::whole(&layout);
        let mut goes_on = true;
        self.entries(found, groups, &mut |key, value| {
            let pushed = reader.push(0, key, value);
            pushed.map_err(|source| ColdError::Entry {
                uid: self.uid.clone(),
                state: state.into(),
                path: self.path.clone(),
                source,
            })?;
            if reader.is_full() {
                goes_on = visit(reader.finish()).is_continue();
            }
            Ok(goes_on)
        })?;
        if goes_on && reader.rows() > 0 {
            let _ = visit(reader.finish());
        }
        Ok(())
    }

    /// Visits the bytes of entries that have not expired, in the order of their keys, until `visit` answers `false`.
    fn entries(&self, state: &DescribedState, groups: KeyGroupRange, visit: Visit<'_>) -> Result<(), ColdError> {
        let fail = |error: rocksdb::Error| ColdError::Read {
            uid: self.uid.clone(),
            state: state.name.clone(),
            path: self.path.clone(),
            source: Arc::new(error),
        };
        each_entry(&self.db, state, groups, &fail, visit)
    }
}

/// What is done with an entry's bytes; answers whether to go on.
type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> Result<bool, ColdError>;

fn each_entry(
    db: &Db,
    state: &DescribedState,
    groups: KeyGroupRange,
    fail: &dyn Fn(rocksdb::Error) -> ColdError,
    visit: Visit<'_>,
) -> Result<(), ColdError> {
    let Some(handle) = db.cf_handle(&state.family) else { return Ok(()) };
    let (first, end) = RowLayout::group_bounds(groups);
    let mut entries = db.raw_iterator_cf_opt(&handle, long_read());
    entries.seek(first);
    while let Some((key, value)) = entries.item().filter(|(key, _)| *key < end.as_slice()) {
        if !state.has_expired(value) && !visit(key, value)? {
            return Ok(());
        }
        entries.next();
    }
    entries.status().map_err(fail)
}

/// The groups of a job with `from` key groups that have the keys of `groups` of a job with `to`.
fn renumbered(groups: KeyGroupRange, from: u32, to: u32) -> KeyGroupRange {
    if from == to || !to.is_multiple_of(from) {
        return if from == to { groups } else { KeyGroupRange::all(from) };
    }
    let factor = (to / from) as u16;
    KeyGroupRange { start: groups.start / factor, end: groups.end / factor }
}

/// Visits the entries of `state` in the database in `path` that had not expired when the snapshot was taken and belong to `groups`
/// of a job with `max_parallelism`, as the open format has them where the state has this schema; where the number of key groups has
/// changed, others too.
///
/// Errors: `Open`, `UnknownState`, `Read`, `Entry`. Blocks.
pub fn read_database(
    shared: &Arc<Rocksdb>,
    uid: &Uid,
    path: &Path,
    (state, schema): (&str, &StateSchema),
    (groups, max_parallelism): (KeyGroupRange, u32),
    visit: VisitRows<'_>,
) -> Result<(), ColdError> {
    let database = ReadDatabase::open(shared, uid, path)?;
    let groups = renumbered(groups, database.description.max_parallelism, max_parallelism);
    let mut open = database.description.state(state).map(|found| StateSchema::clone(&found.schema)).unwrap_or_default();
    if open.shape == StateShape::Rows {
        // A store has rows by window whose state has none.
        open.windowed = schema.windowed;
    }
    database.rows(state, groups, &mut |rows| visit(to_open(&open, &rows)))
}

/// Which of these databases the new one is to be made of: the one with most of its groups, with their numbers.
pub fn choose_base(sources: &[Description], groups: KeyGroupRange, max_parallelism: u32) -> Option<usize> {
    let shared = |description: &Description| {
        let same_numbers = description.max_parallelism == max_parallelism;
        let both = description.key_groups.intersection(groups).filter(|_| same_numbers);
        both.map_or(0, KeyGroupRange::count)
    };
    let best = sources.iter().enumerate().max_by_key(|(_, source)| shared(source))?;
    (shared(best.1) > 0).then_some(best.0)
}

/// From when on entries of each state of `base` have expired where entries of `others` are put beside them: not before they have
/// in all of them. Subtasks have the same event time at a barrier; processing time goes on and says more.
pub fn expired_in_all<'a>(
    base: &Description,
    others: impl Iterator<Item = &'a Description> + Clone,
) -> Vec<(String, Option<i64>)> {
    let of = |state: &DescribedState| {
        let of_others = others.clone().filter_map(|other| other.state(&state.name)).map(|other| other.expired_until_ms);
        (state.name.clone(), of_others.fold(state.expired_until_ms, Option::min))
    };
    base.states.iter().map(of).collect()
}

/// Deletes what is not in `groups` from a database that had `had`.
///
/// Errors: `Write`.
pub fn cut(database: &Database, had: KeyGroupRange, groups: KeyGroupRange) -> Result<(), ColdError> {
    let (first, end) = RowLayout::group_bounds(groups);
    let (lowest, highest) = (vec![0], vec![0xff; 3]);
    let before = (had.start < groups.start).then_some((lowest, first));
    let after = (had.end > groups.end).then_some((end, highest));
    for (from, to) in before.into_iter().chain(after) {
        for state in database.description().states {
            let handle = database.handle(&state.family);
            let deleted = database.db.delete_range_cf_opt(&handle, &from, &to, &options::write());
            let flushed = deleted.and_then(|()| database.db.flush_cf(&handle));
            flushed.map_err(|error| database.write_error("cutting a restored range", Arc::new(error)))?;
        }
    }
    Ok(())
}

/// Copies what `source` has of `groups` in the states `names` into `database`; answers the number of entries.
///
/// Errors: `Open`, `Read`, `Entry`, `Write`.
pub fn copy(
    database: &Database,
    source: &ReadDatabase,
    names: &[String],
    (groups, max_parallelism): (KeyGroupRange, u32),
) -> Result<u64, ColdError> {
    let started = Instant::now();
    let of = source.description();
    let wanted = renumbered(groups, of.max_parallelism, max_parallelism);
    let Some(wanted) = wanted.intersection(of.key_groups) else { return Ok(0) };
    let mut copied = 0;
    for state in of.states.iter().filter(|state| names.contains(&state.name)) {
        let (family, _) = database.family(&state.name, &state.schema)?;
        copied += match of.max_parallelism == max_parallelism {
            true => copy_bytes(database, &family, &mut |visit| source.entries(state, wanted, visit))?,
            false => encode_anew(database, &family, source, (wanted, groups))?,
        };
    }
    let took_ms = started.elapsed().as_millis() as u64;
    tracing::info!(operator = %database.uid, from = %source.path.display(), entries = copied, took_ms, "entries were copied");
    Ok(copied)
}

/// Copies entries as they are, in order.
fn copy_bytes(
    database: &Database,
    family: &Family,
    each: &mut dyn FnMut(Visit<'_>) -> Result<(), ColdError>,
) -> Result<u64, ColdError> {
    let shared = &database.shared;
    let options = options::ingested(shared.profile, &shared.memory.cache, DBCompressionType::Lz4, family.prefix_bytes);
    let fail = |error: Cause| database.write_error("copying restored entries", error);
    let mut tables = Tables::new(&options, database).map_err(|error| fail(Arc::new(error)))?;
    each(&mut |key, value| tables.put(key, value).map(|()| true).map_err(|error| fail(Arc::new(error))))?;
    tables.ingest(database, &family.family).map_err(|error| fail(Arc::new(error)))
}

/// Copies entries whose groups have other numbers now.
fn encode_anew(
    database: &Database,
    family: &Family,
    source: &ReadDatabase,
    (wanted, groups): (KeyGroupRange, KeyGroupRange),
) -> Result<u64, ColdError> {
    let (mut rows, mut failure) = (Sorting::new(database, family, groups), None);
    source.rows(&family.state, wanted, &mut |batch| match rows.add(batch) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => {
            failure = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failure.map_or_else(|| rows.finish(), Err)
}

/// Moves the entries of a state that begins or ceases to expire, or does so by another clock, or of which a key has several from now
/// on, or one, into its new family.
///
/// Errors: `Read`, `Write`, `Entry`; `Layout` where a key has several entries and may have one.
pub fn rewrite_family(database: &Database, had: &DescribedState, family: &Family, touched_at_ms: i64) -> Result<(), ColdError> {
    let copied = match had.has_places_of(family.layout.schema()) {
        true => restamp(database, had, family, touched_at_ms)?,
        false => place_anew(database, had, family)?,
    };
    let expires = family.layout.schema().ttl.is_some();
    tracing::info!(operator = %database.uid, state = had.name, entries = copied, expires, "a state was rewritten");
    database.drop_family(&had.family)
}

fn restamp(database: &Database, had: &DescribedState, family: &Family, touched_at_ms: i64) -> Result<u64, ColdError> {
    let wanted = family.layout.schema().ttl;
    let fail = |error: rocksdb::Error| database.read_error(&had.name, Arc::new(error));
    copy_bytes(database, family, &mut |visit| {
        let mut converted = Vec::new();
        each_entry(&database.db, had, EVERYTHING, &fail, &mut |key, value| {
            converted.clear();
            converted.extend_from_slice(value);
            RowLayout::convert_stamp(&mut converted, had.schema.ttl, wanted, touched_at_ms);
            visit(key, &converted)
        })
    })
}

/// Entries of which other columns lie below the key: they are the same columns, in other places.
fn place_anew(database: &Database, had: &DescribedState, family: &Family) -> Result<u64, ColdError> {
    let fail = |error: rocksdb::Error| database.read_error(&had.name, Arc::new(error));
    let wrong = |source| ColdError::Layout { uid: database.uid.clone(), state: had.name.clone(), source };
    let (from, to) = (RowLayout::new(Arc::clone(&had.schema), family.layout.max_parallelism()), &family.layout);
    let (mut reader, mut rows, mut last) = (RowReader::whole(&from), Sorting::new(database, family, EVERYTHING), None);
    let mut put = |batch: RecordBatch| {
        let batch = to.pick(&batch).map_err(wrong)?;
        if !to.has_below() {
            // Entries of a key come one after the other.
            let mut keys = RowBytes::new();
            to.write_keys(&to.addresses(&batch).map_err(wrong)?, &mut keys, &mut Vec::new()).map_err(wrong)?;
            for key in keys.iter() {
                if last.as_deref() == Some(key) {
                    return Err(wrong(LayoutError::Several));
                }
                last = Some(key.to_vec());
            }
        }
        rows.add(batch)
    };
    each_entry(&database.db, had, EVERYTHING, &fail, &mut |key, value| {
        let pushed = reader.push(0, key, value);
        let (uid, state, path) = (&database.uid, &had.name, database.path());
        pushed.map_err(|source| ColdError::Entry { uid: uid.clone(), state: state.clone(), path, source })?;
        if reader.is_full() {
            put(reader.finish())?;
        }
        Ok(true)
    })?;
    if reader.rows() > 0 {
        put(reader.finish())?;
    }
    rows.finish()
}
