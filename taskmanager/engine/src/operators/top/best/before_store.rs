//! The best rows in front of a store: a key's rows come in and go out of memory all together.
//!
//! What rows are ordered by is in no store: it is computed again.

use arrow::array::ArrayRef;
use arrow::compute::filter;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_state::key_index::KeyIndex;
use levada_state::row_codec::STAMP_UNKNOWN;

use super::super::shape::Shape;
use super::Best;
use crate::error::EngineError;
use crate::operators::rows::{HeapParts, HeapsByKey, Held, KeyedRowStore, NO_ROW, Sweep, Taken};
use crate::operators::window::Window;

/// The best rows of a top-N, as a store sees them.
pub(in super::super) struct BestOf<'a> {
    pub(in super::super) shape: &'a Shape,
    pub(in super::super) best: &'a mut Best,
    pub(in super::super) sweep: Option<&'a Sweep>,
}

impl Best {
    /// Stands in front of a store from now on; what has no stamp there and needs one stands since `since_ms`.
    pub(in super::super) fn stand_before(
        &mut self,
        store: &mut KeyedRowStore,
        shape: &Shape,
        since_ms: i64,
    ) -> Result<(), EngineError> {
        self.stored = Some(store.open_rows(&shape.state, shape.entry_places(), since_ms)?);
        self.heap.stand_before_store();
        Ok(())
    }

    /// Likewise where keys are of windows. Answers the windows of which the store has rows.
    pub(in super::super) fn stand_by_window_before(
        &mut self,
        store: &mut KeyedRowStore,
        shape: &Shape,
    ) -> Result<Vec<Window>, EngineError> {
        self.stand_before(store, shape, STAMP_UNKNOWN)?;
        self.stored.as_ref().map_or(Ok(Vec::new()), |stored| store.windows(stored))
    }

    /// Takes out a row whose time to live is over.
    pub(in super::super) fn expire(&mut self, row: u32) {
        if let Some(stored) = self.stored.as_mut().filter(|_| !Sweep::is_unknown(&self.heap, row)) {
            // The store lets it expire by itself.
            stored.forgot(row);
        }
        self.remove(row);
    }
}

impl BestOf<'_> {
    /// The greatest number of entries of a scan.
    pub(in super::super) fn last_number(&self, entries: &RecordBatch) -> i64 {
        self.best.stored.as_ref().map_or(i64::MIN, |stored| stored.last_number(entries))
    }

    /// Has rows numbered from this one on, and nothing found below it.
    pub(in super::super) fn begin_at(&mut self, number: i64) {
        if let Some(stored) = &mut self.best.stored {
            stored.begin_at(number);
        }
    }
}

impl HeapsByKey for BestOf<'_> {
    fn index(&mut self) -> &mut KeyIndex {
        &mut self.best.index
    }

    fn known_keys(&self) -> &KeyIndex {
        &self.best.index
    }

    fn resize(&mut self) {
        self.best.lists.resize(self.best.index.len(), self.best.heap.numbers());
    }

    fn heaps(&self) -> usize {
        1
    }

    fn heap(&mut self, _at: usize) -> HeapParts<'_> {
        let stored = self.best.stored.as_mut().expect("rows are asked for after they were put before a store");
        HeapParts { stored, heap: &self.best.heap, marks: None }
    }

    fn take_in(&mut self, _at: usize, taken: Taken) -> Result<(), EngineError> {
        let Self { shape, best, sweep } = self;
        let Taken { mut keys, mut columns, .. } = taken;
        let fail = |source| shape.kernel(source);
        let living = sweep.zip(columns.last().and_then(Option::as_ref)).and_then(|(sweep, since)| sweep.living(since));
        if let Some(living) = living {
            for column in columns.iter_mut().flatten() {
                *column = filter(column, &living).map_err(fail)?;
            }
            let mut lives = living.values().iter();
            keys.retain(|_| lives.next().unwrap_or(false));
        }
        if keys.is_empty() {
            return Ok(());
        }
        let arrivals = columns[shape.order_place + 1].as_ref().expect("the store has when a row arrived");
        best.note_arrivals(arrivals);
        let orders = shape.orders(&shape.input_columns(|place| columns[place].clone(), keys.len()), arrivals)?;
        columns[shape.order_place] = Some(std::sync::Arc::new(orders.clone()));
        let columns: Vec<ArrayRef> = columns.into_iter().flatten().collect();
        let mut numbers = Vec::with_capacity(keys.len());
        best.heap.push(&columns, &mut numbers).map_err(fail)?;
        best.lists.resize(0, best.heap.numbers());
        if let Some(stored) = &mut best.stored {
            stored.is_there(&numbers);
        }
        // The best first: each goes to the front of its list, which has the worst there.
        let mut places: Vec<usize> = (0..keys.len()).collect();
        places.sort_unstable_by(|one, other| orders.value(*one).cmp(orders.value(*other)));
        let windows = shape.windows_of_rows(&columns);
        for at in places {
            if let Some((starts, ends)) = windows.filter(|_| best.lists.len(keys[at]) == 0) {
                best.windows.add(Window { start: starts[at], end: ends[at] }, keys[at]);
            }
            // There may be more than are kept now, where the limit was another one.
            best.enter(shape, keys[at], numbers[at], orders.value(at));
        }
        Ok(())
    }

    fn has_rows(&self, key: u32) -> bool {
        self.best.lists.len(key) > 0
    }

    fn forget_rows(&mut self, key: u32) {
        let best = &mut *self.best;
        if self.shape.windows.is_some() {
            best.windows.leave(key);
        }
        let mut row = best.lists.first(key);
        while row != NO_ROW {
            let next = best.lists.after(row);
            best.lists.remove(row);
            best.heap.remove(row);
            if let Some(stored) = &mut best.stored {
                stored.forgot(row);
            }
            row = next;
        }
    }

    fn kernel(&self, source: ArrowError) -> EngineError {
        self.shape.kernel(source)
    }

    fn held_bytes(&self) -> Held {
        let Best { index, heap, lists, .. } = &*self.best;
        let (keys, live) = (index.len(), index.live());
        let idle_keys = index.memory_bytes() / keys.max(1) * (keys - live);
        Held { bytes: self.best.memory_bytes(), idle_bytes: heap.idle_bytes() + lists.idle_bytes(heap.len(), live) + idle_keys }
    }
}
