//! The window join: rows wait in their window's pane until it fires, then meet.
//!
//! Left rows are only kept; the right side is indexed as it comes, so that firing is a probe of its index by the left chunks, from
//! a cursor. For kinds that give left rows only, the right side keeps a row for each key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinKind, JoinSide};
use levada_common::time::Watermark;
use levada_state::key_index::ABSENT;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::StatePart;

use super::indexed::IndexedRows;
use super::shape::Shape;
use super::state;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::late::LateRows;
use crate::operators::rows::{Marks, NO_ROW, Part, RowBuffer};
use crate::operators::waiting;
use crate::operators::window::{Split, Window};

/// A join in event-time windows.
///
/// Shape of the output: as planned; append. Windows fire in the order of their ends. A row whose window has fired is late: dropped
/// and counted, or given beside the result where that is read.
pub(super) struct WindowJoin {
    shape: Arc<Shape>,
    panes: BTreeMap<Window, Pane>,
    firing: VecDeque<Firing>,
    watermark: i64,
    /// By side.
    late: [LateRows; 2],
    running: Option<(OperatorContext, HeapShare)>,
}

/// The rows of one window.
struct Pane {
    left: RowBuffer,
    right: IndexedRows,
}

impl Pane {
    fn new(shape: &Shape) -> Self {
        Self { left: RowBuffer::default(), right: IndexedRows::new(&shape.sides[1].key_types) }
    }

    /// Takes rows of a side.
    fn push(&mut self, shape: &Shape, side: usize, columns: &[ArrayRef]) -> Result<(), ArrowError> {
        if side == JoinSide::Left as usize {
            return self.left.push(columns);
        }
        let keys = shape.sides[side].keys(columns);
        if shape.kind.gives_pairs() { self.right.push(&keys, columns) } else { self.right.push_new_keys(&keys, columns) }
    }

    fn memory_bytes(&self) -> [usize; 2] {
        [self.left.memory_bytes(), self.right.memory_bytes()]
    }
}

impl WindowJoin {
    pub(super) fn new(shape: Arc<Shape>, late: [LateRows; 2]) -> Self {
        Self { shape, panes: BTreeMap::new(), firing: VecDeque::new(), watermark: i64::MIN, late, running: None }
    }

    /// Takes rows of a side into the panes of their windows; answers which are late.
    fn take_in(&mut self, side: usize, batch: &RecordBatch) -> Result<Vec<Split>, EngineError> {
        let shape = Arc::clone(&self.shape);
        let windows = shape.sides[side].windows.as_ref().ok_or_else(|| shape.invariant("the join is in no window"))?;
        let mut late = Vec::new();
        for (window, split) in windows.split(batch).map_err(|reason| shape.invariant(reason))? {
            if window.has_fired(self.watermark) {
                late.push(split);
                continue;
            }
            let columns = split.columns(batch.columns()).map_err(|source| shape.kernel(source))?;
            let pane = self.panes.entry(window).or_insert_with(|| Pane::new(&shape));
            pane.push(&shape, side, &columns).map_err(|source| shape.kernel(source))?;
        }
        Ok(late)
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let (mut bytes, mut rows) = ([0, 0], 0);
        for pane in self.panes.values().chain(self.firing.iter().map(|firing| &firing.pane)) {
            let [left, right] = pane.memory_bytes();
            bytes = [bytes[0] + left, bytes[1] + right];
            rows += pane.left.len() + pane.right.rows.len();
        }
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store((bytes[0] + bytes[1]) as u64, Ordering::Relaxed);
        state::charge(&self.shape, share, bytes)
    }
}

impl Operator for WindowJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.shape);
        let restored = waiting::read(&shape.uid, &shape.sides, context.key_groups, restored)?;
        for rows in restored.rows {
            self.take_in(rows.side, &rows.batch)?;
        }
        self.watermark = restored.watermark;
        self.late.iter_mut().for_each(|late| late.open(context));
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let kept = self.shape.sides[input].rows(batch.clone()).map_err(|source| self.shape.kernel(source))?;
        for split in self.take_in(input, &kept)? {
            self.late[input].take(&batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        let rows_max = context.batch_rows_max;
        while let Some(firing) = self.firing.front_mut() {
            if let Some(batch) = firing.next(&self.shape, rows_max)? {
                return Ok(Some(batch));
            }
            self.firing.pop_front();
            self.count()?;
        }
        Ok(None)
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        Ok(self.late.iter_mut().find_map(LateRows::poll))
    }

    fn has_output(&self) -> bool {
        !self.firing.is_empty() || self.late.iter().any(LateRows::has_some)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        // After a restore the sources' time starts anew; what has fired stays fired.
        self.watermark = self.watermark.max(watermark.0);
        while let Some(entry) = self.panes.first_entry().filter(|entry| entry.key().has_fired(watermark.0)) {
            let (window, pane) = entry.remove_entry();
            self.firing.push_back(Firing::new(window, pane, self.shape.kind));
        }
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let [left, right] = &self.shape.sides;
        let mut pieces = [Vec::new(), Vec::new()];
        for pane in self.panes.values() {
            waiting::save(left, &pane.left, None, &mut pieces[0]);
            waiting::save(right, &pane.right.rows, None, &mut pieces[1]);
        }
        Ok(state::parts(&self.shape, pieces, self.watermark))
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.advance(Watermark::MAX).map(|_| ())
    }
}

