//! Sessions that are to be given, stay, and are not in memory: they come in for it, each with all others of its key.
//!
//! Found in the order of the store, a batch at a time; between two batches what was given may leave memory again. The view that is
//! read may be older than that: what is given is decided by what is there when it comes in. Must never know why they are given.

use levada_state::cold::Scan;

use super::super::shape::Shape;
use super::open_sessions::OpenSessions;
use super::store::StoredSessions;
use crate::error::EngineError;
use crate::operators::behind::failed;

/// The sessions that end after a time, at another or before.
pub(super) struct ComingIn {
    after: i64,
    until: i64,
    /// Once it has begun.
    scan: Option<Scan>,
}

impl std::fmt::Debug for ComingIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComingIn").field("after", &self.after).field("until", &self.until).finish_non_exhaustive()
    }
}

impl ComingIn {
    /// Those that end after `after`, at `until` or before.
    pub(super) fn new(after: i64, until: i64) -> Self {
        Self { after, until, scan: None }
    }

    /// After which end, and until which.
    pub(super) fn ends(&self) -> (i64, i64) {
        (self.after, self.until)
    }

    /// The next ones that have something to be given, which are in memory then, with those of their keys that end as others ask that
    /// wait; `asked_for` has the ends of all. `None` at the end. Of their keys nothing comes in that ended at `closed` or before.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        open: &mut OpenSessions,
        (asked_for, closed): (&[(i64, i64)], i64),
    ) -> Result<Option<Vec<u32>>, EngineError> {
        loop {
            let scan = match &mut self.scan {
                Some(scan) => scan,
                None => match open.scan_stored(self.after, self.until)? {
                    Some(scan) => self.scan.insert(scan),
                    None => return Ok(None),
                },
            };
            let Some(batch) = scan.next() else { return Ok(None) };
            let stored = StoredSessions::of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
            let due = stored.take(shape, &shape.plan.due_rows(&stored.states, stored.rows).into())?;
            let absent = open.absent(&due.keys, due.rows);
            if absent.is_empty() {
                continue;
            }
            let due = due.take(shape, &absent.into())?;
            let Some(found) = open.find(shape, due.keys, due.rows, closed)? else { return Ok(None) };
            let bounds: Vec<(i64, i64)> = found.bounds().collect();
            let is_asked_for = |(_, end): (i64, i64)| asked_for.iter().any(|(after, until)| *after < end && end <= *until);
            if shape.plan.due_rows(&found.states, found.rows).iter().any(|row| is_asked_for(bounds[*row as usize])) {
                let sessions = open.bring_in(shape, &found)?.into_iter().zip(bounds);
                let due = sessions.filter(|(session, at)| is_asked_for(*at) && open.is_due(*session));
                return Ok(Some(due.map(|(session, _)| session).collect()));
            }
        }
    }
}
