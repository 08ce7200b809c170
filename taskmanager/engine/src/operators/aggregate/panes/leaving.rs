//! Panes that are dropped without going out: what a store has of them is deleted beside the rows, batch by batch.
//!
//! Until then such a pane is dead: nothing looks for it, and whoever restores a snapshot that has some of it drops the rest.

use std::collections::VecDeque;

use levada_state::cold::Scan;

use super::super::shape::Shape;
use super::OpenPanes;
use super::store::PaneStore;
use crate::error::EngineError;
use crate::operators::behind::failed;
use crate::operators::window::Window;

/// The panes, and how far the first one is.
#[derive(Default)]
pub(super) struct Leaving {
    windows: VecDeque<Window>,
    scan: Option<Scan>,
}

impl std::fmt::Debug for Leaving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leaving").field("windows", &self.windows).finish_non_exhaustive()
    }
}

impl Leaving {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }
}

impl OpenPanes {
    /// Drops the pane of `window`, which nothing needs any more.
    pub(in super::super) fn drop_pane(&mut self, shape: &Shape, window: Window) -> Result<(), EngineError> {
        let pane = self.pop(shape, window)?;
        if pane.has_more() {
            self.leaving.windows.push_back(window);
        }
        self.retire(pane);
        Ok(())
    }

    /// Deletes about so many rows of dropped panes from the store, none while it has enough to do or a generation is being sent;
    /// answers whether more remain.
    pub(in super::super) fn delete_leaving(&mut self, shape: &Shape, rows_max: usize) -> Result<bool, EngineError> {
        let Self { leaving: Leaving { windows, scan }, store: Some(store), saving: None, .. } = self else {
            return Ok(!self.leaving.is_empty());
        };
        let mut rows = 0;
        while rows < rows_max
            && let Some(window) = windows.front().copied()
            && store.behind.takes_more()?
        {
            let stored = match scan {
                Some(scan) => scan,
                None => scan.insert(store.scan(window, store.key_groups)?),
            };
            match stored.next() {
                Some(batch) => {
                    let gone = PaneStore::groups_of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
                    rows += gone.rows;
                    store.delete(shape, window, gone.keys, gone.rows)?;
                }
                None => {
                    *scan = None;
                    windows.pop_front();
                }
            }
        }
        Ok(!windows.is_empty())
    }
}
