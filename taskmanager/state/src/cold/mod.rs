//! The contract of a cold store: a database behind the tables of one operator, for state that memory does not hold.
//!
//! The tables in memory are its write-back overlay: they `load` what a batch misses, send what changed as a `Change`, `seal` what
//! they sent, and forget it once the seal is written. Reads never wait for writes: what is not written yet is still in memory.
//!
//! At a barrier the overlay calls `begin_snapshot`, sends the rows that had changed as they were at the barrier, and then calls
//! `complete_snapshot`; a change of a later time is sent only after that. So the database passes through exactly the barrier's
//! state, and the snapshot has it, with everything that was sent before.
//!
//! Must never know what an entry means. Invariant: the later of two changes of one entry wins, and a snapshot has what was sent
//! before `complete_snapshot` and nothing sent after (the contract tests, on each implementation).

mod budget;
pub mod contract;
mod error;
pub mod memory;
mod shared;
mod write_back;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;

pub use crate::row_codec::{Addresses, RowLayout, Window};
use crate::row_codec::{BadRow, read_namespace};
use crate::snapshot::DatabaseSnapshot;
pub use budget::{OverlayBudget, OverlayShare};
pub use error::ColdError;
pub use shared::SharedStores;
pub use write_back::{Phase, WriteBack};

/// A state of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColdStateId(pub u32);

/// Everything sent before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Seal(pub u64);

/// Entries that were found.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// For each row of `rows` the number of the address that it belongs to; rows of one address stand together, in the order of
    /// what lies below it.
    pub positions: Vec<u32>,
    /// The columns of the layout behind key and window: map key or index, values, `_ttl`.
    pub rows: RecordBatch,
    /// Numbers of the addresses of which there is more than was asked for.
    pub cut: Vec<u32>,
}

/// The store of an operator, and what memory the overlay before it may take.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Box<dyn ColdStore>,
    /// Its part of the memory of all overlays.
    pub share: OverlayShare,
}

/// Gives the operators of a task their stores.
pub trait ColdStores: Send + Sync + Debug {
    /// Opens the store of an operator: with what it had in its database, where the task is restored from one, else empty. The
    /// task is woken whenever a seal of it was written.
    ///
    /// Contract: once for each operator.
    fn open(&self, uid: &Uid) -> Result<Opened, ColdError>;

    /// Rows of a state of an operator that were restored and are not in its store yet, since only the operator knows where they belong
    /// there: in the open format with their key groups, file by file. Once.
    fn take_fetched(&self, _uid: &Uid, _state: &str) -> Vec<Scan> {
        Vec::new()
    }

    /// An operator for which something was restored and that has not opened its store: what was restored would be lost.
    fn unopened(&self) -> Option<Uid> {
        None
    }
}

/// What became of some entries.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Entries that are gone; applied before `upserts`. An address without its part below takes everything below.
    pub deletes: Option<Addresses>,
    /// Entries as they are now, in the columns of the layout.
    pub upserts: Option<RecordBatch>,
}

/// Which namespaces a scan visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// All.
    Any,
    /// This one; `None` is that of entries without a window.
    Exactly(Option<Window>),
    /// Windows that end after `after`, at `until` or before; in each key group in the order of end and start.
    Ending {
        /// The last end of those that are left out.
        after: i64,
        /// The last end.
        until: i64,
    },
}

/// What a scan visits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Entries of these groups.
    pub groups: KeyGroupRange,
    /// Entries of these namespaces.
    pub within: Within,
}

/// Entries on their way out of a scan, in the layout's columns and in the order of the store's keys. A consistent view of the
/// moment of the call: what is written later is not in it.
pub type Scan = Box<dyn Iterator<Item = Result<RecordBatch, ColdError>> + Send>;

/// What a store did and has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColdMetrics {
    /// Sorted reads made to look addresses up.
    pub loads: u64,
    /// Addresses looked up.
    pub reads: u64,
    /// Addresses of these that were found.
    pub hits: u64,
    /// Entries written or deleted.
    pub writes: u64,
    /// Bytes on disk when something was written last.
    pub disk_bytes: u64,
    /// Entries at that time, estimated.
    pub entries: u64,
    /// Bytes sent that are not in the database yet.
    pub pending_bytes: u64,
}

/// The time by which entries expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColdExpiry {
    /// An entry whose `_ttl` is at most this, in milliseconds, has expired.
    pub expired_until_ms: i64,
}

