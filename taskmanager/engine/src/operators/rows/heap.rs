//! Rows that come in batches and go one by one.
//!
//! A row's number is a block's and its place in it. A removed row stays readable until `tidy`, which gives back blocks without
//! rows and moves the rows of one that is mostly empty, a block at a time: no change waits for all of the heap.

use std::collections::VecDeque;

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use arrow::error::ArrowError;
use levada_state::bits::Bits;

use super::{NO_ROW, RowBuffer};

/// Rows of a block, as a power of two.
const BLOCK_BITS: u32 = 14;
const BLOCK_ROWS: usize = 1 << BLOCK_BITS;

/// Of so many rows of a block that is full one must be there, or the rest are moved.
const SPARSE_PART: usize = 4;

/// Likewise, where rows leave for a store, which is done to have memory for others.
const SPARSE_PART_BEFORE_STORE: usize = 2;

/// Consecutive rows, and which of them are there.
#[derive(Debug)]
struct Block {
    rows: RowBuffer,
    /// A bit for each place: the row was not removed.
    there: Vec<u64>,
    live: usize,
}

impl Block {
    fn new() -> Self {
        Self { rows: RowBuffer::default(), there: vec![0; BLOCK_ROWS / 64], live: 0 }
    }

    fn is_full(&self) -> bool {
        self.rows.len() == BLOCK_ROWS
    }

    fn has(&self, place: usize) -> bool {
        self.there[place / 64] >> (place % 64) & 1 == 1
    }

    fn memory_bytes(&self) -> usize {
        self.rows.memory_bytes() + BLOCK_ROWS / 8
    }

    /// The numbers of the rows that are there, in this block of number `at`.
    fn live_rows(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        (0..self.rows.len()).filter(|place| self.has(*place)).map(move |place| number(at, place))
    }
}

fn number(block: usize, place: usize) -> u32 {
    (block << BLOCK_BITS | place) as u32
}

/// Rows that were moved: their numbers before and now.
#[derive(Debug, Default)]
pub(in crate::operators) struct Moved {
    pub(in crate::operators) before: Vec<u32>,
    pub(in crate::operators) now: Vec<u32>,
}

/// The rows.
#[derive(Debug)]
pub(in crate::operators) struct RowHeap {
    blocks: Vec<Option<Block>>,
    /// Numbers of blocks that are not there.
    free: Vec<usize>,
    /// The block that rows are appended to.
    tail: Option<usize>,
    /// Blocks that were full and mostly empty when a row of them was removed.
    sparse: VecDeque<usize>,
    live: usize,
    sparse_part: usize,
}

impl Default for RowHeap {
    fn default() -> Self {
        let (blocks, free, sparse) = (Vec::new(), Vec::new(), VecDeque::new());
        Self { blocks, free, tail: None, sparse, live: 0, sparse_part: SPARSE_PART }
    }
}

impl RowHeap {
    /// Moves rows together earlier from now on: they leave for a store, so that there is memory for others.
    pub(in crate::operators) fn stand_before_store(&mut self) {
        self.sparse_part = SPARSE_PART_BEFORE_STORE;
    }

    /// Number of rows.
    pub(in crate::operators) fn len(&self) -> usize {
        self.live
    }

    /// All numbers are below this.
    pub(in crate::operators) fn numbers(&self) -> usize {
        self.blocks.len() * BLOCK_ROWS
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        self.blocks.iter().flatten().map(Block::memory_bytes).sum()
    }

    /// Bytes among these that rows hold which were removed.
    pub(in crate::operators) fn idle_bytes(&self) -> usize {
        let idle = |block: &Block| {
            let rows = block.rows.len();
            block.memory_bytes() / rows.max(1) * (rows - block.live)
        };
        self.blocks.iter().flatten().map(idle).sum()
    }

    /// Appends rows and their numbers to `numbers`.
    pub(in crate::operators) fn push(&mut self, columns: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        let (rows, mut from) = (columns[0].len(), 0);
        while from < rows {
            let at = self.open_block();
            let block = self.blocks[at].as_mut().expect("the tail is there");
            let start = block.rows.len();
            let taken = (rows - from).min(BLOCK_ROWS - start);
            let part: Vec<ArrayRef> = columns.iter().map(|column| column.slice(from, taken)).collect();
            block.rows.push(&part)?;
            for place in start..start + taken {
                block.there[place / 64] |= 1 << (place % 64);
                numbers.push(number(at, place));
            }
            block.live += taken;
            self.live += taken;
            from += taken;
        }
        Ok(())
    }

