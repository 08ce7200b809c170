//! From the pieces of a snapshot to a file, counted while it is written.

use std::io::{self, Write};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt16Array};
use arrow::compute::interleave_record_batch;
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::checkpoint::StateKind;
use levada_common::keys::KeyGroupRange;

use super::groups::{group_field, groups_by_key};
use super::index::{GroupSpan, to_json};
use super::{GROUPS_FIELD, operator_schema, to_metadata};
use crate::cold::ColdError;
use crate::snapshot::{PieceReader, SnapshotAbandoned, StateMeta};

/// Bytes of values that a batch of a file has, as far as rows allow.
const BATCH_BYTES: usize = 1 << 20;

/// Most rows of a batch of a file.
const BATCH_ROWS_MAX: usize = 32_768;

/// How large an encoded state may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    /// Most bytes; `None` = no limit.
    pub bytes_max: Option<u64>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedState {
    /// Rows in it.
    pub rows: u64,
    /// Its bytes.
    pub bytes: u64,
    /// CRC-32C of its bytes.
    pub crc32c: u32,
    /// From the least to the greatest key group in it; `None` for operator state and for no rows.
    pub key_groups: Option<KeyGroupRange>,
}

/// Why a state could not be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It is over the limit; encoding stopped there.
    #[error("the state has at least {counted} bytes, over the limit of {limit} bytes")]
    TooLarge {
        /// Bytes counted.
        counted: u64,
        /// The limit.
        limit: u64,
    },
    /// The task gave the snapshot up.
    #[error(transparent)]
    Abandoned(#[from] SnapshotAbandoned),
    /// The output failed.
    #[error("writing the encoded state failed")]
    Write(#[source] io::Error),
    /// The database that the state is in cannot be read.
    #[error(transparent)]
    Database(ColdError),
    /// Arrow refused.
    #[error("encoding the state failed")]
    Arrow(#[source] ArrowError),
}

/// Writes a state as a file: waits for all its pieces, sorts them by key group, counts bytes and stops above the limit.
///
/// Contract: blocks for the task's pieces; never call it on a task's thread. A `limit` of n bytes lets n bytes pass. After an
/// error `out` holds a part of a file, to be thrown away.
pub fn encode(
    meta: &StateMeta,
    max_parallelism: u32,
    pieces: PieceReader,
    limit: SizeLimit,
    out: &mut impl Write,
) -> Result<EncodedState, EncodeError> {
    let mut counted = Counted::new(out, limit);
    let pieces = collect(pieces, counted.bytes_max)?;
    let written = match meta.kind {
        StateKind::Keyed => write_keyed(meta, max_parallelism, &pieces, &mut counted),
        StateKind::OperatorList | StateKind::OperatorUnion | StateKind::OperatorBroadcast => {
            write_list(meta, max_parallelism, &pieces, &mut counted)
        }
    };
    let rows = pieces.iter().map(|piece| piece.num_rows() as u64).sum();
    counted.encoded(written.map(|key_groups| (rows, key_groups)))
}

/// Waits for all pieces; stops as soon as their values alone are over the limit.
fn collect(reader: PieceReader, bytes_max: u64) -> Result<Vec<RecordBatch>, EncodeError> {
    let (mut pieces, mut bytes) = (Vec::new(), 0);
    for piece in reader {
        let piece = piece?;
        bytes += value_bytes(&piece) as u64;
        if bytes > bytes_max {
            return Err(EncodeError::TooLarge { counted: bytes, limit: bytes_max });
        }
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Bytes of the fixed-width values and the text of a piece: never more than what a file needs for it.
fn value_bytes(piece: &RecordBatch) -> usize {
    piece.columns().iter().map(column_bytes).sum()
}

fn column_bytes(column: &ArrayRef) -> usize {
    let data = column.to_data();
    match column.data_type() {
        DataType::Utf8 | DataType::Binary => {
            let offsets = &data.buffers()[0].typed_data::<i32>()[data.offset()..];
            (offsets[data.len()] - offsets[0]) as usize
        }
        DataType::Struct(_) => {
            let columns = arrow::array::AsArray::as_struct(column).columns();
            columns.iter().map(column_bytes).sum()
        }
        other => other.primitive_width().unwrap_or(0) * column.len(),
    }
}

fn write_list(
    meta: &StateMeta,
    max_parallelism: u32,
    pieces: &[RecordBatch],
    out: &mut Counted<'_, impl Write>,
) -> Result<Option<KeyGroupRange>, ArrowError> {
    let columns = operator_schema(&meta.schema).fields().clone();
    let schema = Arc::new(Schema::new_with_metadata(columns, to_metadata(meta, max_parallelism)));
    let mut writer = FileWriter::try_new(out, &schema)?;
    for piece in pieces {
        let rows = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
        writer.write(&RecordBatch::try_new_with_options(Arc::clone(&schema), piece.columns().to_vec(), &rows)?)?;
    }
    writer.finish()?;
    Ok(None)
}

fn write_keyed(
    meta: &StateMeta,
    max_parallelism: u32,
    pieces: &[RecordBatch],
    out: &mut Counted<'_, impl Write>,
) -> Result<Option<KeyGroupRange>, ArrowError> {
    let schema = keyed_schema(pieces.first(), to_metadata(meta, max_parallelism));
    let mut writer = FileWriter::try_new(out, &schema)?;
    let pieces = pieces.iter().map(|piece| with_groups(piece, &schema, max_parallelism)).collect::<Result<Vec<_>, _>>()?;
    let sorted = SortedRows::new(&pieces, max_parallelism);
    let borrowed: Vec<&RecordBatch> = pieces.iter().collect();
    let mut spans = Vec::new();
    for (batch, rows) in sorted.cut(batch_rows(&pieces)).into_iter().enumerate() {
        sorted.describe(batch as u32, rows.clone(), &mut spans);
        writer.write(&interleave_record_batch(&borrowed, &sorted.places(rows))?)?;
    }
    writer.write_metadata(GROUPS_FIELD, to_json(&spans));
    writer.finish()?;
    Ok(spans.first().zip(spans.last()).map(|(first, last)| KeyGroupRange { start: first.group, end: last.group }))
}

/// The schema of a file of keyed state; only the column of groups where there is no row.
fn keyed_schema(piece: Option<&RecordBatch>, metadata: std::collections::HashMap<String, String>) -> SchemaRef {
    let columns = piece.into_iter().flat_map(|piece| piece.schema().fields().iter().cloned().collect::<Vec<_>>());
    Arc::new(Schema::new_with_metadata(std::iter::once(group_field()).chain(columns).collect::<Vec<_>>(), metadata))
}

/// Puts the rows' key groups before their columns.
fn with_groups(piece: &RecordBatch, schema: &SchemaRef, max_parallelism: u32) -> Result<RecordBatch, ArrowError> {
    let group: ArrayRef = Arc::new(UInt16Array::from(groups_by_key(piece, max_parallelism)));
    RecordBatch::try_new(Arc::clone(schema), std::iter::once(group).chain(piece.columns().iter().cloned()).collect())
}

/// Rows of a batch so that it has about `BATCH_BYTES`.
fn batch_rows(pieces: &[RecordBatch]) -> usize {
    let rows: usize = pieces.iter().map(RecordBatch::num_rows).sum();
    let bytes: usize = pieces.iter().map(value_bytes).sum();
    (BATCH_BYTES / bytes.div_ceil(rows.max(1)).max(1)).clamp(1, BATCH_ROWS_MAX)
}

/// The rows of all pieces in the order of their groups; rows of a group stay in the order in which they came.
struct SortedRows {
    /// Piece and row.
    places: Vec<(u32, u32)>,
    /// Where each group that has rows ends in `places`, ascending.
    groups: Vec<(u16, usize)>,
}

impl SortedRows {
    fn new(pieces: &[RecordBatch], max_parallelism: u32) -> Self {
        let groups_of = |piece: &RecordBatch| {
            let groups = arrow::array::AsArray::as_primitive::<arrow::datatypes::UInt16Type>(piece.column(0));
            groups.values().clone()
        };
        let mut ends = vec![0usize; max_parallelism as usize + 1];
        for piece in pieces {
            groups_of(piece).iter().for_each(|group| ends[usize::from(*group) + 1] += 1);
        }
        for group in 1..ends.len() {
            ends[group] += ends[group - 1];
        }
        let starts = ends.clone();
        let mut places = vec![(0, 0); ends[ends.len() - 1]];
        for (at, piece) in pieces.iter().enumerate() {
            for (row, group) in groups_of(piece).iter().enumerate() {
                let next = &mut ends[usize::from(*group)];
                places[*next] = (at as u32, row as u32);
                *next += 1;
            }
        }
        let groups = (0..max_parallelism as usize).filter(|group| starts[*group] < starts[*group + 1]);
        let groups = groups.map(|group| (group as u16, starts[group + 1])).collect();
        Self { places, groups }
    }

    /// Cuts the rows into batches of about `rows_max`: after a group where one ends, within a group where it is larger.
    fn cut(&self, rows_max: usize) -> Vec<std::ops::Range<usize>> {
        let (mut batches, mut start, mut end) = (Vec::new(), 0, 0);
        for (_, group_end) in &self.groups {
            if *group_end - start > rows_max && end > start {
                batches.push(start..end);
                start = end;
            }
            while *group_end - start > rows_max {
                batches.push(start..start + rows_max);
                start += rows_max;
            }
            end = *group_end;
        }
        if end > start {
            batches.push(start..end);
        }
        batches
    }

    /// Appends which groups the rows `rows`, batch number `batch`, belong to.
    fn describe(&self, batch: u32, rows: std::ops::Range<usize>, spans: &mut Vec<GroupSpan>) {
        let first = self.groups.partition_point(|(_, end)| *end <= rows.start);
        let mut row = rows.start;
        for (group, end) in &self.groups[first..] {
            if row >= rows.end {
                break;
            }
            let until = (*end).min(rows.end);
            spans.push(GroupSpan { group: *group, batch, row: (row - rows.start) as u32, rows: (until - row) as u32 });
            row = until;
        }
    }

    fn places(&self, rows: std::ops::Range<usize>) -> Vec<(usize, usize)> {
        self.places[rows].iter().map(|(piece, row)| (*piece as usize, *row as usize)).collect()
    }
}

/// Why a write through `Counted` failed.
enum WriteFailure {
    TooLarge,
    Io(io::Error),
}

/// Counts and sums what goes through, and refuses what is over the limit.
pub(super) struct Counted<'a, W> {
    out: &'a mut W,
    bytes: u64,
    crc32c: u32,
    bytes_max: u64,
    failure: Option<WriteFailure>,
}

impl<'a, W: Write> Counted<'a, W> {
    pub(super) fn new(out: &'a mut W, limit: SizeLimit) -> Self {
        Self { out, bytes: 0, crc32c: 0, bytes_max: limit.bytes_max.unwrap_or(u64::MAX), failure: None }
    }

    /// What came of writing the number of rows with these groups: what went wrong here says more than what Arrow makes of it.
    pub(super) fn encoded(self, written: Result<(u64, Option<KeyGroupRange>), ArrowError>) -> Result<EncodedState, EncodeError> {
        match (written, self.failure) {
            (_, Some(WriteFailure::TooLarge)) => Err(EncodeError::TooLarge { counted: self.bytes, limit: self.bytes_max }),
            (_, Some(WriteFailure::Io(error))) => Err(EncodeError::Write(error)),
            (Err(error), None) => Err(EncodeError::Arrow(error)),
            (Ok((rows, key_groups)), None) => Ok(EncodedState { rows, bytes: self.bytes, crc32c: self.crc32c, key_groups }),
        }
    }
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.bytes += data.len() as u64;
        if self.bytes > self.bytes_max {
            self.failure = Some(WriteFailure::TooLarge);
            return Err(io::Error::other("over the limit"));
        }
        if let Err(error) = self.out.write_all(data) {
            let kind = error.kind();
            self.failure = Some(WriteFailure::Io(error));
            return Err(kind.into());
        }
        self.crc32c = crc32c::crc32c_append(self.crc32c, data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
