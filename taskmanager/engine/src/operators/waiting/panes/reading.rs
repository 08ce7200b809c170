//! Rows on their way out: at once where memory has all of them, else one range of key groups after the other.
//!
//! Of each range what only the store has comes first, then what memory has, so that rows of a key keep their order. A range is read
//! whole, and its rows are deleted from the store where they leave; how wide it is follows from what the last ones took.
//! Invariant: a range takes at most `bytes_max`, unless it is one key group.

use std::sync::Arc;

use arrow::array::Int64Array;
use levada_common::keys::KeyGroupRange;
use levada_state::cold::Addresses;

use super::store::{PanesStore, StoredRows, addresses};
use super::touched::Touched;
use super::{Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::rows::Part;

/// Most bytes that a range takes, however much memory there is: it is read at once.
const RANGE_BYTES_MAX: usize = 16 << 20;

/// Part of the overlay's memory that a range may take.
const RANGE_PART: usize = 8;

/// Rows that are gathered at once.
const PIECE_ROWS: usize = 8192;

/// What was read of each place: its side and rows, all of them or those of a range of key groups.
pub(in crate::operators) type ReadRows<W> = Vec<(usize, Arc<W>)>;

/// Places that are read, and how far it is.
pub(in crate::operators) struct Reading<W> {
    places: Vec<ReadPlace<W>>,
    /// The key groups that are to come, from the first up to, not including, the last; none where memory has everything.
    left: Option<(u32, u32)>,
}

struct ReadPlace<W> {
    place: Place,
    /// Whether nothing needs its rows any more.
    leaves: bool,
    /// What memory has.
    rows: Arc<W>,
    /// The number of the first of these.
    first: i64,
    /// Whether the store has rows before them.
    is_beyond: bool,
    /// Which of those were marked since.
    touched: Option<Touched>,
    /// The key group of each row and its place (high and low half), ascending.
    groups: Vec<u64>,
}

/// What was read of a range, and where what leaves is in the store.
struct Range<W> {
    rows: ReadRows<W>,
    bytes: usize,
    gone: Vec<(usize, Addresses)>,
}

impl<W: Waiting> Panes<W> {
    /// Begins to read places, in this order; those of which it is said leave memory and store.
    pub(in crate::operators) fn read(&mut self, owner: &W::Owner, places: &[(Place, bool)]) -> Result<Reading<W>, EngineError> {
        let mut leaving = places.iter().filter(|(_, leaves)| *leaves);
        if leaving.any(|(place, _)| self.is_known_to_store(*place)) {
            // What is being sent has their rows, or belongs to a snapshot that has them: they can be deleted only after it.
            self.send_all(owner)?;
        }
        let mut reading = Reading { places: Vec::with_capacity(places.len()), left: None };
        for (place, leaves) in places.iter().copied() {
            let is_beyond = self.store.as_ref().is_some_and(|store| store.is_beyond(place));
            let (rows, first) = match self.kept.get(&place) {
                Some(kept) => (Arc::clone(&kept.rows), kept.first),
                None if is_beyond => (Arc::new(W::new(owner, place.1)), i64::MAX),
                None => continue,
            };
            let mut read = ReadPlace { place, leaves, rows, first, is_beyond, touched: None, groups: Vec::new() };
            if leaves {
                self.leave(owner, place)?;
                read.touched = self.touched.remove(&place);
            }
            reading.places.push(read);
        }
        if let Some(store) = self.store.as_mut().filter(|_| reading.places.iter().any(|read| read.is_beyond)) {
            reading.left = Some((u32::from(store.key_groups.start), u32::from(store.key_groups.end) + 1));
            for read in &mut reading.places {
                read.groups = by_key_group(store, owner, read.place.1, read.rows.as_ref());
            }
        }
        Ok(reading)
    }

    /// Whether the store has rows there, or will have once what is being sent was.
    fn is_known_to_store(&self, place: Place) -> bool {
        let is_beyond = self.store.as_ref().is_some_and(|store| store.is_beyond(place));
        is_beyond || self.kept.get(&place).is_some_and(|kept| kept.sent > 0)
    }

    /// Takes rows out of memory; what was sent of them is deleted.
    fn leave(&mut self, owner: &W::Owner, place: Place) -> Result<(), EngineError> {
        let (kept, Some(store)) = (self.kept.remove(&place), &mut self.store) else { return Ok(()) };
        store.forget(place);
        let Some(kept) = kept else { return Ok(()) };
        for part in kept.rows.rows().parts(0..kept.sent) {
            let (first, columns) = part.map_err(|source| owner.kernel(source))?;
            let number = kept.first + first as i64;
            let numbers: Int64Array = (number..number + columns[0].len() as i64).collect();
            store.delete(place.1, addresses(place.0, owner.sides()[place.1].keys(&columns), numbers))?;
        }
        Ok(())
    }
}

impl<W: Waiting> Reading<W> {
    /// What is held beside the panes, as it is counted: what memory had of rows that leave.
    pub(in crate::operators) fn held(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let leaving = self.places.iter().filter(|read| read.leaves);
        leaving.map(|read| (read.place.1, read.rows.memory_bytes(), read.rows.rows().len()))
    }

    /// The next rows; `None` at the end.
    pub(in crate::operators) fn next(
        &mut self,
        owner: &W::Owner,
        panes: &mut Panes<W>,
    ) -> Result<Option<ReadRows<W>>, EngineError> {
        let Some((first, end)) = self.left else {
            let places = std::mem::take(&mut self.places);
            return Ok((!places.is_empty()).then(|| places.into_iter().map(|read| (read.place.1, read.rows)).collect()));
        };
        let Some(store) = panes.store.as_mut().filter(|_| first < end) else { return Ok(None) };
        if !store.behind.takes_more()? {
            // Only where nothing of a range went out: else whoever polls has waited for it.
            store.behind.wait_for_room()?;
        }
        let bytes_max = (store.behind.write_back.share_bytes() / RANGE_PART).min(RANGE_BYTES_MAX);
        loop {
            let last = first + store.width.min(end - first) - 1;
            let range = KeyGroupRange { start: first as u16, end: last as u16 };
            let Some(read) = self.range(owner, store, range, bytes_max)? else {
                store.width = (last - first).div_ceil(2);
                continue;
            };
            if read.bytes < bytes_max / 4 {
                store.width = store.width.saturating_mul(2);
            }
            self.left = Some((last + 1, end));
            read.gone.into_iter().try_for_each(|(side, gone)| store.delete(side, gone))?;
            return Ok(Some(read.rows));
        }
    }

    /// Reads a range; nothing where it takes more than it may.
    fn range(
        &self,
        owner: &W::Owner,
        store: &mut PanesStore,
        range: KeyGroupRange,
        bytes_max: usize,
    ) -> Result<Option<Range<W>>, EngineError> {
        let mut all = Range { rows: Vec::with_capacity(self.places.len()), bytes: 0, gone: Vec::new() };
        for read in &self.places {
            let (window, side) = read.place;
            let mut rows = W::new(owner, side);
            let fits = |rows: &W| range.start == range.end || all.bytes + rows.memory_bytes() <= bytes_max;
            if read.is_beyond {
                for batch in store.scan(read.place, range)? {
                    let batch = batch.map_err(|source| failed(owner.uid(), source))?;
                    let stored = StoredRows::of(&owner.sides()[side], &batch).below(read.first);
                    let mut stored = stored.map_err(|source| owner.kernel(source))?;
                    if let Some(touched) = &read.touched {
                        touched.mark(store, &mut stored);
                    }
                    if stored.len() == 0 {
                        continue;
                    }
                    if read.leaves {
                        all.gone.push((side, stored.addresses(window)));
                    }
                    let pushed = rows.push(owner, side, &stored.columns, stored.marks.as_ref());
                    pushed.map_err(|source| owner.kernel(source))?;
                    if !fits(&rows) {
                        return Ok(None);
                    }
                }
            }
            for some in in_range(&read.groups, range).chunks(PIECE_ROWS) {
                read.copy(owner, some, &mut rows)?;
                if !fits(&rows) {
                    return Ok(None);
                }
            }
            all.bytes += rows.memory_bytes();
            all.rows.push((side, Arc::new(rows)));
        }
        Ok(Some(all))
    }
}

impl<W: Waiting> ReadPlace<W> {
    /// Appends some of the rows that memory has.
    fn copy(&self, owner: &W::Owner, some: &[u64], to: &mut W) -> Result<(), EngineError> {
        let side = self.place.1;
        let places: Vec<u32> = some.iter().map(|row| *row as u32).collect();
        let columns = owner.sides()[side].gather(&Part::kept(self.rows.rows(), &places), places.len());
        let marks = self.rows.marks().map(|marks| places.iter().map(|row| Some(marks.has(*row))).collect());
        columns.and_then(|columns| to.push(owner, side, &columns, marks.as_ref())).map_err(|source| owner.kernel(source))
    }
}

/// The rows that memory has of a side, by key group.
fn by_key_group<W: Waiting>(store: &mut PanesStore, owner: &W::Owner, side: usize, rows: &W) -> Vec<u64> {
    let mut found = Vec::with_capacity(rows.rows().len());
    for chunk in rows.rows().chunks() {
        let groups = store.groups_of_keys(&owner.sides()[side].keys(&chunk.columns), chunk.rows);
        found.extend(groups.into_iter().zip(chunk.start as u64..).map(|(group, row)| u64::from(group) << 32 | row));
    }
    found.sort_unstable();
    found
}

/// Those of the rows whose key group is in `range`.
fn in_range(groups: &[u64], range: KeyGroupRange) -> &[u64] {
    let place = |group: u64| groups.partition_point(|row| row >> 32 < group);
    &groups[place(u64::from(range.start))..place(u64::from(range.end) + 1)]
}
