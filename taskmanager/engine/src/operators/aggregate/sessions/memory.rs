//! Which sessions are in memory where a store is behind them: what it has as it is goes where memory is short, and the sessions of
//! a batch's keys come back.
//!
//! A key is in memory with all its sessions or with none, so that a key that memory has is not looked for. All that can go goes at
//! once, into tables of the size that is left, also what has something to be given: it comes back for that. Must never know when
//! sessions fire.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use levada_common::keys::KeyGroupRange;
use levada_state::bits::Bits;
use levada_state::cold::{ColdStores, Scan};
use levada_state::key_index::ABSENT;
use levada_state::rows::Rows;

use super::super::shape::Shape;
use super::super::value_sets::ValueSets;
use super::collapse::Part;
use super::open_sessions::OpenSessions;
use super::store::{SessionStore, StoredSessions};
use crate::error::EngineError;
use crate::operators::behind::Due;

/// Sessions that are sent after a batch while memory is short.
const SENT_ROWS: usize = 16_384;

/// Keys that are moved at once.
const MOVED_KEYS: usize = 8192;

impl OpenSessions {
    /// Stands in front of a store from now on.
    pub(super) fn stand_before(
        &mut self,
        shape: &Shape,
        stores: &dyn ColdStores,
        range: KeyGroupRange,
    ) -> Result<(), EngineError> {
        let store = self.store.insert(SessionStore::open(shape, stores, range)?);
        let open = &mut |meta, schema: &_| store.open_values(meta, schema);
        self.values.as_mut().map_or(Ok(()), |values| values.stand_before(shape, open))
    }

    /// Whether there is room for another batch, with so many bytes beside the sessions. Where there is none the store is writing:
    /// it wakes the task when it is done.
    pub(super) fn is_ready(&mut self, beside_bytes: usize) -> Result<bool, EngineError> {
        let held_bytes = self.memory_bytes() + beside_bytes;
        self.store.as_mut().map_or(Ok(true), |store| store.behind.is_ready(held_bytes))
    }

    /// Whether something should go.
    pub(super) fn is_short(&self) -> bool {
        self.store.as_ref().is_some_and(|store| store.behind.is_short(self.memory_bytes()))
    }

    /// To be called after each batch: sends and forgets what is due where memory is short.
    ///
    /// Contract: no session is on its way out.
    pub(super) fn make_room(&mut self, shape: &Shape, beside_bytes: usize) -> Result<(), EngineError> {
        let held_bytes = self.memory_bytes() + beside_bytes;
        let Some(store) = &mut self.store else { return Ok(()) };
        match store.behind.due(held_bytes)? {
            Due::Nothing => return Ok(()),
            Due::Send => {}
            Due::Room => {
                let changed = self.changed_keys();
                // A key goes with all its sessions or not at all.
                let kept: usize = changed.rows().map(|key| self.sessions_of(key).count()).sum();
                let gone = self.values.as_ref().map_or(0, ValueSets::gone_len);
                if (kept + gone) * 2 <= self.len() {
                    return self.forget_but(&changed, shape);
                }
                self.begin_generation()?;
            }
        }
        let takes_more = self.store.as_mut().map_or(Ok(false), |store| store.behind.takes_more())?;
        if takes_more { self.save(shape, SENT_ROWS) } else { Ok(()) }
    }

    /// Sends what has changed, waits until it is written, and forgets it: only before rows come.
    pub(super) fn empty(&mut self, shape: &Shape) -> Result<(), EngineError> {
        self.begin_generation()?;
        while self.is_saving() {
            self.save(shape, SENT_ROWS)?;
        }
        self.store.as_mut().map_or(Ok(()), |store| store.behind.wait())?;
        self.forget_but(&self.changed_keys(), shape)
    }

    /// Brings in the sessions of these keys that only the store has; those that end at `time` or before are over.
    pub(super) fn load(&mut self, shape: &Shape, keys: &[ArrayRef], rows: usize, time: i64) -> Result<(), EngineError> {
        if !self.store.as_ref().is_some_and(|store| store.away.may_have_any()) {
            return Ok(());
        }
        let rows = if self.keys.is_unit() { rows.min(1) } else { rows };
        let absent: UInt32Array = self.absent(keys, rows).into();
        if absent.is_empty() {
            return Ok(());
        }
        let of = keys.iter().map(|column| take(column, &absent, None)).collect::<Result<Vec<_>, _>>();
        if let Some(found) = self.find(shape, of.map_err(|source| shape.kernel(source))?, absent.len(), time)? {
            self.bring_in(shape, &found)?;
        }
        Ok(())
    }

    /// The rows whose key is not in memory.
    pub(super) fn absent(&mut self, keys: &[ArrayRef], rows: usize) -> Vec<u32> {
        let mut known = std::mem::take(&mut self.ids);
        known.clear();
        self.keys.find(keys, rows, &mut known);
        let absent = (0..).zip(&known).filter(|(_, id)| **id == ABSENT).map(|(row, _)| row).collect();
        self.ids = known;
        absent
    }

    /// What the store, if there is one, has of these keys, which are not in memory: their sessions that end after `time`.
    pub(super) fn find(
        &mut self,
        shape: &Shape,
        keys: Vec<ArrayRef>,
        rows: usize,
        time: i64,
    ) -> Result<Option<StoredSessions>, EngineError> {
        self.store.as_mut().map(|store| store.load(shape, keys, rows, time)).transpose()
    }

