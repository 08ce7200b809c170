//! Sessions that only the store has, counted by end: so that it is asked only where something can be found.
//!
//! Those that were restored are counted beside the rows, in the view of the moment at which the store was opened. Sessions that
//! come back or go out meanwhile are taken off before they are counted, so a count may be below zero until all are. Must never know
//! a session's key.

use std::collections::BTreeMap;
use std::ops::Bound;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::TimestampMillisecondType;
use levada_state::cold::Scan;

use super::super::shape::Shape;
use super::ends::Ends;
use crate::error::EngineError;
use crate::operators::behind::failed;

/// Ends that are counted together, in milliseconds.
const BUCKET_MS: i64 = 100;

/// The counts.
#[derive(Default)]
pub(super) struct Away {
    /// By bucket of ends, none of them zero.
    by_end: BTreeMap<i64, i64>,
    /// Restored sessions that are not counted yet.
    uncounted: Option<Scan>,
}

impl std::fmt::Debug for Away {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Away").field("by_end", &self.by_end).finish_non_exhaustive()
    }
}

impl Away {
    /// With the sessions that a scan gives, ends in its last column.
    pub(super) fn counting(sessions: Scan) -> Self {
        Self { uncounted: Some(sessions), ..Self::default() }
    }

    /// Counts a further batch of those that were restored; answers whether more remain.
    pub(super) fn count_next(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        let Some(uncounted) = &mut self.uncounted else { return Ok(false) };
        match uncounted.next() {
            Some(batch) => {
                let batch = batch.map_err(|source| failed(&shape.uid, source))?;
                let ends: &ArrayRef = batch.columns().last().expect("a session has an end");
                ends.as_primitive::<TimestampMillisecondType>().values().iter().for_each(|end| self.add(*end));
            }
            None => self.uncounted = None,
        }
        Ok(self.uncounted.is_some())
    }

    /// Whether there may be any.
    pub(super) fn may_have_any(&self) -> bool {
        self.uncounted.is_some() || !self.by_end.is_empty()
    }

    /// Whether any may end at `time` or before.
    pub(super) fn may_have_until(&self, time: i64) -> bool {
        let is_due = |(bucket, _): (&i64, &i64)| bucket.saturating_mul(BUCKET_MS) <= time;
        self.uncounted.is_some() || self.by_end.first_key_value().is_some_and(is_due)
    }

    /// When the first of them that end after the tenth of a second before `now` may be over by processing time.
    pub(super) fn next_over(&self, now: i64) -> Option<i64> {
        let over = |bucket: i64| bucket.saturating_add(1).saturating_mul(BUCKET_MS);
        let last = Ends::last_over(now).div_euclid(BUCKET_MS);
        let counted = self.by_end.range((Bound::Excluded(last), Bound::Unbounded)).next().map(|(bucket, _)| over(*bucket));
        // As long as some are not counted, each tenth of a second is looked at.
        let uncounted = self.uncounted.as_ref().map(|_| over(last.saturating_add(1)));
        counted.into_iter().chain(uncounted).min()
    }

    /// One left memory.
    pub(super) fn add(&mut self, end: i64) {
        self.change(end, 1);
    }

    /// One is in memory again, or out.
    pub(super) fn remove(&mut self, end: i64) {
        self.change(end, -1);
    }

    fn change(&mut self, end: i64, by: i64) {
        let bucket = end.div_euclid(BUCKET_MS);
        let sessions = self.by_end.entry(bucket).or_default();
        *sessions += by;
        if *sessions == 0 {
            self.by_end.remove(&bucket);
        }
    }
}
