//! From the pieces of a snapshot to a file, counted while it is written.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt16Array};
use arrow::compute::interleave;
use arrow::datatypes::{Schema, SchemaRef};
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

/// Bytes of values that are sorted at once.
const RUN_BYTES_MIN: usize = 32 << 20;

/// Or this part of what came before them, where that is more: whoever reads groups in order holds a batch of each run.
const RUN_SHARE: u64 = 16;

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
    Arrow(#[from] ArrowError),
}

/// Writes a state as a file, piece by piece as they come: sorts by key group as many of them as a run has, counts bytes and stops
/// above the limit.
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
    encode_in_runs(meta, max_parallelism, pieces, limit, out, RUN_BYTES_MIN)
}

fn encode_in_runs(
    meta: &StateMeta,
    max_parallelism: u32,
    reader: PieceReader,
    limit: SizeLimit,
    out: &mut impl Write,
    run_bytes_min: usize,
) -> Result<EncodedState, EncodeError> {
    let mut counted = Counted::new(out, limit);
    let pieces = Pieces { reader, bytes: 0, bytes_max: counted.bytes_max, run_bytes_min };
    let written = match meta.kind {
        StateKind::Keyed => write_keyed(meta, max_parallelism, pieces, &mut counted),
        StateKind::OperatorList | StateKind::OperatorUnion | StateKind::OperatorBroadcast => {
            write_list(meta, max_parallelism, pieces, &mut counted)
        }
    };
    counted.encoded(written)
}

/// The pieces of a state, which end with an error as soon as their values alone are over the limit.
struct Pieces {
    reader: PieceReader,
    /// Bytes of values of all that came.
    bytes: u64,
    bytes_max: u64,
    run_bytes_min: usize,
}

impl Pieces {
    fn next(&mut self) -> Result<Option<RecordBatch>, EncodeError> {
        let Some(piece) = self.reader.next().transpose()? else { return Ok(None) };
        self.bytes += value_bytes(&piece) as u64;
        if self.bytes > self.bytes_max {
            return Err(EncodeError::TooLarge { counted: self.bytes, limit: self.bytes_max });
        }
        Ok(Some(piece))
    }

    /// Pieces that are sorted together: more the more came before, so that a large state has few runs.
    fn next_run(&mut self) -> Result<Vec<RecordBatch>, EncodeError> {
        let start = self.bytes;
        let enough = (self.run_bytes_min as u64).max(start / RUN_SHARE);
        let mut run = Vec::new();
        while self.bytes - start < enough {
            match self.next()? {
                Some(piece) => run.push(piece),
                None => break,
            }
        }
        Ok(run)
    }
}

/// Bytes of the values of a piece: never more than what a file needs for it.
fn value_bytes(piece: &RecordBatch) -> usize {
    piece.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or_default()).sum()
}

/// Rows that were written, and from the least to the greatest of their key groups.
pub(super) type Written = Result<(u64, Option<KeyGroupRange>), EncodeError>;

fn write_list(meta: &StateMeta, max_parallelism: u32, mut pieces: Pieces, out: &mut Counted<'_, impl Write>) -> Written {
    let columns = operator_schema(&meta.schema).fields().clone();
    let schema = Arc::new(Schema::new_with_metadata(columns, to_metadata(meta, max_parallelism)));
    let mut writer = FileWriter::try_new(out, &schema)?;
    let mut rows = 0;
    while let Some(piece) = pieces.next()? {
        rows += piece.num_rows() as u64;
        let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
        writer.write(&RecordBatch::try_new_with_options(Arc::clone(&schema), piece.columns().to_vec(), &options)?)?;
    }
    writer.finish()?;
    Ok((rows, None))
}

fn write_keyed(meta: &StateMeta, max_parallelism: u32, mut pieces: Pieces, out: &mut Counted<'_, impl Write>) -> Written {
    let mut run = pieces.next_run()?;
    let schema = keyed_schema(run.first(), to_metadata(meta, max_parallelism));
    let mut writer = FileWriter::try_new(out, &schema)?;
    let (mut spans, mut batches) = (Vec::new(), 0);
    while !run.is_empty() {
        let sorted = SortedRows::new(&run, max_parallelism);
        for range in sorted.cut(batch_rows(&run)) {
            sorted.describe(batches, range.clone(), &mut spans);
            writer.write(&sorted.take(range, &schema)?)?;
            batches += 1;
        }
        // Before the next ones come.
        run.clear();
        run = pieces.next_run()?;
    }
    writer.write_metadata(GROUPS_FIELD, to_json(&spans));
    writer.finish()?;
    Ok(described(&spans))
}

