//! An open database and its column families: what the task's thread and the background thread share.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{ColdError, RowLayout};
use rocksdb::{BoundColumnFamily, ColumnFamilyDescriptor, DBWithThreadMode, MultiThreaded, Options, WriteBatch, properties};

use crate::description::{DESCRIPTION_KEY, DescribedState, Description};
use crate::descriptors::Grant;
use crate::directory::TaskDirectory;
use crate::options::{self, NEVER_EXPIRED};
use crate::shared::Rocksdb;

/// RocksDB, with column families that can be made while others are used.
pub type Db = DBWithThreadMode<MultiThreaded>;

/// A shared error of RocksDB or the file system.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The folder of a database in its operator's.
const DATABASE_FOLDER: &str = "db";

/// An open database.
pub struct Database {
    // Closed before its folder goes: fields are dropped in this order.
    pub db: Db,
    pub uid: Uid,
    pub shared: Arc<Rocksdb>,
    /// The operator's folder, with the database in it and whatever is beside it.
    pub folder: PathBuf,
    pub directory: Arc<TaskDirectory>,
    description: Mutex<Description>,
    expiries: Mutex<Vec<(String, Arc<AtomicI64>)>>,
    /// Options of families that were made later: the crate does not keep their filters for the database, which calls them.
    later_options: Mutex<Vec<Options>>,
    staged: AtomicU64,
    _descriptors: Grant,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("uid", &self.uid).field("folder", &self.folder).finish()
    }
}

/// A state in a database.
#[derive(Debug, Clone)]
pub struct Family {
    /// The column family.
    pub family: String,
    /// The state.
    pub state: String,
    /// How its entries are laid out.
    pub layout: RowLayout,
    /// Entries that were touched last at this time or before are expired.
    pub expired_until_ms: Arc<AtomicI64>,
    /// Bytes of what its keys begin with that filters know; `None` where only whole keys are asked for, or keys have no fixed size.
    pub prefix_bytes: Option<usize>,
}

/// How much a database has, as far as RocksDB tells.
#[derive(Debug, Clone, Copy, Default)]
pub struct DatabaseSize {
    /// Bytes of its tables.
    pub disk_bytes: u64,
    /// Entries, estimated.
    pub entries: u64,
}

/// Where a database of `uid` is, in the operator's folder.
pub fn database_path(folder: &Path) -> PathBuf {
    folder.join(DATABASE_FOLDER)
}

