//! Looking entries up: all addresses of a batch by one sorted read.

use std::sync::Arc;

use levada_state::cold::{Addresses, ColdError, Loaded};
use levada_state::row_codec::{BadRow, RowBytes, RowReader};

use crate::database::{Database, Family};
use crate::options;

/// Bytes behind a list's key that no place of an element reaches; what is below a map's key begins with less.
const BEHIND: [u8; 9] = [0xff; 9];

/// Which of the entries below a key are looked up.
#[derive(Debug, Clone, Copy)]
pub enum Below {
    /// The first so many.
    First(usize),
    /// The last one.
    Last,
}

/// Finds the entries of these addresses; where they are of everything below a key, those of `below`.
pub fn load(database: &Database, family: &Family, addresses: &Addresses, below: Below) -> Result<Loaded, ColdError> {
    let (mut keys, mut known) = (RowBytes::new(), Vec::with_capacity(addresses.rows));
    let wrong = |source| ColdError::Layout { uid: database.uid.clone(), state: family.state.clone(), source };
    family.layout.write_keys(addresses, &mut keys, &mut known).map_err(wrong)?;
    let mut order = keys.in_order();
    order.dedup_by(|left, right| keys.get(*left as usize) == keys.get(*right as usize));
    let (reader, positions, cut) = (RowReader::below(&family.layout), Vec::new(), Vec::new());
    let mut found = Found { database, family, known, reader, positions, cut };
    match (family.layout.has_below() && addresses.below.is_empty(), below) {
        (true, Below::First(most)) => found.below(&keys, &order, most)?,
        (true, Below::Last) => found.last(&keys, &order)?,
        (false, _) => found.exactly(&keys, &order)?,
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

    /// The last entry below each of these keys.
    fn last(&mut self, keys: &RowBytes, order: &[u32]) -> Result<(), ColdError> {
        let database = self.database;
        // Keys with nulls are shorter than what filters know: what lies behind one of them does not begin as its entries do.
        let by_filter = |bytes: &usize| order.iter().all(|place| keys.get(*place as usize).len() >= *bytes);
        let options = options::below_keys(self.family.prefix_bytes.filter(by_filter));
        let mut entries = database.db.raw_iterator_cf_opt(&database.handle(&self.family.family), options);
        let mut end = Vec::new();
        for place in order {
            let prefix = keys.get(*place as usize);
            end.clear();
            end.extend_from_slice(prefix);
            end.extend(BEHIND);
            entries.seek_for_prev(&end);
            if let Some((key, value)) = entries.item().filter(|(key, _)| key.starts_with(prefix)) {
                self.push(*place, key, value)?;
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