    /// The block that takes the next row.
    fn open_block(&mut self) -> usize {
        if let Some(tail) = self.tail.filter(|tail| self.blocks[*tail].as_ref().is_some_and(|block| !block.is_full())) {
            return tail;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            assert!(self.numbers() + BLOCK_ROWS < NO_ROW as usize, "a heap has fewer than 2^32 - 1 rows");
            self.blocks.push(None);
            self.blocks.len() - 1
        });
        self.blocks[at] = Some(Block::new());
        if let Some(full) = self.tail.replace(at) {
            self.note_sparse(full);
        }
        at
    }

    fn note_sparse(&mut self, at: usize) {
        let is_sparse = |block: &Block| block.is_full() && block.live * self.sparse_part <= BLOCK_ROWS;
        if self.blocks[at].as_ref().is_some_and(is_sparse) && self.tail != Some(at) && !self.sparse.contains(&at) {
            self.sparse.push_back(at);
        }
    }

    /// Whether the row of this number is there.
    pub(in crate::operators) fn has(&self, row: u32) -> bool {
        let block = self.blocks.get(row as usize >> BLOCK_BITS).and_then(Option::as_ref);
        block.is_some_and(|block| block.has(row as usize & (BLOCK_ROWS - 1)))
    }

    /// Removes a row that is there. It can be read until `tidy`.
    pub(in crate::operators) fn remove(&mut self, row: u32) {
        let (at, place) = (row as usize >> BLOCK_BITS, row as usize & (BLOCK_ROWS - 1));
        let block = self.blocks[at].as_mut().expect("the row is there");
        debug_assert!(block.has(place), "row {row} is removed twice");
        block.there[place / 64] &= !(1 << (place % 64));
        block.live -= 1;
        self.live -= 1;
        if block.live == 0 || block.live * self.sparse_part == BLOCK_ROWS {
            self.note_sparse(at);
        }
    }

    /// Whether `tidy` would give something back.
    pub(in crate::operators) fn is_untidy(&self) -> bool {
        !self.sparse.is_empty()
    }

    /// Gives one mostly empty block back, if there is one; its rows are appended anew. Removed rows cannot be read afterwards.
    ///
    /// Contract: the caller puts the numbers that rows have now in the place of those that they had.
    pub(in crate::operators) fn tidy(&mut self) -> Result<Option<Moved>, ArrowError> {
        let Some(at) = self.sparse.pop_front() else { return Ok(None) };
        let Some(block) = self.blocks[at].take() else { return Ok(Some(Moved::default())) };
        self.live -= block.live;
        let mut moved = Moved { before: block.live_rows(at).collect(), now: Vec::new() };
        if !moved.before.is_empty() {
            let places: Vec<u32> = moved.before.iter().map(|row| row & (BLOCK_ROWS as u32 - 1)).collect();
            let part = super::Part::kept(&block.rows, &places);
            let columns = block.rows.chunks()[0].columns.iter().enumerate();
            let columns = columns.map(|(column, data)| part.column(column, data.data_type(), places.len()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            self.push(&columns, &mut moved.now)?;
        }
        self.free.push(at);
        Ok(Some(moved))
    }

    /// The chunks in which these rows are, and the chunk and place of each; `NO_ROW` is behind the last chunk.
    pub(super) fn places(&self, rows: &[u32]) -> (Vec<&[ArrayRef]>, Vec<(usize, usize)>) {
        const UNSEEN: usize = usize::MAX;
        let mut first_chunks = vec![UNSEEN; self.blocks.len()];
        let mut chunks: Vec<&[ArrayRef]> = Vec::new();
        let mut places = Vec::with_capacity(rows.len());
        for row in rows {
            if *row == NO_ROW {
                places.push((UNSEEN, 0));
                continue;
            }
            let (at, place) = (*row as usize >> BLOCK_BITS, *row as usize & (BLOCK_ROWS - 1));
            let block = self.blocks[at].as_ref().expect("a row that goes out is in its block");
            if first_chunks[at] == UNSEEN {
                first_chunks[at] = chunks.len();
                chunks.extend(block.rows.chunks().iter().map(|chunk| chunk.columns.as_slice()));
            }
            let (chunk, place) = block.rows.place(place);
            places.push((first_chunks[at] + chunk, place));
        }
        let behind = chunks.len();
        places.iter_mut().filter(|(chunk, _)| *chunk == UNSEEN).for_each(|(chunk, _)| *chunk = behind);
        (chunks, places)
    }

    /// A row's chunk and its place there.
    pub(in crate::operators) fn at(&self, row: u32) -> (&[ArrayRef], usize) {
        let block = self.blocks[row as usize >> BLOCK_BITS].as_ref().expect("the row is there");
        let (chunk, place) = block.rows.place(row as usize & (BLOCK_ROWS - 1));
        (&block.rows.chunks()[chunk].columns, place)
    }

    /// Every chunk that has one of these rows, with the number of its first row.
    pub(super) fn chunks_of(&self, rows: &Bits) -> impl Iterator<Item = (u32, Vec<ArrayRef>)> {
        let blocks = self.blocks.iter().enumerate().filter_map(|(at, block)| Some((at, block.as_ref()?)));
        blocks.flat_map(move |(at, block)| {
            let chunks = block.rows.chunks().iter().map(move |chunk| (number(at, chunk.start), chunk));
            let some = chunks.filter(move |(first, chunk)| rows.any_in(*first..*first + chunk.rows as u32));
            some.map(|(first, chunk)| (first, chunk.columns.clone()))
        })
    }

    /// Every row, in pieces: the number of the first one, columns, and which of their rows are there (all where it is not said).
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, Vec<ArrayRef>, Option<BooleanBuffer>)> + '_ {
        let blocks = self.blocks.iter().enumerate().filter_map(|(at, block)| Some((at, block.as_ref()?)));
        blocks.filter(|(_, block)| block.live > 0).flat_map(|(at, block)| {
            let is_whole = block.live == block.rows.len();
            block.rows.chunks().iter().map(move |chunk| {
                let there = (!is_whole).then(|| BooleanBuffer::collect_bool(chunk.rows, |place| block.has(chunk.start + place)));
                (number(at, chunk.start), chunk.columns.clone(), there)
            })
        })
    }

    /// The numbers of all rows of a block that are there; no rows where there is no such block.
    pub(in crate::operators) fn rows_of_block(&self, at: usize) -> impl Iterator<Item = u32> + '_ {
        self.blocks.get(at).and_then(Option::as_ref).into_iter().flat_map(move |block| block.live_rows(at))
    }

    /// Number of places for blocks.
    pub(in crate::operators) fn blocks(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{AsArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::super::Part;
    use super::*;

    #[test]
    fn a_heap_is_a_map_from_numbers_to_rows() {
        for seed in 0..4 {
            let mut rng = StdRng::seed_from_u64(seed);
            let (mut heap, mut model, mut next) = (RowHeap::default(), BTreeMap::new(), 0i64);
            for _ in 0..200 {
                let rows = rng.random_range(1..3_000);
                let column: ArrayRef = Arc::new(Int64Array::from_iter_values(next..next + rows));
                let mut numbers = Vec::new();
                heap.push(&[column], &mut numbers).unwrap();
                for (number, value) in numbers.into_iter().zip(next..) {
                    assert_eq!(model.insert(number, value), None, "seed {seed}: number {number} is given twice");
                }
                next += rows;
                let part = rng.random_range(0.0..1.0);
                let gone: Vec<u32> = model.keys().copied().filter(|_| rng.random_bool(part)).collect();
                for row in gone {
                    heap.remove(row);
                    model.remove(&row);
                }
                while let Some(moved) = heap.tidy().unwrap() {
                    for (before, now) in moved.before.into_iter().zip(moved.now) {
                        let value = model.remove(&before).expect("it was there");
                        assert_eq!(model.insert(now, value), None, "seed {seed}");
                    }
                }
            }
            assert_eq!(heap.len(), model.len(), "seed {seed}");
            let rows: Vec<u32> = model.keys().copied().collect();
            let values = Part::in_heap(&heap, &rows).column(0, &DataType::Int64, rows.len()).unwrap();
            assert_eq!(values.as_primitive::<Int64Type>().values().to_vec(), model.values().copied().collect::<Vec<_>>());
            assert!(rows.iter().all(|row| heap.has(*row)));
            assert!(heap.numbers() <= 6 * heap.len() + 4 * BLOCK_ROWS, "seed {seed}: {} places", heap.numbers());
            let saved: usize =
                heap.pieces().map(|(_, columns, there)| there.map_or(columns[0].len(), |there| there.count_set_bits())).sum();
            assert_eq!(saved, model.len());
            let (mut some, mut wanted) = (Bits::default(), 0);
            rows.iter().filter(|_| rng.random_bool(0.001)).for_each(|row| wanted += u32::from(some.set(*row)));
            let found: u32 = heap
                .chunks_of(&some)
                .map(|(first, columns)| (0..columns[0].len() as u32).filter(|at| some.get(first + at)).count() as u32)
                .sum();
            assert_eq!(found, wanted);
            let all = Bits::ones(heap.numbers());
            let kept: usize = heap.chunks_of(&all).map(|(_, columns)| columns[0].len()).sum();
            assert!(heap.idle_bytes() <= heap.memory_bytes() && (kept == heap.len()) == (heap.idle_bytes() == 0), "{kept}");
        }
    }
}
