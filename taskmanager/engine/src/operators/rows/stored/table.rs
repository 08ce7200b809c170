//! What a store has of the rows of a heap, and what it has otherwise or not at all.
//!
//! A row of a heap never changes but for its mark; it comes and it goes. So what a generation has is known by bits at the rows'
//! numbers, and is sent from the chunks as they were when it began, whatever became of the heap meanwhile. Invariant: the store
//! hears that a row is gone in a later generation than that it is there.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, UInt32Array};
use arrow::buffer::BooleanBuffer;
use arrow::compute::{filter, take};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_state::bits::Bits;
use levada_state::cold::{Addresses, Change, ColdStateId, Loaded};
use levada_state::snapshot::StateMeta;

use super::{Marks, RowHeap, Taken};
use crate::operators::rows::Part;
use crate::operators::window::namespace_column;

/// Where the columns of an entry stand in a heap.
#[derive(Debug, Clone)]
pub(in crate::operators) struct EntryPlaces {
    /// Those of the key.
    pub(in crate::operators) keys: Vec<usize>,
    /// Start and end of the window that belongs to the key, where one does: the last columns of the key's in memory.
    pub(in crate::operators) window: Option<[usize; 2]>,
    /// Those of the value; none for the mark.
    pub(in crate::operators) values: Vec<Option<usize>>,
    /// The column of numbers.
    pub(in crate::operators) number: usize,
    /// Since when a row stands, where that matters.
    pub(in crate::operators) since: Option<usize>,
    /// Number of columns of the heap.
    pub(in crate::operators) width: usize,
}

/// What is still to be sent of a generation.
#[derive(Debug)]
enum Piece {
    /// Entries that are gone.
    Gone(Addresses),
    /// Of this chunk, of which the first row has this number, what the generation has.
    Rows(u32, Vec<ArrayRef>, Arc<Frozen>),
}

/// What was true when a generation began.
#[derive(Debug)]
struct Frozen {
    changed: Bits,
    marks: Option<Marks>,
}

/// What a store has of the rows of one heap.
///
/// Contract: it is told of each row that comes (`came`, or `is_there` for one out of the store), goes (`went`, or `forgot` where the
/// store still has it or lets it expire), is marked otherwise and is moved. Numbers of rows that went can be read until `collect`.
#[derive(Debug)]
pub(in crate::operators) struct StoredRows {
    pub(super) state: ColdStateId,
    pub(super) meta: StateMeta,
    schema: SchemaRef,
    places: EntryPlaces,
    /// Rows that the store has otherwise, or not at all.
    changed: Bits,
    /// Rows that the store has, or will have once everything is written.
    stored: Bits,
    /// Rows that went, of which the store has to hear.
    gone: Vec<u32>,
    /// Likewise, as addresses.
    deletes: Vec<Addresses>,
    sending: VecDeque<Piece>,
    /// The number of the next row: greater than that of any row of a key in memory.
    next: i64,
    /// Rows with lesser numbers are where they do not belong, and are brought in otherwise.
    begins_at: Option<i64>,
}

impl StoredRows {
    pub(super) fn new(state: ColdStateId, meta: StateMeta, schema: SchemaRef, places: EntryPlaces) -> Self {
        Self {
            state,
            meta,
            schema,
            places,
            changed: Bits::default(),
            stored: Bits::default(),
            gone: Vec::new(),
            deletes: Vec::new(),
            sending: VecDeque::new(),
            next: 0,
            begins_at: None,
        }
    }

    /// The column of numbers of so many new rows.
    pub(in crate::operators) fn numbers(&mut self, rows: usize) -> ArrayRef {
        let numbers = self.next..self.next + rows as i64;
        self.next = numbers.end;
        Arc::new(Int64Array::from_iter_values(numbers))
    }

    /// The greatest number of entries of a scan; the least where there are none.
    pub(in crate::operators) fn last_number(&self, entries: &RecordBatch) -> i64 {
        let number = self.places.keys.len() + usize::from(self.places.window.is_some());
        let numbers = entries.column(number).as_primitive::<Int64Type>().values();
        numbers.iter().copied().max().unwrap_or(i64::MIN)
    }

    /// From now on rows have numbers from this one on; what the store has below it is not found any more.
    pub(in crate::operators) fn begin_at(&mut self, number: i64) {
        self.next = self.next.max(number);
        self.begins_at = Some(number);
    }

    /// These rows came into the heap.
    pub(in crate::operators) fn came(&mut self, rows: &[u32]) {
        for row in rows {
            self.changed.set_one(*row);
            self.stored.clear(*row);
        }
    }

