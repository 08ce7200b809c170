//! Bringing in what a store had when the task began, beside the rows, as long as there is room.
//!
//! An aggregation without windows would ask its store for every new key for ever, though soon nothing may be left there that memory
//! does not have. So its groups are read once, in the order of the store, a batch at a time; at the end nobody asks any more. What
//! memory has is never older than what is read, and nothing may leave memory meanwhile, or the view that is read would bring an old
//! group back: whoever lets groups go ends it.

use levada_state::cold::Scan;

use super::super::shape::Shape;
use super::store::{PaneStore, StoredGroups};
use super::{OpenPanes, Window, open, recount};
use crate::error::EngineError;
use crate::operators::behind::failed;

/// A visit to all groups of the whole stream.
pub(super) struct Warming {
    scan: Scan,
}

impl std::fmt::Debug for Warming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warming").finish_non_exhaustive()
    }
}

impl OpenPanes {
    /// Begins, where the store has groups of the whole stream and there is room for some.
    pub(super) fn begin_warming(&mut self) -> Result<(), EngineError> {
        let is_short = self.is_short();
        if let Some(store) = self.store.as_mut().filter(|store| !is_short && store.beyond.contains(&Window::WHOLE)) {
            self.warming = Some(Warming { scan: store.scan(Window::WHOLE, store.key_groups)? });
        }
        Ok(())
    }

    /// Brings in a further batch; answers whether more may be left.
    pub(super) fn warm(&mut self, shape: &Shape) -> Result<bool, EngineError> {
        if self.is_short() {
            self.warming = None;
        }
        let Some(warming) = &mut self.warming else { return Ok(false) };
        match warming.scan.next() {
            Some(batch) => {
                let stored = PaneStore::groups_of(shape, &batch.map_err(|source| failed(&shape.uid, source))?);
                self.take_warmed(shape, &stored)?;
            }
            None => {
                self.warming = None;
                if let Some(store) = &mut self.store {
                    store.beyond.remove(&Window::WHOLE);
                }
                let pane = self.panes.get_mut(&Window::WHOLE);
                pane.and_then(|pane| pane.stored.as_mut()).into_iter().for_each(|stored| stored.has_more = false);
            }
        }
        Ok(self.warming.is_some())
    }

    /// Takes those groups in that memory does not have. They are as the store has them.
    fn take_warmed(&mut self, shape: &Shape, stored: &StoredGroups) -> Result<(), EngineError> {
        let pane = open(&mut self.panes, (self.store.as_ref(), &mut self.spare), Window::WHOLE, shape);
        let absent = stored.absent_from(shape, &mut pane.groups)?;
        if absent.rows > 0 {
            pane.groups.absorb(shape, &absent.keys, absent.rows, &absent.states)?;
            pane.frozen.resize(pane.groups.len());
            recount(pane, &mut self.groups, &mut self.memory_bytes);
        }
        Ok(())
    }
}
