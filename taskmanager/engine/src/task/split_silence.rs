//! For how long each of the splits that a source reads side by side has given nothing: when one is idle while others are not.
//!
//! Has no clock: it is told the time at each poll. Invariant: time in which the source was not polled does not count, and a
//! split that was not looked for several times is not idle, however long the task was busy.

use std::collections::BTreeMap;

use levada_common::time::Instant;

use crate::source::SplitId;

/// Polls without rows that it takes at least to be idle.
const POLLS_MIN: u64 = 4;

/// The splits of one source.
#[derive(Debug)]
pub(crate) struct SplitSilences {
    /// `None` = never.
    idle_after_ms: Option<u64>,
    /// Milliseconds that counted so far.
    spent_ms: u64,
    /// The last poll, where nothing held the task up since.
    since: Option<Instant>,
    /// When each split that is not idle gave something last, by `spent_ms`.
    spoke: BTreeMap<SplitId, u64>,
}

impl SplitSilences {
    /// Units: milliseconds; `None` = never idle.
    pub(crate) fn new(idle_after_ms: Option<u64>) -> Self {
        Self { idle_after_ms, spent_ms: 0, since: None, spoke: BTreeMap::new() }
    }

    /// The source is polled.
    pub(crate) fn poll(&mut self, now: Instant) {
        if self.spoke.is_empty() {
            return;
        }
        if let (Some(since), Some(idle_after_ms)) = (self.since.replace(now), self.idle_after_ms) {
            self.spent_ms += now.since(since).min(idle_after_ms.div_ceil(POLLS_MIN));
        }
    }

    /// The task is held up: time does not count until the next poll.
    pub(crate) fn interrupt(&mut self) {
        self.since = None;
    }

    /// A split began or gave rows.
    pub(crate) fn spoke(&mut self, split: SplitId) {
        self.spoke.insert(split, self.spent_ms);
    }

    /// A split has ended.
    pub(crate) fn end(&mut self, split: SplitId) {
        self.spoke.remove(&split);
    }

    /// The whole source is idle, and so is each of them.
    pub(crate) fn all_idle(&mut self) {
        self.spent_ms = self.spent_ms.saturating_add(self.idle_after_ms.unwrap_or(0));
    }

    /// A split that is idle now; each is said once per silence.
    pub(crate) fn idle(&mut self) -> Option<SplitId> {
        let idle_after_ms = self.idle_after_ms?;
        let (split, _) = self.spoke.iter().find(|(_, spoke)| self.spent_ms - **spoke >= idle_after_ms)?;
        let split = *split;
        self.spoke.remove(&split);
        Some(split)
    }

    /// When to poll again at the latest, so that idleness is seen.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        let idle_after_ms = self.idle_after_ms?;
        let earliest = self.spoke.values().min()?;
        let left = idle_after_ms.saturating_sub(self.spent_ms - earliest);
        Some(now.plus_ms(left.min(idle_after_ms.div_ceil(POLLS_MIN))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SplitId = SplitId(0);
    const B: SplitId = SplitId(1);

    #[test]
    fn a_split_is_idle_while_another_speaks() {
        let mut silences = SplitSilences::new(Some(100));
        [A, B].into_iter().for_each(|split| silences.spoke(split));
        let mut idle = Vec::new();
        for ms in (0..=200).step_by(20) {
            silences.poll(Instant(ms));
            idle.extend(silences.idle().map(|split| (split, ms)));
            silences.spoke(B);
        }
        assert_eq!(idle, [(A, 100)]);
        silences.spoke(A);
        assert_eq!(silences.until(Instant(200)), Some(Instant(225)), "it is looked for several times");
    }

    #[test]
    fn a_long_step_and_back_pressure_are_no_silence() {
        let mut silences = SplitSilences::new(Some(100));
        silences.spoke(A);
        silences.poll(Instant(0));
        silences.poll(Instant(5_000));
        assert_eq!(silences.idle(), None);
        silences.interrupt();
        silences.poll(Instant(10_000));
        assert_eq!((silences.idle(), silences.spent_ms), (None, 25));
    }

    #[test]
    fn none_is_idle_where_that_is_off_or_it_has_ended() {
        let mut silences = SplitSilences::new(None);
        silences.spoke(A);
        (0..10).for_each(|minute| silences.poll(Instant(minute * 60_000)));
        assert_eq!((silences.idle(), silences.until(Instant(0))), (None, None));
        let mut silences = SplitSilences::new(Some(1));
        silences.spoke(A);
        silences.end(A);
        (0..10).for_each(|ms| silences.poll(Instant(ms)));
        assert_eq!(silences.idle(), None);
    }
}
