//! Sessions whose time has come and that only the store has, on their way out: read in its order, a batch at a time, and deleted as
//! they go. Where results are given more than once only what has changed since the last one goes out.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_state::cold::Scan;
use levada_state::rows::Rows;

use super::super::shape::Shape;
use super::super::value_sets::ValueSets;
use super::open_sessions::{OpenSessions, changes, times};
use super::store::{Places, StoredSessions};
use crate::aggregate::AggregateSet;
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::pending::Pending;

/// The sessions of one step of time.
pub(super) struct StoredDue {
    scan: Scan,
    /// The accumulators of one batch.
    set: AggregateSet,
    pending: Pending,
}

impl std::fmt::Debug for StoredDue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoredDue").finish_non_exhaustive()
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
            let absent = open.absent(&stored.keys, stored.rows);
            if absent.is_empty() {
                continue;
            }
            let due = stored.take(shape, &absent.into())?;
            let values = shape.sets.as_ref().map(|sets| open.take_stored_values(shape, sets, &due)).transpose()?;
            let results = self.read(shape, &due, values.as_ref())?;
            self.pending.push(results);
            open.delete_due(due)?;
        }
    }

    /// The results of those of these sessions that have any to be given.
    fn read(&mut self, shape: &Shape, sessions: &StoredSessions, values: Option<&ValueSets>) -> Result<RecordBatch, EngineError> {
        let rows = shape.plan.due_rows(&sessions.states, sessions.rows);
        if rows.is_empty() {
            return Ok(RecordBatch::new_empty(Arc::clone(&shape.output)));
        }
        let is_all = rows.len() == sessions.rows;
        let due = if is_all { sessions.clone() } else { sessions.take(shape, &rows.clone().into())? };
        let each: Vec<u32> = (0..due.rows as u32).collect();
        self.set.clear();
        self.set.resize(due.rows);
        self.set.assign(&each, &due.states);
        let bounds = [due.starts.clone(), due.ends.clone(), times(due.bounds().map(|(_, end)| end.saturating_sub(1)))];
        let mut results = self.set.read(Rows::first(due.rows));
        values.iter().for_each(|values| values.read_into(&mut results, &rows));
        let columns = due.keys.iter().cloned().chain(bounds).chain(results).collect();
        shape.output(if shape.plan.has_marks() { changes(shape, &self.set, &each, columns)? } else { columns })
    }
}

impl OpenSessions {
    /// The sessions beyond memory that end after `after` and not after `until`, if there can be any.
    pub(super) fn stored_due(&mut self, shape: &Shape, after: i64, until: i64) -> Result<Option<StoredDue>, EngineError> {
        let scan = self.scan_stored(after, until)?;
        Ok(scan.map(|scan| StoredDue { scan, set: shape.plan.accumulators(), pending: Pending::default() }))
    }

    fn delete_due(&mut self, due: StoredSessions) -> Result<(), EngineError> {
        let is_saving = self.is_saving();
        let Some(store) = &mut self.store else { return Ok(()) };
        due.bounds().for_each(|(_, end)| store.away.remove(end));
        let StoredSessions { rows, keys, starts, ends, .. } = due;
        store.delete(Places { rows, keys, starts, ends }, is_saving)
    }
}