    /// These rows came out of the store.
    pub(in crate::operators) fn is_there(&mut self, rows: &[u32]) {
        for row in rows {
            self.changed.clear(*row);
            self.stored.set_one(*row);
        }
    }

    /// A row has another mark now.
    #[inline]
    pub(in crate::operators) fn marked(&mut self, row: u32) {
        self.changed.set_one(row);
    }

    /// A row went.
    #[inline]
    pub(in crate::operators) fn went(&mut self, row: u32) {
        if self.stored.get(row) {
            self.gone.push(row);
        }
        self.forgot(row);
    }

    /// A row is not in memory any more; what the store has of it stays.
    #[inline]
    pub(in crate::operators) fn forgot(&mut self, row: u32) {
        self.changed.clear(row);
        self.stored.clear(row);
    }

    /// A row has another number in the heap now.
    pub(in crate::operators) fn moved(&mut self, before: u32, now: u32) {
        for bits in [&mut self.changed, &mut self.stored] {
            let is_set = bits.get(before);
            bits.clear(before);
            if is_set { bits.set_one(now) } else { bits.clear(now) }
        }
    }

    /// Notes where the rows stand that went: they need not be readable afterwards.
    pub(in crate::operators) fn collect(&mut self, heap: &RowHeap) -> Result<(), ArrowError> {
        if self.gone.is_empty() {
            return Ok(());
        }
        let part = Part::in_heap(heap, &self.gone);
        let (first, _) = heap.at(self.gone[0]);
        let column = |place: &usize| part.column(*place, first[*place].data_type(), self.gone.len());
        let keys = self.places.keys.iter().chain(self.places.window.iter().flatten());
        let keys = keys.map(column).collect::<Result<Vec<_>, _>>()?;
        let below = vec![column(&self.places.number)?];
        self.deletes.push(Addresses { below, ..self.addresses(&keys, self.gone.len()) });
        self.gone.clear();
        Ok(())
    }

    /// Where the rows of keys are, which have these columns in memory.
    pub(in crate::operators) fn addresses(&self, keys: &[ArrayRef], rows: usize) -> Addresses {
        let (keys, window) = keys.split_at(self.places.keys.len());
        let namespace = match window {
            [start, end] => Some(namespace_column(Arc::clone(start), Arc::clone(end))),
            _ => None,
        };
        Addresses { keys: keys.to_vec(), namespace, below: Vec::new(), rows }
    }

    /// Begins a generation of what has changed, behind what is being sent.
    pub(in crate::operators) fn freeze(&mut self, heap: &RowHeap, marks: Option<&Marks>) -> Result<(), ArrowError> {
        self.collect(heap)?;
        self.sending.extend(self.deletes.drain(..).map(Piece::Gone));
        let changed = std::mem::take(&mut self.changed);
        self.stored.unite(&changed);
        let frozen = Arc::new(Frozen { changed, marks: marks.cloned() });
        let chunks = heap.chunks_of(&frozen.changed);
        self.sending.extend(chunks.map(|(first, columns)| Piece::Rows(first, columns, Arc::clone(&frozen))));
        Ok(())
    }

    /// Takes the next of what is being sent.
    pub(in crate::operators) fn next_change(&mut self) -> Result<Option<(usize, Change)>, ArrowError> {
        let Some(piece) = self.sending.pop_front() else { return Ok(None) };
        Ok(Some(match piece {
            Piece::Gone(addresses) => (addresses.rows, Change { deletes: Some(addresses), upserts: None }),
            Piece::Rows(first, columns, frozen) => {
                let rows = self.entries(first, &columns, &frozen)?;
                (rows.num_rows(), Change { deletes: None, upserts: Some(rows) })
            }
        }))
    }

    /// Whether everything was sent.
    pub(in crate::operators) fn is_sent(&self) -> bool {
        self.sending.is_empty()
    }

