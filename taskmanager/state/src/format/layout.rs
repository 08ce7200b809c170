//! A state's file read in parts: first its end, then the batches that are wanted, each by its range of bytes; rows come in the
//! order of key groups, whatever runs the file has.
//!
//! Does no IO: the caller fetches what `footer_range` and `Layout::range` name. So a state of any size is looked through with
//! one batch of it in memory.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, root_as_footer};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use levada_common::keys::KeyGroupRange;

use super::index::{GroupSpan, from_json, spans_by_group};
use super::{DecodeError, GROUPS_FIELD, from_metadata};
use crate::snapshot::StateMeta;

/// Bytes at a file's end that tell where its footer is.
pub const TRAILER_BYTES: u64 = 10;

/// Least bytes of a batch's header.
const HEADER_BYTES_MIN: i32 = 8;

/// Where the footer of a file of `file_bytes` stands, whose last `TRAILER_BYTES` are `trailer`.
pub fn footer_range(trailer: &[u8], file_bytes: u64) -> Result<Range<u64>, DecodeError> {
    let fail = |reason: &str| failed(file_bytes, ArrowError::ParseError(reason.into()));
    let trailer: [u8; TRAILER_BYTES as usize] = trailer.try_into().map_err(|_| fail("the end of the file is not there"))?;
    let length = read_footer_length(trailer).map_err(|source| failed(file_bytes, source))? as u64;
    let end = file_bytes.saturating_sub(TRAILER_BYTES);
    let start = end.checked_sub(length).ok_or_else(|| fail("the footer is longer than the file"))?;
    Ok(start..end)
}

/// Rows of one batch of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BatchRows {
    batch: usize,
    row: usize,
    /// `None` = all that follow.
    rows: Option<usize>,
}

/// Rows of a file on their way out, in an order of which its batches need not be: one that has further rows is kept until those
/// are out, of each run of the file one.
#[derive(Debug)]
pub struct WantedRows {
    rows: VecDeque<BatchRows>,
    /// How often each batch is needed still.
    uses: HashMap<usize, usize>,
    kept: HashMap<usize, RecordBatch>,
}

impl WantedRows {
    fn new(rows: Vec<BatchRows>) -> Self {
        let mut uses = HashMap::new();
        rows.iter().for_each(|rows| *uses.entry(rows.batch).or_default() += 1);
        Self { rows: rows.into(), uses, kept: HashMap::new() }
    }

    /// The batch, by its place in the file, that has to be given to `put` before `next_rows` is called.
    pub fn missing(&self) -> Option<usize> {
        self.rows.front().map(|rows| rows.batch).filter(|batch| !self.kept.contains_key(batch))
    }

    /// Takes a batch that was missing.
    pub fn put(&mut self, batch: usize, rows: RecordBatch) {
        self.kept.insert(batch, rows);
    }

    /// The next rows, `None` after the last.
    ///
    /// Contract: none is missing. Errors: a batch has fewer rows than the index says.
    pub fn next_rows(&mut self) -> Result<Option<RecordBatch>, DecodeError> {
        let Some(BatchRows { batch, row, rows }) = self.rows.pop_front() else { return Ok(None) };
        let uses = self.uses.entry(batch).or_default();
        *uses = uses.saturating_sub(1);
        let whole = if *uses == 0 { self.kept.remove(&batch) } else { self.kept.get(&batch).cloned() };
        let whole = whole.expect("a missing batch is put before its rows are asked for");
        let rows = rows.unwrap_or(whole.num_rows().saturating_sub(row));
        if row + rows > whole.num_rows() {
            return Err(DecodeError::Metadata { field: GROUPS_FIELD, found: "rows that are not there".into() });
        }
        Ok(Some(whole.slice(row, rows)))
    }
}

/// What a file's footer says.
#[derive(Debug)]
pub struct Layout {
    meta: StateMeta,
    max_parallelism: u32,
    schema: SchemaRef,
    decoder: FileDecoder,
    blocks: Vec<Block>,
    spans: Option<Vec<GroupSpan>>,
    file_bytes: u64,
}

