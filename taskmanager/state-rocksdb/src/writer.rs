//! The background thread of a store: the only writer of its database.
//!
//! It takes commands in order. Changes are encoded as they come; a seal, or that they are many, puts them in order, writes them as
//! sorted files and has these ingested; a snapshot is a seal and RocksDB's checkpoint. Nothing else is written meanwhile, so a
//! checkpoint has exactly what was sent before it. The first failure is kept, answered to every later call, and ends the thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use levada_state::cold::{Change, ColdError, Seal};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DBCompressionType, properties};

use crate::database::{Cause, Database, DatabaseSize, Family};
use crate::generation::Generation;
use crate::options;
use crate::snapshot::Ticket;
use crate::tables::{Batches, Tables};

/// Files of level 0 of a family above which the next generation waits for compaction: reads look into each of them.
const LEVEL_0_MAX: u64 = 24;

/// Bytes of encoded changes after which they are written though nothing was sealed: beside what was sent they are in memory too.
const ENCODED_BYTES_MAX: usize = 64 << 20;

/// Time between two looks at level 0 while it is too full.
const COMPACTION_LOOK: Duration = Duration::from_millis(5);

/// What the task's thread sends.
pub enum Command {
    /// A change, with the bytes that it takes while it waits.
    Change { family: Arc<Family>, change: Change, bytes: u64 },
    /// Everything before is one generation.
    Seal(Seal),
    /// A checkpoint of everything before.
    Snapshot(Ticket),
}

/// How far the thread is: what both sides see.
#[derive(Debug)]
pub struct Progress {
    state: Mutex<State>,
    moved: Condvar,
    pending_bytes: AtomicU64,
    writes: AtomicU64,
    stop: AtomicBool,
    waker: Waker,
}

#[derive(Debug, Default)]
struct State {
    written: Option<Seal>,
    failure: Option<ColdError>,
    size: DatabaseSize,
}

impl Progress {
    /// Nothing is written; the task is woken through `waker` when something is.
    pub fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            moved: Condvar::new(),
            pending_bytes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            waker,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether everything before `seal` is written.
    pub fn is_written(&self, seal: Seal) -> Result<bool, ColdError> {
        self.lock().is_written(seal)
    }

    /// Waits until it is.
    pub fn wait(&self, seal: Seal) -> Result<(), ColdError> {
        let waiting = self.moved.wait_while(self.lock(), |state| matches!(state.is_written(seal), Ok(false)));
        waiting.unwrap_or_else(PoisonError::into_inner).is_written(seal).map(drop)
    }

    /// The failure that ended the thread.
    pub fn check(&self) -> Result<(), ColdError> {
        self.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// How much the database had when it was written last.
    pub fn size(&self) -> DatabaseSize {
        self.lock().size
    }

    /// The database has so much now.
    pub fn has(&self, size: DatabaseSize) {
        self.lock().size = size;
    }

    /// Bytes that were sent and are not written.
    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Entries that were written or deleted.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Bytes were sent.
    pub fn sent(&self, bytes: u64) {
        self.pending_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The task is over: what is not written need not be.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn move_on(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.moved.notify_all();
        self.waker.wake_by_ref();
    }
}

impl State {
    fn is_written(&self, seal: Seal) -> Result<bool, ColdError> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok(self.written >= Some(seal)),
        }
    }
}

/// The thread's own.
pub struct Writer {
    database: Arc<Database>,
    progress: Arc<Progress>,
    generations: Vec<Generation>,
    /// Bytes of the changes in `generations`.
    bytes: u64,
    snapshots: u64,
    /// Failures of RocksDB's own threads that it has recovered from: it took a generation afterwards.
    failures: u64,
}

impl Writer {
    /// A writer of `database`.
    pub fn new(database: Arc<Database>, progress: Arc<Progress>) -> Self {
        Self { database, progress, generations: Vec::new(), bytes: 0, snapshots: 0, failures: 0 }
    }

    /// Works until the store is dropped, or something fails.
    pub fn run(mut self, commands: &Receiver<Command>) {
        // Whatever ends the thread, a panic too, nobody waits for it any more.
        let mut ended = Ended { progress: Arc::clone(&self.progress), failure: None, database: Arc::clone(&self.database) };
        for command in commands {
            if self.progress.is_stopped() {
                break;
            }
            if let Err(error) = self.take(command) {
                tracing::error!(operator = %self.database.uid, %error, cause = ?std::error::Error::source(&error), "a database cannot be written any more");
                ended.failure = Some(error);
                break;
            }
        }
    }

    fn take(&mut self, command: Command) -> Result<(), ColdError> {
        match command {
            Command::Change { family, change, bytes } => {
                self.bytes += bytes;
                self.add(&family, &change)?;
                let encoded: usize = self.generations.iter().map(Generation::bytes).sum();
                if encoded > ENCODED_BYTES_MAX {
                    self.write()?;
                    self.progress.move_on(|_| {});
                }
                Ok(())
            }
            Command::Seal(seal) => {
                self.write()?;
                self.progress.move_on(|state| state.written = state.written.max(Some(seal)));
                Ok(())
            }
            Command::Snapshot(ticket) => match self.write().and_then(|()| self.checkpoint(&ticket)) {
                Ok(()) => Ok(()),
                Err(error) => {
                    ticket.fail(error.clone());
                    Err(error)
                }
            },
        }
    }