/// The number of rows that an index has, and their groups.
pub(super) fn described(spans: &[GroupSpan]) -> (u64, Option<KeyGroupRange>) {
    let groups = || spans.iter().map(|span| span.group);
    let range = groups().min().zip(groups().max()).map(|(start, end)| KeyGroupRange { start, end });
    (spans.iter().map(|span| u64::from(span.rows)).sum(), range)
}

/// The schema of a file of keyed state; only the column of groups where there is no row.
fn keyed_schema(piece: Option<&RecordBatch>, metadata: std::collections::HashMap<String, String>) -> SchemaRef {
    let columns = piece.into_iter().flat_map(|piece| piece.schema().fields().iter().cloned().collect::<Vec<_>>());
    Arc::new(Schema::new_with_metadata(std::iter::once(group_field()).chain(columns).collect::<Vec<_>>(), metadata))
}

/// Rows of a batch so that it has about `BATCH_BYTES`.
fn batch_rows(run: &[RecordBatch]) -> usize {
    let rows = run.iter().map(RecordBatch::num_rows).sum::<usize>().max(1);
    let bytes: usize = run.iter().map(value_bytes).sum();
    (BATCH_BYTES / bytes.div_ceil(rows).max(1)).clamp(1, BATCH_ROWS_MAX)
}

/// The rows of a run in the order of their groups; rows of a group stay in the order in which they came.
struct SortedRows<'a> {
    run: &'a [RecordBatch],
    /// A row's piece, and its place there.
    rows: Vec<(u32, u32)>,
    /// Where each group that has rows ends in `rows`, ascending.
    groups: Vec<(u16, usize)>,
}

impl<'a> SortedRows<'a> {
    fn new(run: &'a [RecordBatch], max_parallelism: u32) -> Self {
        let groups: Vec<Vec<u16>> = run.iter().map(|piece| groups_by_key(piece, max_parallelism)).collect();
        let mut ends = vec![0usize; max_parallelism as usize + 1];
        groups.iter().flatten().for_each(|group| ends[usize::from(*group) + 1] += 1);
        for group in 1..ends.len() {
            ends[group] += ends[group - 1];
        }
        let starts = ends.clone();
        let mut rows = vec![(0, 0); ends[max_parallelism as usize]];
        for (piece, groups) in groups.iter().enumerate() {
            for (row, group) in groups.iter().enumerate() {
                let next = &mut ends[usize::from(*group)];
                rows[*next] = (piece as u32, row as u32);
                *next += 1;
            }
        }
        let groups = (0..max_parallelism as usize).filter(|group| starts[*group] < starts[*group + 1]);
        let groups = groups.map(|group| (group as u16, starts[group + 1])).collect();
        Self { run, rows, groups }
    }

