//! The distinct values of sets that grow, become one and go: of sessions, and of chunks of rows; and what is computed of them.
//!
//! A value is an entry of an index over (number of the set, value), and each set has a list of its entries: so of two sets that
//! become one the smaller is put into the larger. Numbers are given once, so that the entries of a set that is gone can be taken out
//! beside the rows. Must never know what a set is: whoever has them names each one's key, and its place in snapshots.

mod saving;
mod shape;
mod stored;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Int64Array, UInt32Array, new_null_array};
use arrow::compute::take;
use arrow::datatypes::DataType;
use levada_common::ids::CheckpointId;
use levada_state::freeze::FrozenRows;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;
use levada_state::snapshot::PieceSender;

use super::shape::Shape;
use crate::aggregate::{AggregateSet, Groups};
use crate::error::EngineError;
use crate::operators::rows::StoredEntries;

pub(super) use shape::SetsShape;
pub(super) use stored::SendNow;

/// No set, no entry.
const NONE: u32 = u32::MAX;

/// The number of no set.
const GONE: i64 = -1;

/// Whose a set is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Owner {
    /// Its key, by its number in the owner's index.
    pub(super) key: u32,
    /// What tells it from the other sets of the key in a snapshot.
    pub(super) place: i64,
}

/// A set.
#[derive(Debug, Clone, Copy)]
struct Set {
    number: i64,
    owner: Owner,
}

/// A value of a set.
#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Its set's slot; `NONE` where there is no value.
    slot: u32,
    /// The set's next entry.
    next: u32,
}

/// The entries of a set.
#[derive(Debug, Clone, Copy)]
struct List {
    newest: u32,
    len: u32,
}

/// The values of one column.
#[derive(Debug)]
struct Values {
    index: KeyIndex,
    entries: Vec<Entry>,
    /// By slot.
    lists: Vec<List>,
    /// Number of values in them.
    len: usize,
    /// The newest entries of sets that are gone.
    gone: Vec<u32>,
    /// Which entries a running snapshot has still to save.
    frozen: FrozenRows,
    saving: Option<PieceSender>,
    /// What the store has of them, where there is one.
    stored: Option<StoredEntries>,
    ids: Vec<u32>,
    reused: Vec<u32>,
}

/// The sets. Their owner names each by a number of its own.
#[derive(Debug)]
pub(super) struct ValueSets {
    shape: Arc<SetsShape>,
    columns: Vec<Values>,
    /// What is computed of the values, by slot.
    results: AggregateSet,
    /// By the owner's number: the slot of its set.
    slots: Vec<u32>,
    /// By slot.
    sets: Vec<Set>,
    free: Vec<u32>,
    /// Slots of sets that are new, whose results begin anew.
    fresh: Vec<u32>,
    numbers: i64,
    /// The checkpoint of the snapshot that may be running.
    checkpoint: Option<CheckpointId>,
}

impl ValueSets {
    /// Without sets.
    pub(super) fn new(shape: &Arc<SetsShape>) -> Self {
        Self {
            columns: shape.columns.iter().map(|column| Values::new(&column.data_type)).collect(),
            results: shape.plan.accumulators(),
            shape: Arc::clone(shape),
            slots: Vec::new(),
            sets: Vec::new(),
            free: Vec::new(),
            fresh: Vec::new(),
            numbers: 0,
            checkpoint: None,
        }
    }

    /// Number of values in all sets.
    pub(super) fn len(&self) -> usize {
        self.columns.iter().map(|column| column.len).sum()
    }

    /// Number of columns.
    pub(super) fn columns_len(&self) -> usize {
        self.columns.len()
    }

    /// Takes some values of sets that are gone out, about so many of each column; answers whether more remain.
    pub(super) fn bury(&mut self, rows_max: usize) -> bool {
        self.columns.iter_mut().fold(false, |remain, column| column.bury(rows_max) | remain)
    }

    /// Bytes held.
    pub(super) fn memory_bytes(&self) -> usize {
        let ids = self.slots.capacity() + self.free.capacity() + self.fresh.capacity();
        self.columns.iter().map(Values::memory_bytes).sum::<usize>()
            + self.results.memory_bytes()
            + ids * size_of::<u32>()
            + self.sets.capacity() * size_of::<Set>()
    }

