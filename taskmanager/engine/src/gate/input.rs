//! The input gate: reads a task's channels in turn and gives one stream of rows and signals.
//!
//! Invariant: rows of one channel keep their order, and no signal overtakes rows that came before it on its channel.

use std::collections::VecDeque;

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{CheckpointMode, Edge, Partition, Plan};

use crate::channel::ChannelReader;
use crate::element::{Barrier, Element, Signal};
use crate::gate::align::{Alignment, Outcome};
use crate::gate::waiting::Waiting;
use crate::gate::watermark::{Change, WatermarkMerger};

/// Elements read in one call at most: signals that lead to nothing must not keep a task from its control messages.
const READS_PER_CALL: usize = 64;

/// What the gate has.
#[derive(Debug)]
pub enum Input {
    /// Rows of the operator's input of this number.
    Batch(usize, RecordBatch),
    /// A signal of all channels together.
    Signal(Signal),
    /// This checkpoint's alignment was given up for a newer one's.
    GivenUp(CheckpointId),
    /// Elements were read and led to nothing; there may be more.
    Nothing,
    /// No channel that may be read has an element.
    Empty,
}

/// What a channel is to its reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelRole {
    /// The first operator's input that its rows are for.
    pub input: usize,
    /// Time does not wait for it: its rows are broadcast.
    pub is_broadcast: bool,
    /// Its rows wait until the channels that do not wait have ended.
    pub waits: bool,
}

impl ChannelRole {
    /// Of the channels of an edge.
    pub fn of(plan: &Plan, edge: &Edge) -> Self {
        let is_held = plan.vertex(edge.to).operators.first().is_some_and(|first| first.waiting().is_some());
        Self {
            input: edge.input as usize,
            is_broadcast: edge.partition == Partition::Broadcast,
            waits: edge.input == 0 && is_held,
        }
    }
}

/// The receiving ends of one task.
pub struct InputGate {
    readers: Vec<Box<dyn ChannelReader>>,
    ended: Vec<bool>,
    roles: Vec<ChannelRole>,
    live: usize,
    alignment: Alignment,
    /// The newest barrier that came on any channel.
    barrier: Option<Barrier>,
    times: WatermarkMerger,
    /// The channel to be asked next.
    next: usize,
    /// What is held back.
    waiting: Waiting,
    /// Read and not yet given.
    read: VecDeque<Input>,
}

impl InputGate {
    /// Of these channels; at least one.
    pub fn new(readers: Vec<Box<dyn ChannelReader>>, mode: CheckpointMode) -> Self {
        let channels = readers.len();
        assert!(channels > 0, "a task without a source has channels");
        Self {
            readers,
            ended: vec![false; channels],
            roles: vec![ChannelRole::default(); channels],
            live: channels,
            alignment: Alignment::new(mode, channels),
            barrier: None,
            times: WatermarkMerger::new(channels),
            next: 0,
            waiting: Waiting::default(),
            read: VecDeque::new(),
        }
    }

    /// The same, where channels have these roles; not all of them are broadcast.
    #[must_use]
    pub fn with_roles(mut self, roles: Vec<ChannelRole>) -> Self {
        assert_eq!(roles.len(), self.readers.len(), "a role for each channel");
        for channel in (0..roles.len()).filter(|channel| roles[*channel].is_broadcast) {
            self.times.end(channel);
        }
        self.waiting = Waiting::new(&roles);
        self.roles = roles;
        self
    }

    /// The same, with rows of the first input that a snapshot had: they were read and wait.
    #[must_use]
    pub fn with_waiting(mut self, batches: Vec<RecordBatch>) -> Self {
        if self.waiting.is_on() {
            batches.into_iter().for_each(|batch| self.waiting.hold(None, Element::Batch(batch)));
        } else {
            self.read.extend(batches.into_iter().map(|batch| Input::Batch(0, batch)));
        }
        self
    }

    /// The rows that were read and wait, in order: at a barrier's signal those that came before it.
    pub fn waiting_rows(&self) -> impl Iterator<Item = &RecordBatch> {
        self.waiting.rows()
    }

