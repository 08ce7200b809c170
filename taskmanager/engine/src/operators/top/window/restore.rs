//! What was in the snapshot that the task starts from: rows of files and of memory, which are taken in, and rows that the store has.
//!
//! Those that the store has in windows of the operator's stay there. Others are there from a job with other windows: they are read
//! once, batch by batch, and taken in like rows that come, before the first one does. Where that job had rows in their windows by other
//! columns than the operator, any may be in a wrong one, and all are moved: those that were are told by their numbers from those that are
//! there again.

use levada_state::cold::Scan;

use super::super::shape::RestoredRows;
use super::WindowTop;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::behind::failed;
use crate::operators::rows::KeyedRowStore;
use crate::operators::window::{Window, was_placed};

impl WindowTop {
    /// Opens the store, where there is one, and takes what was restored.
    ///
    /// Contract: how far time had come was taken out of `restored`.
    ///
    /// Errors: `Restore` where another state, column or type was saved than the operator has.
    pub(super) fn restore(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let is_placed = was_placed(&self.shape.uid, &self.shape.placed_by, &mut restored)?;
        let windows = self.stand_before_store(context)?;
        let elsewhere = match is_placed || windows.is_empty() {
            true => self.keep_own(windows),
            false => {
                self.move_all()?;
                Vec::new()
            }
        };
        for rows in self.shape.restored(context.key_groups, restored)? {
            self.take_restored(rows)?;
        }
        let (uid, state) = (&self.shape.uid, &self.shape.state.name);
        let fetched = context.cold.as_ref().map_or_else(Vec::new, |stores| stores.take_fetched(uid, state));
        for batch in fetched.into_iter().flatten() {
            let batch = batch.map_err(|source| failed(&self.shape.uid, source))?;
            if let Some(rows) = self.shape.restored_batch(context.key_groups, &batch)? {
                self.take_restored(rows)?;
            }
        }
        elsewhere.into_iter().try_for_each(|window| self.take_from(window))
    }

    /// Opens the store; answers the windows of which it has rows.
    fn stand_before_store(&mut self, context: &OperatorContext) -> Result<Vec<Window>, EngineError> {
        let Some(stores) = &context.cold else { return Ok(Vec::new()) };
        let store = KeyedRowStore::open(&self.shape.uid, &self.shape.clause, stores, context.key_groups)?;
        self.best.stand_by_window_before(self.store.insert(store), &self.shape)
    }

    /// Keeps of these windows those that are the operator's in the store; answers the others.
    fn keep_own(&mut self, windows: Vec<Window>) -> Vec<Window> {
        let source = self.shape.windows.as_ref().expect("it is in windows");
        let is_own = |window: &Window| *window != Window::WHOLE && source.has(*window);
        let (own, elsewhere): (Vec<_>, Vec<_>) = windows.into_iter().partition(is_own);
        own.into_iter().for_each(|window| self.best.windows.has_beyond(window));
        elsewhere
    }

    /// Takes in what the store has of a window that is none of the operator's.
    fn take_from(&mut self, window: Window) -> Result<(), EngineError> {
        let Some((store, mut best)) = self.before_store() else { return Ok(()) };
        let scan = store.visit(&mut best, window)?;
        self.take_scanned(scan)
    }

    /// Takes in everything that the store has.
    fn move_all(&mut self) -> Result<(), EngineError> {
        let Some((store, mut best)) = self.before_store() else { return Ok(()) };
        let (mut scan, mut last) = (store.visit_all(&mut best)?, -1);
        while let Some(batch) = store.visited(&mut scan)? {
            last = last.max(best.last_number(&batch));
        }
        best.begin_at(last + 1);
        let scan = store.visit_all(&mut best)?;
        self.take_scanned(scan)
    }

    /// Takes in rows out of the store, which has them no longer where they were.
    fn take_scanned(&mut self, mut scan: Scan) -> Result<(), EngineError> {
        while let Some((store, mut best)) = self.before_store()
            && let Some(batch) = store.visited(&mut scan)?
        {
            store.delete(&mut best, &batch)?;
            let rows = self.shape.columns(&batch).map_err(|reason| self.shape.invariant(reason))?;
            self.take_restored(rows)?;
        }
        Ok(())
    }

    /// Takes rows of a snapshot in, whatever time had come.
    fn take_restored(&mut self, RestoredRows { columns, stamps }: RestoredRows) -> Result<(), EngineError> {
        self.best.note_arrivals(&stamps.arrivals);
        let (mut batch, mut arrivals) = (self.shape.batch(columns)?, stamps.arrivals);
        while batch.num_rows() > 0 {
            let ready = self.load(&batch, i64::MIN)?;
            self.take_in(&batch.slice(0, ready), &arrivals.slice(0, ready), i64::MIN)?;
            let rest = batch.num_rows() - ready;
            (batch, arrivals) = (batch.slice(ready, rest), arrivals.slice(ready, rest));
            self.settle()?;
        }
        Ok(())
    }

    /// Lets rows go where memory is short.
    fn settle(&mut self) -> Result<(), EngineError> {
        self.best.tidy(&self.shape, None)?;
        self.before_store().map_or(Ok(()), |(store, mut best)| store.settle(&mut best))
    }
}