impl Layout {
    /// Reads the footer of a file of `file_bytes`.
    pub fn read(footer: &[u8], file_bytes: u64) -> Result<Self, DecodeError> {
        let fail = |reason: String| failed(file_bytes, ArrowError::ParseError(reason));
        let data_end = file_bytes.saturating_sub(TRAILER_BYTES + footer.len() as u64);
        let footer = root_as_footer(footer).map_err(|error| fail(format!("bad footer: {error}")))?;
        let schema = footer.schema().ok_or_else(|| fail("the footer has no schema".into()))?;
        let schema = Arc::new(fb_to_schema(schema));
        let (meta, max_parallelism) = from_metadata(schema.metadata())?;
        if footer.dictionaries().is_some_and(|dictionaries| !dictionaries.is_empty()) {
            return Err(fail("states have no dictionaries".into()));
        }
        let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
        for block in &blocks {
            let inside = range_of(block).is_some_and(|range| range.end <= data_end);
            if !inside || block.metaDataLength() < HEADER_BYTES_MIN {
                return Err(fail("the footer names a batch that is not in the file".into()));
            }
        }
        let pairs = footer.custom_metadata();
        let groups = pairs.iter().flatten().find(|pair| pair.key() == Some(GROUPS_FIELD)).and_then(|pair| pair.value());
        let bad = || DecodeError::Metadata { field: GROUPS_FIELD, found: "no list of [group, batch, row, rows]".into() };
        let spans = groups.map(|groups| from_json(groups).ok_or_else(bad)).transpose()?;
        let decoder = FileDecoder::new(Arc::clone(&schema), footer.version());
        Ok(Self { meta, max_parallelism, schema, decoder, blocks, spans, file_bytes })
    }

    /// The state's name and kind.
    pub fn meta(&self) -> &StateMeta {
        &self.meta
    }

    /// Number of key groups of the job that wrote it.
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// The columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of batches.
    pub fn batches(&self) -> usize {
        self.blocks.len()
    }

    /// The bytes of a batch.
    ///
    /// Contract: `batch < batches()`.
    pub fn range(&self, batch: usize) -> Range<u64> {
        range_of(&self.blocks[batch]).expect("it was checked when the footer was read")
    }

    /// Where each key group's rows stand; `None` for operator state.
    pub fn spans(&self) -> Option<&[GroupSpan]> {
        self.spans.as_deref()
    }

    /// The rows of the groups in `range`, of all where it is `None`, in the order of groups; operator state as it stands.
    pub fn rows_of(&self, range: Option<KeyGroupRange>) -> Result<WantedRows, DecodeError> {
        let rows: Vec<BatchRows> = match self.spans.as_deref() {
            None => (0..self.blocks.len()).map(|batch| BatchRows { batch, row: 0, rows: None }).collect(),
            Some(spans) => {
                let rows = spans_by_group(spans, range).into_iter();
                rows.map(|(batch, row, rows)| BatchRows { batch: batch as usize, row: row as usize, rows: Some(rows as usize) })
                    .collect()
            }
        };
        if rows.iter().any(|rows| rows.batch >= self.blocks.len()) {
            return Err(DecodeError::Metadata { field: GROUPS_FIELD, found: "a batch that is not there".into() });
        }
        Ok(WantedRows::new(rows))
    }

    /// Decodes a batch from its bytes.
    ///
    /// Contract: `bytes` are those of `range(batch)`, their checksum compared before.
    pub fn decode(&self, batch: usize, bytes: Bytes) -> Result<RecordBatch, DecodeError> {
        let (found, wanted) = (bytes.len() as u64, self.range(batch));
        if found != wanted.end - wanted.start {
            return Err(failed(self.file_bytes, ArrowError::IpcError(format!("batch {batch} has {found} bytes"))));
        }
        let decoded = self.decoder.read_record_batch(&self.blocks[batch], &Buffer::from(bytes));
        let decoded = decoded.map_err(|source| failed(self.file_bytes, source))?;
        decoded.ok_or_else(|| failed(self.file_bytes, ArrowError::IpcError(format!("batch {batch} is empty"))))
    }
}

fn failed(file_bytes: u64, source: ArrowError) -> DecodeError {
    DecodeError::Arrow { bytes: file_bytes as usize, source }
}