/// A pane on its way out.
struct Firing {
    window: Window,
    pane: Pane,
    stage: Stage,
    /// Right keys that a left row has met, where right rows that met none go out.
    met: Option<Marks>,
    left_rows: Vec<u32>,
    right_rows: Vec<u32>,
}

/// How far it is.
enum Stage {
    /// Left rows meet right ones.
    Probe {
        chunk: usize,
        /// The chunk's keys in the right index, once they were looked up.
        keys: Vec<u32>,
        row: usize,
        /// The next right row of this left one, where it was begun.
        link: u32,
    },
    /// Right rows of keys that met none, from this key and row.
    Unmatched { key: usize, link: u32 },
}

impl Firing {
    fn new(window: Window, pane: Pane, kind: JoinKind) -> Self {
        let met = kind.keeps_right().then(|| {
            let mut met = Marks::default();
            met.resize(pane.right.keys());
            met
        });
        let stage = Stage::Probe { chunk: 0, keys: Vec::new(), row: 0, link: NO_ROW };
        Self { window, pane, stage, met, left_rows: Vec::new(), right_rows: Vec::new() }
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    fn next(&mut self, shape: &Shape, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            self.left_rows.clear();
            self.right_rows.clear();
            match &self.stage {
                Stage::Probe { chunk, .. } if *chunk < self.pane.left.chunks().len() => {
                    let chunk = *chunk;
                    self.probe(shape, rows_max);
                    if self.left_rows.is_empty() {
                        continue;
                    }
                    let left = Part::of(&self.pane.left.chunks()[chunk].columns, &self.left_rows);
                    let right = match shape.kind.gives_pairs() {
                        true => Part::kept(&self.pane.right.rows, &self.right_rows),
                        false => Part::Nothing,
                    };
                    return shape.output(self.left_rows.len(), [&left, &right], Some(self.window)).map(Some);
                }
                Stage::Probe { .. } => self.stage = Stage::Unmatched { key: 0, link: NO_ROW },
                Stage::Unmatched { .. } => {
                    self.unmatched(rows_max);
                    if self.right_rows.is_empty() {
                        return Ok(None);
                    }
                    let right = Part::kept(&self.pane.right.rows, &self.right_rows);
                    return shape.output(self.right_rows.len(), [&Part::Nothing, &right], Some(self.window)).map(Some);
                }
            }
        }
    }

    /// Goes on through the current left chunk, and to the next one at its end.
    fn probe(&mut self, shape: &Shape, rows_max: usize) {
        let Stage::Probe { chunk: at, keys, row, link } = &mut self.stage else { return };
        let (chunk, right, kind) = (&self.pane.left.chunks()[*at], &mut self.pane.right, shape.kind);
        if keys.is_empty() {
            right.find(&shape.sides[0].keys(&chunk.columns), chunk.rows, keys);
            if let Some(met) = &mut self.met {
                keys.iter().filter(|key| **key != ABSENT).for_each(|key| {
                    met.set(*key);
                });
            }
        }
        while *row < chunk.rows && self.left_rows.len() < rows_max {
            let key = keys[*row];
            match kind {
                JoinKind::Semi | JoinKind::Anti => {
                    if (key == ABSENT) == (kind == JoinKind::Anti) {
                        self.left_rows.push(*row as u32);
                    }
                }
                _ if key == ABSENT => {
                    if kind.keeps_left() {
                        self.left_rows.push(*row as u32);
                        self.right_rows.push(NO_ROW);
                    }
                }
                _ => {
                    if *link == NO_ROW {
                        *link = right.newest(key);
                    }
                    while *link != NO_ROW && self.left_rows.len() < rows_max {
                        self.left_rows.push(*row as u32);
                        self.right_rows.push(*link);
                        *link = right.before(*link);
                    }
                    if *link != NO_ROW {
                        return;
                    }
                }
            }
            *row += 1;
        }
        if *row == chunk.rows {
            keys.clear();
            (*at, *row) = (*at + 1, 0);
        }
    }

    /// Collects right rows whose key no left row has.
    fn unmatched(&mut self, rows_max: usize) {
        let (Stage::Unmatched { key, link }, Some(met)) = (&mut self.stage, &self.met) else { return };
        let right = &self.pane.right;
        while self.right_rows.len() < rows_max && *key < right.keys() {
            if met.has(*key as u32) {
                *key += 1;
                continue;
            }
            if *link == NO_ROW {
                *link = right.newest(*key as u32);
            }
            while *link != NO_ROW && self.right_rows.len() < rows_max {
                self.right_rows.push(*link);
                *link = right.before(*link);
            }
            if *link == NO_ROW {
                *key += 1;
            }
        }
    }
}
