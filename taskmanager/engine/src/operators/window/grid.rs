//! The grid that windows of one length lie on, one after the other: by UTC, or by the clocks of a time zone.
//!
//! In a zone a window begins when the clocks show a multiple of the length, counted from 1970 (and shifted by an offset), or are put
//! forward past one. Where they are put back by at least the length, times that are shown twice have their windows twice, so that
//! none is longer than it should be. A longer window takes in what is shown twice: a day of 25 hours is one window. Windows of days
//! begin once each, when their midnight is shown first. Invariant: every moment is in one window, and windows leave no gap.
//!
//! A *label* is what the clocks show where a window begins. Of days there is one for each, and one after the other; that there is no
//! moment of a day that a zone has skipped is no exception: its window is empty.

use std::fmt;

use levada_common::time::zone::Zone;

use super::Window;

const DAY_MS: i64 = 86_400_000;

/// Windows of equal length, one after the other.
#[derive(Debug, Clone, Copy)]
pub(in crate::operators) struct Grid {
    /// At least 1; in a zone whole days, or what divides a day.
    length_ms: i64,
    /// `0 ≤ offset < length`.
    offset_ms: i64,
    zone: Option<Zone>,
}

impl Grid {
    /// Windows of this length, shifted by the offset, by the clocks of `zone`, or by UTC. Milliseconds.
    pub(in crate::operators) fn new(length_ms: i64, offset_ms: i64, zone: Option<Zone>) -> Self {
        let length_ms = length_ms.max(1);
        Self { length_ms, offset_ms: offset_ms.rem_euclid(length_ms), zone }
    }

    /// By the same clocks, another length and offset.
    pub(in crate::operators) fn coarser(&self, length_ms: i64, offset_ms: i64) -> Self {
        Self::new(length_ms, offset_ms, self.zone)
    }

    /// How long windows are where no clock is set.
    pub(in crate::operators) fn length_ms(&self) -> i64 {
        self.length_ms
    }

    /// Whether windows begin by the clocks of a zone.
    pub(in crate::operators) fn is_zoned(&self) -> bool {
        self.zone.is_some()
    }

    /// The window that has this time.
    pub(in crate::operators) fn window(&self, time: i64) -> Window {
        match &self.zone {
            None => {
                let start = self.floor(time);
                Window { start, end: start.saturating_add(self.length_ms) }
            }
            Some(zone) if self.length_ms < DAY_MS => self.of_hours(zone, time),
            Some(zone) => self.of_days(zone, self.label_of(zone, time)),
        }
    }

    /// Where a window begins, not before this time.
    pub(in crate::operators) fn ceil(&self, time: i64) -> i64 {
        self.window(time.saturating_sub(1)).end
    }

    /// The label of the window that has this time.
    ///
    /// Contract: in a zone windows are of days.
    pub(in crate::operators) fn label(&self, time: i64) -> i64 {
        self.zone.as_ref().map_or_else(|| self.floor(time), |zone| self.label_of(zone, time))
    }

    /// The moment at which the window of this label begins.
    pub(in crate::operators) fn moment(&self, label: i64) -> i64 {
        self.zone.as_ref().map_or(label, |zone| zone.first_moment(label))
    }

    /// The greatest time up to `time` that is the offset more than a multiple of the length.
    fn floor(&self, time: i64) -> i64 {
        grid_floor(time, self.length_ms, self.offset_ms)
    }

    /// The last label that the clocks have reached at this time, though they may have been put back since.
    fn label_of(&self, zone: &Zone, time: i64) -> i64 {
        let mut label = self.floor(time.saturating_add(zone.ahead_ms(time)));
        while label < i64::MAX - self.length_ms && zone.first_moment(label + self.length_ms) <= time {
            label += self.length_ms;
        }
        label
    }

    fn of_days(&self, zone: &Zone, label: i64) -> Window {
        Window { start: zone.first_moment(label), end: zone.first_moment(label.saturating_add(self.length_ms)) }
    }

    /// The window of a time, as if the clocks were never set; and what is otherwise where they are.
    fn of_hours(&self, zone: &Zone, time: i64) -> Window {
        let ahead = zone.ahead_ms(time);
        let label = self.floor(time.saturating_add(ahead));
        let start = label.saturating_sub(ahead);
        let window = Window { start, end: start.saturating_add(self.length_ms) };
        // By how much the clocks are put back from there to here.
        let (since_start, until_end) = (zone.ahead_ms(window.start) - ahead, ahead - zone.ahead_ms(window.end));
        let since_first = window.start.saturating_sub(zone.first_moment(label));
        let is_twice = |back: i64| back >= self.length_ms;
        if since_start == 0 && until_end == 0 && (since_first <= 0 || is_twice(since_first)) {
            return window;
        }
        if is_twice(since_start) || is_twice(until_end) {
            let start = if is_twice(since_start) { zone.set_between(window.start, time) } else { window.start };
            let end = if is_twice(until_end) { zone.set_between(time, window.end) } else { window.end };
            return Window { start, end };
        }
        self.of_days(zone, self.label_of(zone, time))
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms long, from {} ms on", self.length_ms, self.offset_ms)?;
        if self.zone.is_some() { f.write_str(", in a time zone") } else { Ok(()) }
    }
}

/// The greatest time up to `time` that is `offset_ms` more than a multiple of `period_ms`. Times before 1970 are floored like any
/// other.
pub(in crate::operators) fn grid_floor(time: i64, period_ms: i64, offset_ms: i64) -> i64 {
    time.saturating_sub(time.saturating_sub(offset_ms).rem_euclid(period_ms))
}

#[cfg(test)]
mod tests;
