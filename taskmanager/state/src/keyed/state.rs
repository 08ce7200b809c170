//! The keyed state of one operator: its keys, its current key, and its states.

use std::any::{Any, type_name};
use std::sync::Arc;

use arrow::array::ArrayRef;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::types::Column;

use crate::cold::{ColdMetrics, Opened};
use crate::descriptor::{BindError, Binder, Bindings, Bound, Descriptor, StateId};
use crate::key_index::KeyIndex;
use crate::rows::Rows;
use crate::types::TypeError;

use super::at::{At, NO_KEY, Namespace};
use super::budget::HeapBudget;
use super::clock::Clock;
use super::error::{StateError, StateName, StateResult};
use super::here::Here;
use super::overlay::Overlay;
use super::rows::{AnyState, StateRows};
use super::table::TableInfo;

/// Rows that were saved before they changed and may wait until more come.
pub(super) const SAVED_ROWS_MAX: usize = 8192;

/// Rows whose values are read ahead: they have to stay in the nearest cache until the function comes to them.
pub(super) const TOUCHED_ROWS: usize = 256;

/// Rows of each state with a time to live that are looked at after a batch.
const CLEANED_ROWS: usize = 256;

/// Whose state it is.
#[derive(Debug, Clone)]
pub struct KeyedOptions {
    /// The operator.
    pub uid: Uid,
    /// The key's columns, without a prefix.
    pub keys: Vec<Column>,
    /// The key groups that are this subtask's.
    pub key_groups: KeyGroupRange,
    /// Number of key groups of the job.
    pub max_parallelism: u32,
    /// The memory that is shared with all other heap states of the TaskManager.
    pub budget: Arc<HeapBudget>,
}

/// The keyed state of one operator.
///
/// Contract: used by one thread. Descriptors are bound first, then snapshots restored. Around each batch stand `enter` and
/// `finish_batch`; between them `set_row` (or `set_current`) says whose state the handles mean. Barriers fall between batches.
pub struct KeyedState {
    pub(super) options: KeyedOptions,
    pub(super) keys: KeyIndex,
    pub(super) at: At,
    /// The key of each row of the batch.
    pub(super) ids: Vec<u32>,
    pub(super) bindings: Bindings,
    pub(super) states: Vec<BoundState>,
    /// Keys that came since the last `finish_batch`.
    pub(super) arrived: Vec<u32>,
    /// Keys that may have nothing any more.
    pub(super) doubtful: Vec<u32>,
    /// Bytes charged to the budget.
    pub(super) charged: usize,
    /// The checkpoint of the last barrier.
    pub(super) checkpoint: Option<CheckpointId>,
    /// The cold store behind the tables, if they are its overlay.
    pub(super) overlay: Option<Overlay>,
}

pub(super) struct BoundState {
    windowed: bool,
    pub(super) state: Box<dyn AnyState>,
}

impl KeyedState {
    /// Without keys and states.
    ///
    /// Contract: the key's columns are of types for which `levada_common::keys::is_key_type` holds.
    pub fn new(options: KeyedOptions) -> Self {
        let types: Vec<_> = options.keys.iter().map(|key| key.ty.to_arrow()).collect();
        Self {
            keys: KeyIndex::new(&types),
            options,
            at: At { key: NO_KEY, namespace: None, clock: Clock::default() },
            ids: Vec::new(),
            bindings: Bindings::new(),
            states: Vec::new(),
            arrived: Vec::new(),
            doubtful: Vec::new(),
            charged: 0,
            checkpoint: None,
            overlay: None,
        }
    }

    /// With a cold store behind the tables, which are its write-back overlay and stay within its share of the memory: the budget
    /// of the heap does not count them.
    pub fn with_store(options: KeyedOptions, opened: Opened) -> Self {
        let mut state = Self::new(options);
        state.overlay = Some(Overlay::new(opened));
        state
    }

    /// Gives the keys of a batch ids, which `ids` shows; there is no current key until one is set.
    ///
    /// Shape: `keys` as in `KeyedOptions`, `rows` long each.
    pub fn enter(&mut self, keys: &[ArrayRef], rows: usize) -> StateResult<()> {
        let mut ids = std::mem::take(&mut self.ids);
        ids.clear();
        self.intern(keys, rows, &mut ids);
        self.at.key = NO_KEY;
        let loaded =
            if self.overlay.is_some() { self.load_keys(&ids, true).and_then(|()| self.load_asked_windows(&ids)) } else { Ok(()) };
        self.ids = ids;
        loaded
    }

