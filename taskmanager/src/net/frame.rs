//! Elements to frames and back: what `data.proto` says of them.
//!
//! A batch is cut between rows into frames of at most [`FRAME_BYTES_TARGET`]; a row above that travels alone. Going out, a
//! frame's pieces are the batch's own buffers; coming in, whatever Arrow's alignment allows stays in the received bytes.
//! Must never know: which channel it is, and that there is a network.

use std::collections::HashMap;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::read_record_batch;
use arrow::ipc::root_as_message;
use arrow::ipc::writer::StreamEncoder;
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::checkpoint::CheckpointKind;
use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::CheckpointId;
use levada_common::time::Watermark;
use levada_engine::element::{Barrier, Element};
use levada_proto::frame::{FRAME_BYTES_MAX, Frame, FrameKind};

/// Size above which a batch is cut.
pub const FRAME_BYTES_TARGET: usize = 256 * 1024;

/// The continuation marker and the length before an IPC message.
const IPC_PREFIX_BYTES: usize = 8;

/// An element that cannot travel, or a frame that is none.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// One row is larger than a frame can be.
    #[error(
        "a row of {bytes} bytes does not fit a frame between TaskManagers of {FRAME_BYTES_MAX} bytes; make its columns smaller"
    )]
    RowTooLarge {
        /// Bytes of the row's frame.
        bytes: usize,
    },
    /// Arrow could not write a batch.
    #[error("a batch cannot be written as an IPC message")]
    Encode(#[source] ArrowError),
    /// Arrow could not read a batch.
    #[error("a frame of {bytes} bytes is no batch of the channel's schema")]
    Decode {
        /// Bytes of the frame.
        bytes: usize,
        /// Why.
        #[source]
        source: ArrowError,
    },
    /// The frame is not what the protocol says.
    #[error("a frame of {bytes} bytes is broken: {reason}")]
    Broken {
        /// Bytes of the frame.
        bytes: usize,
        /// Why.
        reason: String,
    },
}

impl Faulty for FrameError {
    fn fault(&self) -> Fault {
        match self {
            Self::RowTooLarge { .. } => Fault::User,
            Self::Encode(_) => Fault::Internal,
            Self::Decode { .. } | Self::Broken { .. } => Fault::External,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::RowTooLarge { .. } => Retry::Never,
            Self::Encode(_) | Self::Decode { .. } | Self::Broken { .. } => Retry::Backoff,
        }
    }
}

/// Makes the frames of one channel.
pub struct FrameEncoder {
    encoder: StreamEncoder,
}

impl FrameEncoder {
    /// Encodes batches of `schema`.
    pub fn new(schema: &SchemaRef) -> Result<Self, FrameError> {
        let mut encoder = StreamEncoder::try_new(schema).map_err(FrameError::Encode)?;
        // The first batch brings the schema message with it; both ends have the schema from the plan.
        encoder.encode(&RecordBatch::new_empty(schema.clone())).map_err(FrameError::Encode)?;
        Ok(Self { encoder })
    }

    /// Hands the frames of `element` to `emit`, in order.
    pub fn encode(&mut self, element: Element, emit: &mut impl FnMut(Frame)) -> Result<(), FrameError> {
        match element {
            Element::Batch(batch) => return self.encode_rows(&batch, emit),
            Element::Watermark(Watermark(ms)) => emit(signal(FrameKind::Watermark, &ms.to_le_bytes())),
            Element::Idle => emit(signal(FrameKind::Idle, &[])),
            Element::Barrier(barrier) => emit(signal(FrameKind::Barrier, &barrier_bytes(&barrier))),
            Element::EndOfData => emit(signal(FrameKind::EndOfData, &[])),
        }
        Ok(())
    }

    /// Encodes rows; cuts them by their mean size, and again where the cut was too coarse.
    fn encode_rows(&mut self, batch: &RecordBatch, emit: &mut impl FnMut(Frame)) -> Result<(), FrameError> {
        let frame = self.encode_batch(batch)?;
        if frame.len() <= FRAME_BYTES_TARGET {
            emit(frame);
            return Ok(());
        }
        if batch.num_rows() <= 1 {
            if frame.len() > FRAME_BYTES_MAX {
                return Err(FrameError::RowTooLarge { bytes: frame.len() });
            }
            emit(frame);
            return Ok(());
        }
        let cuts = frame.len().div_ceil(FRAME_BYTES_TARGET).max(2);
        let rows_each = batch.num_rows().div_ceil(cuts);
        let mut start = 0;
        while start < batch.num_rows() {
            let rows = rows_each.min(batch.num_rows() - start);
            self.encode_rows(&batch.slice(start, rows), emit)?;
            start += rows;
        }
        Ok(())
    }

