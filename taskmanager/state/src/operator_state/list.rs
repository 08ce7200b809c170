//! Lists of an operator subtask.
//!
//! A list grows at its end or is replaced as a whole. So a running snapshot needs no copy: the elements that it has still to save
//! stand where they stood, in the list or in the one that was replaced.

use arrow::datatypes::SchemaRef;

use super::piece::piece;
use super::{OperatorStates, OperatorTable, Rows};
use crate::descriptor::{OperatorListState, Signature, VALUE_COLUMN};
use crate::format::operator_schema;
use crate::snapshot::PieceSender;
use crate::types::{StateReader, StateType, TypeError};

/// A list.
pub(crate) struct ListTable<T: StateType> {
    items: Vec<T>,
    heap_bytes: usize,
    schema: SchemaRef,
    running: Option<Running<T>>,
}

/// A running snapshot.
struct Running<T> {
    sender: PieceSender,
    /// Elements before this one are saved.
    cursor: usize,
    /// Elements at the barrier.
    end: usize,
    /// The list as it was when it was replaced, where it was.
    replaced: Option<Vec<T>>,
}

/// Elements of a piece when a snapshot is finished at once.
const PIECE_ROWS_MAX: usize = 8192;

fn heap_bytes<T: StateType>(items: &[T]) -> usize {
    if T::ON_HEAP { items.iter().map(T::heap_bytes).sum() } else { 0 }
}

impl<T: StateType> ListTable<T> {
    pub(crate) fn new(signature: &Signature) -> Self {
        let schema = operator_schema(&signature.declaration().schema);
        Self { items: Vec::new(), heap_bytes: 0, schema, running: None }
    }

    fn add(&mut self, item: T) {
        self.heap_bytes += if T::ON_HEAP { item.heap_bytes() } else { 0 };
        self.items.push(item);
    }

    fn replace(&mut self, items: Vec<T>) {
        self.heap_bytes = heap_bytes(&items);
        let old = std::mem::replace(&mut self.items, items);
        if let Some(running) = &mut self.running {
            running.replaced.get_or_insert(old);
        }
    }

    fn save_next(&mut self, rows_max: usize) -> Result<(), TypeError> {
        let Some(running) = &mut self.running else { return Ok(()) };
        let items = running.replaced.as_ref().unwrap_or(&self.items);
        let to = running.end.min(running.cursor + rows_max);
        let saved = &items[running.cursor..to];
        running.sender.send(piece(&self.schema, T::gather(saved)?, saved.len()));
        running.cursor = to;
        if to == running.end
            && let Some(running) = self.running.take()
        {
            running.sender.finish();
        }
        Ok(())
    }
}

impl<T: StateType> OperatorTable for ListTable<T> {
    fn freeze(&mut self, sender: PieceSender) -> Result<(), TypeError> {
        while self.running.is_some() {
            self.save_next(PIECE_ROWS_MAX)?;
        }
        self.running = Some(Running { sender, cursor: 0, end: self.items.len(), replaced: None });
        Ok(())
    }

    fn advance(&mut self, rows_max: usize) -> Result<bool, TypeError> {
        match &self.running {
            None => return Ok(false),
            Some(running) if running.sender.is_abandoned() => self.abandon(),
            Some(running) if running.sender.is_full() => return Ok(true),
            Some(_) => self.save_next(rows_max)?,
        }
        Ok(self.running.is_some())
    }

    fn abandon(&mut self) {
        self.running = None;
    }

    fn restore(&mut self, rows: &Rows<'_>) -> Result<(), TypeError> {
        let reader = T::reader(VALUE_COLUMN, rows.values())?;
        (0..rows.len()).for_each(|row| self.add(reader.get(row)));
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.heap_bytes
    }
}

impl<T: StateType> OperatorListState<T> {
    /// The elements, in order; after a restore at first those that came back.
    pub fn get(self, states: &OperatorStates) -> &[T] {
        &states.table::<ListTable<T>>(self.id()).items
    }

    /// Adds an element behind the others.
    pub fn add(self, states: &mut OperatorStates, item: T) {
        states.table_mut::<ListTable<T>>(self.id()).add(item);
    }

    /// Adds elements behind the others.
    pub fn add_all(self, states: &mut OperatorStates, items: impl IntoIterator<Item = T>) {
        let table = states.table_mut::<ListTable<T>>(self.id());
        items.into_iter().for_each(|item| table.add(item));
    }

    /// Puts these elements in the place of all others.
    pub fn update(self, states: &mut OperatorStates, items: Vec<T>) {
        states.table_mut::<ListTable<T>>(self.id()).replace(items);
    }

    /// Removes all elements.
    pub fn clear(self, states: &mut OperatorStates) {
        self.update(states, Vec::new());
    }
}