    /// Appends the id of each row's key, for keys that come by another way than a batch: timers that are restored.
    ///
    /// Shape: as in `enter`. Contract: a key that has neither state nor timers at the next `finish_batch` loses its id.
    pub fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        let before = self.keys.len() as u32;
        self.keys.intern(keys, rows, ids);
        self.arrived.extend(before..self.keys.len() as u32);
        self.keys.drain_reused(&mut self.arrived);
    }

    /// The key of each row of the batch that was entered last.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Makes the key of this row of the batch the current one.
    ///
    /// Contract: the row is one of the batch that was entered last.
    #[inline]
    pub fn set_row(&mut self, row: usize) {
        self.at.key = self.ids[row];
        self.touch_ahead(&self.ids, row);
    }

    /// Reads, every so many rows, what the next of them will ask for, given the keys of all: loads of one short loop overlap,
    /// those of a function's rows hardly.
    #[inline]
    pub fn touch_ahead(&self, ids: &[u32], row: usize) {
        if row.is_multiple_of(TOUCHED_ROWS) {
            self.touch(&ids[row..ids.len().min(row + TOUCHED_ROWS)]);
        }
    }

    #[inline(never)]
    fn touch(&self, ids: &[u32]) {
        for bound in &self.states {
            bound.state.rows().touch(ids);
        }
    }

    /// Makes the key with this id the current one.
    ///
    /// Contract: the id is that of a key of the batch, or of one that has state or timers.
    #[inline]
    pub fn set_current(&mut self, key: u32) {
        self.at.key = key;
    }

    /// The id of the current key.
    pub fn current(&self) -> Option<u32> {
        Some(self.at.key).filter(|key| *key != NO_KEY)
    }

    /// The columns of these keys.
    pub fn key_columns(&self, keys: &[u32]) -> Vec<ArrayRef> {
        self.keys.keys(Rows::Ids(keys))
    }

    /// Says which window's values the handles of windowed states mean; other states do not look at it.
    #[inline]
    pub fn set_namespace(&mut self, namespace: Option<Namespace>) {
        self.at.namespace = namespace;
        if let (Some(overlay), Some(window)) = (&mut self.overlay, namespace) {
            overlay.asked.count(window);
        }
    }

    /// Which window's values the handles of windowed states mean.
    #[inline]
    pub fn namespace(&self) -> Option<Namespace> {
        self.at.namespace
    }

    /// Forgets all that the current key has in the current window, in every state that is kept per window.
    ///
    /// Contract: there is a current key and a window, and no store behind the tables: it would keep what it has.
    pub fn clear_window(&mut self) {
        debug_assert!(self.overlay.is_none() && self.at.key != NO_KEY && self.at.namespace.is_some());
        for BoundState { state, .. } in self.states.iter_mut().filter(|bound| bound.windowed) {
            state.rows_mut().clear(&self.at);
        }
    }

    /// Says what time it is.
    pub fn set_clock(&mut self, clock: Clock) {
        self.at.clock = clock;
    }

    /// The event time of the current row, which what it touches is stamped with where the time to live is in event time.
    #[inline]
    pub fn set_row_time(&mut self, row_ms: i64) {
        self.at.clock.row_ms = row_ms;
    }

    /// Makes sure that the values of keys that come by another way than a batch are in memory, all of them by one sorted read per
    /// state: those of timers that fire.
    ///
    /// Contract: keys that have timers.
    pub fn fetch(&mut self, ids: &[u32]) -> StateResult<()> {
        if self.overlay.is_some() { self.load_keys(ids, false) } else { Ok(()) }
    }

    /// These keys may have nothing any more: their timers have fired. The next `finish_batch` looks at them.
    pub fn reconsider(&mut self, keys: &[u32]) {
        self.doubtful.extend_from_slice(keys);
    }

    /// Ends a batch, or a round of timers: forgets keys that have nothing, removes some of what has expired, charges the memory.
    /// `has_timers` says whether a key has timers and must stay.
    ///
    /// Errors: over the memory's limit; values that cannot become columns. The task fails by both.
    pub fn finish_batch(&mut self, has_timers: impl Fn(u32) -> bool) -> StateResult<()> {
        self.at.key = NO_KEY;
        if self.overlay.is_some() {
            return self.finish_cold_batch(has_timers);
        }
        self.clean();
        self.states.iter_mut().for_each(|bound| bound.state.rows_mut().drain_emptied(&mut self.doubtful));
        self.forget_keys(has_timers)?;
        self.each_state(|rows, keys| rows.flush_saved(keys, SAVED_ROWS_MAX))?;
        self.charge()
    }

    /// Removes some of what has expired from memory.
    pub(super) fn clean(&mut self) {
        for BoundState { state, .. } in self.states.iter_mut().filter(|bound| bound.state.rows().info().ttl.is_some()) {
            state.rows_mut().clean(&self.at, CLEANED_ROWS);
        }
    }

    /// Forgets those keys that came or lost something and have nothing now.
    fn forget_keys(&mut self, has_timers: impl Fn(u32) -> bool) -> StateResult<()> {
        let Self { arrived, doubtful, states, .. } = self;
        let is_idle = |key: &u32| !has_timers(*key) && !states.iter().any(|bound| bound.state.rows().has(*key));
        doubtful.retain(is_idle);
        doubtful.extend(arrived.drain(..).filter(is_idle));
        if self.doubtful.is_empty() {
            return Ok(());
        }
        let mut doubtful = std::mem::take(&mut self.doubtful);
        doubtful.sort_unstable();
        doubtful.dedup();
        self.each_state(|rows, keys| rows.flush_saved(keys, 1))?;
        doubtful.drain(..).for_each(|key| self.keys.remove(key));
        self.doubtful = doubtful;
        Ok(())
    }

    /// Charges what is held to the budget of the heap, which knows nothing of overlays.
    pub(super) fn charge(&mut self) -> StateResult<()> {
        let bytes = self.memory_bytes();
        let is_within = self.options.budget.charge(self.charged, bytes);
        self.charged = bytes;
        if is_within { Ok(()) } else { Err(self.over_budget(bytes)) }
    }

    #[cold]
    fn over_budget(&self, bytes: usize) -> Box<StateError> {
        let sizes = self.states.iter().map(|bound| bound.state.rows()).map(|rows| (rows.memory_bytes(), rows.info()));
        let (state_bytes, state) = match sizes.max_by_key(|(bytes, _)| *bytes) {
            Some((bytes, info)) => (bytes, info.name.state.clone()),
            None => (0, String::new()),
        };
        let (used, limit) = (self.options.budget.used(), self.options.budget.limit());
        Box::new(StateError::OverBudget { uid: self.options.uid.clone(), bytes, state, state_bytes, used, limit })
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        let states: usize = self.states.iter().map(|bound| bound.state.rows().memory_bytes()).sum();
        let ids = (self.ids.capacity() + self.arrived.capacity() + self.doubtful.capacity()) * size_of::<u32>();
        self.keys.memory_bytes() + states + ids + self.overlay.as_ref().map_or(0, Overlay::memory_bytes)
    }

    /// Number of keys.
    pub fn keys(&self) -> usize {
        self.keys.live()
    }

    /// Entries of each state by its name; what has expired and was not removed yet is counted.
    pub fn entries(&self) -> impl Iterator<Item = (&str, usize)> {
        self.states.iter().map(|bound| bound.state.rows()).map(|rows| (rows.info().name.state.as_str(), rows.entries()))
    }

    /// What the cold store did and has, where there is one.
    pub fn store_metrics(&self) -> Option<ColdMetrics> {
        self.overlay.as_ref().map(|overlay| overlay.write_back.metrics())
    }

    pub(super) fn each_state(
        &mut self,
        mut does: impl FnMut(&mut dyn StateRows, &KeyIndex) -> Result<(), TypeError>,
    ) -> StateResult<()> {
        for BoundState { state, .. } in &mut self.states {
            let rows = state.rows_mut();
            does(rows, &self.keys).map_err(|source| of_type(rows.info(), source))?;
        }
        Ok(())
    }
}

