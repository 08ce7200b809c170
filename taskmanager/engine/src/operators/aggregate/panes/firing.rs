//! Panes on their way out: a cursor over their groups, never a copy of the rows. A pane of which a store has more ends a batch,
//! so that the rest comes before the next pane.

use std::collections::VecDeque;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::rows::Rows;

use super::super::group_table::GroupTable;
use super::super::shape::Shape;
use super::Pane;
use crate::error::EngineError;
use crate::operators::window::Window;

/// Panes that fire, in order.
#[derive(Debug, Default)]
pub(in super::super) struct Firing {
    panes: VecDeque<Pane>,
    /// Next group of the first pane.
    cursor: usize,
    /// Panes that are out.
    done: Vec<Pane>,
}

impl Firing {
    /// Puts a pane at the end.
    pub(in super::super) fn push(&mut self, pane: Pane) {
        self.panes.push_back(pane);
    }

    /// Whether there is a pane that is not out.
    pub(in super::super) fn is_pending(&self) -> bool {
        !self.panes.is_empty()
    }

    /// The next rows, at most `rows_max`; several small panes share a batch. `columns` reads groups of a window out.
    pub(in super::super) fn next(
        &mut self,
        shape: &Shape,
        rows_max: usize,
        columns: impl Fn(Window, &GroupTable, Rows<'_>) -> Result<Vec<ArrayRef>, EngineError>,
    ) -> Result<Option<RecordBatch>, EngineError> {
        let (mut parts, mut rows) = (Vec::new(), 0);
        while rows < rows_max
            && let Some(pane) = self.panes.front()
        {
            let (start, end) = (self.cursor, pane.groups.len().min(self.cursor + rows_max - rows));
            if end > start {
                parts.push(shape.output(columns(pane.window, &pane.groups, Rows::Span { start, end })?)?);
                rows += end - start;
            }
            self.cursor = end;
            if end == pane.groups.len() {
                let has_more = pane.has_more();
                self.done.extend(self.panes.pop_front());
                self.cursor = 0;
                if has_more {
                    break;
                }
            }
        }
        shape.joined(parts)
    }

    /// The panes that are out since the last call; of the last one a store may have more.
    pub(in super::super) fn take_done(&mut self) -> impl Iterator<Item = Pane> + '_ {
        self.done.drain(..)
    }
}
