//! Rows that come in batches and go one by one.
//!
//! A row's number is a block's and its place in it. A removed row stays readable until `tidy`, which gives back blocks without
//! rows and moves the rows of one that is mostly empty, a block at a time: no change waits for all of the heap. Rows that are moved
//! go behind those that came before them, and no others. Invariant: blocks in their order have the rows in the order in which they
//! came, so that a snapshot gives them in it.

use std::collections::{BTreeMap, VecDeque};

use arrow::array::{Array, ArrayRef};
use arrow::buffer::BooleanBuffer;
use arrow::error::ArrowError;
use levada_state::bits::Bits;

use super::marks::bits_of;
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
    /// Its rows came before those of every block of which this is greater.
    turn: u64,
    /// Whether it waits to be tidied.
    is_noted: bool,
}

impl Block {
    fn new(turn: u64) -> Self {
        Self { rows: RowBuffer::default(), there: vec![0; BLOCK_ROWS / 64], live: 0, turn, is_noted: false }
    }

    fn is_full(&self) -> bool {
        self.rows.len() == BLOCK_ROWS
    }

    /// Whether so few of its rows are there.
    fn is_sparse(&self, part: usize) -> bool {
        self.live * part <= self.rows.len()
    }

    /// Whether so many rows have room behind its own.
    fn has_room(&self, rows: usize) -> bool {
        self.rows.len() + rows <= BLOCK_ROWS
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
    /// Blocks by their turn.
    order: BTreeMap<u64, usize>,
    /// The turn of the next block.
    next_turn: u64,
    /// The block that rows are appended to, the last in order.
    tail: Option<usize>,
    /// Blocks, not the tail, that were mostly empty when a row of them was removed, or that the one before them has room for.
    sparse: VecDeque<usize>,
    live: usize,
    sparse_part: usize,
}

impl Default for RowHeap {
    fn default() -> Self {
        let (blocks, free, order, sparse) = (Vec::new(), Vec::new(), BTreeMap::new(), VecDeque::new());
        Self { blocks, free, order, next_turn: 0, tail: None, sparse, live: 0, sparse_part: SPARSE_PART }
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
            let taken = (rows - from).min(BLOCK_ROWS - self.block(at).rows.len());
            let part: Vec<ArrayRef> = columns.iter().map(|column| column.slice(from, taken)).collect();
            self.append(at, &part, numbers)?;
            from += taken;
        }
        Ok(())
    }

    fn block(&self, at: usize) -> &Block {
        self.blocks[at].as_ref().expect("a block in order is there")
    }

    /// Appends rows to a block that has room for them, and their numbers to `numbers`.
    fn append(&mut self, at: usize, columns: &[ArrayRef], numbers: &mut Vec<u32>) -> Result<(), ArrowError> {
        let block = self.blocks[at].as_mut().expect("a block in order is there");
        let (start, rows) = (block.rows.len(), columns[0].len());
        block.rows.push(columns)?;
        for place in start..start + rows {
            block.there[place / 64] |= 1 << (place % 64);
            numbers.push(number(at, place));
        }
        block.live += rows;
        self.live += rows;
        Ok(())
    }

    /// The block that takes the next row.
    fn open_block(&mut self) -> usize {
        if let Some(tail) = self.tail.filter(|tail| self.blocks[*tail].as_ref().is_some_and(|block| !block.is_full())) {
            return tail;
        }
        let at = self.make_block(self.next_turn);
        self.next_turn += 1;
        if let Some(full) = self.tail.replace(at) {
            self.note_sparse(full);
        }
        at
    }

    fn make_block(&mut self, turn: u64) -> usize {
        let at = self.free.pop().unwrap_or_else(|| {
            assert!(self.numbers() + BLOCK_ROWS < NO_ROW as usize, "a heap has fewer than 2^32 - 1 rows");
            self.blocks.push(None);
            self.blocks.len() - 1
        });
        self.blocks[at] = Some(Block::new(turn));
        self.order.insert(turn, at);
        at
    }

    fn note_sparse(&mut self, at: usize) {
        if self.tail != Some(at) && self.block(at).is_sparse(self.sparse_part) {
            self.note(at);
        }
    }

    /// Has a block tidied.
    fn note(&mut self, at: usize) {
        let block = self.blocks[at].as_mut().expect("a block in order is there");
        if !std::mem::replace(&mut block.is_noted, true) {
            self.sparse.push_back(at);
        }
    }

    /// The block before this turn, if it has room for so many rows.
    fn room_before(&self, turn: u64, rows: usize) -> Option<usize> {
        let before = self.order.range(..turn).next_back().map(|(_, at)| *at);
        before.filter(|at| self.block(*at).has_room(rows))
    }

