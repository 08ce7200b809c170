//! Maps that are the same in every subtask of an operator, in the order of their keys.

use arrow::datatypes::SchemaRef;

use super::piece::piece;
use super::{OperatorStates, OperatorTable, Rows};
use crate::descriptor::{BroadcastState, MAP_KEY_COLUMN, Signature, VALUE_COLUMN};
use crate::format::operator_schema;
use crate::ordered::{OrderedTable, Removed};
use crate::snapshot::PieceSender;
use crate::types::{StateReader, StateType, StateWriter, TypeError};

/// A map.
pub(crate) struct BroadcastTable<K: StateType + Ord, V: StateType> {
    entries: OrderedTable<K, V>,
    heap_bytes: usize,
    schema: SchemaRef,
    sender: Option<PieceSender>,
}

/// Entries of a piece when a snapshot is finished at once.
const PIECE_ROWS_MAX: usize = 8192;

fn heap_bytes<K: StateType, V: StateType>(key: &K, value: &V) -> usize {
    let key = if K::ON_HEAP { key.heap_bytes() } else { 0 };
    key + if V::ON_HEAP { value.heap_bytes() } else { 0 }
}

/// Entries on their way into a piece.
struct Piece<K: StateType, V: StateType> {
    keys: K::Writer,
    values: V::Writer,
    rows: usize,
}

impl<K: StateType, V: StateType> Piece<K, V> {
    fn new(rows: usize) -> Self {
        Self { keys: K::writer(rows), values: V::writer(rows), rows: 0 }
    }

    fn push(&mut self, key: &K, value: &V) {
        self.keys.push(key);
        self.values.push(value);
        self.rows += 1;
    }

    fn send(self, schema: &SchemaRef, sender: &Option<PieceSender>) -> Result<(), TypeError> {
        let mut columns = Vec::with_capacity(K::width() + V::width());
        self.keys.finish(&mut columns)?;
        self.values.finish(&mut columns)?;
        if let Some(sender) = sender {
            sender.send(piece(schema, columns, self.rows));
        }
        Ok(())
    }
}

impl<K: StateType + Ord, V: StateType> BroadcastTable<K, V> {
    pub(crate) fn new(signature: &Signature) -> Self {
        let schema = operator_schema(&signature.declaration().schema);
        Self { entries: OrderedTable::new(), heap_bytes: 0, schema, sender: None }
    }

    fn put(&mut self, key: K, value: V) {
        self.heap_bytes += heap_bytes(&key, &value);
        // The key of a replaced entry stays, as large as the new one but for its spare capacity; a moved one has its own copy.
        let key_bytes = if K::ON_HEAP { key.heap_bytes() } else { 0 };
        if let Some(old) = self.entries.insert(key, value) {
            self.forget(key_bytes + if V::ON_HEAP { old.heap_bytes() } else { 0 });
        }
    }

    fn remove(&mut self, key: &K) {
        if let Removed::Gone(value) = self.entries.remove(key) {
            self.forget(heap_bytes(key, &value));
        }
    }

    fn clear(&mut self) {
        while let Some((key, removed)) = self.entries.remove_first(|_| true) {
            if let Removed::Gone(value) = removed {
                self.forget(heap_bytes(&key, &value));
            }
        }
    }

    fn forget(&mut self, bytes: usize) {
        self.heap_bytes = self.heap_bytes.saturating_sub(bytes);
    }

    fn save_next(&mut self, rows_max: usize) -> Result<(), TypeError> {
        let Self { entries, heap_bytes: bytes, schema, sender } = self;
        let mut piece = Piece::<K, V>::new(rows_max.min(entries.len()) + entries.moved());
        entries.save_moved(|(key, value)| {
            *bytes = bytes.saturating_sub(heap_bytes(&key, &value));
            piece.push(&key, &value);
        });
        entries.save_next(rows_max, |key, value| piece.push(key, value));
        piece.send(schema, sender)?;
        if !self.entries.is_running()
            && let Some(sender) = self.sender.take()
        {
            sender.finish();
        }
        Ok(())
    }
}

impl<K: StateType + Ord, V: StateType> OperatorTable for BroadcastTable<K, V> {
    fn freeze(&mut self, sender: PieceSender) -> Result<(), TypeError> {
        while self.sender.is_some() {
            self.save_next(PIECE_ROWS_MAX)?;
        }
        self.entries.freeze();
        self.sender = Some(sender);
        Ok(())
    }

    fn advance(&mut self, rows_max: usize) -> Result<bool, TypeError> {
        match &self.sender {
            None => return Ok(false),
            Some(sender) if sender.is_abandoned() => self.abandon(),
            Some(sender) if sender.is_full() => return Ok(true),
            Some(_) => self.save_next(rows_max)?,
        }
        Ok(self.sender.is_some())
    }

    fn abandon(&mut self) {
        let bytes = &mut self.heap_bytes;
        self.entries.abandon(|(key, value)| *bytes = bytes.saturating_sub(heap_bytes(&key, &value)));
        self.sender = None;
    }

    fn restore(&mut self, rows: &Rows<'_>) -> Result<(), TypeError> {
        let keys = K::reader(MAP_KEY_COLUMN, rows.map_key())?;
        let values = V::reader(VALUE_COLUMN, rows.values())?;
        (0..rows.len()).for_each(|row| self.put(keys.get(row), values.get(row)));
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        self.entries.memory_bytes() + self.heap_bytes
    }
}

impl<K: StateType + Ord, V: StateType> BroadcastState<K, V> {
    /// The value of this key.
    pub fn get<'a>(self, states: &'a OperatorStates, key: &K) -> Option<&'a V> {
        states.table::<BroadcastTable<K, V>>(self.id()).entries.get(key)
    }

    /// Whether the key has a value.
    pub fn contains(self, states: &OperatorStates, key: &K) -> bool {
        self.get(states, key).is_some()
    }

    /// Puts a value in the place of what the key has.
    pub fn put(self, states: &mut OperatorStates, key: K, value: V) {
        states.table_mut::<BroadcastTable<K, V>>(self.id()).put(key, value);
    }

    /// Removes a key.
    pub fn remove(self, states: &mut OperatorStates, key: &K) {
        states.table_mut::<BroadcastTable<K, V>>(self.id()).remove(key);
    }

    /// The entries, in the order of their keys.
    pub fn iter(self, states: &OperatorStates) -> impl Iterator<Item = (&K, &V)> {
        states.table::<BroadcastTable<K, V>>(self.id()).entries.iter()
    }

    /// Number of entries.
    pub fn len(self, states: &OperatorStates) -> usize {
        states.table::<BroadcastTable<K, V>>(self.id()).entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(self, states: &OperatorStates) -> bool {
        self.len(states) == 0
    }

    /// Removes all entries.
    pub fn clear(self, states: &mut OperatorStates) {
        states.table_mut::<BroadcastTable<K, V>>(self.id()).clear();
    }
}
