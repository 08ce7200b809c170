//! What is being saved of the sessions: a snapshot on its way to the background, or a generation on its way to the store, with a
//! snapshot or without. Must never know when sessions fire. Invariant: a session is sent before it changes, as it was when the
//! saving began.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::bits::Bits;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;
use levada_state::snapshot::{PieceSender, StatePart, pieces};

use super::super::panes::BACKGROUND_ROWS;
use super::super::shape::Shape;
use super::super::value_sets::ValueSets;
use super::open_sessions::{OpenSessions, Session, times};
use super::store::Places;
use crate::error::EngineError;
use crate::operators::window::namespace_column;

/// A snapshot or generation that is running.
#[derive(Debug)]
pub(super) struct Saving {
    /// The checkpoint that it is for, if it is for one.
    checkpoint: Option<CheckpointId>,
    /// Where pieces go; to the store where there is one.
    pieces: Option<PieceSender>,
}

/// What a store has of the sessions in memory.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// Sessions that it has otherwise, or not at all.
    pub(super) changed: Bits,
    /// By session: start and end under which it has it, or will have once everything is written.
    pub(super) at: Vec<Option<(i64, i64)>>,
}

impl Stored {
    /// A session is new in memory, and the store has nothing of it.
    #[inline]
    pub(super) fn open(&mut self, session: u32) {
        let len = self.at.len().max(session as usize + 1);
        self.at.resize(len, None);
        self.at[session as usize] = None;
        self.changed.set_one(session);
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        self.changed.memory_bytes() + self.at.capacity() * size_of::<Option<(i64, i64)>>()
    }
}

impl OpenSessions {
    /// The synchronous part of a snapshot. One that is still running is finished first; what of a generation was not sent goes
    /// with the snapshot.
    pub(super) fn snapshot(&mut self, shape: &Shape, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError> {
        while self.saving.as_ref().is_some_and(|saving| saving.checkpoint.is_some()) {
            self.save(shape, BACKGROUND_ROWS)?;
        }
        let (parts, pieces) = match &mut self.store {
            Some(store) => {
                let database = store.behind.begin_snapshot();
                store.delete_gone()?;
                (store.parts(shape, self.values.as_ref(), &database), None)
            }
            None => {
                let (sender, reader) = pieces();
                (vec![shape.part(reader.into())], Some(sender))
            }
        };
        self.freeze(Saving { checkpoint: Some(checkpoint), pieces });
        self.save(shape, BACKGROUND_ROWS)?;
        let values = self.values.as_mut().filter(|_| self.store.is_none());
        let values = values.map(|values| values.snapshot(shape, &self.keys, checkpoint));
        Ok(parts.into_iter().chain(values.into_iter().flatten()).collect())
    }

    /// Begins to send what has changed to the store.
    pub(super) fn begin_generation(&mut self) -> Result<(), EngineError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        store.behind.write_back.begin_generation();
        store.delete_gone()?;
        self.freeze(Saving { checkpoint: None, pieces: None });
        Ok(())
    }

    /// Begins to save: every session, or where there is a store those that it has otherwise.
    fn freeze(&mut self, saving: Saving) {
        self.frozen.resize(self.sessions.len());
        if self.store.is_some() {
            let changed = &mut self.stored.changed;
            // Those that were being sent and have not left are among them.
            self.frozen.take_rest(changed.words_mut());
            self.frozen.freeze_these(changed.words());
            changed.clear_all();
            self.values.iter_mut().for_each(ValueSets::freeze);
        } else {
            let mut open = Bits::ones(self.sessions.len());
            self.free.iter().for_each(|free| open.clear(*free));
            self.frozen.freeze_these(open.words());
        }
        self.saving = Some(saving);
    }

    /// Saves a further piece of what is running, none while whoever takes it has enough to do, or counts restored sessions; answers
    /// whether more remain.
    pub(super) fn save_next(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        let values_remain = self.values.as_mut().is_some_and(|values| values.save_next(shape, &self.keys));
        Ok(self.save_next_sessions(shape)? | values_remain)
    }

    fn save_next_sessions(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        let Some(Saving { pieces, .. }) = &self.saving else {
            return self.store.as_mut().map_or(Ok(false), |store| store.away.count_next(shape));
        };
        let takes_more = match (pieces, &mut self.store) {
            (Some(sender), _) if sender.is_abandoned() => {
                self.give_up();
                return Ok(false);
            }
            (Some(sender), _) => !sender.is_full(),
            (None, Some(store)) => store.behind.takes_more()?,
            (None, None) => true,
        };
        if takes_more {
            self.save(shape, BACKGROUND_ROWS)?;
        }
        Ok(self.saving.is_some())
    }