    /// Has the block behind this one tidied where its rows have room here: so that there are never many blocks of few rows. Each one
    /// that joins another is a block less, which its rows have paid for.
    fn note_next(&mut self, at: usize) {
        let next = self.order.range(self.block(at).turn + 1..).next().map(|(_, next)| *next);
        let Some(next) = next.filter(|next| self.tail != Some(*next)) else { return };
        let rows = self.block(next).live;
        if rows <= BLOCK_ROWS / 2 && self.block(at).has_room(rows) {
            self.note(next);
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
        self.note_sparse(at);
    }

    /// Whether `tidy` would give something back.
    pub(in crate::operators) fn is_untidy(&self) -> bool {
        !self.sparse.is_empty()
    }

    /// Gives one mostly empty block back, if there is one; its rows go into the block before it, or into a new one in its place. Removed
    /// rows cannot be read afterwards.
    ///
    /// Contract: the caller puts the numbers that rows have now in the place of those that they had.
    pub(in crate::operators) fn tidy(&mut self) -> Result<Option<Moved>, ArrowError> {
        let Some(at) = self.sparse.pop_front() else { return Ok(None) };
        let Some(block) = &mut self.blocks[at] else { return Ok(Some(Moved::default())) };
        block.is_noted = false;
        let (turn, is_sparse) = (block.turn, block.is_sparse(self.sparse_part));
        let before = self.room_before(turn, self.block(at).live);
        if before.is_none() && !is_sparse {
            return Ok(Some(Moved::default()));
        }
        let Some(block) = self.blocks[at].take() else { return Ok(Some(Moved::default())) };
        self.order.remove(&turn);
        self.live -= block.live;
        let mut moved = Moved { before: block.live_rows(at).collect(), now: Vec::new() };
        if !moved.before.is_empty() {
            let places: Vec<u32> = moved.before.iter().map(|row| row & (BLOCK_ROWS as u32 - 1)).collect();
            let part = super::Part::kept(&block.rows, &places);
            let columns = block.rows.chunks()[0].columns.iter().enumerate();
            let columns = columns.map(|(column, data)| part.column(column, data.data_type(), places.len()));
            let columns = columns.collect::<Result<Vec<_>, _>>()?;
            let into = before.unwrap_or_else(|| self.make_block(turn));
            self.append(into, &columns, &mut moved.now)?;
            self.note_next(into);
        }
        // Only now: the rows' numbers now are not those that they had.
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

    /// What is less for the row that came earlier.
    pub(in crate::operators) fn came(&self, row: u32) -> (u64, usize) {
        (self.block(row as usize >> BLOCK_BITS).turn, row as usize & (BLOCK_ROWS - 1))
    }

    /// Every row in the order in which they came, in pieces: the number of the first one, columns, and which of their rows are there
    /// (all where it is not said).
    pub(super) fn pieces(&self) -> impl Iterator<Item = (u32, Vec<ArrayRef>, Option<BooleanBuffer>)> + '_ {
        let blocks = self.order.values().map(move |at| (*at, self.block(*at)));
        blocks.filter(|(_, block)| block.live > 0).flat_map(|(at, block)| {
            let is_whole = block.live == block.rows.len();
            block.rows.chunks().iter().map(move |chunk| {
                let there = (!is_whole).then(|| bits_of(&block.there, chunk.start, chunk.rows));
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

    /// The values that a snapshot has, in its order.
    fn saved(heap: &RowHeap) -> Vec<i64> {
        let mut saved = Vec::new();
        for (_, columns, there) in heap.pieces() {
            let values = columns[0].as_primitive::<Int64Type>().values();
            let is_there = |at: &usize| there.as_ref().is_none_or(|there| there.value(*at));
            saved.extend((0..values.len()).filter(is_there).map(|at| values[at]));
        }
        saved
    }

    /// However they go: blocks that become sparse one after the other, from the last to the first, or together.
    #[test]
    fn few_rows_are_in_few_blocks() {
        let places = |block: usize| (0..BLOCK_ROWS).map(move |place| number(block, place));
        for (stays, from_behind) in [(4, false), (4, true), (100, false), (100, true), (5_000, true)] {
            let mut heap = RowHeap::default();
            let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..40 * BLOCK_ROWS as i64 + 1));
            heap.push(&[column], &mut Vec::new()).unwrap();
            let blocks: Vec<usize> = if from_behind { (0..40).rev().collect() } else { (0..40).collect() };
            let mut times_moved = 0;
            for block in blocks {
                places(block).filter(|row| !(row % BLOCK_ROWS as u32).is_multiple_of(stays)).for_each(|row| heap.remove(row));
                while let Some(moved) = heap.tidy().unwrap() {
                    times_moved += moved.now.len();
                }
            }
            let saved = saved(&heap);
            let there: Vec<i64> =
                (0..=40 * BLOCK_ROWS as i64).filter(|value| value % BLOCK_ROWS as i64 % i64::from(stays) == 0).collect();
            assert_eq!(saved, there);
            let blocks = heap.blocks.iter().flatten().count();
            assert!(blocks <= 2 * there.len() / BLOCK_ROWS + 3, "{blocks} blocks of {} rows, 1 of {stays}", there.len());
            assert!(times_moved <= 3 * there.len() + 20 * BLOCK_ROWS, "{times_moved} rows moved");
        }
    }

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
            let saved = saved(&heap);
            assert!(saved.is_sorted(), "seed {seed}: rows are saved in the order in which they came");
            assert_eq!(saved.len(), model.len());
            let mut by_arrival = rows.clone();
            by_arrival.sort_unstable_by_key(|row| heap.came(*row));
            assert!(by_arrival.iter().map(|row| model[row]).eq(saved), "seed {seed}");
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
