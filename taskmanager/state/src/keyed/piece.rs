//! Rows of a state on their way into a snapshot, as columns.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StructArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use crate::key_index::KeyIndex;
use crate::row_codec::{Addresses, STAMP_UNKNOWN, namespace_type};
use crate::rows::Rows;
use crate::types::{StateType, StateWriter, TypeError};

use super::at::Namespace;

/// The stamp in a table of an entry of which no touch is known: the least of all, so that any touch is later. What snapshots have
/// for it is `row_codec::STAMP_UNKNOWN`.
pub(super) const UNTOUCHED: i64 = i64::MIN;

/// Items after which a piece is sent.
pub(super) const PIECE_ITEMS_MAX: usize = 8192;

/// Bytes of values after which a piece is sent.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 20;

/// Whose value it is.
pub(super) struct Owner<'a, M> {
    pub(super) key: u32,
    pub(super) namespace: Option<Namespace>,
    pub(super) map_key: &'a M,
}

/// Items as columns, the key's as its id until the end.
pub(super) struct PieceBuilder<M: StateType, T: StateType> {
    schema: SchemaRef,
    is_list: bool,
    has_stamps: bool,
    keys: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    map_keys: M::Writer,
    indexes: Vec<i64>,
    values: T::Writer,
    stamps: Vec<i64>,
    bytes: usize,
}

impl<M: StateType, T: StateType> PieceBuilder<M, T> {
    /// For about `items` items: room for them, as far as it is full before.
    pub(super) fn new(schema: &SchemaRef, is_list: bool, has_stamps: bool, items: usize) -> Self {
        let room = items.min(PIECE_ITEMS_MAX).min(PIECE_BYTES_MAX / (size_of::<M>() + size_of::<T>()).max(1) + 1);
        Self {
            schema: Arc::clone(schema),
            is_list,
            has_stamps,
            keys: Vec::with_capacity(room),
            starts: Vec::new(),
            ends: Vec::new(),
            map_keys: M::writer(room),
            indexes: Vec::new(),
            values: T::writer(room),
            stamps: Vec::new(),
            bytes: 0,
        }
    }

    /// Adds an item; `index` is its place in its list, `stamp` that of its last touch.
    pub(super) fn push(&mut self, owner: &Owner<'_, M>, index: i64, item: &T, stamp: i64) {
        self.keys.push(owner.key);
        if let Some(namespace) = owner.namespace {
            self.starts.push(namespace.start);
            self.ends.push(namespace.end);
        }
        self.map_keys.push(owner.map_key);
        if self.is_list {
            self.indexes.push(index);
        }
        self.values.push(item);
        if self.has_stamps {
            self.stamps.push(if stamp == UNTOUCHED { STAMP_UNKNOWN } else { stamp });
        }
        self.bytes += if M::ON_HEAP { owner.map_key.heap_bytes() } else { size_of::<M>() };
        self.bytes += if T::ON_HEAP { item.heap_bytes() } else { size_of::<T>() };
    }

    /// Bytes of their values.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Items so far.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether it is time to send it.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= PIECE_ITEMS_MAX || self.bytes >= PIECE_BYTES_MAX
    }

    /// The columns of all items.
    ///
    /// Errors: what the types' writers say.
    pub(super) fn finish(self, keys: &KeyIndex) -> Result<RecordBatch, TypeError> {
        let rows = self.keys.len();
        let mut columns = keys.keys(Rows::Ids(&self.keys));
        columns.extend(windows(self.starts, self.ends));
        self.map_keys.finish(&mut columns)?;
        if self.is_list {
            columns.push(Arc::new(Int64Array::from(self.indexes)));
        }
        self.values.finish(&mut columns)?;
        if self.has_stamps {
            columns.push(Arc::new(TimestampMillisecondArray::from(self.stamps)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema, columns, &options).expect("columns are those of the schema"))
    }
}

/// The column of these windows; none where there is none.
fn windows(starts: Vec<i64>, ends: Vec<i64>) -> Option<ArrayRef> {
    if starts.is_empty() {
        return None;
    }
    let column = |times: Vec<i64>| Arc::new(TimestampMillisecondArray::from(times)) as ArrayRef;
    let DataType::Struct(fields) = namespace_type() else { unreachable!("a window is a struct") };
    Some(Arc::new(StructArray::new(fields, vec![column(starts), column(ends)], None)))
}

/// Addresses as columns, the key's as its id until the end.
pub(super) struct AddressBuilder<M: StateType> {
    keys: Vec<u32>,
    starts: Vec<i64>,
    ends: Vec<i64>,
    map_keys: M::Writer,
}

impl<M: StateType> AddressBuilder<M> {
    pub(super) fn new() -> Self {
        Self { keys: Vec::new(), starts: Vec::new(), ends: Vec::new(), map_keys: M::writer(0) }
    }

    /// With one address.
    pub(super) fn of(owner: &Owner<'_, M>) -> Self {
        let mut addresses = Self::new();
        addresses.push(owner);
        addresses
    }

    pub(super) fn push(&mut self, owner: &Owner<'_, M>) {
        self.keys.push(owner.key);
        if let Some(namespace) = owner.namespace {
            self.starts.push(namespace.start);
            self.ends.push(namespace.end);
        }
        self.map_keys.push(owner.map_key);
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The addresses; those of lists are of everything below their keys.
    pub(super) fn finish(self, keys: &KeyIndex) -> Result<Addresses, TypeError> {
        let mut below = Vec::new();
        self.map_keys.finish(&mut below)?;
        let namespace = windows(self.starts, self.ends);
        Ok(Addresses { keys: keys.keys(Rows::Ids(&self.keys)), namespace, below, rows: self.keys.len() })
    }
}