    fn encode_batch(&mut self, batch: &RecordBatch) -> Result<Frame, FrameError> {
        let buffers = self.encoder.encode(batch).map_err(FrameError::Encode)?;
        let kind = Bytes::from_static(&[FrameKind::Batch as u8]);
        Ok(Frame::new(std::iter::once(kind).chain(buffers.into_iter().map(|buffer| Bytes::from_owner(Piece(buffer)))).collect()))
    }
}

/// A buffer as the owner of bytes.
struct Piece(Buffer);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice()
    }
}

fn signal(kind: FrameKind, content: &[u8]) -> Frame {
    let mut bytes = Vec::with_capacity(1 + content.len());
    bytes.push(kind as u8);
    bytes.extend_from_slice(content);
    Frame::from(bytes)
}

/// The checkpoint; of a savepoint also whether it stops the job, and its folder.
fn barrier_bytes(barrier: &Barrier) -> Vec<u8> {
    let mut bytes = barrier.checkpoint.0.to_le_bytes().to_vec();
    if let CheckpointKind::Savepoint { directory, stops } = &barrier.kind {
        bytes.push(u8::from(*stops));
        bytes.extend_from_slice(directory.as_bytes());
    }
    bytes
}

/// Errors: what is wrong with the bytes.
fn decode_barrier(bytes: &[u8]) -> Result<Barrier, &'static str> {
    let (checkpoint, rest) = bytes.split_first_chunk().ok_or("its checkpoint is not 8 bytes long")?;
    let kind = match rest {
        [] => CheckpointKind::Checkpoint,
        [stops @ (0 | 1), directory @ ..] => {
            let directory = std::str::from_utf8(directory).map_err(|_| "its savepoint's folder is not UTF-8")?;
            CheckpointKind::Savepoint { directory: directory.into(), stops: *stops == 1 }
        }
        _ => return Err("its kind of checkpoint is unknown"),
    };
    Ok(Barrier { checkpoint: CheckpointId(u64::from_le_bytes(*checkpoint)), kind })
}

/// Whether these bytes are the last frame of a channel.
pub fn is_end_of_data(bytes: &[u8]) -> bool {
    bytes.first() == Some(&(FrameKind::EndOfData as u8))
}

/// Reads one frame of a channel of batches of `schema`.
pub fn decode(bytes: Bytes, schema: &SchemaRef) -> Result<Element, FrameError> {
    let broken = |reason: &str| FrameError::Broken { bytes: bytes.len(), reason: reason.into() };
    let kind = bytes.first().ok_or_else(|| broken("it is empty"))?;
    let kind = FrameKind::from_byte(*kind).ok_or_else(|| broken(&format!("it is of unknown kind {kind}")))?;
    let number = || bytes[1..].try_into().map_err(|_| broken("its content is not 8 bytes long"));
    Ok(match kind {
        FrameKind::Batch => Element::Batch(decode_batch(&bytes, schema)?),
        FrameKind::Watermark => Element::Watermark(Watermark(i64::from_le_bytes(number()?))),
        FrameKind::Idle => Element::Idle,
        FrameKind::Barrier => Element::Barrier(decode_barrier(&bytes[1..]).map_err(broken)?),
        FrameKind::EndOfData => Element::EndOfData,
    })
}

fn decode_batch(bytes: &Bytes, schema: &SchemaRef) -> Result<RecordBatch, FrameError> {
    let broken = |reason: String| FrameError::Broken { bytes: bytes.len(), reason };
    let message = bytes.slice(1..);
    let prefix = message.get(..IPC_PREFIX_BYTES).ok_or_else(|| broken("it is shorter than an IPC message".into()))?;
    let length = u32::from_le_bytes(prefix[4..].try_into().expect("four bytes")) as usize;
    let rest = &message[IPC_PREFIX_BYTES..];
    let metadata = rest.get(..length).ok_or_else(|| broken(format!("its metadata of {length} bytes is cut off")))?;
    let header = root_as_message(metadata).map_err(|error| broken(format!("its metadata cannot be read: {error}")))?;
    let batch = header.header_as_record_batch().ok_or_else(|| broken("its message is not a record batch".into()))?;
    let body = message.slice(IPC_PREFIX_BYTES + length..);
    if header.bodyLength() != body.len() as i64 {
        return Err(broken(format!("its body has {} bytes, not {}", body.len(), header.bodyLength())));
    }
    read_record_batch(&Buffer::from(body), batch, schema.clone(), &HashMap::new(), None, &header.version())
        .map_err(|source| FrameError::Decode { bytes: bytes.len(), source })
}

#[cfg(test)]
mod tests;
