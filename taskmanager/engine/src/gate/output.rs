//! The output gate: gives the rows of an output to the channels of its out-edges, and signals to all channels.
//!
//! Invariant: rows are given only where every channel has room; signals always pass, so that a barrier or the end of data
//! is never lost behind a full channel.

use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::time::Watermark;

use crate::channel::ChannelWriter;
use crate::element::{Barrier, Element, Signal};
use crate::gate::partition::Partitioner;

/// One out-edge.
pub struct Outlet {
    /// The output whose rows it carries: 0 is the main one.
    pub output: usize,
    /// Who gets which row.
    pub partitioner: Partitioner,
    /// The channels to its targets.
    pub channels: Vec<Box<dyn ChannelWriter>>,
}

/// The sending ends of one task.
pub struct OutputGate {
    outlets: Vec<Outlet>,
    /// The newest watermark sent.
    watermark: Watermark,
}

impl OutputGate {
    /// Of these edges; at least one.
    pub fn new(outlets: Vec<Outlet>) -> Self {
        assert!(!outlets.is_empty(), "a task without a sink has out-edges");
        Self { outlets, watermark: Watermark::MIN }
    }

    /// Whether every channel has room.
    pub fn is_ready(&mut self) -> bool {
        self.outlets.iter_mut().all(|outlet| outlet.channels.iter_mut().all(|channel| channel.is_ready()))
    }

    /// Gives rows to every edge of their output; where there is none nobody reads them. Contract: only after `is_ready`; not
    /// empty.
    pub fn write(&mut self, output: usize, batch: RecordBatch) -> Result<(), ArrowError> {
        debug_assert!(batch.num_rows() > 0, "no operator gives an empty batch");
        let Some(last) = self.outlets.iter().rposition(|outlet| outlet.output == output) else { return Ok(()) };
        for outlet in self.outlets[..last].iter_mut().filter(|outlet| outlet.output == output) {
            outlet.write(batch.clone())?;
        }
        self.outlets[last].write(batch)
    }

    /// Gives a checkpoint's cut to every channel.
    pub fn barrier(&mut self, barrier: Barrier) {
        self.send_all(&Element::Barrier(barrier));
    }

    /// Gives a signal to every channel.
    pub fn signal(&mut self, signal: Signal) {
        match signal {
            Signal::Watermark(watermark) => {
                self.watermark = watermark;
                self.send_all(&Element::Watermark(watermark));
            }
            Signal::Active => self.send_all(&Element::Watermark(self.watermark)),
            Signal::Idle => self.send_all(&Element::Idle),
            Signal::Barrier(checkpoint) => self.barrier(Barrier::checkpoint(checkpoint)),
            Signal::End => {
                self.send_all(&Element::Watermark(Watermark::MAX));
                self.send_all(&Element::EndOfData);
            }
        }
    }

    fn send_all(&mut self, element: &Element) {
        for channel in self.outlets.iter_mut().flat_map(|outlet| &mut outlet.channels) {
            channel.send(element.clone());
        }
    }
}

impl Outlet {
    fn write(&mut self, batch: RecordBatch) -> Result<(), ArrowError> {
        let channels = &mut self.channels;
        self.partitioner.split(batch, |target, rows| channels[target].send(Element::Batch(rows)))
    }
}

#[cfg(test)]
mod tests;