    /// What a generation has of a chunk.
    fn entries(&self, first: u32, columns: &[ArrayRef], frozen: &Frozen) -> Result<RecordBatch, ArrowError> {
        let rows = columns[0].len();
        let changed = BooleanBuffer::collect_bool(rows, |row| frozen.changed.get(first + row as u32));
        let is_whole = changed.count_set_bits() == rows;
        let changed = BooleanArray::new(changed, None);
        let marks = frozen.marks.as_ref().map(|marks| Arc::new(marks.column(first as usize, rows)) as ArrayRef);
        let column = |place: Option<usize>| {
            let column = match place {
                Some(place) => &columns[place],
                None => marks.as_ref().expect("rows with a mark have one"),
            };
            if is_whole { Ok(Arc::clone(column)) } else { filter(column, &changed) }
        };
        let EntryPlaces { keys, window, values, number, since, .. } = &self.places;
        let mut entries = keys.iter().map(|place| column(Some(*place))).collect::<Result<Vec<_>, _>>()?;
        if let Some([start, end]) = *window {
            entries.push(namespace_column(column(Some(start))?, column(Some(end))?));
        }
        let others = std::iter::once(Some(*number)).chain(values.iter().copied()).chain(since.map(Some));
        entries.extend(others.map(column).collect::<Result<Vec<_>, _>>()?);
        RecordBatch::try_new(Arc::clone(&self.schema), entries)
    }

    /// What was found below these keys, whose numbers are `ids`.
    pub(in crate::operators) fn taken(&mut self, keys: &[ArrayRef], ids: &[u32], loaded: &Loaded) -> Result<Taken, ArrowError> {
        let (mut positions, mut found) = (loaded.positions.clone(), loaded.rows.columns().to_vec());
        if let Some(first) = self.begins_at {
            let numbers = found[0].as_primitive::<Int64Type>();
            let is_found = BooleanArray::from_iter(numbers.values().iter().map(|number| Some(*number >= first)));
            let mut each = is_found.values().iter();
            positions.retain(|_| each.next().unwrap_or_default());
            found = found.iter().map(|column| filter(column, &is_found)).collect::<Result<_, _>>()?;
        }
        let EntryPlaces { keys: key_places, window, values, number, since, width } = &self.places;
        let (mut columns, places) = (vec![None; *width], UInt32Array::from(positions.clone()));
        let numbers = found[0].as_primitive::<Int64Type>();
        // Those of rows that came from a file are below zero.
        let last = numbers.values().iter().max().map_or(0, |last| last.saturating_add(1));
        self.next = self.next.max(last);
        columns[*number] = Some(Arc::clone(&found[0]));
        for (place, column) in key_places.iter().chain(window.iter().flatten()).zip(keys) {
            columns[*place] = Some(take(column, &places, None)?);
        }
        let mut marks = None;
        for (place, column) in values.iter().copied().chain(since.map(Some)).zip(&found[1..]) {
            match place {
                Some(place) => columns[place] = Some(Arc::clone(column)),
                None => marks = Some(column.as_boolean().clone()),
            }
        }
        let keys = positions.iter().map(|position| ids[*position as usize]).collect();
        Ok(Taken { keys, columns, marks })
    }

    /// The key's columns of entries.
    pub(in crate::operators) fn key_columns(&self, entries: &RecordBatch) -> Vec<ArrayRef> {
        entries.columns()[..self.places.keys.len()].to_vec()
    }

    /// Whether the store has to hear of rows that went.
    pub(in crate::operators) fn has_gone(&self) -> bool {
        !self.gone.is_empty() || !self.deletes.is_empty()
    }

    /// Whether there are rows that the store has otherwise, or not at all.
    pub(in crate::operators) fn has_changed(&self) -> bool {
        self.changed.rows().next().is_some()
    }

    /// Whether the store has a row, or will have it once everything is written.
    #[inline]
    pub(in crate::operators) fn is_stored(&self, row: u32) -> bool {
        self.stored.get(row)
    }

    /// Everything that the store has of these keys is gone.
    pub(in crate::operators) fn all_went(&mut self, keys: &[ArrayRef], rows: usize) {
        let addresses = self.addresses(keys, rows);
        self.deletes.push(addresses);
    }

    /// The number that the next new row has.
    pub(in crate::operators) fn next_number(&self) -> i64 {
        self.next
    }

    /// New rows have numbers from this one on, or greater ones.
    pub(in crate::operators) fn number_from(&mut self, number: i64) {
        self.next = self.next.max(number);
    }

    /// Its state, as a store knows it.
    pub(in crate::operators) fn state(&self) -> (ColdStateId, &StateMeta) {
        (self.state, &self.meta)
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        let addresses = |addresses: &Addresses| {
            addresses.keys.iter().chain(&addresses.below).map(|column| column.get_array_memory_size()).sum::<usize>()
        };
        let deletes: usize = self.deletes.iter().map(addresses).sum();
        self.changed.memory_bytes() + self.stored.memory_bytes() + self.gone.capacity() * size_of::<u32>() + deletes
    }
}
