//! What was in the snapshot that the task starts from: in the store already, or rows that are taken in.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::TimestampMillisecondType;
use levada_state::keyed::HeapShare;

use super::super::restore::{RestoredRows, restored_rows};
use super::super::shape::Shape;
use super::store::PaneStore;
use super::{OpenPanes, open, recount};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::window::{Split, Window, split_windows};

impl OpenPanes {
    /// Opens the store, where there is one, and takes what was restored.
    pub(in super::super) fn open(
        &mut self,
        shape: &Shape,
        context: &OperatorContext,
        restored: Vec<RestoredState>,
    ) -> Result<(), EngineError> {
        match &context.cold {
            Some(stores) => self.store = Some(PaneStore::open(shape, stores.as_ref(), context.key_groups)?),
            None => self.share = Some(HeapShare::new(Arc::clone(&context.heap_budget))),
        }
        for rows in restored_rows(shape, context.key_groups, restored)? {
            self.take_restored(shape, &rows)?;
            if self.is_short() {
                self.empty(shape)?;
            }
        }
        self.begin_warming()?;
        self.count(shape, context)
    }

    fn take_restored(&mut self, shape: &Shape, restored: &RestoredRows) -> Result<(), EngineError> {
        let windows = match &restored.namespace {
            None => vec![(Window::WHOLE, Split::All)],
            Some(namespace) => {
                let namespace = namespace.as_struct();
                let bound = |at: usize| namespace.column(at).as_primitive::<TimestampMillisecondType>().values();
                split_windows(bound(0), bound(1))
            }
        };
        let mut ids = Vec::new();
        for (window, split) in windows {
            let rows = split.rows(restored.rows);
            let columns = |columns: &[ArrayRef]| split.columns(columns).map_err(|source| shape.kernel(source));
            self.intern(shape, window, &columns(&restored.keys)?, rows, &mut ids)?;
            let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), window, shape);
            pane.groups.merge(shape, pane.groups.groups(&ids, rows), &columns(&restored.states)?)?;
            recount(pane, &mut self.groups, &mut self.memory_bytes);
        }
        Ok(())
    }
}
