//! Rows that another backend wrote, or a savepoint has, on their way into a database: a bounded number of them in memory at a time.

use std::sync::Arc;

use arrow::datatypes::Schema;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::keys::KeyGroupRange;
use levada_state::cold::{Change, ColdError};
use levada_state::row_codec::LayoutError;

use crate::database::{Database, Family};
use crate::generation::Generation;
use crate::restore::write_within;

/// Bytes of entries that are put in order and written at once.
const SORTED_BYTES_MAX: usize = 32 << 20;

/// Puts the rows of a state that belong to `groups` into its family; `next` gives them batch by batch, with the layout's columns
/// among their columns. Answers the number of entries.
///
/// Errors: `Layout` for rows of another state, `Write`, and whatever `next` says.
pub fn put_rows<E: From<ColdError>>(
    database: &Database,
    family: &Family,
    groups: KeyGroupRange,
    mut next: impl FnMut() -> Result<Option<RecordBatch>, E>,
) -> Result<u64, E> {
    let (uid, state) = (database.uid.clone(), family.state.clone());
    let wrong = |source| ColdError::Layout { uid: uid.clone(), state: state.clone(), source };
    let mut generation = Generation::new(Arc::new(family.clone()));
    let mut entries = 0;
    while let Some(batch) = next()? {
        let rows = in_layout(&batch, family.layout.columns()).map_err(wrong)?;
        generation.add(&Change { deletes: None, upserts: Some(rows) }).map_err(wrong)?;
        if generation.memory_bytes() >= SORTED_BYTES_MAX {
            entries += write_within(database, &mut generation, groups)?;
        }
    }
    Ok(entries + write_within(database, &mut generation, groups)?)
}

/// The layout's columns out of a batch that has others too.
fn in_layout(batch: &RecordBatch, columns: &Arc<Schema>) -> Result<RecordBatch, LayoutError> {
    let found = columns.fields().iter().map(|field| batch.column_by_name(field.name()).cloned()).collect::<Option<Vec<_>>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let rows = found.and_then(|found| RecordBatch::try_new_with_options(Arc::clone(columns), found, &options).ok());
    let names = |schema: &Schema| {
        let fields = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
        fields.collect::<Vec<_>>().join(", ")
    };
    rows.ok_or_else(|| LayoutError::Columns { found: names(&batch.schema()), expected: names(columns) })
}
