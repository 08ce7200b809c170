//! Looking entries up: all addresses of a batch by one sorted read.

use std::sync::Arc;

use levada_state::cold::{Addresses, ColdError, Loaded};
use levada_state::row_codec::{BadRow, RowBytes, RowReader};

use crate::database::{Database, Family};

/// Finds the entries of these addresses.
pub fn load(database: &Database, family: &Family, addresses: &Addresses) -> Result<Loaded, ColdError> {
    let (mut keys, mut known) = (RowBytes::new(), Vec::with_capacity(addresses.rows));
    let wrong = |source| ColdError::Layout { uid: database.uid.clone(), state: family.state.clone(), source };
    family.layout.write_keys(addresses, &mut keys, &mut known).map_err(wrong)?;
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_unstable_by(|left, right| keys.get(*left as usize).cmp(keys.get(*right as usize)).then(left.cmp(right)));
    order.dedup_by(|left, right| keys.get(*left as usize) == keys.get(*right as usize));
    let mut found = Found { database, family, known, reader: RowReader::below(&family.layout), positions: Vec::new() };
    match family.layout.has_below() && addresses.below.is_empty() {
        true => found.below(&keys, &order)?,
        false => found.exactly(&keys, &order)?,
    }
    Ok(Loaded { positions: found.positions, rows: found.reader.finish() })
}

/// What was found so far.
struct Found<'a> {
    database: &'a Database,
    family: &'a Family,
    /// Bytes of each key that are known.
    known: Vec<u32>,
    reader: RowReader,
    positions: Vec<u32>,
}

impl Found<'_> {
    /// The entries with these keys.
    fn exactly(&mut self, keys: &RowBytes, order: &[u32]) -> Result<(), ColdError> {
        let sorted = order.iter().map(|place| keys.get(*place as usize));
        let handle = self.database.handle(&self.family.family);
        let values = self.database.db.batched_multi_get_cf(&handle, sorted, true);
        for (place, value) in order.iter().zip(values) {
            let value = value.map_err(|error| self.database.read_error(&self.family.state, Arc::new(error)))?;
            if let Some(value) = value {
                self.push(*place, keys.get(*place as usize), &value)?;
            }
        }
        Ok(())
    }

    /// The entries below these keys.
    fn below(&mut self, keys: &RowBytes, order: &[u32]) -> Result<(), ColdError> {
        let database = self.database;
        let mut entries = database.db.raw_iterator_cf(&database.handle(&self.family.family));
        for place in order {
            let prefix = keys.get(*place as usize);
            // The next key often stands right here.
            if entries.key().is_none_or(|key| key < prefix || !key.starts_with(prefix)) {
                entries.seek(prefix);
            }
            while let Some((key, value)) = entries.item().filter(|(key, _)| key.starts_with(prefix)) {
                self.push(*place, key, value)?;
                entries.next();
            }
            entries.status().map_err(|error| database.read_error(&self.family.state, Arc::new(error)))?;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, place: u32, key: &[u8], value: &[u8]) -> Result<(), ColdError> {
        let pushed = self.reader.push(self.known[place as usize] as usize, key, value);
        pushed.map_err(|source| bad_entry(self.database, self.family, source))?;
        self.positions.push(place);
        Ok(())
    }
}

/// An entry cannot be read.
pub fn bad_entry(database: &Database, family: &Family, source: BadRow) -> ColdError {
    ColdError::Entry { uid: database.uid.clone(), state: family.state.clone(), path: database.path(), source }
}