/// Locks what only a panic poisons: each change of it is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Database {
    /// Opens the database of `uid` in the task's directory, empty or as it was put there.
    ///
    /// Errors: `Open`.
    pub fn open(
        shared: &Arc<Rocksdb>,
        directory: &Arc<TaskDirectory>,
        uid: &Uid,
        max_parallelism: u32,
        key_groups: KeyGroupRange,
    ) -> Result<Arc<Self>, ColdError> {
        let folder = directory.operator(uid);
        let path = database_path(&folder);
        let fail = |source: Cause| ColdError::Open { uid: uid.clone(), path: path.clone(), source };
        std::fs::create_dir_all(&folder).map_err(|error| fail(Arc::new(error)))?;
        let descriptors = shared.descriptors.grant().map_err(|error| fail(Arc::new(error)))?;
        let options = options::database(shared.profile, &shared.memory.buffers, descriptors.tables());
        let (mut families, exists) = (vec!["default".to_owned()], path.join("CURRENT").exists());
        if exists {
            families = Db::list_cf(&options, &path).map_err(|error| fail(Arc::new(error)))?;
        }
        let mut expiries = Vec::new();
        let with_options = families.into_iter().map(|family| {
            let expired_until_ms = Arc::new(AtomicI64::new(NEVER_EXPIRED));
            expiries.push((family.clone(), Arc::clone(&expired_until_ms)));
            let options = options::family(shared.profile, &shared.memory, expired_until_ms);
            ColumnFamilyDescriptor::new(family, options)
        });
        let with_options: Vec<_> = with_options.collect();
        let db = Db::open_cf_descriptors(&options, &path, with_options).map_err(|error| fail(Arc::new(error)))?;
        let mut description = Description::new(max_parallelism, key_groups);
        if exists {
            let json = db.get(DESCRIPTION_KEY).map_err(|error| fail(Arc::new(error)))?;
            let had = Description::from_json(json.as_deref()).map_err(|error| fail(Arc::new(error)))?;
            (description.max_parallelism, description.states) = (had.max_parallelism, had.states);
        }
        let database = Self {
            db,
            uid: uid.clone(),
            shared: Arc::clone(shared),
            folder,
            directory: Arc::clone(directory),
            description: Mutex::new(description),
            expiries: Mutex::new(expiries),
            later_options: Mutex::default(),
            staged: AtomicU64::new(0),
            _descriptors: descriptors,
        };
        database.write_description().map_err(|error| fail(Arc::new(error)))?;
        let database = Arc::new(database);
        shared.opened(&database);
        Ok(database)
    }

    /// What it says of itself.
    pub fn description(&self) -> Description {
        lock(&self.description).clone()
    }

    /// Begins to use a state: the one that is there, in the form that it shall have now, or a new one.
    ///
    /// Errors: `Open`; `Unfit` where windows came or went.
    pub fn family(&self, name: &str, schema: &Arc<StateSchema>) -> Result<(Family, Option<DescribedState>), ColdError> {
        let max_parallelism = self.description().max_parallelism;
        let had = self.description().state(name).cloned();
        if had.as_ref().is_some_and(|had| had.schema.windowed != schema.windowed) {
            let ways = if schema.windowed { ("without windows", "by window") } else { ("by window", "without windows") };
            let reason = format!(
                "state \"{name}\" is {} in the snapshot's database, {} in the job; restore it from a savepoint, or drop it",
                ways.0, ways.1
            );
            return Err(ColdError::Unfit { uid: self.uid.clone(), reason });
        }
        let family = match &had {
            Some(had) if had.schema.ttl.reads_as(schema.ttl) && had.has_places_of(schema) => had.family.clone(),
            Some(had) => self.add_family(&format!("{}+", had.family))?,
            None => self.add_family(name)?,
        };
        let expired_until_ms = had.as_ref().filter(|had| had.family == family).and_then(|had| had.expired_until_ms);
        {
            let (family, schema) = (family.clone(), Arc::clone(schema));
            let described = DescribedState { name: name.into(), family, schema, expired_until_ms };
            let mut description = lock(&self.description);
            match description.states.iter_mut().find(|state| state.name == name) {
                Some(state) => *state = described,
                None => description.states.push(described),
            }
        }
        self.write_description().map_err(|error| self.open_error(Arc::new(error)))?;
        let expiries = lock(&self.expiries);
        let expiry = expiries.iter().find(|(known, _)| *known == family).map(|(_, expiry)| Arc::clone(expiry));
        let until = expired_until_ms.unwrap_or(NEVER_EXPIRED);
        let expired_until_ms = expiry.unwrap_or_else(|| Arc::new(AtomicI64::new(NEVER_EXPIRED)));
        expired_until_ms.fetch_max(until, Ordering::Relaxed);
        let layout = RowLayout::new(Arc::clone(schema), max_parallelism);
        let rewritten = had.filter(|had| had.family != family);
        let prefix_bytes = layout.key_bytes().filter(|_| layout.has_below());
        if let Some(bytes) = prefix_bytes {
            let (name, value) = options::prefix_filter(bytes);
            let set = self.db.set_options_cf(&self.handle(&family), &[(name, value.as_str())]);
            set.map_err(|error| self.open_error(Arc::new(error)))?;
        }
        Ok((Family { family, state: name.into(), layout, expired_until_ms, prefix_bytes }, rewritten))
    }

    /// Makes a column family; of this name, or one like it where there is one already, of another state or RocksDB's own.
    fn add_family(&self, name: &str) -> Result<String, ColdError> {
        let mut name = name.to_owned();
        while self.db.cf_handle(&name).is_some() {
            name.push('+');
        }
        let expired_until_ms = Arc::new(AtomicI64::new(NEVER_EXPIRED));
        let options = options::family(self.shared.profile, &self.shared.memory, Arc::clone(&expired_until_ms));
        let made = self.db.create_cf(&name, &options);
        lock(&self.later_options).push(options);
        made.map_err(|error| self.open_error(Arc::new(error)))?;
        lock(&self.expiries).push((name.clone(), expired_until_ms));
        Ok(name)
    }

    /// Removes a column family that no state is in any more.
    ///
    /// Errors: `Write`.
    pub fn drop_family(&self, family: &str) -> Result<(), ColdError> {
        lock(&self.expiries).retain(|(known, _)| known != family);
        self.db.drop_cf(family).map_err(|error| self.write_error("dropping a family", Arc::new(error)))
    }

    /// Forgets all states but these.
    ///
    /// Errors: `Write`.
    pub fn keep_states(&self, names: &[String]) -> Result<(), ColdError> {
        let gone: Vec<DescribedState> = {
            let mut description = lock(&self.description);
            description.states.extract_if(.., |state| !names.contains(&state.name)).collect()
        };
        for state in gone {
            tracing::info!(operator = %self.uid, state = state.name, "a state of the restored database is dropped");
            self.drop_family(&state.family)?;
        }
        self.write_description().map_err(|error| self.write_error("describing the database", Arc::new(error)))
    }

    /// The column family of a state.
    pub fn handle(&self, family: &str) -> Arc<BoundColumnFamily<'_>> {
        self.db.cf_handle(family).expect("families that were opened stay")
    }

    /// Writes what the database says of itself, where that has changed. It is in the next checkpoint, which flushes it.
    pub fn write_description(&self) -> Result<(), rocksdb::Error> {
        let json = lock(&self.description).to_json();
        if self.db.get(DESCRIPTION_KEY)?.as_deref() == Some(json.as_slice()) {
            return Ok(());
        }
        let mut batch = WriteBatch::new();
        batch.put(DESCRIPTION_KEY, json);
        self.db.write_opt(batch, &options::write())
    }

    /// Lets compaction drop a family's entries that were touched last at `until_ms` or before.
    pub fn expire(family: &Family, until_ms: i64) {
        family.expired_until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// Says from when on entries of these states have expired, for whoever reads the database from the next checkpoint on.
    pub fn describe_expired(&self, states: &[(String, Option<i64>)]) {
        let mut description = lock(&self.description);
        for state in &mut description.states {
            if let Some((_, until)) = states.iter().find(|(name, _)| *name == state.name) {
                state.expired_until_ms = *until;
            }
        }
    }

    /// A folder of its own for files that the database is to take over: the task's thread may copy a state while the
    /// background writes another.
    pub fn staging_folder(&self) -> PathBuf {
        self.folder.join(format!("staging-{}", self.staged.fetch_add(1, Ordering::Relaxed)))
    }

    /// The folder of the database.
    pub fn path(&self) -> PathBuf {
        database_path(&self.folder)
    }

    /// A number that RocksDB tells of a family; 0 where it does not.
    pub fn figure(&self, family: &str, property: &rocksdb::properties::PropName) -> u64 {
        self.db.property_int_value_cf(&self.handle(family), property).ok().flatten().unwrap_or(0)
    }

    /// Whether a family has an entry. One that has expired may be one.
    pub fn has_entries(&self, family: &str) -> bool {
        let mut entries = self.db.raw_iterator_cf_opt(&self.handle(family), options::in_order());
        entries.seek_to_first();
        entries.valid()
    }

    /// Compactions that run, and families that are due for one.
    pub fn compactions(&self) -> u64 {
        let states = self.description().states;
        let due: u64 = states.iter().map(|state| self.figure(&state.family, properties::COMPACTION_PENDING)).sum();
        due + self.db.property_int_value(properties::NUM_RUNNING_COMPACTIONS).ok().flatten().unwrap_or(0)
    }

    /// How often RocksDB's own threads have failed.
    pub fn background_failures(&self) -> u64 {
        self.db.property_int_value(properties::BACKGROUND_ERRORS).ok().flatten().unwrap_or(0)
    }

    /// How much it has.
    pub fn size(&self) -> DatabaseSize {
        let states = self.description().states;
        let sum = |property| states.iter().map(|state| self.figure(&state.family, property)).sum();
        DatabaseSize { disk_bytes: sum(properties::LIVE_SST_FILES_SIZE), entries: sum(properties::ESTIMATE_NUM_KEYS) }
    }

    /// The database cannot be opened, or a family not made.
    pub fn open_error(&self, source: Cause) -> ColdError {
        ColdError::Open { uid: self.uid.clone(), path: self.path(), source }
    }

    /// A read of a state failed.
    pub fn read_error(&self, state: &str, source: Cause) -> ColdError {
        ColdError::Read { uid: self.uid.clone(), state: state.into(), path: self.path(), source }
    }

    /// A write failed.
    pub fn write_error(&self, doing: impl Into<String>, source: Cause) -> ColdError {
        ColdError::Write { uid: self.uid.clone(), path: self.path(), doing: doing.into(), source }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Else closing waits for a compaction whose result nobody wants.
        self.db.cancel_all_background_work(true);
    }
}
