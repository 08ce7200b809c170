//! Sessions whose results are given more than once: which have changed, which were taken back, and when each is over and forgotten.
//!
//! A result is known by its key and its session's start. So where a session grows at its end its result is replaced; where it begins
//! earlier or is taken in by another, what was given of it is taken back.

use arrow::array::{Array, ArrayRef, Int8Array, StructArray, UInt32Array};
use arrow::compute::{interleave, take};
use levada_common::types::RowKind;

use super::super::super::change_rows::ChangeRows;
use super::*;

impl OpenSessions {
    /// The sessions that the last batch has changed or made, as there are; some may be named twice.
    pub(in super::super) fn touched(&self) -> impl Iterator<Item = u32> + '_ {
        self.moves.opened.0.iter().chain(&self.moves.joined.0).copied()
    }

    /// Sessions that end at this time or before are over from now on: those that are it newly wait to be forgotten. Appends these to
    /// `over`, in order of end and start.
    pub(in super::super) fn pass(&mut self, time: i64, over: &mut Vec<u32>) {
        self.take_due(time, over);
        self.over = time;
        over.iter().for_each(|session| self.place_in_time(*session));
    }

    /// Whether the session is over.
    pub(in super::super) fn is_over(&self, session: u32) -> bool {
        self.sessions[session as usize].end <= self.over
    }

    /// These sessions may have something to be given, if they have.
    pub(in super::super) fn note_to_give(&mut self, sessions: &[u32]) {
        let Self { set, to_give, .. } = self;
        if let Some(marks) = set.marks() {
            sessions.iter().filter(|session| marks.is_due(**session)).for_each(|session| to_give.set_one(*session));
        }
    }

    /// The sessions that may have something to be given, of those that are over or of those that are not: they are given now.
    pub(in super::super) fn take_to_give(&mut self, over: bool) -> Vec<u32> {
        let sessions: Vec<u32> = self.to_give.rows().filter(|session| self.is_over(*session) == over).collect();
        sessions.iter().for_each(|session| self.to_give.clear(*session));
        sessions
    }

    /// Whether the session has a result that was not given.
    pub(in super::super) fn is_due(&self, session: u32) -> bool {
        self.set.marks().is_some_and(|marks| marks.is_due(session))
    }

    /// Rows that the session has taken in since it was given.
    pub(in super::super) fn rows(&self, session: u32) -> i64 {
        self.set.marks().map_or(0, |marks| marks.rows(session))
    }

    /// Looks for the session again when it is over, or, where it is over, when it is forgotten.
    pub(in super::super) fn place_in_time(&mut self, session: u32) {
        let end = self.sessions[session as usize].end;
        let (from, to) = match end <= self.over {
            true => (&mut self.ends, &mut self.closing),
            false => (&mut self.closing, &mut self.ends),
        };
        from.leave(session);
        if !to.has(session) {
            to.enter(session, end);
        }
    }

    /// When the tenth of a second is over in which the first session ends of those that are not over at `now`; a session that has grown
    /// may be looked for too early.
    pub(in super::super) fn first_over(&self, now: i64) -> Option<i64> {
        let away = self.store.as_ref().and_then(|store| store.away.next_over(now));
        self.ends.first_over().into_iter().chain(self.closing.first_over()).chain(away).min()
    }

    /// Appends the sessions that ended at `time` or before and wait to be forgotten to `due`, in order of end and start.
    pub(in super::super) fn take_closing(&mut self, time: i64, due: &mut Vec<u32>) {
        let sessions = &self.sessions;
        self.closing.take_due(time, |session| sessions[session as usize].end, due);
        self.sort(due);
    }

    /// Changes of these sessions (`_op`, keys, bounds, results), which count as given from now on. Where what was given last is kept it
    /// goes before what replaces it.
    pub(in super::super) fn give(&mut self, shape: &Shape, sessions: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        let after = self.read(sessions);
        let others = &after[shape.key_types.len() + 1..];
        let (end, results) = (others[0].clone(), others[2..].to_vec());
        let columns = changes(shape, &self.set, sessions, after)?;
        for session in sessions {
            touch(&mut self.frozen, &self.sessions, &mut self.unsaved, *session);
        }
        if self.store.is_some() {
            self.stored.changed.set_all(sessions, self.sessions.len());
        }
        self.send_unsaved(shape)?;
        self.set.give(sessions, &std::iter::once(end).chain(results).collect::<Vec<_>>());
        Ok(columns)
    }

    /// Takes back what was given of sessions that begin earlier now or are about to be taken in by others: what was given last, or where
    /// that is not kept what they had last, waits until it is asked for (`_op`, keys, bounds, results). Where it is kept now and was not
    /// when it was given, whoever needs it has not heard of it: what the session had last goes before as an update.
    pub(super) fn take_back(&mut self) {
        let Some(marks) = self.set.marks() else { return };
        let taken_in = self.moves.merged.1.iter().map(|session| (*session, self.sessions[*session as usize]));
        let gone = taken_in.chain(self.moves.restarted.iter().copied()).filter(|(session, _)| marks.is_given(*session));
        let (ids, bounds): (Vec<u32>, Vec<Session>) = gone.unzip();
        if ids.is_empty() {
            return;
        }
        let keys: Vec<u32> = bounds.iter().map(|session| session.key).collect();
        let start = times(bounds.iter().map(|session| session.start));
        let known: Vec<ArrayRef> = self.keys.keys(Rows::Ids(&keys)).into_iter().chain([start]).collect();
        let end = times(bounds.iter().map(|session| session.end));
        let had: Vec<ArrayRef> = std::iter::once(end).chain(self.results(&ids)).collect();
        let given = self.set.given(Rows::Ids(&ids));
        let is_unheard = |row: &u32| given.as_ref().is_some_and(|given| given.is_null(*row as usize));
        let unheard = (0..ids.len() as u32).filter(is_unheard).map(|row| (RowKind::UpdateAfter, row));
        let changes = unheard.chain((0..ids.len() as u32).map(|row| (RowKind::Delete, row)));
        let (op, rows): (Vec<i8>, Vec<u32>) = changes.map(|(kind, row)| (kind as i8, row)).unzip();
        let had = given.as_ref().map_or_else(|| had.clone(), |given| either(given, &had));
        let rows = UInt32Array::from(rows);
        let columns = given_columns(&known, &had).into_iter();
        let columns = columns.map(|column| take(&column, &rows, None).expect("rows of the column"));
        let op: ArrayRef = Arc::new(Int8Array::from(op));
        self.taken_back.push(std::iter::once(op).chain(columns).collect());
        ids.iter().for_each(|session| self.set.take_back(*session));
    }

    /// What was taken back since the last call: columns of changes.
    pub(in super::super) fn drain_taken_back(&mut self) -> impl Iterator<Item = Vec<ArrayRef>> + '_ {
        self.taken_back.drain(..)
    }
}

