//! Sessions whose time has come and that only the store has, on their way out: read in its order, a batch at a time, and deleted as
//! they go.

use arrow::record_batch::RecordBatch;
use levada_state::cold::Scan;
use levada_state::key_index::ABSENT;
use levada_state::rows::Rows;

use super::super::shape::Shape;
use super::open_sessions::{OpenSessions, times};
use super::store::{Places, StoredSessions};
use crate::aggregate::AggregateSet;
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::pending::Pending;

/// The sessions of one step of time.
pub(super) struct StoredDue {
    scan: Scan,
    /// Those that end at this time or before were out before.
    after: i64,
    /// The accumulators of one batch.
    set: AggregateSet,
    pending: Pending,
}

impl std::fmt::Debug for StoredDue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredDue").field("after", &self.after).finish_non_exhaustive()
    }
}

impl StoredDue {
    /// The next rows, at most `rows_max`.
    ///
    /// Contract: memory still has the sessions that were due with these: what the store has of them does not go out.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        open: &mut OpenSessions,
        rows_max: usize,
    ) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            if let Some(batch) = self.pending.pop(rows_max) {
                return Ok(Some(batch));
            }
            let Some(batch) = self.scan.next() else { return Ok(None) };
            let stored = StoredSessions::of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
            let due = open.only_stored(shape, &stored, self.after)?;
            if due.rows > 0 {
                let results = self.read(shape, &due)?;
                self.pending.push(results);
                open.delete_due(due)?;
            }
        }
    }

    /// The results of these sessions.
    fn read(&mut self, shape: &Shape, due: &StoredSessions) -> Result<RecordBatch, EngineError> {
        let each: Vec<u32> = (0..due.rows as u32).collect();
        self.set.clear();
        self.set.resize(due.rows);
        self.set.assign(&each, &due.states);
        let bounds = [due.starts.clone(), due.ends.clone(), times(due.bounds().map(|(_, end)| end.saturating_sub(1)))];
        shape.output(due.keys.iter().cloned().chain(bounds).chain(self.set.read(Rows::first(due.rows))).collect())
    }
}

impl OpenSessions {
    /// The sessions beyond memory that end after `after` and not after `until`, if there can be any.
    pub(super) fn stored_due(&mut self, shape: &Shape, after: i64, until: i64) -> Result<Option<StoredDue>, EngineError> {
        let Some(store) = self.store.as_mut().filter(|store| after < until && store.away.may_have_until(until)) else {
            return Ok(None);
        };
        let scan = store.scan_until(until)?;
        Ok(Some(StoredDue { scan, after, set: shape.plan.accumulators(), pending: Pending::default() }))
    }

    /// Those of the stored sessions that are open and not in memory.
    fn only_stored(&mut self, shape: &Shape, stored: &StoredSessions, after: i64) -> Result<StoredSessions, EngineError> {
        let mut known = Vec::with_capacity(stored.rows);
        self.keys.find(&stored.keys, stored.rows, &mut known);
        let rows = (0..).zip(stored.bounds().zip(known)).filter(|(_, ((_, end), key))| *end > after && *key == ABSENT);
        stored.take(shape, &rows.map(|(row, _)| row).collect::<Vec<u32>>().into())
    }

    fn delete_due(&mut self, due: StoredSessions) -> Result<(), EngineError> {
        let is_saving = self.is_saving();
        let Some(store) = &mut self.store else { return Ok(()) };
        due.bounds().for_each(|(_, end)| store.away.remove(end));
        let StoredSessions { rows, keys, starts, ends, .. } = due;
        store.delete(Places { rows, keys, starts, ends }, is_saving)
    }
}
