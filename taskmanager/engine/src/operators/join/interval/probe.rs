//! Rows that came and the rows of the other side that they meet, on their way out.
//!
//! Of each pane that they reach first what memory has of it, then what only a store has, which is looked up for some of the rows at a
//! time.

use arrow::array::ArrayRef;
use arrow::buffer::ScalarBuffer;
use arrow::record_batch::RecordBatch;
use levada_common::plan::{JoinKind, JoinSide};
use levada_state::key_index::ABSENT;

use super::super::shape::Shape;
use super::rows::IntervalRows;
use super::{Inserted, Reach};
use crate::error::EngineError;
use crate::operators::rows::{Marks, NO_ROW, Part};
use crate::operators::waiting::{Panes, Place, StoredRows, Waiting};
use crate::operators::window::Window;

/// Rows whose keys are looked up in a store at once.
const LOOKED_UP_ROWS: usize = 1024;

/// Rows of one pane of their own side, matched against panes of the other.
pub(super) struct Probe {
    side: JoinSide,
    columns: Vec<ArrayRef>,
    keys: Vec<ArrayRef>,
    times: ScalarBuffer<i64>,
    /// Their own pane, and the number of the first of them in it.
    own: Place,
    first: u32,
    /// Which of them have met one, where that must be known.
    own_met: Option<Marks>,
    /// Panes of the other side; the last one is the current one.
    reached: Vec<Window>,
    /// Where in it they are matched.
    stage: Stage,
    cursor: Cursor,
}

enum Stage {
    /// In memory.
    Kept,
    /// In the store: what it has for the rows below `end`.
    Stored { end: usize, looked_up: Option<Box<LookedUp>> },
}

/// What was found in the store, and its rows by key.
type LookedUp = (StoredRows, IntervalRows);

/// How far it is.
#[derive(Default)]
struct Cursor {
    /// The number of the first row whose key is in `ids`.
    ids_from: usize,
    /// The rows' keys among the others, once they were looked up.
    ids: Vec<u32>,
    row: usize,
    /// The next row of the other side for this one, where it was begun.
    link: Option<u32>,
    own_rows: Vec<u32>,
    other_rows: Vec<u32>,
    /// Rows that met their first one.
    new_own: Vec<u32>,
    new_others: Vec<u32>,
}