    /// Whether there may be sessions beyond memory that end after `after`, at `until` or before.
    pub(super) fn may_be_away(&self, after: i64, until: i64) -> bool {
        self.store.as_ref().is_some_and(|store| store.away.may_have_within(after, until))
    }

    /// Those of them that have something to be given are given now: answers after which end and until which one there may be some.
    pub(super) fn away_to_give(&mut self, after: i64, until: i64) -> Option<(i64, i64)> {
        self.store.as_mut().and_then(|store| store.away.take_to_give(after, until))
    }

    /// Begins to visit what the store has of sessions that end after `after`, at `until` or before, if any of these can be beyond memory.
    pub(super) fn scan_stored(&mut self, after: i64, until: i64) -> Result<Option<Scan>, EngineError> {
        let store = self.store.as_mut().filter(|store| store.away.may_have_within(after, until));
        store.map(|store| store.scan(after, until)).transpose()
    }

    /// Takes in what was found; answers the sessions that it is.
    pub(super) fn bring_in(&mut self, shape: &Shape, found: &StoredSessions) -> Result<Vec<u32>, EngineError> {
        if let Some(store) = &mut self.store {
            found.bounds().for_each(|(_, end)| store.away.remove(end));
        }
        let opened = self.open_all(&found.keys, &found.bounds().collect::<Vec<_>>(), &found.states);
        for (session, at) in opened.iter().zip(found.bounds()) {
            self.stored.changed.clear(*session);
            self.stored.at[*session as usize] = Some(at);
        }
        self.load_values(shape, found, &opened)?;
        Ok(opened)
    }

    /// Opens sessions that no part of a batch has opened, with these states.
    pub(super) fn open_all(&mut self, keys: &[ArrayRef], bounds: &[(i64, i64)], states: &[ArrayRef]) -> Vec<u32> {
        let mut of = std::mem::take(&mut self.ids);
        self.intern(keys, bounds.len(), &mut of);
        let mut opened = Vec::with_capacity(bounds.len());
        for (key, (start, end)) in of.iter().zip(bounds) {
            let part = Part { key: *key, start: *start, end: *end };
            let (newer, _) = self.neighbour(part);
            opened.push(self.open(part, newer));
        }
        self.ids = of;
        self.set.resize(self.sessions.len());
        if !opened.is_empty() {
            self.set.assign(&opened, states);
        }
        self.frozen.resize(self.sessions.len());
        self.note_to_give(&opened);
        opened
    }

    /// The keys of which the store has not every session as it is.
    fn changed_keys(&self) -> Bits {
        let mut keys = Bits::default();
        self.stored.changed.rows().for_each(|session| keys.set_one(self.sessions[session as usize].key));
        keys
    }

    /// Forgets all keys but these, which are those that have changed.
    ///
    /// Contract: nothing is being sent or written.
    fn forget_but(&mut self, changed: &Bits, shape: &Shape) -> Result<(), EngineError> {
        let Some(mut store) = self.store.take() else { return Ok(()) };
        for key in (0..self.newest.len() as u32).filter(|key| !changed.get(*key)) {
            for session in self.sessions_of(key) {
                let end = self.sessions[session as usize].end;
                store.away.add(end);
                if self.is_due(session) {
                    store.away.note_to_give(end);
                }
            }
        }
        let mut rest = Self::new(shape);
        (rest.store, rest.over) = (Some(store), self.over);
        if let (Some(values), Some(moved)) = (&mut rest.values, &mut self.values) {
            values.stand_for(moved);
        }
        for keys in changed.rows().collect::<Vec<_>>().chunks(MOVED_KEYS) {
            self.move_keys(shape, keys, &mut rest)?;
        }
        *self = rest;
        Ok(())
    }

    /// Moves these keys and their sessions into other tables.
    fn move_keys(&self, shape: &Shape, keys: &[u32], to: &mut Self) -> Result<(), EngineError> {
        let (mut of_key, mut sessions) = (Vec::new(), Vec::new());
        for (row, key) in (0..).zip(keys) {
            let before = sessions.len();
            sessions.extend(self.sessions_of(*key));
            of_key.resize(of_key.len() + sessions.len() - before, row);
        }
        let of_key = UInt32Array::from(of_key);
        let columns = self.keys.keys(Rows::Ids(keys));
        let columns = columns.iter().map(|column| take(column, &of_key, None).expect("rows of the columns"));
        let bounds: Vec<(i64, i64)> =
            sessions.iter().map(|session| self.sessions[*session as usize]).map(|of| (of.start, of.end)).collect();
        let moved = to.open_all(&columns.collect::<Vec<_>>(), &bounds, &self.set.states(Rows::Ids(&sessions)));
        for (session, moved) in sessions.iter().zip(&moved) {
            to.stored.at[*moved as usize] = self.stored.at[*session as usize];
            if !self.stored.changed.get(*session) {
                to.stored.changed.clear(*moved);
            }
        }
        match (&mut to.values, &self.values) {
            (Some(values), Some(of)) => values.take_over(shape, &to.keys, of, (&sessions, &moved)),
            _ => Ok(()),
        }
    }
}
