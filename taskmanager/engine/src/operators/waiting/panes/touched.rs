//! Rows that only the store has and that were marked since: what the store has of them is old until they were sent.
//!
//! A mark is set once and never taken back. Must never know what it means.

use std::collections::HashSet;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, UInt32Array};
use arrow::compute::take;
use arrow::error::ArrowError;

use super::store::{PanesStore, StoredRows};
use super::{Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operators::rows::{Part, RowBuffer};

/// Such rows of one place.
#[derive(Default)]
pub(super) struct Touched {
    pub(super) rows: RowBuffer,
    pub(super) numbers: Vec<i64>,
    /// The key groups and numbers of all: subtasks of an earlier attempt may have given the same number to rows of different groups.
    known: HashSet<(u16, i64)>,
    /// How many were sent, or are being sent.
    pub(super) sent: usize,
}

impl Touched {
    /// Appends rows, at least one.
    fn push(&mut self, store: &mut PanesStore, rows: StoredRows) -> Result<(), ArrowError> {
        let groups = store.groups_of_keys(&rows.keys, rows.len());
        self.known.extend(groups.into_iter().zip(rows.numbers.values().iter().copied()));
        self.numbers.extend_from_slice(rows.numbers.values());
        self.rows.push(&rows.columns)
    }

    /// Marks those of these rows of the store that are among them.
    pub(super) fn mark(&self, store: &mut PanesStore, stored: &mut StoredRows) {
        let Some(marks) = stored.marks.as_ref().filter(|_| !self.known.is_empty()) else { return };
        let groups = store.groups_of_keys(&stored.keys, stored.len());
        let places = groups.into_iter().zip(stored.numbers.values().iter().copied());
        let marks: BooleanArray =
            marks.values().iter().zip(places).map(|(is_marked, place)| Some(is_marked || self.known.contains(&place))).collect();
        stored.marks = Some(marks);
    }

    /// Forgets those that were sent.
    ///
    /// Contract: they are written.
    pub(super) fn forget_sent(
        &mut self,
        owner: &impl WaitingOwner,
        side: usize,
        store: &mut PanesStore,
    ) -> Result<(), EngineError> {
        let mut rest = Self::default();
        for part in self.rows.parts(self.sent..self.numbers.len()) {
            let (first, columns) = part.map_err(|source| owner.kernel(source))?;
            let keys = owner.sides()[side].keys(&columns);
            let numbers = Int64Array::from(self.numbers[first..first + columns[0].len()].to_vec());
            let rows = StoredRows { columns, keys, numbers, marks: None };
            rest.push(store, rows).map_err(|source| owner.kernel(source))?;
        }
        *self = rest;
        Ok(())
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let numbers = self.numbers.capacity() * size_of::<i64>() + self.known.capacity() * size_of::<(u16, i64)>();
        self.rows.memory_bytes() + numbers
    }
}

impl<W: Waiting> Panes<W> {
    /// These rows, which memory has, are marked now.
    pub(in crate::operators) fn marked(&mut self, place: Place, rows: &[u32]) {
        if let Some(kept) = self.kept.get_mut(&place).filter(|kept| kept.sent > 0) {
            let sent = kept.sent as u32;
            kept.remarked.extend(rows.iter().copied().filter(|row| *row < sent));
        }
    }

    /// These of the rows that `find` gave are marked now.
    pub(in crate::operators) fn marked_stored(
        &mut self,
        owner: &W::Owner,
        place: Place,
        found: &StoredRows,
        rows: &[u32],
    ) -> Result<(), EngineError> {
        let Some(store) = self.store.as_mut().filter(|_| !rows.is_empty()) else { return Ok(()) };
        let taken = found.take(&UInt32Array::from(rows.to_vec()));
        let pushed = taken.and_then(|taken| self.touched.entry(place).or_default().push(store, taken));
        pushed.map_err(|source| owner.kernel(source))
    }

    /// Those of the rows that memory has and that were marked since they were sent leave it: only the store has them now.
    pub(super) fn touch_remarked(&mut self, owner: &W::Owner, place: Place) -> Result<(), EngineError> {
        let (Some(store), Some(kept)) = (&mut self.store, self.kept.get_mut(&place)) else { return Ok(()) };
        let remarked = std::mem::take(&mut kept.remarked);
        if remarked.is_empty() {
            return Ok(());
        }
        let columns = owner.sides()[place.1].gather(&Part::kept(kept.rows.rows(), &remarked), remarked.len());
        let columns = columns.map_err(|source| owner.kernel(source))?;
        let keys = owner.sides()[place.1].keys(&columns);
        let numbers = remarked.iter().map(|row| kept.first + i64::from(*row)).collect();
        let pushed = self.touched.entry(place).or_default().push(store, StoredRows { columns, keys, numbers, marks: None });
        pushed.map_err(|source| owner.kernel(source))
    }
}

impl StoredRows {
    /// These of the rows.
    fn take(&self, rows: &UInt32Array) -> Result<Self, ArrowError> {
        let some = |columns: &[ArrayRef]| columns.iter().map(|column| take(column, rows, None)).collect::<Result<Vec<_>, _>>();
        let numbers = rows.values().iter().map(|row| self.numbers.value(*row as usize)).collect();
        Ok(Self { columns: some(&self.columns)?, keys: some(&self.keys)?, numbers, marks: None })
    }
}