/// Changes (`_op`, keys, bounds, results) that give these sessions of a set: `after` is what they have now. Where what was given last is
/// kept it goes before what replaces it.
pub(in super::super) fn changes(
    shape: &Shape,
    set: &AggregateSet,
    sessions: &[u32],
    after: Vec<ArrayRef>,
) -> Result<Vec<ArrayRef>, EngineError> {
    let is_given = |session: u32| set.marks().is_some_and(|marks| marks.is_given(session));
    let given = set.given(Rows::Ids(sessions));
    let mut changes = ChangeRows::default();
    for (row, session) in sessions.iter().enumerate() {
        match is_given(*session) {
            false => changes.insert(row),
            true => changes.update(given.as_ref().filter(|given| given.is_valid(row)).map(|_| row), row),
        }
    }
    let keys_and_start = &after[..shape.key_types.len() + 1];
    let before = given.map_or_else(Vec::new, |given| given_columns(keys_and_start, given.columns()));
    changes.columns(shape, &before, after)
}

/// A result's columns: what it is known by, then of its end and what the calls have given (`given`) those of a row.
fn given_columns(known: &[ArrayRef], given: &[ArrayRef]) -> Vec<ArrayRef> {
    let end = given[0].as_primitive::<TimestampMillisecondType>();
    let time: ArrayRef = Arc::new(end.unary::<_, TimestampMillisecondType>(|end| end.saturating_sub(1)));
    known.iter().chain([&given[0], &time]).chain(&given[1..]).cloned().collect()
}

/// What was given, or where it is not known what there is.
fn either(given: &StructArray, had: &[ArrayRef]) -> Vec<ArrayRef> {
    if given.null_count() == 0 {
        return given.columns().to_vec();
    }
    let places: Vec<(usize, usize)> = (0..given.len()).map(|row| (usize::from(given.is_null(row)), row)).collect();
    let columns = given.columns().iter().zip(had);
    columns.map(|(given, had)| interleave(&[given.as_ref(), had.as_ref()], &places).expect("results have one type")).collect()
}
