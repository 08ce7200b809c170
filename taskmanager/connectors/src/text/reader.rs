//! Chunks to batches: frames records, decodes them, and deals with the bad ones.

use arrow::record_batch::RecordBatch;
use levada_engine::error::EngineError;
use levada_engine::source::SourceContext;

use super::frame::{Frame, Framer, RECORD_BYTES_MAX};
use crate::error::ConnectorError;
use crate::formats::{Decoder, Format};

/// Whether `fill` stopped because a batch is full or because there are no more bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filled {
    /// `take` the batch, then go on.
    Full,
    /// Everything that was pushed is read.
    Empty,
}

/// Reads records into the batch that is being made.
pub struct RecordReader {
    framer: Framer,
    decoder: Decoder,
}

impl RecordReader {
    /// A reader for the node of `context`.
    pub fn new(format: &Format, context: &SourceContext) -> Self {
        Self { framer: Framer::default(), decoder: Decoder::new(format, &context.spec.schema, context.batch_rows_max) }
    }

    /// Starts anew at this offset; bytes that made no record are dropped, rows stay.
    pub fn start(&mut self, position: u64) {
        self.framer.start(position);
    }

    /// The offset of the first record that is not in a row given or waiting.
    pub fn position(&self) -> u64 {
        self.framer.position()
    }

    /// Takes bytes, after `fill` gave `Empty`; gives a buffer back.
    pub fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        self.framer.push(chunk)
    }

    /// Reads records until the batch is full or the bytes are used up.
    ///
    /// Errors: a bad record, where the node's policy is to fail. `place` is the name of what is read, for messages.
    pub fn fill(&mut self, context: &SourceContext, place: &dyn std::fmt::Display) -> Result<Filled, EngineError> {
        while !self.decoder.is_full() {
            match self.framer.next_frame() {
                Some(frame) => take(&mut self.decoder, frame, context, place)?,
                None => return Ok(Filled::Empty),
            }
        }
        Ok(Filled::Full)
    }

    /// Reads the last record, at the end of the input. The batch may hold a row more than its limit says.
    pub fn finish(&mut self, context: &SourceContext, place: &dyn std::fmt::Display) -> Result<(), EngineError> {
        match self.framer.finish() {
            Some(frame) => take(&mut self.decoder, frame, context, place),
            None => Ok(()),
        }
    }

    /// Whether a batch with a row could be taken.
    pub fn has_rows(&self) -> bool {
        self.decoder.rows() > 0
    }

    /// Whether the batch takes no more rows.
    pub fn is_full(&self) -> bool {
        self.decoder.is_full()
    }

    /// The batch that was being made.
    pub fn take(&mut self) -> Result<RecordBatch, ConnectorError> {
        self.decoder.take()
    }
}

fn take(
    decoder: &mut Decoder,
    frame: Frame<'_>,
    context: &SourceContext,
    place: &dyn std::fmt::Display,
) -> Result<(), EngineError> {
    match frame {
        Frame::Record { start, bytes } => match decoder.push(bytes) {
            Ok(()) => Ok(()),
            Err(reason) => context.bad_record(&format!("{place}, byte {start}"), &reason.to_string()),
        },
        Frame::TooLong { start, length } => context.bad_record(
            &format!("{place}, byte {start}"),
            &format!("the record has {length} bytes or more, the limit is {RECORD_BYTES_MAX}"),
        ),
    }
}