/// Access by handles.
impl KeyedState {
    /// The state of this place, and where the access goes.
    ///
    /// Errors: no current key, no namespace for a windowed state, another state's handle.
    #[inline]
    pub(super) fn open<S: AnyState>(&mut self, id: StateId) -> StateResult<(&mut S, Here<'_>)> {
        let Some(BoundState { windowed, state }) = self.states.get_mut(id.0) else {
            return Err(foreign::<S>(&self.options.uid));
        };
        if self.at.key == NO_KEY || *windowed && self.at.namespace.is_none() {
            return Err(nowhere(state.rows().info(), &self.at));
        }
        let state: &mut dyn Any = &mut **state;
        match state.downcast_mut() {
            Some(state) => Ok((state, Here { at: &self.at, keys: &self.keys, overlay: self.overlay.as_mut() })),
            None => Err(foreign::<S>(&self.options.uid)),
        }
    }

    /// The state of this place, for accesses to all namespaces of the current key.
    ///
    /// Errors: no current key, another state's handle.
    pub(super) fn open_key<S: AnyState>(&mut self, id: StateId) -> StateResult<(&mut S, &At)> {
        if self.overlay.is_some() && self.at.key != NO_KEY {
            let keys = self.keys.keys(Rows::Ids(&[self.at.key]));
            let mut groups = Vec::new();
            self.groups_of(&keys, 1, &mut groups);
            self.load_groups(id, KeyGroupRange { start: groups[0], end: groups[0] })?;
        }
        self.at_state(id)
    }

