//! A window that fires, or the part of one that was read: left rows meet right ones, from a cursor.

use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::plan::JoinKind;
use levada_state::key_index::ABSENT;

use super::super::indexed::RowsByKey;
use super::super::shape::Shape;
use super::WindowRows;
use crate::error::EngineError;
use crate::operators::rows::{Marks, NO_ROW, Part, RowBuffer, rows_of};
use crate::operators::waiting::{ReadRows, Waiting};
use crate::operators::window::Window;

/// Rows of a window on their way out.
pub(super) struct Firing {
    window: Window,
    /// By side, pane by pane.
    rows: [Vec<Arc<WindowRows>>; 2],
    /// The right ones, numbered over all panes.
    right: RowsByKey,
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
        /// Which chunk of left rows, over all panes.
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
    /// Of what was read of the window.
    pub(super) fn new(shape: &Shape, window: Window, read: ReadRows<WindowRows>) -> Self {
        let mut rows = [Vec::new(), Vec::new()];
        read.into_iter().for_each(|(side, pane)| rows[side].push(pane));
        let right = by_key(shape, &mut rows[1]);
        let met = shape.kind.keeps_right().then(|| {
            let mut met = Marks::default();
            met.resize(right.keys());
            met
        });
        let stage = Stage::Probe { chunk: 0, keys: Vec::new(), row: 0, link: NO_ROW };
        Self { window, rows, right, stage, met, left_rows: Vec::new(), right_rows: Vec::new() }
    }

    /// What is held, as it is counted: by side, bytes and rows. What is still in panes is counted there.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let panes = self.rows.iter().enumerate().flat_map(|(side, panes)| panes.iter().map(move |pane| (side, pane)));
        let own = panes.filter(|(_, pane)| Arc::strong_count(pane) == 1);
        let own = own.map(|(side, pane)| (side, pane.memory_bytes(), pane.rows().len()));
        own.chain([(1, self.right.memory_bytes(), 0)])
    }

    /// The next rows, at most `rows_max`; `None` at the end.
    pub(super) fn next(&mut self, shape: &Shape, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        loop {
            self.left_rows.clear();
            self.right_rows.clear();
            match &self.stage {
                Stage::Probe { chunk, .. } => {
                    let chunk = *chunk;
                    if !self.probe(shape, rows_max) {
                        self.stage = Stage::Unmatched { key: 0, link: NO_ROW };
                    } else if !self.left_rows.is_empty() {
                        return self.met(shape, chunk).map(Some);
                    }
                }
                Stage::Unmatched { .. } => {
                    self.unmatched(rows_max);
                    if self.right_rows.is_empty() {
                        return Ok(None);
                    }
                    let right = rows_of(&buffers(&self.rows[1]), &self.right_rows);
                    return shape.output(self.right_rows.len(), [&Part::Nothing, &right], Some(self.window)).map(Some);
                }
            }
        }
    }

    /// The rows that were collected of a chunk of left rows.
    fn met(&self, shape: &Shape, chunk: usize) -> Result<RecordBatch, EngineError> {
        let left = buffers(&self.rows[0]);
        let chunk = left.iter().flat_map(|rows| rows.chunks()).nth(chunk).expect("it was probed");
        let left = Part::of(&chunk.columns, &self.left_rows);
        let right = match shape.kind.gives_pairs() {
            true => rows_of(&buffers(&self.rows[1]), &self.right_rows),
            false => Part::Nothing,
        };
        shape.output(self.left_rows.len(), [&left, &right], Some(self.window))
    }

    /// Goes on through the current left chunk, and to the next one at its end; whether there is one.
    fn probe(&mut self, shape: &Shape, rows_max: usize) -> bool {
        let Stage::Probe { chunk: at, keys, row, link } = &mut self.stage else { return false };
        let mut chunks = self.rows[0].iter().flat_map(|pane| pane.rows().chunks());
        let Some(chunk) = chunks.nth(*at) else { return false };
        let (right, kind) = (&mut self.right, shape.kind);
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
                        return true;
                    }
                }
            }
            *row += 1;
        }
        if *row == chunk.rows {
            keys.clear();
            (*at, *row) = (*at + 1, 0);
        }
        true
    }

    /// Collects right rows whose key no left row has.
    fn unmatched(&mut self, rows_max: usize) {
        let (Stage::Unmatched { key, link }, Some(met)) = (&mut self.stage, &self.met) else { return };
        let right = &self.right;
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

/// Right rows by key: as they were kept where they are of one pane that nothing else has, else found now.
fn by_key(shape: &Shape, panes: &mut [Arc<WindowRows>]) -> RowsByKey {
    let side = &shape.sides[1];
    let mut found = RowsByKey::new(&side.key_types);
    if let [pane] = panes
        && let Some(WindowRows::Indexed(rows)) = Arc::get_mut(pane)
    {
        return std::mem::replace(&mut rows.by_key, found);
    }
    for chunk in panes.iter().flat_map(|pane| pane.rows().chunks()) {
        found.push(&side.keys(&chunk.columns), chunk.rows);
    }
    found
}

/// The rows of each pane.
fn buffers(panes: &[Arc<WindowRows>]) -> Vec<&RowBuffer> {
    panes.iter().map(|pane| pane.rows()).collect()
}
