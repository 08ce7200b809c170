//! From a database to a file, batch by batch: its rows come in the order of their key groups already, so one batch of them is in
//! memory at a time.

use std::io::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt16Array};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::encode::{Counted, EncodeError, EncodedState, SizeLimit, Written, described};
use super::groups::{group_field, groups_by_key};
use super::index::{GroupSpan, to_json};
use super::{GROUPS_FIELD, to_metadata};
use crate::row_codec::{RowLayout, to_open};
use crate::snapshot::{DatabaseSnapshot, StateMeta};

/// Writes a keyed state that is in a database as a file, counts bytes and stops above the limit.
///
/// Contract: as of `encode`; blocks until the database is there. Errors: `Database` too.
pub fn encode_database(
    meta: &StateMeta,
    max_parallelism: u32,
    database: &dyn DatabaseSnapshot,
    limit: SizeLimit,
    out: &mut impl Write,
) -> Result<EncodedState, EncodeError> {
    let mut counted = Counted::new(out, limit);
    let written = write(meta, max_parallelism, database, &mut counted);
    counted.encoded(written)
}

/// Visits the database's rows and writes them.
fn write(meta: &StateMeta, max_parallelism: u32, database: &dyn DatabaseSnapshot, out: &mut Counted<'_, impl Write>) -> Written {
    let layout = RowLayout::new(Arc::clone(&meta.schema), max_parallelism);
    let open = to_open(&meta.schema, &RecordBatch::new_empty(Arc::clone(layout.columns()))).schema();
    let fields: Vec<_> = std::iter::once(group_field()).chain(open.fields().iter().cloned()).collect();
    let schema = Arc::new(Schema::new_with_metadata(fields, to_metadata(meta, max_parallelism)));
    let mut writer = FileWriter::try_new(out, &schema)?;
    let (mut spans, mut failure) = (Vec::new(), None);
    let mut batches = 0;
    let visited = database.rows(&meta.name, &mut |piece| {
        let written = with_spans(&to_open(&meta.schema, &piece), &schema, (batches, max_parallelism), &mut spans);
        batches += 1;
        match written.and_then(|batch| writer.write(&batch)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    visited.map_err(EncodeError::Database)?;
    if let Some(error) = failure {
        return Err(error.into());
    }
    writer.write_metadata(GROUPS_FIELD, to_json(&spans));
    writer.finish()?;
    Ok(described(&spans))
}

/// A piece as batch number `batch` of the file, where its groups are noted.
fn with_spans(
    piece: &RecordBatch,
    schema: &SchemaRef,
    (batch, max_parallelism): (u32, u32),
    spans: &mut Vec<GroupSpan>,
) -> Result<RecordBatch, ArrowError> {
    let groups = groups_by_key(piece, max_parallelism);
    let mut row = 0;
    for run in groups.chunk_by(|one, other| one == other) {
        if let Some(last) = spans.last().filter(|last| last.group > run[0]) {
            let reason = format!("a database's rows are out of order: group {} after group {}", run[0], last.group);
            return Err(ArrowError::InvalidArgumentError(reason));
        }
        spans.push(GroupSpan { group: run[0], batch, row, rows: run.len() as u32 });
        row += run.len() as u32;
    }
    let column: ArrayRef = Arc::new(UInt16Array::from(groups));
    let options = RecordBatchOptions::new().with_row_count(Some(piece.num_rows()));
    let columns = std::iter::once(column).chain(piece.columns().iter().cloned()).collect();
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, Weak};

    use arrow::array::Int64Array;
    use bytes::Bytes;
    use levada_common::checkpoint::StateKind;
    use levada_common::ids::Uid;
    use levada_common::keys::KeyGroupRange;
    use levada_common::state_schema::StateSchema;
    use levada_common::types::{Column, LogicalType};

    use super::*;
    use crate::cold::ColdError;
    use crate::format::{decode, decode_range};
    use crate::snapshot::{SnapshotFile, VisitRows};

    const MAX_PARALLELISM: u32 = 16;

    fn meta() -> StateMeta {
        let schema = StateSchema {
            keys: vec![Column::new("k", LogicalType::Int64, true)],
            values: vec![Column::new("n", LogicalType::Int64, true)],
            ..StateSchema::default()
        };
        StateMeta { uid: Uid::new("counts"), name: "n".into(), kind: StateKind::Keyed, schema: Arc::new(schema) }
    }

    /// A database of these keys that counts how many of its batches are held at a time.
    #[derive(Debug)]
    struct Counting {
        batches: Vec<Vec<i64>>,
        given: Mutex<Vec<Weak<Int64Array>>>,
    }

    impl DatabaseSnapshot for Counting {
        fn files(&self) -> Result<Vec<SnapshotFile>, ColdError> {
            Ok(Vec::new())
        }

        fn rows(&self, _state: &str, visit: VisitRows<'_>) -> Result<(), ColdError> {
            let layout = RowLayout::new(meta().schema, MAX_PARALLELISM);
            for keys in &self.batches {
                let held = self.given.lock().unwrap().iter().filter(|given| given.strong_count() > 0).count();
                assert_eq!(held, 0, "batches that were given before are held");
                let column = Arc::new(Int64Array::from(keys.clone()));
                self.given.lock().unwrap().push(Arc::downgrade(&column));
                let columns: Vec<ArrayRef> = vec![Arc::clone(&column) as _, column];
                if visit(RecordBatch::try_new(Arc::clone(layout.columns()), columns).unwrap()).is_break() {
                    break;
                }
            }
            Ok(())
        }

        fn entries(&self, _state: &str) -> u64 {
            0
        }
    }

    /// The keys below `end`, in the order of their groups, in batches of `rows`.
    fn database(end: i64, rows: usize) -> Counting {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..end));
        let mut groups = Vec::new();
        levada_common::keys::key_groups(&[column], MAX_PARALLELISM, &mut groups);
        let mut keys: Vec<(u16, i64)> = groups.into_iter().zip(0..end).collect();
        keys.sort_unstable();
        let batches = keys.chunks(rows).map(|chunk| chunk.iter().map(|(_, key)| *key).collect()).collect();
        Counting { batches, given: Mutex::default() }
    }

    fn encoded(database: &Counting, limit: Option<u64>) -> Result<(EncodedState, Bytes), EncodeError> {
        let mut out = Vec::new();
        let written = encode_database(&meta(), MAX_PARALLELISM, database, SizeLimit { bytes_max: limit }, &mut out)?;
        Ok((written, out.into()))
    }

    #[test]
    fn a_database_of_any_size_is_written_with_one_batch_in_memory_and_read_back_by_groups() {
        for (end, rows) in [(0, 10), (1, 10), (1_000, 7), (1_000, 1_000), (20_000, 512)] {
            let (written, bytes) = encoded(&database(end, rows), None).unwrap();
            assert_eq!((written.rows, written.bytes), (end as u64, bytes.len() as u64));
            assert_eq!(written.crc32c, crc32c::crc32c(&bytes));
            let all = decode(bytes.clone()).unwrap();
            assert_eq!((all.meta, all.max_parallelism), (meta(), MAX_PARALLELISM));
            let mut found = 0;
            for range in [KeyGroupRange { start: 0, end: 4 }, KeyGroupRange { start: 5, end: 15 }] {
                for batch in decode_range(bytes.clone(), range).unwrap().batches {
                    assert!(groups_by_key(&batch, MAX_PARALLELISM).into_iter().all(|group| range.contains(group)));
                    found += batch.num_rows() as i64;
                }
            }
            assert_eq!(found, end);
        }
    }

    #[test]
    fn it_ends_at_the_limit_without_reading_the_rest() {
        let whole = encoded(&database(20_000, 512), None).unwrap().0.bytes;
        assert!(encoded(&database(20_000, 512), Some(whole)).is_ok());
        let short = encoded(&database(20_000, 512), Some(whole - 1)).unwrap_err();
        assert!(matches!(short, EncodeError::TooLarge { .. }), "{short}");
        let database = database(20_000, 512);
        encoded(&database, Some(10_000)).unwrap_err();
        assert!(database.given.lock().unwrap().len() < 5);
    }

    #[test]
    fn rows_out_of_order_are_no_database() {
        let mut database = database(1_000, 100);
        database.batches.reverse();
        let error = encoded(&database, None).unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().to_string().contains("out of order"), "{error}");
    }
}
