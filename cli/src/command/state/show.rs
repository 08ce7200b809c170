//! `levada state show`: the rows of a state.

use std::io::Write;

use arrow::datatypes::SchemaRef;

use super::key::KeyFilter;
use super::plain::{cells, is_number, ndjson};
use super::{RowFormat, ShowArguments};
use crate::progress::count;
use crate::snapshot::rows::StateRows;
use crate::snapshot::{OperatorState, Snapshot};
use crate::table::Table;

/// Rows of a table where no limit is given.
const TABLE_ROWS: u64 = 100;

/// Rows for which the widths of columns are taken together.
const TABLE_BLOCK: usize = 1000;

/// Prints the rows that are asked for.
pub async fn show(snapshot: &Snapshot, arguments: &ShowArguments, out: &mut impl Write) -> anyhow::Result<()> {
    match arguments.format {
        RowFormat::Ndjson => lines(snapshot, snapshot.find_one(&arguments.state)?, arguments, out).await,
        RowFormat::Table => {
            for (place, state) in snapshot.find(&arguments.state)?.into_iter().enumerate() {
                if place > 0 {
                    writeln!(out)?;
                }
                table(snapshot, state, arguments, out).await?;
            }
            Ok(())
        }
    }
}

/// The batches of a state that are asked for.
pub struct Wanted<'a> {
    rows: StateRows<'a>,
    filter: Option<KeyFilter>,
    left: u64,
}

impl<'a> Wanted<'a> {
    /// The rows of `state` with these keys, at most `limit`.
    pub fn new(snapshot: &'a Snapshot, state: &OperatorState, keys: &[String], limit: u64) -> anyhow::Result<Self> {
        let filter = KeyFilter::read(state, snapshot.metadata.max_parallelism, keys)?;
        let rows = StateRows::new(snapshot, state, filter.as_ref().and_then(KeyFilter::key_groups));
        Ok(Self { rows, filter, left: limit })
    }

    /// The next rows; `None` after the last.
    pub async fn next(&mut self) -> anyhow::Result<Option<arrow::record_batch::RecordBatch>> {
        while self.left > 0 {
            let Some(mut batch) = self.rows.next().await? else { return Ok(None) };
            if let Some(filter) = &self.filter {
                batch = filter.apply(&batch)?;
            }
            if batch.num_rows() > 0 {
                let rows = (batch.num_rows() as u64).min(self.left);
                self.left -= rows;
                return Ok(Some(batch.slice(0, rows as usize)));
            }
        }
        Ok(None)
    }
}

async fn lines(
    snapshot: &Snapshot,
    state: &OperatorState,
    arguments: &ShowArguments,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut wanted = Wanted::new(snapshot, state, &arguments.keys, arguments.limit.unwrap_or(u64::MAX))?;
    let mut text = Vec::new();
    while let Some(batch) = wanted.next().await? {
        text.clear();
        ndjson(&batch, &mut text)?;
        out.write_all(&text)?;
    }
    Ok(())
}

async fn table(
    snapshot: &Snapshot,
    state: &OperatorState,
    arguments: &ShowArguments,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let limit = arguments.limit.unwrap_or(TABLE_ROWS);
    let mut wanted = Wanted::new(snapshot, state, &arguments.keys, limit)?;
    writeln!(out, "{}: {} {}, {} rows", state.path(), state.kind.name(), state.schema.shape, count(state.rows()))?;
    let (mut block, mut shown) = (Block::default(), 0);
    while let Some(batch) = wanted.next().await? {
        shown += batch.num_rows() as u64;
        if block.schema.as_ref().is_some_and(|schema| *schema != batch.schema()) || block.rows.len() > TABLE_BLOCK {
            block.write(out)?;
        }
        block.schema = Some(batch.schema());
        block.rows.extend(cells(&batch)?);
    }
    block.write(out)?;
    if shown == limit && shown < state.rows() {
        writeln!(out, "the first {} rows; --limit N shows more", count(shown))?;
    }
    Ok(())
}

/// Rows that are aligned with each other.
#[derive(Default)]
struct Block {
    schema: Option<SchemaRef>,
    rows: Vec<Vec<String>>,
}

impl Block {
    fn write(&mut self, out: &mut impl Write) -> anyhow::Result<()> {
        let Some(schema) = self.schema.take() else { return Ok(()) };
        let header = schema.fields().iter().map(|field| field.name().as_str());
        let mut table = Table::new(header, schema.fields().iter().map(|field| is_number(field)));
        self.rows.drain(..).for_each(|row| table.row(row));
        out.write_all(table.text().as_bytes())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Written, golden};
    use super::*;

    async fn shown(snapshot: &Snapshot, state: &str, keys: &[&str], limit: Option<u64>, format: RowFormat) -> String {
        let keys = keys.iter().map(|key| (*key).into()).collect();
        let arguments = ShowArguments { snapshot: String::new(), state: state.into(), keys, limit, format };
        let mut out = Vec::new();
        match show(snapshot, &arguments, &mut out).await {
            Ok(()) => String::from_utf8(out).expect("text"),
            Err(error) => format!("error: {error:#}"),
        }
    }

    #[tokio::test]
    async fn rows_are_shown_as_they_always_were() {
        let written = Written::new(&Written::counts());
        let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        golden("show.txt", &shown(&snapshot, "counts", &[], None, RowFormat::Table).await);
        golden("show.ndjson", &shown(&snapshot, "counts/panes", &[], None, RowFormat::Ndjson).await);
    }

    #[tokio::test]
    async fn a_key_a_limit_and_a_wrong_name() {
        let written = Written::new(&Written::counts());
        let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        let one = shown(&snapshot, "counts/panes", &["k=k07"], None, RowFormat::Ndjson).await;
        assert_eq!(one.lines().count(), 1, "{one}");
        assert!(one.contains(r#""key.k":"k07""#) && one.contains(r#""n":7"#), "{one}");
        assert_eq!(shown(&snapshot, "counts/panes", &["none"], None, RowFormat::Ndjson).await, "");
        assert_eq!(shown(&snapshot, "counts/panes", &[], Some(3), RowFormat::Ndjson).await.lines().count(), 3);
        let cut = shown(&snapshot, "counts/panes", &[], Some(3), RowFormat::Table).await;
        assert!(cut.ends_with("the first 3 rows; --limit N shows more\n"), "{cut}");
        let error = shown(&snapshot, "counst", &[], None, RowFormat::Table).await;
        assert!(error.contains("did you mean \"counts\"?"), "{error}");
        let error = shown(&snapshot, "counts/pane", &[], None, RowFormat::Table).await;
        assert!(error.contains("it has: panes, watermark"), "{error}");
        let error = shown(&snapshot, "counts", &[], None, RowFormat::Ndjson).await;
        assert!(error.contains("counts/panes, counts/watermark"), "{error}");
    }
}
