//! Barrier alignment: when the barrier of a checkpoint has come on every channel, and which channels wait until then.
//!
//! Must never know what is on a channel beside barriers and its end. Invariant: with exactly-once, nothing that follows a
//! barrier on its channel is read before the snapshot; a checkpoint id that is over never comes back.

use levada_common::ids::CheckpointId;
use levada_common::plan::CheckpointMode;

/// What a barrier, or the end of a channel, led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outcome {
    /// This checkpoint's alignment was given up, because a newer one's barrier came.
    pub given_up: Option<CheckpointId>,
    /// Every channel has delivered this checkpoint's barrier or has ended: the snapshot is due, no channel waits any more.
    pub complete: Option<CheckpointId>,
}

/// The barriers of one task's channels.
///
/// Contract: one checkpoint is aligned at a time. A newer one's barrier gives the older up; barriers of checkpoints that are
/// complete, given up or aborted are ignored. Source: Carbone et al., "Lightweight Asynchronous Snapshots" (2015).
#[derive(Debug)]
pub struct Alignment {
    mode: CheckpointMode,
    /// The channel has delivered the current checkpoint's barrier.
    arrived: Vec<bool>,
    /// The channel has ended.
    ended: Vec<bool>,
    current: Option<CheckpointId>,
    /// Channels that are live and have not delivered the current checkpoint's barrier.
    awaited: usize,
    /// Ids up to this one are over.
    over: Option<CheckpointId>,
}

impl Alignment {
    /// Of `channels` channels, none of which has ended.
    pub fn new(mode: CheckpointMode, channels: usize) -> Self {
        Self { mode, arrived: vec![false; channels], ended: vec![false; channels], current: None, awaited: 0, over: None }
    }

    /// Whether `channel` must not be read until the alignment is complete or given up.
    pub fn is_blocked(&self, channel: usize) -> bool {
        self.mode == CheckpointMode::ExactlyOnce && self.arrived[channel]
    }

    /// Whether a checkpoint is being aligned whose barrier is still to come on `channel`.
    pub fn awaits(&self, channel: usize) -> bool {
        self.current.is_some() && !self.arrived[channel] && !self.ended[channel]
    }

    /// The checkpoint whose barrier has come on some channels but not on all.
    pub fn current(&self) -> Option<CheckpointId> {
        self.current
    }

    /// A barrier came on `channel`.
    pub fn barrier(&mut self, channel: usize, checkpoint: CheckpointId) -> Outcome {
        assert!(!self.ended[channel], "a barrier came on channel {channel} after its end");
        let mut outcome = Outcome::default();
        if self.over.is_some_and(|over| checkpoint <= over) || self.current.is_some_and(|current| checkpoint < current) {
            return outcome;
        }
        if self.current != Some(checkpoint) {
            outcome.given_up = self.current;
            self.start(checkpoint);
        }
        if !self.arrived[channel] {
            self.arrived[channel] = true;
            self.awaited -= 1;
        }
        outcome.complete = self.complete();
        outcome
    }

    /// `channel` has ended: from now on it counts as aligned.
    pub fn end(&mut self, channel: usize) -> Outcome {
        assert!(!self.ended[channel], "channel {channel} ended twice");
        self.ended[channel] = true;
        if self.current.is_some() && !self.arrived[channel] {
            self.awaited -= 1;
        }
        Outcome { given_up: None, complete: self.complete() }
    }

    /// The coordinator gave `checkpoint` up: its channels are released and what still comes of it is ignored.
    pub fn abort(&mut self, checkpoint: CheckpointId) {
        self.over = self.over.max(Some(checkpoint));
        if self.current.is_some_and(|current| current <= checkpoint) {
            self.current = None;
            self.arrived.fill(false);
        }
    }

    fn start(&mut self, checkpoint: CheckpointId) {
        self.over = self.over.max(self.current);
        self.current = Some(checkpoint);
        self.arrived.fill(false);
        self.awaited = self.ended.iter().filter(|ended| !**ended).count();
    }

    fn complete(&mut self) -> Option<CheckpointId> {
        if self.awaited > 0 {
            return None;
        }
        let complete = self.current.take()?;
        self.over = self.over.max(Some(complete));
        self.arrived.fill(false);
        Some(complete)
    }
}

#[cfg(test)]
mod tests;
