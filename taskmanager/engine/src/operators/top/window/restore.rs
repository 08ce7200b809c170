//! What was in the snapshot that the task starts from: rows of files and of memory, which are taken in, and rows that the store has.
//!
//! Those that the store has in windows of the operator's stay there. Others are there from a job with other windows: they are read
//! once, batch by batch, and taken in like rows that come, before the first one does.

use super::super::shape::RestoredRows;
use super::WindowTop;
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::behind::failed;
use crate::operators::rows::KeyedRowStore;
use crate::operators::window::Window;

impl WindowTop {
    /// Opens the store, where there is one, and takes what was restored.
    ///
    /// Contract: how far time had come was taken out of `restored`.
    ///
    /// Errors: `Restore` where another state, column or type was saved than the operator has.
    pub(super) fn restore(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let elsewhere = self.stand_before_store(context)?;
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

    /// Opens the store; answers the windows of which it has rows and that are none of the operator's.
    fn stand_before_store(&mut self, context: &OperatorContext) -> Result<Vec<Window>, EngineError> {
        let Some(stores) = &context.cold else { return Ok(Vec::new()) };
        let store = KeyedRowStore::open(&self.shape.uid, &self.shape.clause, stores, context.key_groups)?;
        let windows = self.best.stand_by_window_before(self.store.insert(store), &self.shape)?;
        let source = self.shape.windows.as_ref().expect("it is in windows");
        let is_own = |window: &Window| *window != Window::WHOLE && source.has(*window);
        let (own, elsewhere): (Vec<_>, Vec<_>) = windows.into_iter().partition(is_own);
        own.into_iter().for_each(|window| self.best.windows.has_beyond(window));
        Ok(elsewhere)
    }

    /// Takes in what the store has of a window that is none of the operator's.
    fn take_from(&mut self, window: Window) -> Result<(), EngineError> {
        let Some((store, mut best)) = self.before_store() else { return Ok(()) };
        let mut scan = store.visit(&mut best, window)?;
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