    /// Cuts the rows into batches of about `rows_max`: after a group where one ends, within a group where it is larger.
    fn cut(&self, rows_max: usize) -> Vec<Range<usize>> {
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
    fn describe(&self, batch: u32, rows: Range<usize>, spans: &mut Vec<GroupSpan>) {
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

    /// The rows at these places, with their groups before their columns.
    fn take(&self, places: Range<usize>, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let mut groups = Vec::with_capacity(places.len());
        let mut of_places = Vec::new();
        self.describe(0, places.clone(), &mut of_places);
        of_places.iter().for_each(|span| groups.extend(std::iter::repeat_n(span.group, span.rows as usize)));
        let rows: Vec<_> = self.rows[places].iter().map(|(piece, row)| (*piece as usize, *row as usize)).collect();
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt16Array::from(groups))];
        for column in 0..schema.fields().len() - 1 {
            let of_pieces: Vec<&dyn Array> = self.run.iter().map(|piece| piece.column(column).as_ref()).collect();
            columns.push(interleave(&of_pieces, &rows)?);
        }
        RecordBatch::try_new(Arc::clone(schema), columns)
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
    pub(super) fn encoded(self, written: Written) -> Result<EncodedState, EncodeError> {
        match (written, self.failure) {
            (_, Some(WriteFailure::TooLarge)) => Err(EncodeError::TooLarge { counted: self.bytes, limit: self.bytes_max }),
            (_, Some(WriteFailure::Io(error))) => Err(EncodeError::Write(error)),
            (Err(error), None) => Err(error),
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

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use bytes::Bytes;
    use levada_common::ids::Uid;
    use levada_common::keys::KeyGroupRange;

    use super::super::{KEY_GROUP_COLUMN, Layout, TRAILER_BYTES, decode, decode_range, footer_range};
    use super::*;
    use crate::snapshot::ready;

    /// Pieces of 100 keys each, in which keys are numbered in the order in which they come.
    fn pieces(rows: i64) -> Vec<RecordBatch> {
        let piece = |start: i64| {
            let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((start..rows.min(start + 100)).map(|n| n % 50)));
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(start..rows.min(start + 100)));
            RecordBatch::try_from_iter([("key.k", keys), ("n", numbers)]).expect("columns of one length")
        };
        (0..rows).step_by(100).map(piece).collect()
    }

    fn encoded(rows: i64, run_bytes_min: usize) -> (EncodedState, Bytes) {
        let meta = StateMeta { uid: Uid::new("counts"), name: "n".into(), kind: StateKind::Keyed, schema: Arc::default() };
        let (limit, mut out) = (SizeLimit { bytes_max: None }, Vec::new());
        let written = encode_in_runs(&meta, 16, ready(pieces(rows)), limit, &mut out, run_bytes_min).expect("encoded");
        (written, out.into())
    }

    fn numbers(batch: &RecordBatch) -> (Vec<u16>, Vec<i64>) {
        let groups = batch.column_by_name(KEY_GROUP_COLUMN).expect("groups").as_primitive::<arrow::datatypes::UInt16Type>();
        let numbers = batch.column_by_name("n").expect("numbers").as_primitive::<Int64Type>();
        (groups.values().to_vec(), numbers.values().to_vec())
    }

    fn layout(file: &Bytes) -> Layout {
        let length = file.len() as u64;
        let footer = footer_range(&file[file.len() - TRAILER_BYTES as usize..], length).expect("a footer");
        Layout::read(&file[footer.start as usize..footer.end as usize], length).expect("it is read")
    }

    #[test]
    fn runs_are_read_back_in_the_order_of_groups_and_of_arrival_with_one_batch_of_each_run_in_memory() {
        for (rows, run_bytes_min) in [(0, 1), (1, 1), (1_000, 1), (5_000, 1), (5_000, 10_000), (5_000, 1 << 20)] {
            let (written, file) = encoded(rows, run_bytes_min);
            assert_eq!((written.rows, written.bytes), (rows as u64, file.len() as u64));
            assert_eq!(
                decode(file.clone()).expect("decoded").batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
                rows as usize
            );
            let layout = layout(&file);
            assert!(rows < 5_000 || run_bytes_min > 10_000 || layout.batches() > 5, "{} batches", layout.batches());
            let (mut wanted, mut read) = (layout.rows_of(None).expect("an index"), vec![0; layout.batches()]);
            let (mut groups, mut values) = (Vec::new(), Vec::new());
            loop {
                if let Some(batch) = wanted.missing() {
                    read[batch] += 1;
                    let range = layout.range(batch);
                    let bytes = file.slice(range.start as usize..range.end as usize);
                    wanted.put(batch, layout.decode(batch, bytes).expect("decoded"));
                }
                let Some(rows) = wanted.next_rows().expect("the rows are there") else { break };
                let (of_rows, numbers) = numbers(&rows);
                groups.extend(of_rows);
                values.extend(numbers);
            }
            assert!(read.iter().all(|times| *times == 1), "{read:?}");
            let order: Vec<(u16, i64)> = groups.into_iter().zip(values).collect();
            assert!(order.is_sorted() && order.len() == rows as usize, "{order:?}");
        }
    }

    #[test]
    fn a_range_of_groups_is_read_from_every_run() {
        let (_, file) = encoded(5_000, 1);
        let whole = decode(file.clone()).expect("decoded").batches;
        for (start, end) in [(0, 15), (3, 3), (7, 12)] {
            let range = KeyGroupRange { start, end };
            let all = |batches: &[RecordBatch]| {
                let rows = batches.iter().map(numbers).flat_map(|(groups, numbers)| groups.into_iter().zip(numbers));
                let mut rows: Vec<(u16, i64)> = rows.filter(|(group, _)| range.contains(*group)).collect();
                rows.sort_unstable();
                rows
            };
            let part = decode_range(file.clone(), range).expect("decoded").batches;
            assert_eq!(all(&part), all(&whole));
            assert_eq!(part.iter().map(RecordBatch::num_rows).sum::<usize>(), all(&whole).len());
        }
    }
}
