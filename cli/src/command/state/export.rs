//! `levada state export`: the rows of a state as a Parquet file.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_state::format::{ENTRY_COLUMN, KEY_GROUP_COLUMN};
use levada_state::row_codec::RowLayout;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::ExportArguments;
use super::show::Wanted;
use crate::progress::count;
use crate::snapshot::{OperatorState, Snapshot};

/// Bytes of a row group that are held before it is written.
const ROW_GROUP_BYTES: usize = 64 << 20;

/// Writes the file: beside its place first, so that no half of it is ever there.
pub async fn export(snapshot: &Snapshot, arguments: &ExportArguments, out: &mut impl Write) -> anyhow::Result<()> {
    let state = snapshot.find_one(&arguments.state)?;
    let wanted = Wanted::new(snapshot, state, &arguments.keys, u64::MAX)?;
    let partial = partial(&arguments.out)?;
    let written = write(wanted, state, &partial).await;
    let written = written.and_then(|rows| {
        std::fs::rename(&partial, &arguments.out)?;
        Ok(rows)
    });
    if written.is_err() {
        // The first error is the one that matters.
        let _ = std::fs::remove_file(&partial);
    }
    let rows = written.with_context(|| format!("exporting {} to \"{}\"", state.path(), arguments.out.display()))?;
    writeln!(out, "{}: {} rows in \"{}\"", state.path(), count(rows), arguments.out.display())?;
    Ok(())
}

fn partial(path: &Path) -> anyhow::Result<PathBuf> {
    let name = path.file_name().with_context(|| format!("--out \"{}\" is no file name", path.display()))?;
    Ok(path.with_file_name(format!(".{}.partial", name.display())))
}

async fn write(mut wanted: Wanted<'_>, state: &OperatorState, path: &Path) -> anyhow::Result<u64> {
    let first = wanted.next().await?;
    let schema = first.as_ref().map_or_else(|| empty_schema(state), RecordBatch::schema);
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(File::create(path)?, Arc::clone(&schema), Some(properties))?;
    let (mut rows, mut next) = (0, first);
    while let Some(batch) = next {
        writer.write(&of_schema(&schema, &batch)?)?;
        rows += batch.num_rows() as u64;
        if writer.in_progress_size() > ROW_GROUP_BYTES {
            writer.flush()?;
        }
        next = wanted.next().await?;
    }
    writer.into_inner()?.sync_all()?;
    Ok(rows)
}

/// The batch under the schema of the first one: subtasks of one snapshot write the same columns.
fn of_schema(schema: &SchemaRef, batch: &RecordBatch) -> anyhow::Result<RecordBatch> {
    let types = |schema: &Schema| -> Vec<(String, DataType)> {
        schema.fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
    };
    let (wanted, found) = (types(schema), types(&batch.schema()));
    if wanted != found {
        bail!("subtasks have other columns than each other: {wanted:?} and {found:?}");
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), batch.columns().to_vec())?)
}

/// The columns of a state that has no rows.
fn empty_schema(state: &OperatorState) -> SchemaRef {
    let group = state.kind.is_keyed().then(|| Arc::new(Field::new(KEY_GROUP_COLUMN, DataType::UInt16, false)));
    let layout = RowLayout::new(Arc::clone(&state.schema), 1);
    let mut fields: Vec<_> = group.into_iter().chain(layout.open_columns().fields().iter().cloned()).collect();
    if fields.is_empty() {
        fields.push(Arc::new(Field::new(ENTRY_COLUMN, DataType::Utf8, false)));
    }
    Arc::new(Schema::new(fields))
}

#[cfg(test)]
mod tests {
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::super::testing::{Written, entries, panes};
    use super::*;

    async fn exported(written: &Written, state: &str) -> (SchemaRef, Vec<RecordBatch>) {
        let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        let out = written.file("out.parquet");
        let arguments = ExportArguments { snapshot: String::new(), state: state.into(), out: out.clone(), keys: Vec::new() };
        export(&snapshot, &arguments, &mut Vec::new()).await.expect("it is exported");
        let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(out).expect("a file")).expect("Parquet");
        (Arc::clone(reader.schema()), reader.build().expect("a reader").map(|batch| batch.expect("a batch")).collect())
    }

    #[tokio::test]
    async fn parquet_has_the_rows_and_their_types() {
        let written = Written::new(&Written::counts());
        let (schema, batches) = exported(&written, "counts/panes").await;
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 20);
        let of_state = panes(vec![1]).rows.schema();
        for (field, expected) in schema.fields().iter().skip(1).zip(of_state.fields()) {
            assert_eq!((field.name(), field.data_type()), (expected.name(), expected.data_type()));
        }
        assert!(!written.file(".out.parquet.partial").exists());
    }

    #[tokio::test]
    async fn a_state_without_rows_has_columns() {
        let written = Written::new(&[panes(Vec::new()), entries("numbers", "positions", &[])]);
        let (schema, batches) = exported(&written, "counts").await;
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!((names, batches.len()), (vec!["_key_group", "key.k", "namespace", "n", "total"], 0));
        assert_eq!(exported(&written, "numbers").await.0.field(0).name(), "entry");
    }
}
