//! Event time over several channels, or splits of a source: the least of those that have something to say.
//!
//! Must never know rows. Invariants: the merged watermark never falls; a channel that is idle or has ended holds nothing
//! back; `Watermark::MAX` is not said here, since the end of all channels implies it.

use levada_common::time::Watermark;

/// What a channel has to say about time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Active,
    Idle,
    Ended,
}

/// What changed for the reader of all channels, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Every live channel was idle and one is not any more.
    pub active: bool,
    /// Time has reached this.
    pub watermark: Option<Watermark>,
    /// Every live channel is idle now.
    pub idle: bool,
}

/// The watermarks of one task's channels, merged.
///
/// Contract: when the last active channel turns idle, time goes on to the greatest of the idle ones: whoever is idle asked
/// not to be waited for, and the order in which channels fall silent must not decide which windows fire (FLINK-7728).
#[derive(Debug)]
pub struct WatermarkMerger {
    times: Vec<Watermark>,
    voices: Vec<Voice>,
    merged: Watermark,
    /// The active channel that is least far.
    holder: Option<usize>,
    idle: bool,
}

impl WatermarkMerger {
    /// Of `channels` channels, all active, none of which has said anything.
    pub fn new(channels: usize) -> Self {
        Self {
            times: vec![Watermark::MIN; channels],
            voices: vec![Voice::Active; channels],
            merged: Watermark::MIN,
            holder: (channels > 0).then_some(0),
            idle: false,
        }
    }

    /// The channel that holds time back: of those that are active the one that is least far. `None` where none is active.
    pub fn holder(&self) -> Option<usize> {
        self.holder
    }

    /// `channel` begins anew, active and without a word; it is the next one where it is not there yet.
    pub fn begin(&mut self, channel: usize) {
        assert!(channel <= self.times.len(), "channels are numbered without gaps");
        self.times.resize(self.times.len().max(channel + 1), Watermark::MIN);
        self.voices.resize(self.times.len(), Voice::Active);
        (self.times[channel], self.voices[channel], self.holder, self.idle) =
            (Watermark::MIN, Voice::Active, Some(channel), false);
    }

    /// `channel` has reached `watermark`.
    pub fn watermark(&mut self, channel: usize, watermark: Watermark) -> Change {
        let before = self.times[channel];
        self.times[channel] = before.max(watermark);
        if self.voices[channel] == Voice::Active && before > self.merged {
            return Change::default();
        }
        self.voices[channel] = Voice::Active;
        self.merge()
    }

    /// Rows came on `channel`: it is not idle any more.
    pub fn rows(&mut self, channel: usize) -> Change {
        if self.voices[channel] == Voice::Active {
            return Change::default();
        }
        self.voices[channel] = Voice::Active;
        self.merge()
    }

    /// `channel` has nothing to say for a while.
    pub fn idle(&mut self, channel: usize) -> Change {
        self.voices[channel] = Voice::Idle;
        self.merge()
    }

    /// `channel` has ended.
    pub fn end(&mut self, channel: usize) -> Change {
        self.voices[channel] = Voice::Ended;
        self.merge()
    }

    fn merge(&mut self) -> Change {
        let (times, voices) = (&self.times, &self.voices);
        let of = |voice| (0..times.len()).filter(move |channel| voices[*channel] == voice);
        self.holder = of(Voice::Active).min_by_key(|channel| times[*channel]);
        let greatest_idle = of(Voice::Idle).map(|channel| times[channel]).max();
        let (reached, idle) = match (self.holder.map(|holder| times[holder]), greatest_idle) {
            (Some(least), _) => (least, false),
            (None, Some(greatest)) => (greatest, true),
            (None, None) => return Change::default(),
        };
        let mut change = Change { active: self.idle && !idle, watermark: None, idle: idle && !self.idle };
        self.idle = idle;
        if reached > self.merged && reached != Watermark::MAX {
            self.merged = reached;
            change.watermark = Some(reached);
        }
        change
    }
}

#[cfg(test)]
mod tests;
