//! Time over the splits that a source reads side by side: that of the one that is least far.

use std::collections::BTreeMap;

use levada_common::time::Watermark;

use crate::element::SplitVoice;
use crate::gate::watermark::WatermarkMerger;
use crate::source::SplitId;

/// The splits of one source that have begun and not ended.
#[derive(Debug)]
pub(super) struct Splits {
    /// Each split's channel of the merger.
    channels: BTreeMap<SplitId, usize>,
    /// Channels of splits that have ended.
    free: Vec<usize>,
    merger: WatermarkMerger,
    /// Whose rows come.
    current: Option<usize>,
}

impl Splits {
    /// None so far.
    pub(super) fn new() -> Self {
        Self { channels: BTreeMap::new(), free: Vec::new(), merger: WatermarkMerger::new(0), current: None }
    }

    /// Takes what a split says; answers how far time has come, where that has changed.
    pub(super) fn hear(&mut self, split: SplitId, voice: SplitVoice) -> Option<i64> {
        let channel = match voice {
            SplitVoice::Begin | SplitVoice::Rows => self.channel(split),
            SplitVoice::Idle | SplitVoice::End => *self.channels.get(&split)?,
        };
        let change = match voice {
            SplitVoice::Begin => return None,
            SplitVoice::Rows => {
                self.current = Some(channel);
                self.merger.rows(channel)
            }
            SplitVoice::Idle => self.merger.idle(channel),
            SplitVoice::End => {
                self.channels.remove(&split);
                self.free.push(channel);
                self.current.take_if(|current| *current == channel);
                self.merger.end(channel)
            }
        };
        change.watermark.map(|watermark| watermark.0)
    }

    /// The rows of the current split have come to `reached_ms`; answers how far time has come over all splits, where that has
    /// changed. Without splits it is that.
    pub(super) fn reached(&mut self, reached_ms: i64) -> Option<i64> {
        match self.current {
            Some(current) => self.merger.watermark(current, Watermark(reached_ms)).watermark.map(|watermark| watermark.0),
            None => Some(reached_ms),
        }
    }

    fn channel(&mut self, split: SplitId) -> usize {
        let next = self.channels.len() + self.free.len();
        *self.channels.entry(split).or_insert_with(|| {
            let channel = self.free.pop().unwrap_or(next);
            self.merger.begin(channel);
            channel
        })
    }
}

#[cfg(test)]
mod tests {
    use SplitVoice::{Begin, End, Idle, Rows};

    use super::*;

    const A: SplitId = SplitId(7);
    const B: SplitId = SplitId(9);

    fn read(splits: &mut Splits, split: SplitId, ms: i64) -> Option<i64> {
        let heard = splits.hear(split, Rows);
        splits.reached(ms).or(heard)
    }

    #[test]
    fn without_splits_time_is_that_of_the_rows() {
        assert_eq!(Splits::new().reached(5), Some(5));
    }

    #[test]
    fn a_split_that_has_begun_holds_time_until_it_ends() {
        let mut splits = Splits::new();
        splits.hear(A, Begin);
        splits.hear(B, Begin);
        assert_eq!(read(&mut splits, A, 100), None);
        assert_eq!(read(&mut splits, B, 30), Some(30));
        assert_eq!(read(&mut splits, A, 200), None);
        assert_eq!(splits.hear(B, End), Some(200));
        splits.hear(B, Begin);
        assert_eq!(read(&mut splits, A, 300), None, "its number was used again");
        assert_eq!(read(&mut splits, B, 250), Some(250));
        assert_eq!(splits.channels.len() + splits.free.len(), 2, "places are used again");
    }

    #[test]
    fn an_idle_split_holds_nothing_and_time_does_not_fall_when_it_speaks() {
        let mut splits = Splits::new();
        splits.hear(A, Begin);
        splits.hear(B, Begin);
        read(&mut splits, A, 100);
        assert_eq!(splits.hear(B, Idle), Some(100));
        assert_eq!(read(&mut splits, B, 50), None);
        assert_eq!(read(&mut splits, A, 200), None);
        assert_eq!(read(&mut splits, B, 120), Some(120));
    }
}
