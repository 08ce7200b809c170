//! What was in the snapshot that the task starts from: rows that are taken in, and rows that are in the store already.
//!
//! Those that the store has in panes of the operator's stay where they are. Others come out of files, which know no panes, or are there
//! from a job with other windows: they are read once, in bounded pieces, and put into panes like rows that come, before the first one
//! does.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::BooleanArray;
use arrow::record_batch::RecordBatch;
use levada_common::planned_state::ROW_NUMBERS;
use levada_state::cold::Scan;
use levada_state::keyed::HeapShare;

use super::store::{PanesStore, StoredRows};
use super::{Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::behind::failed;
use crate::operators::event_time::restored_number;
use crate::operators::waiting;
use crate::operators::window::Window;

/// The places in the store that are no panes, and how far the first one is.
#[derive(Default)]
pub(super) struct Unplaced {
    places: VecDeque<Place>,
    scan: Option<Scan>,
}

/// Rows that are to be put into panes, in the columns that are kept.
pub(in crate::operators) struct RestoredBatch {
    pub(in crate::operators) side: usize,
    pub(in crate::operators) batch: RecordBatch,
    pub(in crate::operators) marks: Option<BooleanArray>,
}

impl<W: Waiting> Panes<W> {
    /// Opens the store, where there is one, and takes what was restored: `take` puts rows into panes, of which `has_pane` says whether
    /// the operator has it.
    ///
    /// Contract: how far time had come was taken out of `restored`.
    ///
    /// Errors: `Restore` where another state, column or type was saved than the operator has.
    pub(in crate::operators) fn open(
        &mut self,
        owner: &W::Owner,
        context: &OperatorContext,
        mut restored: Vec<RestoredState>,
        has_pane: impl Fn(Place) -> bool,
        mut take: impl FnMut(&mut Self, RestoredBatch) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let has_numbers = restored.iter().any(|state| state.name == ROW_NUMBERS);
        let numbers_end = restored_number(owner.uid(), ROW_NUMBERS, &mut restored)?;
        match PanesStore::open(owner, context, has_numbers.then_some(numbers_end))? {
            None => self.share = Some(HeapShare::new(Arc::clone(&context.heap_budget))),
            Some((mut store, has)) => {
                for place in has {
                    if place.0 == Window::WHOLE || !has_pane(place) {
                        self.unplaced.places.push_back(place);
                    } else if has_numbers {
                        store.has_beyond(place, numbers_end);
                    } else {
                        return Err(EngineError::Restore {
                            uid: owner.uid().clone(),
                            state: ROW_NUMBERS.into(),
                            reason:
                                "it is missing, though the database has rows, whose numbers it limits; restore it too, or drop \
                                     the rows as well"
                                    .into(),
                        });
                    }
                }
                self.store = Some(store);
            }
        }
        for rows in waiting::read(owner.uid(), owner.sides(), context.key_groups, restored)? {
            take(self, RestoredBatch { side: rows.side, batch: rows.batch, marks: rows.marks })?;
            self.settle(owner)?;
        }
        for (at, side) in owner.sides().iter().enumerate() {
            let fetched = context.cold.iter().flat_map(|stores| stores.take_fetched(owner.uid(), &side.state.name));
            for batch in fetched.flatten() {
                let batch = batch.map_err(|source| failed(owner.uid(), source))?;
                let read = waiting::read_batch(owner.uid(), owner.sides(), context.key_groups, (at, &batch))?;
                let Some(rows) = read else { continue };
                take(self, RestoredBatch { side: at, batch: rows.batch, marks: rows.marks })?;
                self.settle(owner)?;
            }
        }
        while let Some(rows) = self.next_unplaced(owner)? {
            take(self, rows)?;
            self.settle(owner)?;
        }
        Ok(())
    }

    /// The next rows of the store that are in no pane; they are deleted where they were.
    fn next_unplaced(&mut self, owner: &W::Owner) -> Result<Option<RestoredBatch>, EngineError> {
        let Some(store) = &mut self.store else { return Ok(None) };
        while let Some(place @ (window, side)) = self.unplaced.places.front().copied() {
            let scan = match &mut self.unplaced.scan {
                Some(scan) => scan,
                None => self.unplaced.scan.insert(store.scan(place, store.key_groups)?),
            };
            let Some(batch) = scan.next() else {
                self.unplaced.scan = None;
                self.unplaced.places.pop_front();
                continue;
            };
            let shape = &owner.sides()[side];
            let rows = StoredRows::of(shape, &batch.map_err(|source| failed(owner.uid(), source))?);
            store.delete(side, rows.addresses(window))?;
            let batch = shape.batch(rows.columns).map_err(|source| owner.kernel(source))?;
            return Ok(Some(RestoredBatch { side, batch, marks: rows.marks }));
        }
        Ok(None)
    }
}
