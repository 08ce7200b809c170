//! Rows that came and the rows of the other side that they meet, on their way out.

use std::collections::BTreeMap;

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::RecordBatch;
use levada_common::plan::{JoinKind, JoinSide};
use levada_state::key_index::ABSENT;

use super::super::shape::Shape;
use super::{Inserted, Pane, Reach};
use crate::error::EngineError;
use crate::operators::rows::{NO_ROW, Part};
use crate::operators::window::Window;

/// Rows of one pane of their own side, matched against panes of the other.
pub(super) struct Probe {
    side: JoinSide,
    columns: Vec<ArrayRef>,
    keys: Vec<ArrayRef>,
    times: ScalarBuffer<i64>,
    /// Their own pane, and the number of the first of them in it.
    own: Window,
    first: u32,
    /// Panes of the other side; the last one is the current one.
    reached: Vec<Window>,
    /// The rows' keys in the current pane, once they were looked up.
    ids: Vec<u32>,
    row: usize,
    /// The next row of the other side for this one, where it was begun.
    link: u32,
    own_rows: Vec<u32>,
    other_rows: Vec<u32>,
}

impl Probe {
    pub(super) fn new(side: JoinSide, inserted: Inserted, keys: Vec<ArrayRef>, reached: Vec<Window>) -> Self {
        let Inserted { window: own, columns, times, first } = inserted;
        let (ids, own_rows, other_rows) = (Vec::new(), Vec::new(), Vec::new());
        Self { side, columns, keys, times, own, first, reached, ids, row: 0, link: NO_ROW, own_rows, other_rows }
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        reach: &[Reach; 2],
        panes: &mut [BTreeMap<Window, Pane>; 2],
        rows_max: usize,
    ) -> Result<Option<RecordBatch>, EngineError> {
        let [left, right] = panes;
        let (own, other) = match self.side {
            JoinSide::Left => (left, right),
            JoinSide::Right => (right, left),
        };
        while let Some(window) = self.reached.last().copied() {
            let (Some(own), Some(other)) = (own.get_mut(&self.own), other.get_mut(&window)) else {
                return Err(shape.invariant("a pane was dropped before its rows had met"));
            };
            if self.ids.is_empty() {
                other.rows.find(&self.keys, self.times.len(), &mut self.ids);
            }
            self.own_rows.clear();
            self.other_rows.clear();
            self.collect(shape.kind, reach[self.side as usize], own, other, rows_max);
            if self.row == self.times.len() {
                self.reached.pop();
                self.ids.clear();
                self.row = 0;
            }
            let rows = self.own_rows.len().max(self.other_rows.len());
            if rows > 0 {
                let own = if self.own_rows.is_empty() { Part::Nothing } else { Part::of(&self.columns, &self.own_rows) };
                let other =
                    if self.other_rows.is_empty() { Part::Nothing } else { Part::kept(&other.rows.rows, &self.other_rows) };
                let parts = match self.side {
                    JoinSide::Left => [&own, &other],
                    JoinSide::Right => [&other, &own],
                };
                return shape.output(rows, parts, None).map(Some);
            }
        }
        Ok(None)
    }

    /// Goes on through the rows until `rows_max` are to go out.
    fn collect(&mut self, kind: JoinKind, reach: Reach, own: &mut Pane, other: &mut Pane, rows_max: usize) {
        let (marks_own, marks_other) = match self.side {
            JoinSide::Left => (kind.marks(JoinSide::Left), kind.marks(JoinSide::Right)),
            JoinSide::Right => (kind.marks(JoinSide::Right), kind.marks(JoinSide::Left)),
        };
        while self.row < self.times.len() {
            let (id, time, number) = (self.ids[self.row], self.times[self.row], self.first + self.row as u32);
            if self.link == NO_ROW && id != ABSENT {
                self.link = other.rows.newest(id);
            }
            while self.link != NO_ROW {
                if self.own_rows.len().max(self.other_rows.len()) == rows_max {
                    return;
                }
                let met = self.link;
                self.link = other.rows.before(met);
                if !reach.holds(time, other.times[met as usize]) {
                    continue;
                }
                let is_first = marks_own && own.marks.set(number);
                let is_others_first = marks_other && other.marks.set(met);
                match (kind, self.side) {
                    (JoinKind::Semi, JoinSide::Left) => {
                        if is_first {
                            self.own_rows.push(self.row as u32);
                        }
                    }
                    (JoinKind::Semi, JoinSide::Right) => {
                        if is_others_first {
                            self.other_rows.push(met);
                        }
                    }
                    (JoinKind::Anti, _) => {}
                    (JoinKind::Inner | JoinKind::Left | JoinKind::Right | JoinKind::Full, _) => {
                        self.own_rows.push(self.row as u32);
                        self.other_rows.push(met);
                    }
                }
            }
            self.row += 1;
        }
    }
}