/// `None` where the numbers are none that a file can have.
fn range_of(block: &Block) -> Option<Range<u64>> {
    let start = u64::try_from(block.offset()).ok()?;
    let length = u64::try_from(block.metaDataLength()).ok()?.checked_add(u64::try_from(block.bodyLength()).ok()?)?;
    Some(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, StringArray};
    use levada_common::checkpoint::StateKind;
    use levada_common::ids::Uid;

    use super::super::{SizeLimit, decode, decode_range, encode};
    use super::*;
    use crate::snapshot::ready;

    fn encoded(kind: StateKind, rows: RecordBatch) -> Bytes {
        let meta = StateMeta { uid: Uid::new("counts"), name: "count".into(), kind, schema: Arc::default() };
        let mut out = Vec::new();
        encode(&meta, 128, ready([rows]), SizeLimit { bytes_max: None }, &mut out).expect("it is encoded");
        out.into()
    }

    fn keyed(rows: i64) -> RecordBatch {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values((0..rows).map(|id| "x".repeat(id as usize % 90))));
        RecordBatch::try_from_iter([("key.id", ids), ("text", texts)]).expect("columns of one length")
    }

    fn layout(file: &Bytes) -> Layout {
        let bytes = file.len() as u64;
        let footer = footer_range(&file[file.len() - TRAILER_BYTES as usize..], bytes).expect("a footer");
        Layout::read(&file[footer.start as usize..footer.end as usize], bytes).expect("it is read")
    }

    fn rows(file: &Bytes, layout: &Layout, range: Option<KeyGroupRange>) -> Vec<RecordBatch> {
        let mut wanted = layout.rows_of(range).expect("rows");
        let next = || {
            if let Some(batch) = wanted.missing() {
                let range = layout.range(batch);
                let rows = layout.decode(batch, file.slice(range.start as usize..range.end as usize)).expect("decoded");
                wanted.put(batch, rows);
            }
            wanted.next_rows().expect("the rows are there")
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn parts_are_what_the_whole_file_has() {
        let file = encoded(StateKind::Keyed, keyed(100_000));
        let layout = layout(&file);
        assert!(layout.batches() > 2, "{} batches", layout.batches());
        assert_eq!(rows(&file, &layout, None), decode(file.clone()).expect("decoded").batches);
        for (start, end) in [(0, 127), (3, 3), (60, 90)] {
            let range = KeyGroupRange { start, end };
            let whole = decode_range(file.clone(), range).expect("decoded");
            assert_eq!(rows(&file, &layout, Some(range)), whole.batches);
            assert_eq!((layout.meta(), layout.max_parallelism()), (&whole.meta, whole.max_parallelism));
        }
    }

    #[test]
    fn operator_state_is_read_whole() {
        let entries: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        let file = encoded(StateKind::OperatorList, RecordBatch::try_from_iter([("entry", entries)]).expect("a column"));
        let layout = layout(&file);
        assert!(layout.spans().is_none());
        let all = rows(&file, &layout, Some(KeyGroupRange { start: 5, end: 6 }));
        assert_eq!(all.iter().map(RecordBatch::num_rows).sum::<usize>(), 2);
    }

    #[test]
    fn what_is_no_file_is_refused() {
        for (trailer, bytes) in
            [(&b""[..], 0), (b"0123456789", 10), (b"\xff\xff\xff\x7fARROW1", 100), (b"\xff\xff\xff\xffARROW1", 9)]
        {
            assert!(footer_range(trailer, bytes).is_err(), "{trailer:?}");
        }
        let file = encoded(StateKind::Keyed, keyed(10));
        let whole = layout(&file);
        let bytes = file.len() as u64;
        let footer = footer_range(&file[file.len() - 10..], bytes).expect("a footer");
        let footer = &file[footer.start as usize..footer.end as usize];
        assert!(Layout::read(&footer[..footer.len() / 2], bytes).is_err());
        assert!(Layout::read(footer, footer.len() as u64 + 20).is_err(), "batches beyond the file's end");
        assert!(whole.decode(0, Bytes::from_static(b"short")).is_err());
    }
}