    /// The owner has a set of this number now, an empty one.
    pub(super) fn open(&mut self, id: u32, owner: Owner) {
        let set = Set { number: self.numbers, owner };
        self.numbers += 1;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.sets[slot as usize] = set;
                slot
            }
            None => {
                self.sets.push(set);
                self.sets.len() as u32 - 1
            }
        };
        self.fresh.push(slot);
        if self.slots.len() <= id as usize {
            self.slots.resize(id as usize + 1, NONE);
        }
        self.slots[id as usize] = slot;
    }

    /// Puts the values of a column's rows into sets, each row's into one of the owner's, or, where there is `u32::MAX`, into none.
    /// `keys` has the owners' keys.
    ///
    /// Errors: `AggregateOverflow`.
    pub(super) fn add(
        &mut self,
        shape: &Shape,
        keys: &KeyIndex,
        column: usize,
        (values, ids): (&ArrayRef, &[u32]),
    ) -> Result<(), EngineError> {
        let slot = |id: &u32| if *id == NONE { NONE } else { self.slots[*id as usize] };
        let slots: Vec<u32> = ids.iter().map(slot).collect();
        self.settle();
        self.put(shape, keys, column, (values, &slots))
    }

    /// The results of sets that are new begin anew. To be called before any is read.
    pub(super) fn settle(&mut self) {
        if self.fresh.is_empty() {
            return;
        }
        self.results.resize(self.sets.len());
        let lists = List { newest: NONE, len: 0 };
        self.columns.iter_mut().for_each(|column| column.lists.resize(self.sets.len(), lists));
        self.fresh.sort_unstable();
        self.fresh.dedup();
        self.results.reset(&self.fresh);
        self.fresh.clear();
    }

    /// As `add`, by slots.
    fn put(
        &mut self,
        shape: &Shape,
        keys: &KeyIndex,
        column: usize,
        (values, slots): (&ArrayRef, &[u32]),
    ) -> Result<(), EngineError> {
        let nulls = values.nulls();
        let is_value = |row: &u32| slots[*row as usize] != NONE && nulls.is_none_or(|nulls| nulls.is_valid(*row as usize));
        let rows = UInt32Array::from((0..slots.len() as u32).filter(is_value).collect::<Vec<u32>>());
        if rows.is_empty() {
            return Ok(());
        }
        let of = &mut self.columns[column];
        of.bury(2 * rows.len());
        let values = take(values, &rows, None).map_err(|source| shape.kernel(source))?;
        let slots: Vec<u32> = rows.values().iter().map(|row| slots[*row as usize]).collect();
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(slots.iter().map(|slot| self.sets[*slot as usize].number)));
        let (mut new, mut new_slots) = (Vec::new(), Vec::new());
        of.take(&[numbers, Arc::clone(&values)], &slots, |row| {
            new.push(row);
            new_slots.push(slots[row as usize]);
        });
        if new.is_empty() {
            return Ok(());
        }
        let new = UInt32Array::from(new);
        let told_apart = take(&values, &new, None).map_err(|source| shape.kernel(source))?;
        let marked = self.shape.columns.iter().enumerate().map(|(at, other)| match at == column {
            true => Arc::clone(&told_apart),
            false => new_null_array(&other.data_type, new.len()),
        });
        let marked: Vec<ArrayRef> = marked.collect();
        let inputs: Vec<ArrayRef> = self.shape.plan.inputs(&marked).collect();
        let sets = &self.sets;
        let taken = self.results.take_in(Groups::Each(&new_slots), &inputs);
        taken.map_err(|overflow| shape.overflow(&overflow, &keys.keys(Rows::Ids(&[sets[overflow.group].owner.key]))))
    }

    /// Two sets of one key become one: that of `into`; the owner has no set `other` any more. `send` sends to the store, where there is
    /// one.
    ///
    /// Errors: `AggregateOverflow`.
    pub(super) fn unite(
        &mut self,
        shape: &Shape,
        keys: &KeyIndex,
        (into, other): (u32, u32),
        send: Option<&mut SendNow<'_>>,
    ) -> Result<(), EngineError> {
        self.settle();
        let [one, two] = [into, other].map(|id| self.slots[id as usize]);
        let len = |slot: u32| self.columns.iter().map(|column| u64::from(column.lists[slot as usize].len)).sum::<u64>();
        let (larger, smaller) = if len(one) >= len(two) { (one, two) } else { (two, one) };
        (self.slots[into as usize], self.slots[other as usize]) = (larger, NONE);
        let moved: Vec<ArrayRef> = self.columns.iter().map(|column| column.values_of([smaller].into_iter(), |_| {})).collect();
        if let Some(send) = send {
            self.delete_stored_slots(keys, &[smaller], send)?;
        }
        self.release_slot(shape, keys, smaller);
        for (column, values) in moved.iter().enumerate() {
            self.put(shape, keys, column, (values, &vec![larger; values.len()]))?;
        }
        Ok(())
    }

    /// The owner has no set of this number any more, if it had one. Its key must still be among `keys`.
    pub(super) fn release(&mut self, shape: &Shape, keys: &KeyIndex, id: u32) {
        if let Some(slot) = self.slots.get_mut(id as usize).map(|slot| std::mem::replace(slot, NONE)).filter(|slot| *slot != NONE)
        {
            self.settle();
            self.release_slot(shape, keys, slot);
        }
    }

    fn release_slot(&mut self, shape: &Shape, keys: &KeyIndex, slot: u32) {
        self.save_values_of(shape, keys, slot);
        for column in &mut self.columns {
            let list = std::mem::replace(&mut column.lists[slot as usize], List { newest: NONE, len: 0 });
            if list.newest != NONE {
                column.gone.push(list.newest);
            }
            column.len -= list.len as usize;
        }
        self.sets[slot as usize].number = GONE;
        self.free.push(slot);
    }

    /// Puts what is computed of these sets in the place of their calls among `results`.
    pub(super) fn read_into(&self, results: &mut [ArrayRef], ids: &[u32]) {
        let slots: Vec<u32> = ids.iter().map(|id| self.slots[*id as usize]).collect();
        for (call, column) in self.shape.calls.iter().zip(self.results.read(Rows::Ids(&slots))) {
            results[*call] = column;
        }
    }

    /// As `read_into`, of unions: each of `ids` is a set of the union at its place in `unions`, whose key is the one in `owners`.
    ///
    /// Errors: `AggregateOverflow`.
    pub(super) fn read_united_into(
        &self,
        shape: &Shape,
        keys: &KeyIndex,
        results: &mut [ArrayRef],
        (ids, unions): (&[u32], &[u32]),
        owners: &[u32],
    ) -> Result<(), EngineError> {
        let mut united = Self::new(&self.shape);
        (0..).zip(owners).for_each(|(union, key)| united.open(union, Owner { key: *key, place: 0 }));
        let slots: Vec<u32> = ids.iter().map(|id| self.slots[*id as usize]).collect();
        for (at, column) in self.columns.iter().enumerate() {
            let mut of = Vec::new();
            let values = column.values_of(slots.iter().copied(), |set| of.push(unions[set]));
            united.add(shape, keys, at, (&values, &of))?;
        }
        united.settle();
        united.read_into(results, &(0..owners.len() as u32).collect::<Vec<_>>());
        Ok(())
    }
}

