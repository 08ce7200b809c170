//! A table: one row of each key, the newest.
//!
//! Of a batch only the last row of each key counts, and rows whose key has a null are in no table, since null meets nothing. Must
//! never know who looks rows up.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{filter, take};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::state_schema::StateSchema;
use levada_common::types::{Column, RowKind};
use levada_state::key_index::{ABSENT, KeyIndex};
use levada_state::snapshot::PieceReader;

use crate::operator::restored_column;
use crate::operators::rows::{NO_ROW, Part, RowHeap, Saving};

/// The rows.
pub(super) struct Table {
    heap: RowHeap,
    index: KeyIndex,
    /// By key: its row.
    row_of: Vec<u32>,
    /// By row: its key.
    key_of: Vec<u32>,
    /// By key, within a batch: its last row there.
    last: Vec<u32>,
    ids: Vec<u32>,
    /// Whether an update may give a row another key.
    moves: bool,
    /// Schema of a snapshot's pieces: the key, then the other columns.
    pieces: SchemaRef,
    saving: Saving,
}

impl Table {
    /// Without rows, for keys of these types; `schema` is that of its state.
    pub(super) fn new(key_types: &[DataType], schema: &StateSchema, moves: bool) -> Self {
        let fields: Vec<_> = schema.map_key.iter().chain(&schema.values).map(Column::to_field).collect();
        Self {
            heap: RowHeap::default(),
            index: KeyIndex::new(key_types),
            row_of: Vec::new(),
            key_of: Vec::new(),
            last: Vec::new(),
            ids: Vec::new(),
            moves,
            pieces: Arc::new(Schema::new(fields)),
            saving: Saving::default(),
        }
    }

