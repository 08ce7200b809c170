//! Rows of single keys in panes that stay: those that memory has are there, those that only the store has are looked up.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use levada_state::cold::Addresses;

use super::store::StoredRows;
use super::{Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;

impl<W: Waiting> Panes<W> {
    /// What memory has there.
    ///
    /// Contract: it is not being read.
    pub(in crate::operators) fn kept_mut(&mut self, place: Place) -> Option<&mut W> {
        self.kept.get_mut(&place).map(|kept| Arc::get_mut(&mut kept.rows).expect("nothing is read of a pane that is searched"))
    }

    /// Whether the store may have rows there that memory does not.
    pub(in crate::operators) fn is_beyond(&self, place: Place) -> bool {
        self.store.as_ref().is_some_and(|store| store.is_beyond(place))
    }

    /// Every place, in memory or beyond it, in the order of the panes' ends.
    pub(in crate::operators) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let mut kept = self.kept.keys().copied().peekable();
        let mut beyond = self.store.iter().flat_map(|store| store.places()).peekable();
        std::iter::from_fn(move || {
            let next = match (kept.peek(), beyond.peek()) {
                (Some(one), Some(other)) => *one.min(other),
                (Some(one), None) | (None, Some(one)) => *one,
                (None, None) => return None,
            };
            kept.next_if_eq(&next);
            beyond.next_if_eq(&next);
            Some(next)
        })
    }

    /// The rows with one of these keys that only the store has there, all of a key at once; null is no key.
    pub(in crate::operators) fn find(
        &mut self,
        owner: &W::Owner,
        place: Place,
        keys: &[ArrayRef],
    ) -> Result<StoredRows, EngineError> {
        let rows = keys.first().map_or(0, |key| key.len());
        let is_key = |row: &u32| keys.iter().all(|key| key.is_valid(*row as usize));
        let valid: UInt32Array = (0..rows as u32).filter(is_key).collect();
        let taken = |rows: &UInt32Array, columns: &[ArrayRef]| {
            let columns = columns.iter().map(|column| take(column, rows, None)).collect::<Result<Vec<_>, _>>();
            columns.map_err(|source| owner.kernel(source))
        };
        let keys = taken(&valid, keys)?;
        let side = &owner.sides()[place.1];
        let Some(store) = self.store.as_mut().filter(|_| !valid.is_empty()) else { return Ok(StoredRows::none(side)) };
        let namespace = place.0.namespace_column(valid.len());
        let below_keys = Addresses { keys: keys.clone(), namespace, below: Vec::new(), rows: valid.len() };
        let loaded = store.load(place.1, &below_keys)?;
        let keys = taken(&UInt32Array::from(loaded.positions), &keys)?;
        let first = self.kept.get(&place).map_or(i64::MAX, |kept| kept.first);
        let values = &loaded.rows.columns()[1..];
        let numbers = loaded.rows.column(0).as_primitive::<Int64Type>().clone();
        let found = StoredRows::of_columns(side, &keys, numbers, values).below(first);
        let mut found = found.map_err(|source| owner.kernel(source))?;
        if let Some(touched) = self.touched.get(&place) {
            touched.mark(store, &mut found);
        }
        Ok(found)
    }
}
