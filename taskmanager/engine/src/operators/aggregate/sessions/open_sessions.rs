//! The sessions that are open: a list per key, newest first, and their accumulators.
//!
//! A batch's parts are joined to them in two steps: a walk that finds for each part what it touches, changes bounds and lists, and
//! notes which states go where; then a few calls that move all the states. A session whose number is used again gets its state
//! whole. Must never know when sessions fire, nor what is late.

mod given;
mod values;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::datatypes::TimestampMillisecondType;
use levada_common::keys::KeyGroupRange;
use levada_state::bits::Bits;
use levada_state::freeze::FrozenRows;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;

use super::super::restore::restored_rows;
use super::super::shape::Shape;
use super::super::value_sets::{Owner, ValueSets};
use super::collapse::{Collapse, Part};
use super::ends::Ends;
use super::rows::SessionRows;
use super::saving::{Saving, Stored};
use super::store::SessionStore;
use crate::aggregate::{AggregateSet, CallOverflow, Groups};
use crate::error::EngineError;
use crate::operator::RestoredState;

pub(super) use given::changes;

/// No session.
const NONE: u32 = u32::MAX;

/// A session, or the place of one that is no more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Session {
    pub(super) key: u32,
    /// The key's next session, which ends before this one starts.
    older: u32,
    pub(super) start: i64,
    pub(super) end: i64,
}

/// Which states go where; vectors that are filled anew each time.
#[derive(Debug, Default)]
struct Moves {
    /// Sessions that are new, and the parts that they are made of.
    opened: (Vec<u32>, Vec<u32>),
    /// Sessions that a part joins, and the parts.
    joined: (Vec<u32>, Vec<u32>),
    /// Sessions that others are merged into, and those.
    merged: (Vec<u32>, Vec<u32>),
    /// Sessions that begin earlier now, as they were.
    restarted: Vec<(u32, Session)>,
}

/// The open sessions.
#[derive(Debug)]
pub(super) struct OpenSessions {
    pub(super) keys: KeyIndex,
    /// By key: its newest session.
    pub(super) newest: Vec<u32>,
    pub(super) sessions: Vec<Session>,
    pub(super) set: AggregateSet,
    /// Their distinct values, by session, where values are told apart.
    pub(super) values: Option<ValueSets>,
    /// Numbers of sessions that are no more.
    pub(super) free: Vec<u32>,
    ends: Ends,
    /// Where results are given more than once: the time up to which sessions are over, and wait to be forgotten; else before all.
    pub(super) over: i64,
    /// These sessions.
    closing: Ends,
    /// Sessions that may have something to be given, where results are given more than once.
    to_give: Bits,
    /// Changes that take results back and wait to be asked for.
    taken_back: Vec<Vec<ArrayRef>>,
    /// Which of them are still to be saved.
    pub(super) frozen: FrozenRows,
    pub(super) saving: Option<Saving>,
    /// Sessions that must be saved before they change, as they were when the saving began.
    pub(super) unsaved: Vec<(u32, Session)>,
    pub(super) store: Option<SessionStore>,
    /// What it has of them.
    pub(super) stored: Stored,
    moves: Moves,
    pub(super) ids: Vec<u32>,
    reused: Vec<u32>,
}