    /// Number of rows.
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let links = self.row_of.capacity() + self.key_of.capacity() + self.last.capacity() + self.ids.capacity();
        self.heap.memory_bytes() + self.index.memory_bytes() + links * size_of::<u32>()
    }

    /// Fills `found` with the row of each of these keys, `NO_ROW` where there is none.
    pub(super) fn find(&mut self, keys: &[ArrayRef], rows: usize, found: &mut Vec<u32>) {
        found.clear();
        self.index.find(keys, rows, found);
        found.iter_mut().for_each(|at| *at = if *at == ABSENT { NO_ROW } else { self.row_of[*at as usize] });
    }

    /// These rows; `NO_ROW` gives nulls.
    pub(super) fn rows(&self, rows: &[u32]) -> Part<'_> {
        Part::in_heap(&self.heap, rows)
    }

    /// Rows come in the place of those of their keys, or delete them, as `ops` says, all come without.
    pub(super) fn apply(&mut self, ops: Option<&[i8]>, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let nulls = keys.iter().fold(None, |nulls: Option<NullBuffer>, key| NullBuffer::union(nulls.as_ref(), key.nulls()));
        match nulls.filter(|nulls| nulls.null_count() > 0) {
            None => self.apply_known(ops, keys, columns),
            Some(nulls) => {
                let mask = BooleanArray::new(nulls.inner().clone(), None);
                let known =
                    |columns: &[ArrayRef]| columns.iter().map(|column| filter(column, &mask)).collect::<Result<Vec<_>, _>>();
                let ops: Option<Vec<i8>> =
                    ops.map(|ops| ops.iter().zip(&nulls).filter(|(_, valid)| *valid).map(|(op, _)| *op).collect());
                self.apply_known(ops.as_deref(), &known(keys)?, &known(columns)?)
            }
        }
    }

    /// The same, of rows whose keys have no null.
    fn apply_known(&mut self, ops: Option<&[i8]>, keys: &[ArrayRef], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        let (rows, mut ids) = (columns[0].len(), std::mem::take(&mut self.ids));
        ids.clear();
        self.index.intern(keys, rows, &mut ids);
        self.index.drain_reused(&mut Vec::new());
        self.row_of.resize(self.index.len().max(self.row_of.len()), NO_ROW);
        self.last.resize(self.row_of.len(), NO_ROW);
        let replaced = RowKind::UpdateBefore as i8;
        // What replaces it has the same key and comes next, if it is not here already.
        let moves = self.moves;
        let counts = |row: usize| moves || ops.is_none_or(|ops| ops[row] != replaced);
        for (row, id) in ids.iter().enumerate().filter(|(row, _)| counts(*row)) {
            self.last[*id as usize] = row as u32;
        }
        let comes =
            |row: usize| ops.is_none_or(|ops| ops[row] == RowKind::Insert as i8 || ops[row] == RowKind::UpdateAfter as i8);
        let (mut coming, mut emptied) = (Vec::with_capacity(rows), Vec::new());
        for (row, id) in ids.iter().enumerate() {
            let last = &mut self.last[*id as usize];
            if *last != row as u32 {
                continue;
            }
            *last = NO_ROW;
            match std::mem::replace(&mut self.row_of[*id as usize], NO_ROW) {
                NO_ROW => {}
                old => self.heap.remove(old),
            }
            if comes(row) {
                coming.push(row as u32);
            } else {
                emptied.push(*id);
            }
        }
        self.push(&coming, &ids, columns)?;
        // Of a key that only came to be replaced nothing is there either.
        emptied.extend(ids.iter().enumerate().filter(|(row, _)| !counts(*row)).map(|(_, id)| *id));
        emptied.sort_unstable();
        emptied.dedup();
        for id in emptied.into_iter().filter(|id| self.row_of[*id as usize] == NO_ROW) {
            self.index.remove(id);
        }
        self.ids = ids;
        self.tidy()
    }

    /// Appends these rows of some columns, whose keys are `ids`.
    fn push(&mut self, coming: &[u32], ids: &[u32], columns: &[ArrayRef]) -> Result<(), ArrowError> {
        if coming.is_empty() {
            return Ok(());
        }
        let mut numbers = Vec::with_capacity(coming.len());
        if coming.len() == ids.len() {
            self.heap.push(columns, &mut numbers)?;
        } else {
            let places = UInt32Array::from(coming.to_vec());
            let taken = columns.iter().map(|column| take(column, &places, None)).collect::<Result<Vec<_>, _>>()?;
            self.heap.push(&taken, &mut numbers)?;
        }
        self.key_of.resize(self.heap.numbers(), 0);
        for (row, number) in coming.iter().zip(numbers) {
            let id = ids[*row as usize];
            self.row_of[id as usize] = number;
            self.key_of[number as usize] = id;
        }
        Ok(())
    }

    /// Gives back what replaced rows held, a block at a time.
    fn tidy(&mut self) -> Result<(), ArrowError> {
        let Some(moved) = self.heap.tidy()? else { return Ok(()) };
        self.key_of.resize(self.heap.numbers(), 0);
        for (before, now) in moved.before.into_iter().zip(moved.now) {
            let id = self.key_of[before as usize];
            self.key_of[now as usize] = id;
            self.row_of[id as usize] = now;
        }
        Ok(())
    }

    /// The synchronous part of a snapshot; `places` are those of the pieces' columns.
    pub(super) fn snapshot(&mut self, checkpoint: CheckpointId, places: &[usize]) -> PieceReader {
        let reader = self.saving.begin(checkpoint, &self.heap, None, &self.pieces, places);
        self.saving.advance();
        reader
    }

    /// Sends a further piece of a snapshot; answers whether more remain.
    pub(super) fn save_next(&mut self) -> bool {
        self.saving.advance()
    }

    /// Gives a snapshot up.
    pub(super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.saving.abandon(checkpoint);
    }

    /// The columns of a snapshot's batch, each at its place.
    ///
    /// Errors: it has other columns, in words.
    pub(super) fn restored(&self, batch: &RecordBatch, places: &[usize]) -> Result<Vec<ArrayRef>, String> {
        let mut columns: Vec<Option<ArrayRef>> = vec![None; places.len()];
        for (field, place) in self.pieces.fields().iter().zip(places) {
            columns[*place] = Some(Arc::clone(restored_column(batch, field)?));
        }
        columns.into_iter().collect::<Option<_>>().ok_or_else(|| "a column of the table is not saved".into())
    }
}