/// The bounds of the keys in a scope, each the first key and, not included, the last.
pub fn scan_bounds(layout: &RowLayout, scope: Scope) -> Vec<(Vec<u8>, Vec<u8>)> {
    let below = |bytes: Vec<u8>| {
        let prefixes = scope.groups.groups().map(move |group| [&group.to_be_bytes()[..], &bytes].concat());
        prefixes.map(|prefix| RowLayout::prefix_bounds(&prefix)).collect()
    };
    match (scope.within, layout.schema().windowed) {
        (Within::Any, _) | (Within::Exactly(None), false) => vec![RowLayout::group_bounds(scope.groups)],
        (Within::Exactly(Some(_)) | Within::Ending { .. }, false) => Vec::new(),
        (Within::Exactly(window), true) => below(Window::key_bytes(window)),
        (Within::Ending { after, until }, true) if after >= until => Vec::new(),
        (Within::Ending { after, until }, true) => {
            let bounds = |group: u16| {
                let bound = |window: &[u8]| [&group.to_be_bytes()[..], window].concat();
                let (first, last) = (Window { end: after + 1, start: i64::MIN }, Window { end: until, start: i64::MAX });
                let last = RowLayout::prefix_bounds(&bound(&Window::key_bytes(Some(last)))).1;
                (bound(&Window::key_bytes(Some(first))), last)
            };
            scope.groups.groups().map(bounds).collect()
        }
    }
}

/// The namespaces of entries of `groups`, for stores that know the first key at or after another.
pub fn find_namespaces<E>(
    layout: &RowLayout,
    groups: KeyGroupRange,
    mut first_key: impl FnMut(&[u8]) -> Result<Option<Vec<u8>>, E>,
    bad_row: impl Fn(BadRow) -> E,
) -> Result<BTreeSet<Option<Window>>, E> {
    let mut found = BTreeSet::new();
    let (mut from, end) = RowLayout::group_bounds(groups);
    while let Some(key) = first_key(&from)?.filter(|key| *key < end) {
        let (window, known) = read_namespace(layout, &key).map_err(&bad_row)?;
        found.insert(window);
        if !layout.schema().windowed {
            break;
        }
        from = RowLayout::prefix_bounds(&key[..known]).1;
    }
    Ok(found)
}

/// A database of one operator of one task.
///
/// Contract: used by one thread, the task's. `load` and `scan` read the disk on it; nothing else blocks. An error leaves the
/// store as it was, but one from the background (`Write`, `Snapshot`) is the store's end: every later call answers it again.
pub trait ColdStore: Send + Debug {
    /// Begins to use a state, new or restored. Where its entries expire and those restored have no time of their last touch,
    /// they get `touched_at_ms`.
    ///
    /// Errors: `Open`; the schema's keys, shapes and types were compared with the restored one's before (restore check).
    fn open_state(&mut self, name: &str, schema: &Arc<StateSchema>, touched_at_ms: i64) -> Result<ColdStateId, ColdError>;

    /// How a state's entries are laid out.
    fn layout(&self, state: ColdStateId) -> &RowLayout;

    /// Looks entries up in what is written, all of them by one sorted read; an address named twice is found once. Addresses
    /// without their part below find what is below, of each address the first `below_max` entries.
    fn load(&mut self, state: ColdStateId, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError>;

    /// Looks up the last entry below each of these addresses, which have no part below, as `load` looks up all of them.
    fn load_last(&mut self, state: ColdStateId, addresses: &Addresses) -> Result<Loaded, ColdError>;

    /// Visits entries that are written.
    fn scan(&mut self, state: ColdStateId, scope: Scope) -> Result<Scan, ColdError>;

    /// The namespaces of the written entries of a state in these groups; `None` is that of entries without a window. A few
    /// reads for each group and window, however many entries there are.
    fn namespaces(&mut self, state: ColdStateId, groups: KeyGroupRange) -> Result<BTreeSet<Option<Window>>, ColdError>;

    /// Sends changes to the background.
    ///
    /// Errors: `Layout`: columns that are not the state's.
    fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), ColdError>;

    /// Ends what was sent: a generation.
    fn seal(&mut self) -> Seal;

    /// Whether everything before this seal is written, so that `load` finds it.
    fn is_written(&mut self, seal: Seal) -> Result<bool, ColdError>;

    /// Waits until everything before this seal is written. Never call it while rows could go on. What a shared store holds back behind
    /// a snapshot is not waited for: it waits itself for the others' parts, which only this thread sends.
    fn wait_written(&mut self, seal: Seal) -> Result<(), ColdError>;

    /// Bytes sent that are not written yet: what the caller bounds. None that wait for what the caller has still to send.
    fn pending_bytes(&self) -> u64;

    /// Begins a snapshot: it will have what is sent until `complete_snapshot`, and no entries that had expired by the last
    /// `expire`. Whoever reads its rows, now or from its files, does not see these.
    ///
    /// Contract: one at a time.
    fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot>;

    /// Everything of the barrier was sent.
    fn complete_snapshot(&mut self);

    /// Gives the snapshot that was begun up; what was sent stays.
    fn abandon_snapshot(&mut self);

    /// Lets the store drop entries of a state that have expired, whenever it comes past them and no snapshot under way has them. A
    /// reader judges by itself all the same: expired entries may still be found.
    fn expire(&mut self, state: ColdStateId, expiry: ColdExpiry);

    /// What it did and has: numbers that are at hand, so that they may be asked for after each batch.
    fn metrics(&self) -> ColdMetrics;
}