    /// Bytes of these.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.memory_bytes()
    }

    /// Whether channels wait for others to end.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_on()
    }

    /// The next thing, without waiting. After `Signal::End` nothing comes any more.
    pub fn read(&mut self) -> Input {
        for _ in 0..READS_PER_CALL {
            if let Some(input) = self.read.pop_front() {
                return input;
            }
            let Some((channel, element)) = self.receive() else { return Input::Empty };
            self.take(channel, element);
        }
        self.read.pop_front().unwrap_or(Input::Nothing)
    }

    /// The barrier of the checkpoint whose signal was read last. A barrier comes on the same channels as its checkpoint's others
    /// with the same kind, and a newer one gives the older up.
    pub fn barrier(&self, checkpoint: CheckpointId) -> Barrier {
        self.barrier.clone().filter(|newest| newest.checkpoint == checkpoint).unwrap_or(Barrier::checkpoint(checkpoint))
    }

    /// The channel that holds event time back.
    pub fn holder(&self) -> Option<usize> {
        self.times.holder()
    }

    /// The coordinator gave this checkpoint up: its alignment is released.
    pub fn abort(&mut self, checkpoint: CheckpointId) {
        self.alignment.abort(checkpoint);
    }

    /// Reads what is there and drops it, for a task that was finished when it was restored.
    ///
    /// Errors: rows, which cannot come, since those who send were finished too; their number.
    pub fn drop_all(&mut self) -> Result<(), usize> {
        for reader in &mut self.readers {
            while let Some(element) = reader.try_recv() {
                if let Element::Batch(batch) = element {
                    return Err(batch.num_rows());
                }
            }
        }
        Ok(())
    }

    /// The next element of the channels in turn, without those that have ended or wait for alignment.
    fn receive(&mut self) -> Option<(usize, Element)> {
        let channels = self.readers.len();
        for step in 0..channels {
            let channel = (self.next + step) % channels;
            let is_held = self.waiting.has(channel) && !self.alignment.awaits(channel);
            if self.ended[channel] || is_held || self.alignment.is_blocked(channel) {
                continue;
            }
            if let Some(element) = self.readers[channel].try_recv() {
                self.next = (channel + 1) % channels;
                return Some((channel, element));
            }
        }
        None
    }

    fn take(&mut self, channel: usize, element: Element) {
        let role = self.roles[channel];
        match element {
            Element::EndOfData if self.waiting.has(channel) => {
                self.stop(channel);
                self.waiting.hold(Some(channel), Element::EndOfData);
            }
            Element::Batch(_) | Element::Watermark(_) | Element::Idle if self.waiting.has(channel) => {
                self.waiting.hold(Some(channel), element);
            }
            Element::Batch(batch) => {
                if !role.is_broadcast {
                    let change = self.times.rows(channel);
                    self.changed(change);
                }
                self.read.push_back(Input::Batch(role.input, batch));
            }
            Element::Watermark(_) | Element::Idle if role.is_broadcast => {}
            Element::Watermark(watermark) => {
                let change = self.times.watermark(channel, watermark);
                self.changed(change);
            }
            Element::Idle => {
                let change = self.times.idle(channel);
                self.changed(change);
            }
            Element::Barrier(barrier) => {
                let outcome = self.alignment.barrier(channel, barrier.checkpoint);
                if self.barrier.as_ref().is_none_or(|newest| newest.checkpoint < barrier.checkpoint) {
                    self.barrier = Some(barrier);
                }
                self.aligned(outcome);
            }
            Element::EndOfData => {
                // What waited came before the barrier that this end may complete.
                self.waiting.end(channel).into_iter().for_each(|(channel, element)| self.release(channel, element));
                self.stop(channel);
                self.end(channel);
            }
        }
    }

    /// Nothing is held back any more: an element goes on that was.
    fn release(&mut self, channel: Option<usize>, element: Element) {
        match (channel, element) {
            (Some(channel), Element::EndOfData) => self.end(channel),
            (Some(channel), element) => self.take(channel, element),
            (None, Element::Batch(batch)) => self.read.push_back(Input::Batch(0, batch)),
            (None, _) => {}
        }
    }

    /// Nothing is read of the channel any more.
    fn stop(&mut self, channel: usize) {
        self.ended[channel] = true;
        let outcome = self.alignment.end(channel);
        self.aligned(outcome);
    }

    /// All that came on the channel has gone on.
    fn end(&mut self, channel: usize) {
        self.live -= 1;
        let change = self.times.end(channel);
        self.changed(change);
        if self.live == 0 {
            self.read.push_back(Input::Signal(Signal::End));
        }
    }

    fn changed(&mut self, change: Change) {
        if change.active {
            self.read.push_back(Input::Signal(Signal::Active));
        }
        if let Some(watermark) = change.watermark {
            self.read.push_back(Input::Signal(Signal::Watermark(watermark)));
        }
        if change.idle {
            self.read.push_back(Input::Signal(Signal::Idle));
        }
    }

    fn aligned(&mut self, outcome: Outcome) {
        self.read.extend(outcome.given_up.map(Input::GivenUp));
        self.read.extend(outcome.complete.map(|checkpoint| Input::Signal(Signal::Barrier(checkpoint))));
    }
}

#[cfg(test)]
mod tests;