impl Values {
    fn new(data_type: &DataType) -> Self {
        Self {
            index: KeyIndex::new(&[DataType::Int64, data_type.clone()]),
            entries: Vec::new(),
            lists: Vec::new(),
            len: 0,
            gone: Vec::new(),
            frozen: FrozenRows::new(),
            saving: None,
            stored: None,
            ids: Vec::new(),
            reused: Vec::new(),
        }
    }

    /// Takes entries (numbers of sets, values) of these slots in; `is_new` hears of the rows of those that were not there.
    fn take(&mut self, columns: &[ArrayRef], slots: &[u32], mut is_new: impl FnMut(u32)) {
        self.ids.clear();
        self.index.intern(columns, slots.len(), &mut self.ids);
        self.entries.resize(self.index.len(), Entry { slot: NONE, next: NONE });
        self.frozen.resize(self.index.len());
        self.index.drain_reused(&mut self.reused);
        // What stands there now is of a time after the barrier.
        for id in self.reused.drain(..) {
            self.frozen.take(id);
        }
        for (row, (id, slot)) in self.ids.iter().zip(slots).enumerate() {
            let (entry, list) = (&mut self.entries[*id as usize], &mut self.lists[*slot as usize]);
            if entry.slot == NONE {
                *entry = Entry { slot: *slot, next: list.newest };
                *list = List { newest: *id, len: list.len + 1 };
                self.len += 1;
                self.stored.iter_mut().for_each(|stored| stored.change(*id));
                is_new(row as u32);
            }
        }
    }

    /// Visits the entries of a list.
    fn walk(&self, newest: u32, mut visit: impl FnMut(u32)) {
        let mut at = newest;
        while at != NONE {
            visit(at);
            at = self.entries[at as usize].next;
        }
    }

    /// The values of some sets; `visit` hears of each one which of the sets it is of.
    fn values_of(&self, slots: impl Iterator<Item = u32>, mut visit: impl FnMut(usize)) -> ArrayRef {
        let mut ids = Vec::new();
        for (set, slot) in slots.enumerate() {
            self.walk(self.lists[slot as usize].newest, |id| {
                ids.push(id);
                visit(set);
            });
        }
        self.index.keys(Rows::Ids(&ids)).swap_remove(1)
    }

    /// Takes entries of sets that are gone out of the index, about so many; answers whether more remain.
    fn bury(&mut self, rows_max: usize) -> bool {
        let mut rows = 0;
        while rows < rows_max
            && let Some(newest) = self.gone.last_mut()
        {
            let id = *newest;
            *newest = std::mem::replace(&mut self.entries[id as usize], Entry { slot: NONE, next: NONE }).next;
            if *newest == NONE {
                self.gone.pop();
            }
            self.index.remove(id);
            // It was saved when its set went, or was gone at the barrier.
            self.frozen.take(id);
            rows += 1;
        }
        !self.gone.is_empty()
    }

    fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
            + self.frozen.memory_bytes()
            + self.stored.as_ref().map_or(0, StoredEntries::memory_bytes)
            + self.entries.capacity() * size_of::<Entry>()
            + self.lists.capacity() * size_of::<List>()
            + (self.gone.capacity() + self.ids.capacity()) * size_of::<u32>()
    }
}
