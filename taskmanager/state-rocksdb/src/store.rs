//! The task's side of a store.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::task::Waker;
use std::thread::{self, JoinHandle};

use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{
    Addresses, Change, ColdError, ColdExpiry, ColdMetrics, ColdStateId, ColdStore, Loaded, RowLayout, Scan, Scope, Seal, Window,
    find_namespaces, scan_bounds,
};
use levada_state::row_codec::RowBytes;
use levada_state::snapshot::DatabaseSnapshot;

use crate::database::{Database, DatabaseSize, Family};
use crate::load::{bad_entry, load};
use crate::options;
use crate::restore::rewrite_family;
use crate::scan::RunningScan;
use crate::snapshot::{RocksdbSnapshot, Ticket};
use crate::writer::{Command, Progress, Writer};

/// A store on one database.
#[derive(Debug)]
pub struct RocksdbStore {
    states: Vec<Arc<Family>>,
    /// `None` only while it is dropped.
    commands: Option<Sender<Command>>,
    progress: Arc<Progress>,
    sealed: Seal,
    snapshot: Option<Ticket>,
    loads: u64,
    reads: u64,
    hits: u64,
    writer: Option<JoinHandle<()>>,
    database: Arc<Database>,
}

impl RocksdbStore {
    /// A store on an open database, with its background thread.
    ///
    /// Errors: `Open`: no thread can be had.
    pub fn start(database: Arc<Database>, waker: Waker) -> Result<Self, ColdError> {
        let (commands, inbox) = channel();
        let progress = Progress::new(waker);
        progress.has(database.size());
        let writer = Writer::new(Arc::clone(&database), Arc::clone(&progress));
        let thread = thread::Builder::new().name("levada-cold".into()).spawn(move || writer.run(&inbox));
        let thread = thread.map_err(|error| database.open_error(Arc::new(error)))?;
        Ok(Self {
            states: Vec::new(),
            commands: Some(commands),
            progress,
            sealed: Seal(0),
            snapshot: None,
            loads: 0,
            reads: 0,
            hits: 0,
            writer: Some(thread),
            database,
        })
    }

    fn family(&self, state: ColdStateId) -> &Arc<Family> {
        &self.states[state.0 as usize]
    }

    /// Where the thread is gone it has said why, and the next question tells.
    fn send(&self, command: Command) {
        if let Some(commands) = &self.commands {
            let _ = commands.send(command);
        }
    }
}

impl ColdStore for RocksdbStore {
    fn open_state(&mut self, name: &str, schema: &Arc<StateSchema>, touched_at_ms: i64) -> Result<ColdStateId, ColdError> {
        self.progress.check()?;
        let (family, rewritten) = self.database.family(name, schema)?;
        if let Some(had) = rewritten {
            rewrite_family(&self.database, &had, &family, touched_at_ms)?;
        }
        self.states.push(Arc::new(family));
        Ok(ColdStateId(self.states.len() as u32 - 1))
    }

    fn layout(&self, state: ColdStateId) -> &RowLayout {
        &self.family(state).layout
    }

    fn load(&mut self, state: ColdStateId, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError> {
        self.progress.check()?;
        let loaded = load(&self.database, self.family(state), addresses, below_max)?;
        self.loads += 1;
        self.reads += addresses.rows as u64;
        self.hits += loaded.positions.len() as u64;
        Ok(loaded)
    }

    fn scan(&mut self, state: ColdStateId, scope: Scope) -> Result<Scan, ColdError> {
        self.progress.check()?;
        let family = self.family(state);
        let ranges = scan_bounds(&family.layout, scope);
        Ok(Box::new(RunningScan::start(&self.database, family, ranges)?))
    }

    fn namespaces(&mut self, state: ColdStateId, groups: KeyGroupRange) -> Result<BTreeSet<Option<Window>>, ColdError> {
        self.progress.check()?;
        let family = self.family(state);
        let mut entries = self.database.db.raw_iterator_cf_opt(&self.database.handle(&family.family), options::in_order());
        let first_key = |from: &[u8]| {
            entries.seek(from);
            let key = entries.key().map(<[u8]>::to_vec);
            entries.status().map_err(|error| self.database.read_error(&family.state, Arc::new(error)))?;
            Ok(key)
        };
        find_namespaces(&family.layout, groups, first_key, |error| bad_entry(&self.database, family, error))
    }

    fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), ColdError> {
        let family = self.family(state);
        let wrong = |source| ColdError::Layout { uid: self.database.uid.clone(), state: family.state.clone(), source };
        if let Some(upserts) = &change.upserts {
            family.layout.addresses(upserts).map_err(wrong)?;
        }
        if let Some(deletes) = &change.deletes {
            family.layout.check_addresses(deletes).map_err(wrong)?;
        }
        let rows = change.upserts.as_ref().map_or(0, arrow::record_batch::RecordBatch::get_array_memory_size);
        let gone = change.deletes.as_ref().map_or(0, |deletes| deletes.rows * size_of::<RowBytes>());
        let bytes = (rows + gone) as u64;
        self.progress.sent(bytes);
        self.send(Command::Change { family: Arc::clone(family), change, bytes });
        Ok(())
    }

    fn seal(&mut self) -> Seal {
        self.sealed.0 += 1;
        self.send(Command::Seal(self.sealed));
        self.sealed
    }

    fn is_written(&mut self, seal: Seal) -> Result<bool, ColdError> {
        self.progress.is_written(seal)
    }

    fn wait_written(&mut self, seal: Seal) -> Result<(), ColdError> {
        self.progress.wait(seal)
    }

    fn pending_bytes(&self) -> u64 {
        self.progress.pending_bytes()
    }

    fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        let (snapshot, ticket) = RocksdbSnapshot::begin(&self.database);
        if let Err(error) = self.progress.check() {
            ticket.fail(error);
        }
        self.snapshot = Some(ticket);
        snapshot
    }

    fn complete_snapshot(&mut self) {
        if let Some(ticket) = self.snapshot.take() {
            self.send(Command::Snapshot(ticket));
        }
    }

    fn abandon_snapshot(&mut self) {
        self.snapshot = None;
    }

    fn expire(&mut self, state: ColdStateId, expiry: ColdExpiry) {
        let family = self.family(state);
        if family.layout.schema().ttl.is_some() {
            Database::expire(family, expiry.expired_until_ms);
        }
    }

    fn metrics(&self) -> ColdMetrics {
        let DatabaseSize { disk_bytes, entries } = self.progress.size();
        ColdMetrics {
            loads: self.loads,
            reads: self.reads,
            hits: self.hits,
            writes: self.progress.writes(),
            disk_bytes,
            entries,
            pending_bytes: self.progress.pending_bytes(),
        }
    }
}

impl Drop for RocksdbStore {
    fn drop(&mut self) {
        self.progress.stop();
        self.snapshot = None;
        self.commands = None;
        if let Some(writer) = self.writer.take() {
            // Its panic has been said, and every waiter was told.
            let _ = writer.join();
        }
    }
}
