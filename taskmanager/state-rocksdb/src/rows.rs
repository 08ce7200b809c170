//! Rows on their way into a database, which another backend wrote, a savepoint has, or whose key groups have other numbers now: a
//! bounded number of them in memory at a time.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::fault::{Failure, Faulty};
use levada_common::keys::KeyGroupRange;
use levada_state::cold::{Change, ColdError, RowLayout};
use rocksdb::DBCompressionType;

use crate::database::{Cause, Database, Family};
use crate::generation::{Generation, Sink};
use crate::options;
use crate::tables::Tables;

/// Bytes of entries that are put in order and written at once.
const SORTED_BYTES_MAX: usize = 32 << 20;

/// Rows of a state that come in any order, and go into its family as far as they belong to some key groups.
pub struct Sorting<'a> {
    database: &'a Database,
    generation: Generation,
    groups: KeyGroupRange,
    entries: u64,
}

impl<'a> Sorting<'a> {
    /// Without rows.
    pub fn new(database: &'a Database, family: &Family, groups: KeyGroupRange) -> Self {
        Self { database, generation: Generation::new(Arc::new(family.clone())), groups, entries: 0 }
    }

    /// Adds rows with the layout's columns.
    ///
    /// Errors: `Layout` for rows of another state, `Write`.
    pub fn add(&mut self, rows: RecordBatch) -> Result<(), ColdError> {
        let added = self.generation.add(&Change { deletes: None, upserts: Some(rows) });
        let (uid, state) = (&self.database.uid, &self.generation.family().state);
        added.map_err(|source| ColdError::Layout { uid: uid.clone(), state: state.clone(), source })?;
        if self.generation.bytes() >= SORTED_BYTES_MAX { self.write() } else { Ok(()) }
    }

    /// Writes the rest; answers the number of entries.
    ///
    /// Errors: `Write`.
    pub fn finish(mut self) -> Result<u64, ColdError> {
        self.write()?;
        Ok(self.entries)
    }

    fn write(&mut self) -> Result<(), ColdError> {
        let (database, family) = (self.database, Arc::clone(self.generation.family()));
        let shared = &database.shared;
        let options = options::ingested(shared.profile, &shared.memory.cache, DBCompressionType::Lz4, family.prefix_bytes);
        let fail = |error: Cause| database.write_error("putting restored entries in order", error);
        let mut tables = Tables::new(&options, database).map_err(|error| fail(Arc::new(error)))?;
        let written = self.generation.write(&mut Within(&mut tables, RowLayout::group_bounds(self.groups)));
        written.map_err(|error| fail(Arc::new(error)))?;
        self.entries += tables.ingest(database, &family.family).map_err(|error| fail(Arc::new(error)))?;
        self.generation.clear();
        Ok(())
    }
}

/// Passes on what is between the bounds.
struct Within<'a, 'b>(&'a mut Tables<'b>, (Vec<u8>, Vec<u8>));

impl Sink for Within<'_, '_> {
    type Error = rocksdb::Error;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), rocksdb::Error> {
        let is_within = self.1.0.as_slice() <= key && key < self.1.1.as_slice();
        if is_within { self.0.put(key, value) } else { Ok(()) }
    }

    fn delete(&mut self, _: &[u8]) -> Result<(), rocksdb::Error> {
        Ok(())
    }
}

/// Puts the rows of a state that belong to `groups` into its family; `next` gives them batch by batch, with the columns of the open
/// format among their columns. Answers the number of entries.
///
/// Errors: `Layout` for rows of another state, `Write`, and whatever `next` says.
pub fn put_rows(
    database: &Database,
    family: &Family,
    groups: KeyGroupRange,
    mut next: impl FnMut() -> Result<Option<RecordBatch>, Failure>,
) -> Result<u64, Failure> {
    let wrong = |source| ColdError::Layout { uid: database.uid.clone(), state: family.state.clone(), source };
    let (mut rows, mut before) = (Sorting::new(database, family, groups), 0);
    while let Some(batch) = next()? {
        let entries = family.layout.from_open(&batch, before).map_err(wrong);
        before += batch.num_rows() as u64;
        entries.and_then(|entries| rows.add(entries)).map_err(|error| error.to_failure())?;
    }
    rows.finish().map_err(|error| error.to_failure())
}