    /// Gives the snapshot of this checkpoint up, if it is running. What a store gets of it is sent all the same.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.values.iter_mut().for_each(|values| values.abandon(checkpoint));
        let Some(saving) = self.saving.as_mut().filter(|saving| saving.checkpoint == Some(checkpoint)) else { return };
        match &mut self.store {
            Some(store) => {
                saving.checkpoint = None;
                store.behind.write_back.abandon_snapshot();
            }
            None => self.give_up(),
        }
    }

    fn give_up(&mut self) {
        self.saving = None;
        self.frozen.abandon();
    }

    /// Whether something is being saved.
    pub(super) fn is_saving(&self) -> bool {
        self.saving.is_some()
    }

    /// Saves up to `rows_max` further sessions as one piece.
    pub(super) fn save(&mut self, shape: &Shape, rows_max: usize) -> Result<(), EngineError> {
        let mut ids = Vec::new();
        self.frozen.take_next(rows_max, &mut ids);
        let sessions: Vec<Session> = ids.iter().map(|id| self.sessions[*id as usize]).collect();
        self.send(shape, &ids, &sessions)?;
        if !self.send_values(rows_max.saturating_sub(ids.len()))? || self.frozen.is_running() {
            return Ok(());
        }
        match (self.saving.take(), &mut self.store) {
            (Some(Saving { pieces: Some(sender), .. }), _) => sender.finish(),
            (Some(_), Some(store)) => {
                store.behind.end_generation();
                store.delete_gone()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends about so many values to the store, if there is one; answers whether all are sent.
    fn send_values(&mut self, mut rows_max: usize) -> Result<bool, EngineError> {
        let Self { values: Some(values), store: Some(store), keys, .. } = self else { return Ok(true) };
        let mut are_sent = true;
        for column in 0..values.columns_len() {
            while rows_max > 0
                && let Some((rows, change)) = values.next_change(keys, column, rows_max)
            {
                rows_max = rows_max.saturating_sub(rows);
                store.behind.change(values.stored(column).state, change)?;
            }
            are_sent &= values.is_sent(column);
        }
        Ok(are_sent)
    }

    /// Sends what must be saved before it changes.
    pub(super) fn send_unsaved(&mut self, shape: &Shape) -> Result<(), EngineError> {
        if self.unsaved.is_empty() {
            return Ok(());
        }
        let (ids, sessions): (Vec<u32>, Vec<Session>) = self.unsaved.drain(..).unzip();
        self.send(shape, &ids, &sessions)
    }

    /// Sends these sessions, which had these bounds, to whoever takes them.
    fn send(&mut self, shape: &Shape, ids: &[u32], sessions: &[Session]) -> Result<(), EngineError> {
        let Some(saving) = self.saving.as_ref().filter(|_| !ids.is_empty()) else { return Ok(()) };
        let piece = self.piece(shape, ids, sessions);
        let Some(store) = &mut self.store else {
            saving.pieces.iter().for_each(|sender| sender.send(piece.clone()));
            return Ok(());
        };
        let mut moved = Vec::new();
        for (id, session) in ids.iter().zip(sessions) {
            let now = (session.start, session.end);
            match self.stored.at[*id as usize].replace(now) {
                Some(before) if before != now => moved.push((session.key, before)),
                _ => {}
            }
        }
        let moved = (!moved.is_empty()).then(|| places(&self.keys, &moved));
        store.upsert(shape, piece, moved.as_ref())
    }

    /// Deletes what a store has of these sessions, which are no more.
    pub(super) fn delete_stored(&mut self, sessions: &[u32]) -> Result<(), EngineError> {
        let Self { store: Some(store), values, keys, .. } = self else { return Ok(()) };
        if let Some(values) = values {
            values.delete_stored(keys, sessions, &mut |state, change| store.behind.change(state, change))?;
        }
        let mut gone = Vec::new();
        for session in sessions {
            self.stored.changed.clear(*session);
            let stored = self.stored.at[*session as usize].take();
            gone.extend(stored.map(|at| (self.sessions[*session as usize].key, at)));
        }
        if gone.is_empty() {
            return Ok(());
        }
        store.delete(places(&self.keys, &gone), self.saving.is_some())
    }

    /// The saved rows of these sessions, which had these bounds.
    fn piece(&self, shape: &Shape, ids: &[u32], sessions: &[Session]) -> RecordBatch {
        let keys: Vec<u32> = sessions.iter().map(|session| session.key).collect();
        let (starts, ends) = (sessions.iter().map(|session| session.start), sessions.iter().map(|session| session.end));
        let namespace = namespace_column(times(starts), times(ends));
        let columns = self.keys.keys(Rows::Ids(&keys)).into_iter().chain([namespace]).chain(self.set.states(Rows::Ids(ids)));
        RecordBatch::try_new(Arc::clone(&shape.pieces), columns.collect()).expect("states have the planned columns")
    }
}

/// The places of sessions with these keys and bounds.
fn places(keys: &KeyIndex, sessions: &[(u32, (i64, i64))]) -> Places {
    let of: Vec<u32> = sessions.iter().map(|(key, _)| *key).collect();
    let (starts, ends) = (sessions.iter().map(|(_, at)| at.0), sessions.iter().map(|(_, at)| at.1));
    Places { rows: sessions.len(), keys: keys.keys(Rows::Ids(&of)), starts: times(starts), ends: times(ends) }
}