impl OpenSessions {
    /// Without sessions.
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            keys: KeyIndex::new(&shape.key_types),
            newest: Vec::new(),
            sessions: Vec::new(),
            set: shape.plan.accumulators(),
            values: shape.sets.as_ref().map(ValueSets::new),
            free: Vec::new(),
            ends: Ends::default(),
            over: i64::MIN,
            closing: Ends::default(),
            to_give: Bits::default(),
            taken_back: Vec::new(),
            frozen: FrozenRows::new(),
            saving: None,
            unsaved: Vec::new(),
            store: None,
            stored: Stored::default(),
            moves: Moves::default(),
            ids: Vec::new(),
            reused: Vec::new(),
        }
    }

    /// Number of sessions.
    pub(super) fn len(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    /// Number of sessions and of their distinct values.
    pub(super) fn entries(&self) -> usize {
        self.len() + self.values.as_ref().map_or(0, ValueSets::len)
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let ids = self.newest.capacity() + self.free.capacity();
        self.keys.memory_bytes()
            + self.set.memory_bytes()
            + self.ends.memory_bytes()
            + self.closing.memory_bytes()
            + self.to_give.memory_bytes()
            + self.frozen.memory_bytes()
            + self.stored.memory_bytes()
            + self.values.as_ref().map_or(0, ValueSets::memory_bytes)
            + ids * size_of::<u32>()
            + self.sessions.capacity() * size_of::<Session>()
    }

    /// Joins the batch's parts to the sessions that they touch; parts that touch none open one, or, where `opens` is false, are
    /// left out. Answers how many were. `rows` are those of the batch.
    pub(super) fn join(
        &mut self,
        shape: &Shape,
        (batch, rows): (&mut Collapse, &SessionRows),
        opens: bool,
    ) -> Result<u64, EngineError> {
        let mut keys = std::mem::take(&mut self.ids);
        self.intern(&batch.keys(), batch.keys_len(), &mut keys);
        self.moves.clear();
        let mut left_out = 0;
        for id in batch.by_key() {
            let part = batch.parts()[*id as usize];
            let part = Part { key: keys[part.key as usize], ..part };
            left_out += u64::from(!self.place(part, *id, opens));
        }
        self.ids = keys;
        self.send_unsaved(shape)?;
        self.take_back();
        self.unite_parts(shape, batch, rows)?;
        self.move_states(shape, batch)?;
        self.tell_apart(shape, batch, &rows.values)?;
        Ok(left_out)
    }

    /// Makes parts that came to be in the same session one, where a call goes by the order in which rows come: theirs may have come in
    /// turns.
    fn unite_parts(&mut self, shape: &Shape, batch: &mut Collapse, rows: &SessionRows) -> Result<(), EngineError> {
        // The parts of a session stand next to each other, as those of a key do by start.
        let (sessions, parts) = &self.moves.joined;
        if !shape.goes_by_order || sessions.windows(2).all(|pair| pair[0] != pair[1]) {
            return Ok(());
        }
        let (mut joined, mut united, mut rest) = (<(Vec<u32>, Vec<u32>)>::default(), Vec::new(), parts.as_slice());
        for run in sessions.chunk_by(|one, other| one == other) {
            let (of_session, others) = rest.split_at(run.len());
            let first = *of_session.iter().min().expect("a run has a part");
            united.extend(of_session.iter().filter(|part| **part != first).map(|part| (*part, first)));
            joined.0.push(run[0]);
            joined.1.push(first);
            rest = others;
        }
        self.moves.joined = joined;
        batch.unite(shape, &united, rows)
    }

    /// Appends the sessions that end at `time` or before to `due`, in order of end and start.
    pub(super) fn take_due(&mut self, time: i64, due: &mut Vec<u32>) {
        let sessions = &self.sessions;
        self.ends.take_due(time, |session| sessions[session as usize].end, due);
        self.sort(due);
    }

    fn sort(&self, sessions: &mut [u32]) {
        sessions.sort_unstable_by_key(|session| {
            let Session { key, start, end, .. } = self.sessions[*session as usize];
            (end, start, key)
        });
    }

    /// As `take_due`, of the sessions whose tenth of a second is over at `now`; answers when the next one is.
    pub(super) fn take_over(&mut self, now: i64, due: &mut Vec<u32>) -> Option<i64> {
        if self.ends.first_over().is_some_and(|over| over <= now) {
            self.take_due(Ends::last_over(now), due);
        }
        let away = self.store.as_ref().and_then(|store| store.away.next_over(now));
        self.ends.first_over().into_iter().chain(away).min()
    }

    /// Keys, bounds (`window_start`, `window_end`, `window_time`) and results of these sessions.
    pub(super) fn read(&self, sessions: &[u32]) -> Vec<ArrayRef> {
        let keys = self.keys.keys(Rows::Ids(&self.keys_of(sessions)));
        let (start, end) = self.bounds(sessions);
        let time = times(sessions.iter().map(|session| self.sessions[*session as usize].end.saturating_sub(1)));
        keys.into_iter().chain([start, end, time]).chain(self.results(sessions)).collect()
    }

    /// Forgets sessions that are out.
    pub(super) fn remove(&mut self, shape: &Shape, sessions: &[u32]) -> Result<(), EngineError> {
        for session in sessions {
            touch(&mut self.frozen, &self.sessions, &mut self.unsaved, *session);
        }
        self.send_unsaved(shape)?;
        self.delete_stored(sessions)?;
        for session in sessions {
            let Session { key, older, .. } = self.sessions[*session as usize];
            let (mut newer, mut at) = (NONE, self.newest[key as usize]);
            while at != *session {
                (newer, at) = (at, self.sessions[at as usize].older);
            }
            self.link(key, newer, older);
            self.release(shape, *session);
            self.forget_key_without_session(key);
        }
        Ok(())
    }

    /// Takes what was in the snapshot that the task starts from, but for sessions that end at `time` or before.
    pub(super) fn restore(
        &mut self,
        shape: &Shape,
        key_groups: KeyGroupRange,
        restored: Vec<RestoredState>,
        time: i64,
    ) -> Result<(), EngineError> {
        let of_values = |state: &RestoredState| shape.sets.as_ref().is_some_and(|sets| sets.has_state(&state.name));
        let (values, sessions): (Vec<_>, Vec<_>) = restored.into_iter().partition(of_values);
        for rows in restored_rows(shape, key_groups, sessions)? {
            let namespace = rows.namespace.as_ref().expect("a session has bounds").as_struct();
            let bound = |at: usize| namespace.column(at).as_primitive::<TimestampMillisecondType>().values();
            let bounds: Vec<(i64, i64)> = bound(0).iter().copied().zip(bound(1).iter().copied()).collect();
            self.load(shape, &rows.keys, rows.rows, time)?;
            self.open_all(&rows.keys, &bounds, &rows.states);
            // What a job that took late rows in had kept of sessions that are over: their results were given.
            let mut over = Vec::new();
            self.take_due(time, &mut over);
            self.remove(shape, &over)?;
            if self.is_short() {
                self.empty(shape)?;
            }
        }
        self.restore_values(shape, (key_groups, &values), time)
    }

    /// The key's sessions, newest first.
    pub(super) fn sessions_of(&self, key: u32) -> impl Iterator<Item = u32> + '_ {
        let some = |session: u32| (session != NONE).then_some(session);
        std::iter::successors(some(self.newest[key as usize]), move |session| some(self.sessions[*session as usize].older))
    }

    /// Fills `ids` with the key of each row.
    pub(super) fn intern(&mut self, keys: &[ArrayRef], rows: usize, ids: &mut Vec<u32>) {
        ids.clear();
        self.keys.intern(keys, rows, ids);
        self.newest.resize(self.keys.len(), NONE);
        // Nothing is left of the keys that had these numbers before.
        self.reused.clear();
        self.keys.drain_reused(&mut self.reused);
    }

    /// The last of the key's sessions, newest first, that start after the part ends, and the one after it.
    pub(super) fn neighbour(&self, part: Part) -> (u32, u32) {
        let (mut newer, mut at) = (NONE, self.newest[part.key as usize]);
        while at != NONE && self.sessions[at as usize].start > part.end {
            (newer, at) = (at, self.sessions[at as usize].older);
        }
        (newer, at)
    }

    /// Finds the place of a part, changes bounds and lists, and notes where its state goes; answers whether it has a place.
    ///
    /// Contract: a key's parts come by start and touch no other part. Then a session that takes others in is never taken in itself.
    fn place(&mut self, part: Part, id: u32, opens: bool) -> bool {
        let (newer, at) = self.neighbour(part);
        if at == NONE || self.sessions[at as usize].end < part.start {
            if !opens {
                self.forget_key_without_session(part.key);
                return false;
            }
            let session = self.open(part, newer);
            self.moves.opened.0.push(session);
            self.moves.opened.1.push(id);
            return true;
        }
        let end = part.end.max(self.sessions[at as usize].end);
        touch(&mut self.frozen, &self.sessions, &mut self.unsaved, at);
        let (mut oldest, taken_before) = (at, self.moves.merged.1.len());
        loop {
            let next = self.sessions[oldest as usize].older;
            if next == NONE || self.sessions[next as usize].end < part.start {
                break;
            }
            touch(&mut self.frozen, &self.sessions, &mut self.unsaved, next);
            self.moves.merged.1.push(oldest);
            oldest = next;
        }
        // The earliest first: what comes by order keeps it.
        self.moves.merged.1[taken_before..].reverse();
        let taken_in = self.moves.merged.1.len();
        self.moves.merged.0.resize(taken_in, oldest);
        if self.store.is_some() {
            self.stored.changed.set_one(oldest);
        }
        self.moves.joined.0.push(oldest);
        self.moves.joined.1.push(id);
        let session = &mut self.sessions[oldest as usize];
        if part.start < session.start {
            self.moves.restarted.push((oldest, *session));
        }
        (session.start, session.end) = (session.start.min(part.start), end);
        self.link(part.key, newer, oldest);
        true
    }

    /// Opens a session behind `newer` in its key's list.
    pub(super) fn open(&mut self, part: Part, newer: u32) -> u32 {
        let Part { key, start, end } = part;
        let older = if newer == NONE { self.newest[key as usize] } else { self.sessions[newer as usize].older };
        let session = Session { key, older, start, end };
        let id = match self.free.pop() {
            Some(id) => {
                self.sessions[id as usize] = session;
                id
            }
            None => {
                self.sessions.push(session);
                self.sessions.len() as u32 - 1
            }
        };
        self.link(key, newer, id);
        self.place_in_time(id);
        if self.store.is_some() {
            self.stored.open(id);
        }
        if let Some(values) = &mut self.values {
            values.open(id, Owner { key, place: start });
        }
        id
    }

    /// Makes `session` the one behind `newer`, or the key's newest.
    fn link(&mut self, key: u32, newer: u32, session: u32) {
        match newer {
            NONE => self.newest[key as usize] = session,
            newer => self.sessions[newer as usize].older = session,
        }
    }

    /// The session is in no list any more.
    fn release(&mut self, shape: &Shape, session: u32) {
        if let Some(values) = &mut self.values {
            values.release(shape, &self.keys, session);
        }
        self.ends.leave(session);
        self.closing.leave(session);
        self.to_give.clear(session);
        // Whoever still has its number finds nothing to be given.
        self.set.release(session);
        self.free.push(session);
    }

    fn forget_key_without_session(&mut self, key: u32) {
        if self.newest[key as usize] == NONE {
            self.keys.remove(key);
        }
    }

    /// Does what was noted.
    fn move_states(&mut self, shape: &Shape, batch: &Collapse) -> Result<(), EngineError> {
        let Self { set, moves: Moves { opened, joined, merged, .. }, keys, sessions, .. } = self;
        let overflowed =
            |overflow: CallOverflow<'_>| shape.overflow(&overflow, &keys.keys(Rows::Ids(&[sessions[overflow.group].key])));
        set.resize(sessions.len());
        self.frozen.resize(sessions.len());
        if !opened.0.is_empty() {
            set.assign(&opened.0, &batch.states(Rows::Ids(&opened.1)));
        }
        if !merged.0.is_empty() {
            // Before the batch, whose rows came later.
            let states = set.states(Rows::Ids(&merged.1));
            set.merge(Groups::Each(&merged.0), &states).map_err(overflowed)?;
        }
        if !joined.0.is_empty() {
            set.merge(Groups::Each(&joined.0), &batch.states(Rows::Ids(&joined.1))).map_err(overflowed)?;
        }
        if !merged.0.is_empty() {
            let gone = std::mem::take(&mut self.moves.merged.1);
            let into = std::mem::take(&mut self.moves.merged.0);
            self.unite_values(shape, &into, &gone)?;
            self.delete_stored(&gone)?;
            gone.into_iter().for_each(|session| self.release(shape, session));
        }
        Ok(())
    }

    fn keys_of(&self, sessions: &[u32]) -> Vec<u32> {
        sessions.iter().map(|session| self.sessions[*session as usize].key).collect()
    }

    fn bounds(&self, sessions: &[u32]) -> (ArrayRef, ArrayRef) {
        let each = || sessions.iter().map(|session| self.sessions[*session as usize]);
        (times(each().map(|session| session.start)), times(each().map(|session| session.end)))
    }
}

impl Moves {
    fn clear(&mut self) {
        for (to, from) in [&mut self.opened, &mut self.joined, &mut self.merged] {
            to.clear();
            from.clear();
        }
        self.restarted.clear();
    }
}

/// Notes a session that is going to change, if a running snapshot has still to save it.
fn touch(frozen: &mut FrozenRows, sessions: &[Session], unsaved: &mut Vec<(u32, Session)>, session: u32) {
    if frozen.take(session) {
        unsaved.push((session, sessions[session as usize]));
    }
}

/// A column of times.
pub(super) fn times(times: impl Iterator<Item = i64>) -> ArrayRef {
    Arc::new(TimestampMillisecondArray::from_iter_values(times))
}
