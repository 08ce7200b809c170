//! Looking entries up: all addresses of a batch by one sorted read.

use std::sync::Arc;

use levada_state::cold::{Addresses, ColdError, Loaded};
use levada_state::row_codec::{BadRow, RowBytes, RowReader};

use crate::database::{Database, Family};
use crate::options;

/// Finds the entries of these addresses; where they are of everything below a key, the first `below_max` of each.
pub fn load(database: &Database, family: &Family, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError> {
    let (mut keys, mut known) = (RowBytes::new(), Vec::with_capacity(addresses.rows));
    let wrong = |source| ColdError::Layout { uid: database.uid.clone(), state: family.state.clone(), source };
    family.layout.write_keys(addresses, &mut keys, &mut known).map_err(wrong)?;
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    order.sort_unstable_by(|left, right| keys.get(*left as usize).cmp(keys.get(*right as usize)).then(left.cmp(right)));
    order.dedup_by(|left, right| keys.get(*left as usize) == keys.get(*right as usize));
    let (reader, positions, cut) = (RowReader::below(&family.layout), Vec::new(), Vec::new());
    let mut found = Found { database, family, known, reader, positions, cut };
    match family.layout.has_below() && addresses.below.is_empty() {
        true => found.below(&keys, &order, below_max)?,
        false => found.exactly(&keys, &order)?,
    }
    Ok(Loaded { positions: found.positions, rows: found.reader.finish(), cut: found.cut })
}

/// What was found so far.
struct Found<'a> {
    database: &'a Database,
    family: &'a Family,
    /// Bytes of each key that are known.
    known: Vec<u32>,
    reader: RowReader,
    positions: Vec<u32>,
    /// Addresses of which there is more.
    cut: Vec<u32>,
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
    fn below(&mut self, keys: &RowBytes, order: &[u32], below_max: usize) -> Result<(), ColdError> {
        let database = self.database;
        let by_filter = self.family.prefix_bytes.is_some();
        let options = options::below_keys(self.family.prefix_bytes);
        let mut entries = database.db.raw_iterator_cf_opt(&database.handle(&self.family.family), options);
        for place in order {
            let prefix = keys.get(*place as usize);
            // The next key often stands right here, but where files were left out that do not have the last one.
            if by_filter || entries.key().is_none_or(|key| !key.starts_with(prefix)) {
                entries.seek(prefix);
            }
            let mut found = 0;
            while let Some((key, value)) = entries.item().filter(|(key, _)| key.starts_with(prefix)) {
                if found == below_max {
                    self.cut.push(*place);
                    break;
                }
                self.push(*place, key, value)?;
                found += 1;
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
