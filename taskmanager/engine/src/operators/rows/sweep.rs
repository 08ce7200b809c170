//! When rows of a heap are looked through for those whose time to live is over: all of them in rounds, a few blocks at a time.
//!
//! A row is kept for at least its time to live, and is gone a round later at the latest. Must never know a clock: it is told.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, TimestampMillisecondArray};
use arrow::datatypes::{Field, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_state::row_codec::STAMP_UNKNOWN;

use super::RowHeap;
use crate::operator::restored_column;

/// Rounds in a time to live.
const ROUNDS_PER_TTL: i64 = 16;

/// Blocks that are looked through in one call, about half a millisecond.
const BLOCKS_PER_CALL: usize = 4;

/// The rounds of one heap.
#[derive(Debug)]
pub(in crate::operators) struct Sweep {
    ttl_ms: i64,
    /// The first time that it was told: rows of which it is not known since when they stand do so since then.
    first_ms: Option<i64>,
    now_ms: i64,
    /// The next block of a round that goes on.
    next: Option<usize>,
    /// When the next round begins.
    due_ms: i64,
}

impl Sweep {
    /// For rows that live so long, at least a millisecond.
    pub(in crate::operators) fn new(ttl_ms: i64) -> Self {
        Self { ttl_ms: ttl_ms.max(1), first_ms: None, now_ms: i64::MIN, next: None, due_ms: i64::MIN }
    }

    /// What processing time is, which never goes back.
    pub(in crate::operators) fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// Processing time is `time_ms`. Answers the rows, of the next blocks in turn, whose time is over.
    ///
    /// Contract: the heap's last column says since when a row stands.
    pub(in crate::operators) fn over(&mut self, time_ms: i64, heap: &RowHeap) -> Vec<u32> {
        let blocks = self.tick(time_ms, heap.blocks());
        let is_over = |row: &u32| {
            let (columns, place) = heap.at(*row);
            let since = columns.last().expect("rows have a column that says since when they stand");
            self.is_over(since.as_primitive::<TimestampMillisecondType>().value(place))
        };
        blocks.flat_map(|block| heap.rows_of_block(block)).filter(is_over).collect()
    }

    /// Which rows that stand since then have not lived their time; all of them where it is not said.
    pub(in crate::operators) fn living(&self, since: &ArrayRef) -> Option<BooleanArray> {
        let since = since.as_primitive::<TimestampMillisecondType>().values();
        let is_any_over = since.iter().any(|since| self.is_over(*since));
        is_any_over.then(|| since.iter().map(|since| Some(!self.is_over(*since))).collect())
    }

    /// Rows of this age or more have lived their time; not known before it was told one.
    pub(in crate::operators) fn expired_until(&self) -> Option<i64> {
        self.first_ms.map(|_| self.now_ms.saturating_sub(self.ttl_ms))
    }

    /// Whether it is not known since when a row of a heap stands: a store never lets it expire.
    ///
    /// Contract: as of `over`.
    pub(in crate::operators) fn is_unknown(heap: &RowHeap, row: u32) -> bool {
        let (columns, place) = heap.at(row);
        columns.last().is_some_and(|since| since.as_primitive::<TimestampMillisecondType>().value(place) == STAMP_UNKNOWN)
    }

    /// Processing time is `time_ms`. Answers the blocks, of `blocks`, to be looked through now.
    fn tick(&mut self, time_ms: i64, blocks: usize) -> std::ops::Range<usize> {
        self.now_ms = self.now_ms.max(time_ms);
        self.first_ms.get_or_insert(self.now_ms);
        if self.next.is_none() && self.now_ms >= self.due_ms {
            self.due_ms = self.now_ms.saturating_add((self.ttl_ms / ROUNDS_PER_TTL).max(1));
            self.next = Some(0);
        }
        let Some(start) = self.next else { return 0..0 };
        let end = blocks.min(start + BLOCKS_PER_CALL);
        self.next = (end < blocks).then_some(end);
        start.min(end)..end
    }

    /// When it wants to be told the time again.
    pub(in crate::operators) fn next_tick(&self) -> i64 {
        if self.next.is_some() { self.now_ms.saturating_add(1) } else { self.due_ms.max(self.now_ms.saturating_add(1)) }
    }

    /// Whether a row that came at `since_ms` has lived its time.
    fn is_over(&self, since_ms: i64) -> bool {
        let since_ms = if since_ms == STAMP_UNKNOWN { self.first_ms.unwrap_or(since_ms) } else { since_ms };
        since_ms.saturating_add(self.ttl_ms) <= self.now_ms
    }
}

/// Since when the rows of a restored batch stand; where they had no time to live that is not known.
///
/// Errors: the column is of another type, in words.
pub(in crate::operators) fn restored_since(batch: &RecordBatch, field: &Field) -> Result<ArrayRef, String> {
    match batch.column_by_name(field.name()) {
        Some(_) => restored_column(batch, field).cloned(),
        None => Ok(Arc::new(TimestampMillisecondArray::from_value(STAMP_UNKNOWN, batch.num_rows()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_looked_through_once_a_round() {
        let mut sweep = Sweep::new(1_600);
        let mut seen = Vec::new();
        for time in 0..100 {
            seen.extend(sweep.tick(time, 10));
            assert!(sweep.next_tick() > time);
        }
        assert_eq!(seen, (0..10).collect::<Vec<_>>());
        assert_eq!((sweep.tick(100, 10), sweep.next_tick()), (0..4, 101));
        assert!(!sweep.is_over(-1_499) && sweep.is_over(-1_500));
    }

    #[test]
    fn a_row_of_unknown_age_lives_from_the_first_time_on() {
        let mut sweep = Sweep::new(100);
        for (time, is_over) in [(1_000, false), (1_099, false), (1_100, true)] {
            sweep.tick(time, 1);
            assert_eq!(sweep.is_over(STAMP_UNKNOWN), is_over, "at {time}");
        }
    }
}