impl Probe {
    pub(super) fn new(inserted: Inserted, keys: Vec<ArrayRef>, reached: Vec<Window>) -> Self {
        let Inserted { place: own, columns, times, first } = inserted;
        let (side, stage, cursor) = (JoinSide::ALL[own.1], Stage::Kept, Cursor::default());
        Self { side, columns, keys, times, own, first, own_met: None, reached, stage, cursor }
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    pub(super) fn next(
        &mut self,
        shape: &Shape,
        reach: &[Reach; 2],
        panes: &mut Panes<IntervalRows>,
        rows_max: usize,
    ) -> Result<Option<RecordBatch>, EngineError> {
        while let Some(window) = self.reached.last().copied() {
            let place = (window, 1 - self.side as usize);
            if let Some(batch) = self.collect(shape, reach[self.side as usize], (panes, place), rows_max)? {
                return Ok(Some(batch));
            }
            if self.cursor.row < self.times.len() {
                continue;
            }
            // To the rows that only the store has of the pane, or to the next pane.
            self.cursor = Cursor::default();
            self.stage = match self.stage {
                Stage::Kept if panes.is_beyond(place) => Stage::Stored { end: 0, looked_up: None },
                Stage::Kept | Stage::Stored { .. } => {
                    self.reached.pop();
                    Stage::Kept
                }
            };
        }
        Ok(None)
    }

    /// Goes on in the current pane; the rows that go out, if there are some.
    fn collect(
        &mut self,
        shape: &Shape,
        reach: Reach,
        (panes, place): (&mut Panes<IntervalRows>, Place),
        rows_max: usize,
    ) -> Result<Option<RecordBatch>, EngineError> {
        let rows = self.times.len();
        let Self { cursor, times, own_met, side, keys, stage, .. } = self;
        let (others, end) = match stage {
            Stage::Kept => (panes.kept_mut(place), rows),
            Stage::Stored { end, looked_up } => {
                if cursor.row == *end && *end < rows {
                    *end = rows.min(*end + LOOKED_UP_ROWS);
                    let some: Vec<ArrayRef> = keys.iter().map(|key| key.slice(cursor.row, *end - cursor.row)).collect();
                    let found = panes.find(shape, place, &some)?;
                    let mut others = IntervalRows::new(shape, place.1);
                    if found.len() > 0 {
                        let pushed = others.push(shape, place.1, &found.columns, found.marks.as_ref());
                        pushed.map_err(|source| shape.kernel(source))?;
                    }
                    cursor.ids.clear();
                    *looked_up = Some(Box::new((found, others)));
                }
                (looked_up.as_mut().map(|looked_up| &mut looked_up.1), *end)
            }
        };
        let Some(others) = others else {
            cursor.row = rows;
            return Ok(None);
        };
        if cursor.ids.is_empty() {
            cursor.ids_from = cursor.row;
            let some: Vec<ArrayRef> = keys.iter().map(|key| key.slice(cursor.row, end - cursor.row)).collect();
            others.indexed.by_key.find(&some, end - cursor.row, &mut cursor.ids);
        }
        if own_met.is_none() && shape.kind.marks(*side) {
            let mut met = Marks::default();
            met.resize(rows);
            *own_met = Some(met);
        }
        cursor.collect(times, reach, (shape.kind, *side), (own_met.as_mut(), others), (end, rows_max));
        let batch = self.batch(shape, panes, place)?;
        self.mark(shape, panes, place)?;
        Ok(batch)
    }

    /// The rows that were collected.
    fn batch(
        &mut self,
        shape: &Shape,
        panes: &mut Panes<IntervalRows>,
        place: Place,
    ) -> Result<Option<RecordBatch>, EngineError> {
        let Cursor { own_rows, other_rows, .. } = &self.cursor;
        let rows = own_rows.len().max(other_rows.len());
        if rows == 0 {
            return Ok(None);
        }
        let others = match &self.stage {
            Stage::Kept => panes.kept_mut(place).map(|others| &*others),
            Stage::Stored { looked_up, .. } => looked_up.as_ref().map(|looked_up| &looked_up.1),
        };
        let own = if own_rows.is_empty() { Part::Nothing } else { Part::of(&self.columns, own_rows) };
        let other = match others {
            Some(others) if !other_rows.is_empty() => Part::kept(&others.indexed.rows, other_rows),
            _ => Part::Nothing,
        };
        let parts = match self.side {
            JoinSide::Left => [&own, &other],
            JoinSide::Right => [&other, &own],
        };
        shape.output(rows, parts, None).map(Some)
    }

    /// Notes who met its first one.
    fn mark(&mut self, shape: &Shape, panes: &mut Panes<IntervalRows>, place: Place) -> Result<(), EngineError> {
        let (new_own, new_others) = (&mut self.cursor.new_own, &mut self.cursor.new_others);
        if !new_own.is_empty() {
            new_own.iter_mut().for_each(|row| *row += self.first);
            if let Some(met) = panes.kept_mut(self.own).and_then(|own| own.met.as_mut()) {
                for row in &*new_own {
                    met.set(*row);
                }
            }
            panes.marked(self.own, new_own);
        }
        match &self.stage {
            Stage::Kept => panes.marked(place, new_others),
            Stage::Stored { looked_up, .. } => {
                if let Some((found, _)) = looked_up.as_deref() {
                    panes.marked_stored(shape, place, found, new_others)?;
                }
            }
        }
        new_own.clear();
        new_others.clear();
        Ok(())
    }
}

impl Cursor {
    /// Goes on through the rows below `end` until `rows_max` are to go out.
    fn collect(
        &mut self,
        times: &[i64],
        reach: Reach,
        (kind, side): (JoinKind, JoinSide),
        (mut own_met, others): (Option<&mut Marks>, &mut IntervalRows),
        (end, rows_max): (usize, usize),
    ) {
        self.own_rows.clear();
        self.other_rows.clear();
        while self.row < end {
            let (id, time) = (self.ids[self.row - self.ids_from], times[self.row]);
            let mut link =
                self.link.take().unwrap_or_else(|| if id == ABSENT { NO_ROW } else { others.indexed.by_key.newest(id) });
            while link != NO_ROW {
                if self.own_rows.len().max(self.other_rows.len()) == rows_max {
                    self.link = Some(link);
                    return;
                }
                let met = link;
                link = others.indexed.by_key.before(met);
                if !reach.holds(time, others.times[met as usize]) {
                    continue;
                }
                let is_first = own_met.as_mut().is_some_and(|own| own.set(self.row as u32));
                let is_others_first = others.met.as_mut().is_some_and(|others| others.set(met));
                if is_first {
                    self.new_own.push(self.row as u32);
                }
                if is_others_first {
                    self.new_others.push(met);
                }
                match (kind, side) {
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