    /// The state of this place, for accesses to all keys. With a cold store all of it comes into memory.
    ///
    /// Errors: another state's handle.
    pub(super) fn open_all<S: AnyState>(&mut self, id: StateId) -> StateResult<(&mut S, &At)> {
        if self.overlay.is_some() {
            self.load_groups(id, self.options.key_groups)?;
        }
        self.at_state(id)
    }

    fn at_state<S: AnyState>(&mut self, id: StateId) -> StateResult<(&mut S, &At)> {
        let state = self.states.get_mut(id.0).map(|bound| &mut *bound.state as &mut dyn Any);
        match state.and_then(|state| state.downcast_mut()) {
            Some(state) => Ok((state, &self.at)),
            None => Err(foreign::<S>(&self.options.uid)),
        }
    }
}

impl Binder for KeyedState {
    fn bind(&mut self, descriptor: &dyn Descriptor) -> Result<StateId, BindError> {
        let signature = descriptor.signature()?;
        let mut schema = signature.declaration().schema.clone();
        schema.keys = self.options.keys.clone();
        let windowed = schema.windowed;
        let name = StateName { uid: self.options.uid.clone(), state: descriptor.name().into() };
        let Some(state) = descriptor.keyed_state(TableInfo::new(name, schema, signature.ttl(), self.options.max_parallelism))
        else {
            let remedy = "bind it as operator state";
            return Err(BindError::Kind { name: descriptor.name().into(), found: signature.declaration().kind.name(), remedy });
        };
        match self.bindings.bind(descriptor)? {
            Bound::Known(id) => Ok(id),
            Bound::New(id) => {
                self.states.push(BoundState { windowed, state });
                Ok(id)
            }
        }
    }
}

impl Drop for KeyedState {
    fn drop(&mut self) {
        self.options.budget.charge(self.charged, 0);
    }
}

impl std::fmt::Debug for KeyedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.entries().map(|(name, _)| name).collect();
        f.debug_struct("KeyedState").field("uid", &self.options.uid).field("keys", &self.keys()).field("states", &names).finish()
    }
}

fn of_type(info: &TableInfo, source: TypeError) -> Box<StateError> {
    Box::new(StateError::Type { name: info.name.clone(), source })
}

#[cold]
fn foreign<S>(uid: &Uid) -> Box<StateError> {
    Box::new(StateError::ForeignHandle { uid: uid.clone(), handle: type_name::<S>() })
}

#[cold]
fn nowhere(info: &TableInfo, at: &At) -> Box<StateError> {
    let name = info.name.clone();
    Box::new(if at.key == NO_KEY { StateError::NoKey { name } } else { StateError::NoNamespace { name } })
}