    fn add(&mut self, family: &Arc<Family>, change: &Change) -> Result<(), ColdError> {
        let place = self.generations.iter().position(|generation| generation.family().family == family.family);
        let place = place.unwrap_or_else(|| {
            self.generations.push(Generation::new(Arc::clone(family)));
            self.generations.len() - 1
        });
        let uid = self.database.uid.clone();
        let fail = |source| ColdError::Layout { uid: uid.clone(), state: family.state.clone(), source };
        let generation = &mut self.generations[place];
        if let Some(prefixes) = generation.clears(change).map_err(fail)? {
            let options = options::below_keys(family.prefix_bytes);
            let mut entries = self.database.db.raw_iterator_cf_opt(&self.database.handle(&family.family), options);
            for prefix in prefixes.iter() {
                entries.seek(prefix);
                while let Some(key) = entries.key().filter(|key| key.starts_with(prefix)) {
                    generation.delete(key);
                    entries.next();
                }
                entries.status().map_err(|error| self.database.read_error(&family.state, Arc::new(error)))?;
            }
        }
        generation.add(change).map_err(fail)
    }

    /// Writes all that is collected.
    fn write(&mut self) -> Result<(), ColdError> {
        for generation in self.generations.iter_mut().filter(|generation| !generation.is_empty()) {
            await_compaction(&self.database, &self.progress, &generation.family().family, self.failures);
            // One that comes while the database takes the generation is not recovered from yet.
            let failures = self.database.background_failures();
            let written = write_generation(&self.database, generation)?;
            self.failures = failures;
            self.progress.writes.fetch_add(written, Ordering::Relaxed);
            generation.clear();
        }
        self.progress.has(self.database.size());
        self.progress.pending_bytes.fetch_sub(std::mem::take(&mut self.bytes), Ordering::Relaxed);
        Ok(())
    }

    fn checkpoint(&mut self, ticket: &Ticket) -> Result<(), ColdError> {
        self.snapshots += 1;
        let folder = self.database.folder.join(format!("chk-{}", self.snapshots));
        let fail = |error: rocksdb::Error| self.database.write_error("taking a checkpoint", Arc::new(error));
        self.database.describe_expired(&ticket.expired);
        self.database.write_description().map_err(fail)?;
        let checkpoint = Checkpoint::new(&self.database.db).map_err(fail)?;
        checkpoint.create_checkpoint(&folder).map_err(fail)?;
        let states = self.database.description().states.into_iter().map(|state| {
            let entries = self.database.figure(&state.family, properties::ESTIMATE_NUM_KEYS);
            // Of a family that has not changed since it was opened RocksDB estimates nothing.
            let entries = if entries > 0 { entries } else { u64::from(self.database.has_entries(&state.family)) };
            (state.name, entries)
        });
        ticket.take(&self.database, folder, states.collect())
    }
}

/// Writes a generation as sorted files, or where the database does not take those, as sorted batches.
fn write_generation(database: &Database, generation: &Generation) -> Result<u64, ColdError> {
    let Family { family, state, prefix_bytes, .. } = generation.family().as_ref();
    let shared = &database.shared;
    let options = options::ingested(shared.profile, &shared.memory.cache, DBCompressionType::None, *prefix_bytes);
    let failed = |doing: &str, cause: Cause| database.write_error(format!("{doing} of state \"{state}\""), cause);
    let mut tables = Tables::new(&options, database).map_err(|error| failed("making files", Arc::new(error)))?;
    let ingested = generation.write(&mut tables).and_then(|()| tables.ingest(database, family));
    let error = match ingested {
        Ok(entries) => return Ok(entries),
        Err(error) => error,
    };
    let retryable = matches!(error.kind(), rocksdb::ErrorKind::NotSupported | rocksdb::ErrorKind::InvalidArgument);
    if !retryable {
        return Err(failed("writing sorted files", Arc::new(error)));
    }
    tracing::warn!(operator = %database.uid, family, %error, "sorted files are not taken; writing batches instead");
    let mut batches = Batches::new(database, family);
    let written = generation.write(&mut batches).and_then(|()| batches.flush());
    written.map_err(|error| failed("writing sorted batches", Arc::new(error)))
}

/// Waits while level 0 is too full: what is pending then grows, and the task is held back by that. Not longer than compaction works:
/// where it has failed more than `failures` times, writing hears why.
fn await_compaction(database: &Database, progress: &Progress, family: &str, failures: u64) {
    let is_full = || database.figure(family, &properties::num_files_at_level(0)) > LEVEL_0_MAX;
    while !progress.is_stopped() && is_full() && database.background_failures() <= failures {
        std::thread::sleep(COMPACTION_LOOK);
    }
}

/// Says that the thread has ended.
struct Ended {
    progress: Arc<Progress>,
    database: Arc<Database>,
    failure: Option<ColdError>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        let over = || ColdError::Abandoned { uid: self.database.uid.clone() };
        let failure = self.failure.take().unwrap_or_else(over);
        self.progress.move_on(|state| state.failure = Some(failure));
    }
}
