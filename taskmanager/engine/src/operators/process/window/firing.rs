//! A window that fires, or the part of one that was read: its rows by key, handed out a few groups at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows as KeyRows;

use super::InputRows;
use super::shape::Shape;
use crate::error::EngineError;
use crate::function::{GroupBounds, WindowGroups};
use crate::operators::rows::{Grouped, RowBuffer, rows_of};
use crate::operators::waiting::{ReadRows, Waiting};
use crate::operators::window::Window;

/// The window.
pub(super) struct Firing {
    pub(super) window: Window,
    rows: ReadRows<InputRows>,
    pub(super) index: KeyIndex,
    /// By input.
    grouped: Vec<Grouped>,
    /// The next key.
    next: usize,
}

impl Firing {
    /// Of these rows.
    pub(super) fn new(shape: &Shape, window: Window, rows: ReadRows<InputRows>) -> Self {
        let (mut index, mut ids) = (KeyIndex::new(&shape.sides[0].key_types), Vec::new());
        let mut grouped = Vec::new();
        for (input, side) in shape.sides.iter().enumerate() {
            let mut of_input = Grouped::default();
            for chunk in of(&rows, input).flat_map(RowBuffer::chunks) {
                of_input.push(&mut index, &side.keys(&chunk.columns), chunk.rows, &mut ids);
            }
            grouped.push(of_input);
        }
        Self { window, rows, index, grouped, next: 0 }
    }

    /// What is held, as it is counted: by input, bytes and rows.
    pub(super) fn held(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        let own = self.rows.iter().filter(|(_, rows)| Arc::strong_count(rows) == 1);
        own.map(|(input, rows)| (*input, rows.memory_bytes(), rows.rows().len()))
    }

    /// Whether every group was handed out.
    pub(super) fn is_over(&self) -> bool {
        self.next == self.index.len()
    }

    /// The next groups, at most `max`, and the numbers of their keys; none at the end.
    pub(super) fn groups(&mut self, shape: &Shape, max: usize) -> Result<Option<(WindowGroups, Vec<u32>)>, EngineError> {
        let next = self.next..self.index.len().min(self.next + max);
        self.next = next.end;
        let keys: Vec<u32> = next.map(|key| key as u32).collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let inputs = (0..shape.sides.len()).map(|input| self.input(shape, input, &keys)).collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        let key_columns = self.index.keys(KeyRows::Ids(&keys));
        let key_rows = RecordBatch::try_new_with_options(Arc::clone(&shape.key_schema), key_columns, &options);
        let key_rows = key_rows.map_err(|source| shape.kernel(source))?;
        let bounds = GroupBounds::One(self.window.start, self.window.end);
        Ok(Some((WindowGroups { bounds, keys: key_rows, inputs }, keys)))
    }

    /// The rows of an input that these keys have, and which are whose.
    fn input(&self, shape: &Shape, input: usize, keys: &[u32]) -> Result<(RecordBatch, Vec<Range<usize>>), EngineError> {
        let side = &shape.sides[input];
        let buffers: Vec<&RowBuffer> = of(&self.rows, input).collect();
        let (mut rows, mut spans) = (Vec::new(), Vec::with_capacity(keys.len()));
        for key in keys {
            let start = rows.len();
            self.grouped[input].rows_of(*key, &mut rows);
            if let Some(evict) = &shape.evict {
                evict.evict(&buffers, start, &mut rows);
            }
            spans.push(start..rows.len());
        }
        if rows.is_empty() {
            return Ok((RecordBatch::new_empty(Arc::clone(&side.input)), spans));
        }
        let part = rows_of(&buffers, &rows);
        let batch =
            side.gather(&part, rows.len()).and_then(|columns| side.batch(columns)).map_err(|source| shape.kernel(source))?;
        Ok((batch, spans))
    }
}

/// The rows of an input.
fn of(rows: &ReadRows<InputRows>, input: usize) -> impl Iterator<Item = &RowBuffer> {
    rows.iter().filter(move |(of, _)| *of == input).map(|(_, rows)| rows.rows())
}

/// Which keys the rows are of that a function has given, in their order.
#[derive(Default)]
pub(super) struct Runs {
    runs: VecDeque<(u32, usize)>,
}

impl Runs {
    /// A key's group gave so many rows.
    pub(super) fn push(&mut self, key: u32, rows: usize) {
        if rows > 0 {
            self.runs.push_back((key, rows));
        }
    }

    /// The keys of the next rows.
    pub(super) fn take(&mut self, rows: usize) -> Vec<u32> {
        let mut keys = Vec::with_capacity(rows);
        while keys.len() < rows
            && let Some((key, left)) = self.runs.front_mut()
        {
            let taken = (*left).min(rows - keys.len());
            keys.extend(std::iter::repeat_n(*key, taken));
            *left -= taken;
            if *left == 0 {
                self.runs.pop_front();
            }
        }
        keys
    }
}
