//! Rows that another backend wrote, or a savepoint has, on their way into a database: a bounded number of them in memory at a time.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::fault::{Failure, Faulty};
use levada_common::keys::KeyGroupRange;
use levada_state::cold::{Change, ColdError};

use crate::database::{Database, Family};
use crate::generation::Generation;
use crate::restore::write_within;

/// Bytes of entries that are put in order and written at once.
const SORTED_BYTES_MAX: usize = 32 << 20;

/// Puts the rows of a state that belong to `groups` into its family; `next` gives them batch by batch, with the layout's columns
/// among their columns. Answers the number of entries.
///
/// Errors: `Layout` for rows of another state, `Write`, and whatever `next` says.
pub fn put_rows(
    database: &Database,
    family: &Family,
    groups: KeyGroupRange,
    mut next: impl FnMut() -> Result<Option<RecordBatch>, Failure>,
) -> Result<u64, Failure> {
    let failed = |error: ColdError| error.to_failure();
    let wrong = |source| failed(ColdError::Layout { uid: database.uid.clone(), state: family.state.clone(), source });
    let mut generation = Generation::new(Arc::new(family.clone()));
    let mut entries = 0;
    while let Some(batch) = next()? {
        let rows = family.layout.pick(&batch).map_err(wrong)?;
        generation.add(&Change { deletes: None, upserts: Some(rows) }).map_err(wrong)?;
        if generation.memory_bytes() >= SORTED_BYTES_MAX {
            entries += write_within(database, &mut generation, groups).map_err(failed)?;
        }
    }
    Ok(entries + write_within(database, &mut generation, groups).map_err(failed)?)
}
