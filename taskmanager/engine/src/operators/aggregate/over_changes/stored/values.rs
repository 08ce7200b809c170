//! The values of one column in front of a store: counted, listed by group, and in order. All values of a group are in memory or none.
//!
//! A value that no row has any more stays, with a count of zero, until the store has heard of it, if it knew it.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::keys::normalise_key_column;
use levada_state::bits::Bits;
use levada_state::rows::Rows;

use super::super::super::counted::{RowValues, Walk};
use super::super::extremes::ExtremesShape;
use super::super::order::Order;
use super::table::Table;
use crate::error::EngineError;
use crate::operators::rows::{Found, Held, KeyedRowStore, NO_ROW, RowLists};

/// The values of one column.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) table: Table,
    /// Of each group its values, by their numbers in the table.
    lists: RowLists,
    /// Values that are in a list.
    listed: Bits,
    order: Order,
    walk: Walk,
    ids: Vec<u32>,
    /// Values that no row has any more and the store knows of: since the last generation began, and before.
    zeroed: Vec<u32>,
    leaving: Vec<u32>,
}

impl Values {
    /// Takes the state up in its store, with what was restored there.
    pub(super) fn open(shape: &ExtremesShape, store: &mut KeyedRowStore) -> Result<Self, EngineError> {
        Ok(Self {
            table: Table::open(&shape.counted, store)?,
            lists: RowLists::default(),
            listed: Bits::default(),
            order: shape.order(),
            walk: Walk::default(),
            ids: Vec::new(),
            zeroed: Vec::new(),
            leaving: Vec::new(),
        })
    }

    /// So many groups were made.
    pub(super) fn resize(&mut self, groups: usize) {
        self.lists.resize(groups, self.table.pane.groups.len());
    }

    /// Counts a batch's rows, of groups that `group` names.
    pub(super) fn take(
        &mut self,
        store: &mut KeyedRowStore,
        batch: &RecordBatch,
        comes: Option<&[bool]>,
        group: impl Fn(u32) -> u32,
    ) -> Result<(), EngineError> {
        let shape = Arc::clone(&self.table.shape);
        let (keys, all) = (shape.keys(batch), (0..batch.num_rows() as u32).collect());
        let Some(RowValues { keys, rows }) = RowValues::of(&shape, &keys, all)? else { return Ok(()) };
        let comes = |row: u32| comes.is_none_or(|comes| comes[row as usize]);
        let Self { table, walk, ids, .. } = self;
        table.pane.groups.intern(&keys, rows.len(), ids);
        walk.go(ids, &table.pane.groups, |at| (rows[at], comes(rows[at])));
        table.touch(store, &walk.changed)?;
        table.pane.groups.assign(&walk.changed, &[walk.counts()]);
        self.list(|at| group(rows[at]));
        let values = normalise_key_column(ArrayRef::clone(batch.column(shape.value_place())));
        self.order.turn(&values, &self.walk.turned, |row| (group(row), comes(row)));
        for id in std::mem::take(&mut self.walk.gone) {
            match self.table.pane.is_stored(id) {
                true => self.zeroed.push(id),
                false => self.remove(id),
            }
        }
        Ok(())
    }

    /// Puts those of `ids` that are new into the lists of their groups, which `group` names by place.
    fn list(&mut self, group: impl Fn(usize) -> u32) {
        self.lists.resize(0, self.table.pane.groups.len());
        for (at, id) in self.ids.iter().enumerate() {
            if self.listed.set(*id) {
                self.lists.insert(group(at), NO_ROW, *id);
            }
        }
    }

    /// Puts values with these counts in; `keys` are the columns of the keys, and behind them the values.
    pub(super) fn put(&mut self, keys: &[ArrayRef], groups: &[u32], counts: &ArrayRef) -> Result<(), EngineError> {
        let values = keys.last().ok_or_else(|| self.table.shape.invariant("a counted value has no column"))?;
        let pane = &mut self.table.pane;
        pane.groups.intern(keys, groups.len(), &mut self.ids);
        pane.groups.assign(&self.ids, std::slice::from_ref(counts));
        pane.resize();
        self.list(|at| groups[at]);
        let counts = counts.as_primitive::<Int64Type>().values();
        let there: Vec<u32> = (0u32..).zip(counts).filter(|(_, count)| **count > 0).map(|(row, _)| row).collect();
        self.order.turn(&normalise_key_column(Arc::clone(values)), &there, |row| (groups[row as usize], true));
        Ok(())
    }

    /// Puts in what the store has.
    pub(super) fn take_found(&mut self, Found { keys, ids, loaded }: Found<'_>) -> Result<(), EngineError> {
        let groups: Vec<u32> = loaded.positions.iter().map(|position| ids[*position as usize]).collect();
        let positions = UInt32Array::from(loaded.positions.clone());
        let columns = keys.iter().map(|column| take(column, &positions, None)).collect::<Result<Vec<_>, _>>();
        let mut columns = columns.map_err(|source| self.table.shape.kernel(source))?;
        columns.push(Arc::clone(loaded.rows.column(0)));
        self.put(&columns, &groups, loaded.rows.column(1))?;
        self.table.pane.mark_stored(&self.ids);
        Ok(())
    }

    /// Says that these values, which were put in last, are not in the store.
    pub(super) fn touch_put(&mut self, store: &mut KeyedRowStore) -> Result<(), EngineError> {
        let ids = std::mem::take(&mut self.ids);
        self.table.touch(store, &ids)?;
        self.ids = ids;
        Ok(())
    }

    /// The least or the greatest value of each of these groups; null where there is none.
    pub(super) fn ends(&self, groups: &[u32], is_greatest: bool) -> ArrayRef {
        self.order.ends(groups, is_greatest)
    }

    /// Whether the group has values, or such as the store has to hear of.
    pub(super) fn has(&self, group: u32) -> bool {
        self.lists.len(group) > 0
    }

    /// Takes all values of a group out of memory; the store has them.
    pub(super) fn forget(&mut self, group: u32) {
        self.order.forget(group);
        while self.has(group) {
            self.remove(self.lists.first(group));
        }
    }

    /// Begins a generation of what has changed.
    pub(super) fn freeze(&mut self) {
        self.table.pane.freeze();
        self.leaving.append(&mut self.zeroed);
    }

    /// Everything that was sent is written: forgets what it had to hear of.
    pub(super) fn forget_written(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        let clean = |id: &u32| self.listed.get(*id) && !self.table.pane.is_changed(*id);
        let leaving: Vec<u32> = leaving.into_iter().filter(clean).collect();
        if leaving.is_empty() {
            return;
        }
        let counts = self.table.pane.groups.read_call(0, Rows::Ids(&leaving));
        for (id, count) in leaving.into_iter().zip(counts.as_primitive::<Int64Type>().values()) {
            // One that went twice is there twice.
            if *count == 0 && self.listed.get(id) {
                self.remove(id);
            }
        }
    }

    fn remove(&mut self, id: u32) {
        self.lists.remove(id);
        self.listed.clear(id);
        self.table.pane.remove(id);
    }

    /// What it holds.
    pub(super) fn held(&self, groups: usize) -> Held {
        let (table, live) = (self.table.held(), self.table.pane.groups.live());
        let ids = self.ids.capacity() + self.zeroed.capacity() + self.leaving.capacity();
        let beside = self.lists.memory_bytes() + self.listed.memory_bytes() + ids * size_of::<u32>();
        let bytes = table.bytes + beside + self.walk.memory_bytes() + self.order.memory_bytes();
        Held { bytes, idle_bytes: table.idle_bytes + self.lists.idle_bytes(live, groups) }
    }
}
