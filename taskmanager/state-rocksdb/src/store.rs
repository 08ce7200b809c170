//! The task's side of a store.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
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
use crate::load::{Below, bad_entry, load};
use crate::options::{self, NEVER_EXPIRED};
use crate::restore::rewrite_family;
use crate::scan::RunningScan;
use crate::snapshot::{RocksdbSnapshot, Ticket};
use crate::writer::{Command, Progress, Writer};

/// A store on one database.
#[derive(Debug)]
pub struct RocksdbStore {
    states: Vec<Arc<Family>>,
    /// Of each state the time of the last touch of what has expired, and whether that was told since the store began: what a snapshot
    /// says is by the clock of another machine, which may be ahead. Compaction hears of it later: see `expire`.
    expired_until_ms: Vec<(i64, bool)>,
    /// Snapshots whose files are still to be taken.
    under_way: Vec<Weak<RocksdbSnapshot>>,
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
            expired_until_ms: Vec::new(),
            under_way: Vec::new(),
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

    fn look_up(&mut self, state: ColdStateId, addresses: &Addresses, below: Below) -> Result<Loaded, ColdError> {
        self.progress.check()?;
        let loaded = load(&self.database, self.family(state), addresses, below)?;
        self.loads += 1;
        self.reads += addresses.rows as u64;
        self.hits += loaded.positions.len() as u64;
        Ok(loaded)
    }

    fn forget_taken(&mut self) {
        self.under_way.retain(|snapshot| snapshot.upgrade().is_some_and(|snapshot| snapshot.is_under_way()));
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
        self.expired_until_ms.push((family.expired_until_ms.load(Ordering::Relaxed), false));
        self.states.push(Arc::new(family));
        Ok(ColdStateId(self.states.len() as u32 - 1))
    }

    fn layout(&self, state: ColdStateId) -> &RowLayout {
        &self.family(state).layout
    }

    fn load(&mut self, state: ColdStateId, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError> {
        self.look_up(state, addresses, Below::First(below_max))
    }

    fn load_last(&mut self, state: ColdStateId, addresses: &Addresses) -> Result<Loaded, ColdError> {
        self.look_up(state, addresses, Below::Last)
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
        let expire = self
            .states
            .iter()
            .zip(self.expired_until_ms.iter().map(|(until, _)| until))
            .filter(|(family, _)| family.layout.schema().ttl.is_some());
        let expired = expire.map(|(family, until)| (family.state.clone(), Some(*until).filter(|until| *until != NEVER_EXPIRED)));
        let (snapshot, ticket) = RocksdbSnapshot::begin(&self.database, expired.collect());
        self.forget_taken();
        self.under_way.push(Arc::downgrade(&snapshot));
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
        let family = Arc::clone(self.family(state));
        if !family.layout.schema().ttl.is_some() {
            return;
        }
        let (until_ms, is_told) = &mut self.expired_until_ms[state.0 as usize];
        *until_ms = if *is_told { expiry.expired_until_ms.max(*until_ms) } else { expiry.expired_until_ms };
        *is_told = true;
        let until_ms = *until_ms;
        // A snapshot under way has what had not expired at its barrier, so compaction has to leave that alone until it is taken.
        self.forget_taken();
        if self.under_way.is_empty() {
            Database::expire(&family, until_ms);
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
