//! Sessions whose results are given more than once: which have changed, which were taken back, and when each is over and forgotten.
//!
//! A result is known by its key and its session's start. So where a session grows at its end its result is replaced; where it begins
//! earlier or is taken in by another, what was given of it is taken back.

use arrow::array::{ArrayRef, Int8Array};
use levada_common::types::RowKind;

use super::*;

impl OpenSessions {
    /// The sessions that the last batch has changed or made, as there are; some may be named twice.
    pub(in super::super) fn touched(&self) -> impl Iterator<Item = u32> + '_ {
        self.moves.opened.0.iter().chain(&self.moves.joined.0).copied()
    }

    /// Every session.
    ///
    /// Contract: after a restore, before rows come.
    pub(in super::super) fn restored(&self) -> std::ops::Range<u32> {
        0..self.sessions.len() as u32
    }

    /// Whether the session is over at this time.
    pub(in super::super) fn is_over(&self, session: u32, time: i64) -> bool {
        self.sessions[session as usize].end <= time
    }

    /// Whether the session has a result that was not given.
    pub(in super::super) fn is_due(&self, session: u32) -> bool {
        self.set.marks().is_some_and(|marks| marks.is_due(session))
    }

    /// Rows that the session has taken in since it was given.
    pub(in super::super) fn rows(&self, session: u32) -> i64 {
        self.set.marks().map_or(0, |marks| marks.rows(session))
    }

    /// Looks for the session again when it is over, or, where it is over at this time, when it is forgotten.
    pub(in super::super) fn place_in_time(&mut self, session: u32, time: i64) {
        let end = self.sessions[session as usize].end;
        let (from, to) = match end <= time {
            true => (&mut self.ends, &mut self.closing),
            false => (&mut self.closing, &mut self.ends),
        };
        from.leave(session);
        if !to.has(session) {
            to.enter(session, end);
        }
    }

    /// Appends the sessions that ended at `time` or before and wait to be forgotten to `due`, in order of end and start.
    pub(in super::super) fn take_closing(&mut self, time: i64, due: &mut Vec<u32>) {
        let sessions = &self.sessions;
        self.closing.take_due(time, |session| sessions[session as usize].end, due);
        self.sort(due);
    }

    /// Changes of these sessions (`_op`, keys, bounds, results), which count as given from now on.
    pub(in super::super) fn give(&mut self, shape: &Shape, sessions: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        let is_given = |session: &u32| self.set.marks().is_some_and(|marks| marks.is_given(*session));
        let kind = |session| if is_given(session) { RowKind::UpdateAfter } else { RowKind::Insert };
        let op: ArrayRef = Arc::new(Int8Array::from_iter_values(sessions.iter().map(|session| kind(session) as i8)));
        let columns = std::iter::once(op).chain(self.read(sessions)).collect();
        for session in sessions {
            touch(&mut self.frozen, &self.sessions, &mut self.unsaved, *session);
        }
        self.send_unsaved(shape)?;
        if let Some(marks) = self.set.marks_mut() {
            sessions.iter().for_each(|session| marks.give(*session));
        }
        Ok(columns)
    }

    /// Takes back what was given of sessions that begin earlier now or are about to be taken in by others: their last change
    /// (`_op`, keys, bounds, results) waits until it is asked for.
    pub(super) fn take_back(&mut self) {
        let Some(marks) = self.set.marks_mut() else { return };
        let taken_in = self.moves.merged.1.iter().map(|session| (*session, self.sessions[*session as usize]));
        let gone = taken_in.chain(self.moves.restarted.iter().copied()).filter(|(session, _)| marks.is_given(*session));
        let (ids, bounds): (Vec<u32>, Vec<Session>) = gone.unzip();
        if ids.is_empty() {
            return;
        }
        ids.iter().for_each(|session| marks.take_back(*session));
        let op: ArrayRef = Arc::new(Int8Array::from(vec![RowKind::Delete as i8; ids.len()]));
        let keys: Vec<u32> = bounds.iter().map(|session| session.key).collect();
        let start = times(bounds.iter().map(|session| session.start));
        let end = times(bounds.iter().map(|session| session.end));
        let time = times(bounds.iter().map(|session| session.end.saturating_sub(1)));
        let columns = std::iter::once(op).chain(self.keys.keys(Rows::Ids(&keys))).chain([start, end, time]);
        let columns = columns.chain(self.results(&ids)).collect();
        self.taken_back.push(columns);
    }

    /// What was taken back since the last call: columns of changes.
    pub(in super::super) fn drain_taken_back(&mut self) -> impl Iterator<Item = Vec<ArrayRef>> + '_ {
        self.taken_back.drain(..)
    }
}
