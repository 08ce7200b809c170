//! Keys that are each of a window: those of one leave all together when it is over, and nobody asks for them again.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::state_schema::StateSchema;
use levada_state::cold::{Change, Scan, Scope, Within};

use super::{HeapsByKey, KeyedRowStore, StoredRows};
use crate::error::EngineError;
use crate::operators::window::Window;

impl KeyedRowStore {
    /// The windows of which the store has rows of a heap.
    pub(in crate::operators) fn windows(&mut self, stored: &StoredRows) -> Result<Vec<Window>, EngineError> {
        let found = self.behind.write_back.store().namespaces(stored.state, self.key_groups);
        Ok(found.map_err(|source| self.failed(source))?.into_iter().map(Window::of_store).collect())
    }

    /// Begins to visit what the store has of a window, in the order of its keys: rows of keys that memory has are among it. What is
    /// visited may be deleted on the way, so what is being sent is sent first: it has these rows.
    pub(in crate::operators) fn visit(&mut self, rows: &mut impl HeapsByKey, window: Window) -> Result<Scan, EngineError> {
        self.scan(rows, Within::Exactly(window.in_store()))
    }

    /// Likewise what it has of all windows.
    pub(in crate::operators) fn visit_all(&mut self, rows: &mut impl HeapsByKey) -> Result<Scan, EngineError> {
        self.scan(rows, Within::Any)
    }

    fn scan(&mut self, rows: &mut impl HeapsByKey, within: Within) -> Result<Scan, EngineError> {
        if self.is_sending() {
            self.send(rows, usize::MAX)?;
        }
        let state = rows.heap(0).stored.state;
        self.behind.scan(state, Scope { groups: self.key_groups, within })
    }

    /// A batch of a visit.
    pub(in crate::operators) fn visited(&self, scan: &mut Scan) -> Result<Option<RecordBatch>, EngineError> {
        scan.next().transpose().map_err(|source| self.failed(source))
    }

    /// Deletes rows that were visited, none of a key that memory has.
    pub(in crate::operators) fn delete(&mut self, rows: &mut impl HeapsByKey, visited: &RecordBatch) -> Result<(), EngineError> {
        if visited.num_rows() == 0 {
            return Ok(());
        }
        let state = rows.heap(0).stored.state;
        let addresses = self.behind.write_back.store().layout(state).addresses(visited);
        let deletes = Some(addresses.expect("a visit gives the layout's columns"));
        self.behind.change(state, Change { deletes, upserts: None })
    }

    /// Forgets those of these keys that have no rows any more, at once: their window is over. That their rows are gone is sent with
    /// the next generation.
    pub(in crate::operators) fn forget_over(&mut self, rows: &mut impl HeapsByKey, over: Vec<u32>) {
        for key in over {
            if self.live.get(key) && !rows.has_rows(key) {
                [&mut self.dirty, &mut self.emptied, &mut self.leaving].into_iter().for_each(|bits| bits.clear(key));
                self.drop_key(rows, key);
            }
        }
    }
}

/// What a store has of rows whose window belongs to their key: it knows the window of each, which the state itself does not.
pub(super) fn stored_schema(schema: &StateSchema) -> Arc<StateSchema> {
    Arc::new(StateSchema { windowed: true, ..schema.clone() })
}
