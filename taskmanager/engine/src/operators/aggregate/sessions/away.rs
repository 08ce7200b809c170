//! Sessions that only the store has, counted by end: so that it is asked only where something can be found. Of those that have
//! something to be given the first and the last end are known.
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
    /// Between which ends, both included, some may have something to be given.
    to_give: Option<(i64, i64)>,
}

impl std::fmt::Debug for Away {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Away").field("by_end", &self.by_end).field("to_give", &self.to_give).finish_non_exhaustive()
    }
}

impl Away {
    /// With the sessions that a scan gives, ends in its last column; any of them may have something to be given.
    pub(super) fn counting(sessions: Scan) -> Self {
        Self { uncounted: Some(sessions), to_give: Some((i64::MIN + 1, i64::MAX)), ..Self::default() }
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

    /// Whether any may end after `after`, at `until` or before.
    pub(super) fn may_have_within(&self, after: i64, until: i64) -> bool {
        let has_some = || self.by_end.range(after.div_euclid(BUCKET_MS)..=until.div_euclid(BUCKET_MS)).next().is_some();
        after < until && (self.uncounted.is_some() || has_some())
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

    /// One that left memory has something to be given.
    pub(super) fn note_to_give(&mut self, end: i64) {
        let (first, last) = self.to_give.unwrap_or((end, end));
        self.to_give = Some((first.min(end), last.max(end)));
    }

    /// Those that end after `after`, at `until` or before, are given now, or have nothing to be given: answers after which end and
    /// until which one there may be some.
    pub(super) fn take_to_give(&mut self, after: i64, until: i64) -> Option<(i64, i64)> {
        let (first, last) = self.to_give?;
        let (from, to) = (first.max(after.saturating_add(1)), last.min(until));
        if from > to {
            return None;
        }
        self.to_give = match (first < from, to < last) {
            (false, false) => None,
            (true, false) => Some((first, from - 1)),
            (false, true) => Some((to + 1, last)),
            (true, true) => Some((first, last)),
        };
        Some((from - 1, to))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_given_lies_between_two_ends() {
        let mut away = Away::default();
        assert_eq!(away.take_to_give(i64::MIN, i64::MAX), None);
        [20, 50, 30].into_iter().for_each(|end| away.note_to_give(end));
        assert_eq!(away.take_to_give(i64::MIN, 19), None);
        assert_eq!(away.take_to_give(50, i64::MAX), None);
        assert_eq!(away.take_to_give(40, i64::MAX), Some((40, 50)));
        assert_eq!(away.take_to_give(40, i64::MAX), None, "they were given");
        assert_eq!(away.take_to_give(25, 30), Some((25, 30)), "others stay");
        assert_eq!(away.take_to_give(i64::MIN, 22), Some((19, 22)));
        assert_eq!(away.take_to_give(i64::MIN, 100), Some((22, 40)));
        assert_eq!(away.to_give, None);
        away.note_to_give(7);
        assert_eq!(away.to_give, Some((7, 7)));
    }

    #[test]
    fn they_are_looked_for_only_where_some_may_end() {
        let mut away = Away::default();
        [120, 450].into_iter().for_each(|end| away.add(end));
        let may_have = |after, until| away.may_have_within(after, until);
        assert!(may_have(0, 120) && may_have(i64::MIN, i64::MAX) && may_have(199, 400));
        assert!(!may_have(0, 99) && !may_have(200, 399) && !may_have(500, i64::MAX));
        assert!(!may_have(120, 120) && !may_have(450, 120), "nothing ends there");
    }
}
