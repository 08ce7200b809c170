//! The bytes of a state's entries in a cold store, and back: whole batches at a time.
//!
//! A key is the group (u16, big-endian), then where the state has windows 00 or 01 and the window's end and start (i64,
//! big-endian, sign flipped), then the key's canonical bytes, then those of the map key, or the index of a list's element or of a
//! row among rows (i64, big-endian, sign flipped). No key begins another, so what lies below a key is what begins with its bytes; keys order by
//! group, window's end, start, key. A value is `_ttl` where it is on, then each value column: 00 for null, else 01 and the bytes
//! of a key of that type, floats bit by bit (a FLOAT32 in 4 bytes), a LIST as its length (u32, little-endian) and its elements, a
//! STRUCT as its fields, each of them with its mark.
//!
//! Must never know who stores the bytes. Invariant: they never change (golden vectors in the tests).

mod error;
mod open;
mod read;
mod rows;
mod window;
mod write;

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::keys::{KeyEncoder, KeyGroupRange, fixed_key_size, key_groups_of_rows};
use levada_common::state_schema::{Stamps, StateSchema, StateShape};

use crate::format::KEY_PREFIX;
use write::ValueWriter;

pub use error::{BadRow, LayoutError};
pub use open::to_open;
pub use read::{RowReader, read_namespace};
pub use rows::RowBytes;
pub use window::{Namespaces, Window, namespace_type};

/// The column of windows.
pub const NAMESPACE_COLUMN: &str = "namespace";

/// The column of the place of a list's element, or of a row among those of its key: INT64, not null; they are in its order. In the
/// open format rows have none.
pub const INDEX_COLUMN: &str = "_index";

/// The column of an entry's last touch where the state expires: TIMESTAMP, not null.
pub const TTL_COLUMN: &str = "_ttl";

/// The stamp in snapshots of an entry of which no touch is known: it is touched when it is first looked at. The greatest of all, so
/// that no one takes it for expired.
pub const STAMP_UNKNOWN: i64 = i64::MAX;

/// Bytes of a stamp before a value, with its mark.
const STAMP_BYTES: usize = 9;

/// Bytes of a window in a key, with its mark.
const WINDOW_BYTES: usize = 17;

/// Where entries are.
///
/// Shape: each column has `rows` rows. `keys` as the state's keys; `namespace` as `namespace_type`, null for none, and absent
/// for a state without windows or where no row has one; `below` the map key's columns, or the index: with no column the
/// address is that of everything below the key.
#[derive(Debug, Clone, Default)]
pub struct Addresses {
    /// The key's columns.
    pub keys: Vec<ArrayRef>,
    /// The windows.
    pub namespace: Option<ArrayRef>,
    /// The map key's columns, or the index.
    pub below: Vec<ArrayRef>,
    /// Number of addresses.
    pub rows: usize,
}

/// The rows of a state that was stamped by `had` for one that is by `wanted`: of another clock's stamps no touch is known. The column
/// stays, which says that elements of lists may be missing.
pub fn restamped(rows: RecordBatch, had: Stamps, wanted: Stamps) -> RecordBatch {
    let Ok(at) = rows.schema().index_of(TTL_COLUMN) else { return rows };
    if had.reads_as(wanted) || !wanted.is_some() {
        return rows;
    }
    let mut columns = rows.columns().to_vec();
    columns[at] = Arc::new(TimestampMillisecondArray::from_value(STAMP_UNKNOWN, rows.num_rows()));
    RecordBatch::try_new(rows.schema(), columns).expect("a column of the same type and length")
}

/// How a state's entries are laid out, as columns and as bytes.
///
/// Shape of the columns: `key.<name>` ..., `namespace` where it has windows, the map key's columns or `_index`, the values'
/// columns, `_ttl` where it expires.
#[derive(Debug, Clone)]
pub struct RowLayout {
    schema: Arc<StateSchema>,
    max_parallelism: u32,
    columns: SchemaRef,
}

impl RowLayout {
    /// The layout of a state with this schema.
    pub fn new(schema: Arc<StateSchema>, max_parallelism: u32) -> Self {
        let keys = schema.keys.iter().map(|key| Field::new(format!("{KEY_PREFIX}{}", key.name), key.ty.to_arrow(), true));
        let namespace = schema.windowed.then(|| Field::new(NAMESPACE_COLUMN, namespace_type(), true));
        let index = is_indexed(&schema).then(|| Field::new(INDEX_COLUMN, DataType::Int64, false));
        let below = schema.map_key.iter().map(|column| Field::new(&column.name, column.ty.to_arrow(), true));
        let values = schema.values.iter().map(|column| column.to_field());
        let ttl = schema.ttl.is_some().then(|| Field::new(TTL_COLUMN, DataType::Timestamp(TimeUnit::Millisecond, None), false));
        let columns: Vec<Field> = keys.chain(namespace).chain(index).chain(below).chain(values).chain(ttl).collect();
        Self { columns: Arc::new(Schema::new(columns)), schema, max_parallelism }
    }

    /// What the state holds.
    pub fn schema(&self) -> &Arc<StateSchema> {
        &self.schema
    }

    /// The columns of its entries.
    pub fn columns(&self) -> &SchemaRef {
        &self.columns
    }

    /// Number of key groups of the job.
    pub fn max_parallelism(&self) -> u32 {
        self.max_parallelism
    }

    /// Whether several entries lie below one key: a list's elements, a map's entries, rows.
    pub fn has_below(&self) -> bool {
        self.below_columns() > 0
    }

    /// Number of columns of an entry's place below its key.
    fn below_columns(&self) -> usize {
        usize::from(is_indexed(&self.schema)) + self.schema.map_key.len()
    }

    /// Number of columns before those of the place below the key.
    fn key_columns(&self) -> usize {
        self.schema.keys.len() + usize::from(self.schema.windowed)
    }

    /// Bytes of group, window and key where these have a fixed size: keys of types with one size, none of them null, with a window
    /// where the state has windows. Keys with nulls are shorter.
    pub fn key_bytes(&self) -> Option<usize> {
        let window = if self.schema.windowed { WINDOW_BYTES } else { 0 };
        let sizes = self.schema.keys.iter().map(|key| fixed_key_size(&key.ty.to_arrow()).map(|size| 1 + size));
        sizes.sum::<Option<usize>>().map(|keys| 2 + window + keys)
    }

    /// The addresses of the entries in `batch`, whose columns are those of the layout.
    pub fn addresses(&self, batch: &RecordBatch) -> Result<Addresses, LayoutError> {
        self.check(batch)?;
        let columns = batch.columns();
        let (keys, below) = (self.schema.keys.len(), self.key_columns());
        Ok(Addresses {
            keys: columns[..keys].to_vec(),
            namespace: self.schema.windowed.then(|| Arc::clone(&columns[keys])),
            below: columns[below..below + self.below_columns()].to_vec(),
            rows: batch.num_rows(),
        })
    }

    /// Appends the keys of these addresses to `out`, and to `known` how many bytes of each are group, window and key.
    ///
    /// Errors: columns that are not those of the state; nothing is appended then.
    pub fn write_keys(&self, addresses: &Addresses, out: &mut RowBytes, known: &mut Vec<u32>) -> Result<(), LayoutError> {
        self.check_addresses(addresses)?;
        let rows = addresses.rows;
        let mut groups = Vec::with_capacity(rows);
        key_groups_of_rows(&addresses.keys, rows, self.max_parallelism, &mut groups);
        let (mut keys, mut below) = (KeyEncoder::new(), KeyEncoder::new());
        keys.encode(&addresses.keys, rows);
        let is_indexed = is_indexed(&self.schema);
        let index = addresses.below.first().filter(|_| is_indexed).map(|index| index.as_primitive::<Int64Type>().values());
        if !is_indexed {
            below.encode(&addresses.below, rows);
        }
        let namespaces = addresses.namespace.as_ref().map(Namespaces::of);
        let window_bytes = |window: Option<Window>| if window.is_some() { WINDOW_BYTES } else { 1 };
        for (row, group) in groups.iter().enumerate() {
            out.extend(&group.to_be_bytes());
            let mut known_bytes = 2 + keys.key(row).len();
            if self.schema.windowed {
                let window = namespaces.as_ref().and_then(|namespaces| namespaces.get(row));
                Window::write(window, out);
                known_bytes += window_bytes(window);
            }
            known.push(known_bytes as u32);
            out.extend(keys.key(row));
            match index {
                Some(index) => out.extend(&window::ordered(index[row])),
                None if is_indexed => {}
                None => out.extend(below.key(row)),
            }
            out.end_row();
        }
        Ok(())
    }

    /// Appends the keys and values of the entries in `batch`, whose columns are those of the layout.
    ///
    /// Errors: columns that are not; nothing is appended then.
    pub fn write(&self, batch: &RecordBatch, keys: &mut RowBytes, values: &mut RowBytes) -> Result<(), LayoutError> {
        self.write_keys(&self.addresses(batch)?, keys, &mut Vec::with_capacity(batch.num_rows()))?;
        let columns = batch.columns();
        let first = self.key_columns() + self.below_columns();
        let (stored, ttl) = columns[first..].split_at(self.schema.values.len());
        let writers: Vec<ValueWriter<'_>> = ttl.iter().chain(stored).map(ValueWriter::new).collect();
        for row in 0..batch.num_rows() {
            for writer in &writers {
                writer.write(row, values);
            }
            values.end_row();
        }
        Ok(())
    }

    /// The first key of a group, and of none after: keys of groups `range` lie between that of `range.start` and, not
    /// included, that of `range.end + 1`.
    pub fn group_bounds(range: KeyGroupRange) -> (Vec<u8>, Vec<u8>) {
        let end = match range.end.checked_add(1) {
            Some(next) => next.to_be_bytes().to_vec(),
            None => vec![0xff; 3],
        };
        (range.start.to_be_bytes().to_vec(), end)
    }

    /// The bounds of the keys that begin with `prefix`, which begins with a group.
    pub fn prefix_bounds(prefix: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let mut end = prefix.to_vec();
        while end.last() == Some(&0xff) {
            end.pop();
        }
        let last = end.last_mut().expect("no group begins with ff");
        *last += 1;
        (prefix.to_vec(), end)
    }

    /// When the entry with this value was touched last; `None` where the value does not begin with a time.
    #[inline]
    pub fn touched_at(value: &[u8]) -> Option<i64> {
        match value.split_first_chunk::<STAMP_BYTES>() {
            Some(([1, time @ ..], _)) => Some(i64::from_le_bytes(*time)),
            _ => None,
        }
    }

    /// Gives a value the time of its last touch, takes it away, or replaces it, where a state begins or ceases to expire or does
    /// so by another clock. Where what it had cannot be read as what it shall have it was touched at `touched_at_ms`.
    pub fn convert_stamp(value: &mut Vec<u8>, had: Stamps, wanted: Stamps, touched_at_ms: i64) {
        if had.reads_as(wanted) {
            return;
        }
        if had.is_some() {
            value.drain(..STAMP_BYTES.min(value.len()));
        }
        if wanted.is_some() {
            let mut bytes = [1; STAMP_BYTES];
            bytes[1..].copy_from_slice(&touched_at_ms.to_le_bytes());
            value.splice(0..0, bytes);
        }
    }

    /// The layout's columns out of a batch that has others too.
    ///
    /// Errors: `Columns` where it lacks one, or has one of another type.
    pub fn pick(&self, batch: &RecordBatch) -> Result<RecordBatch, LayoutError> {
        let fields = self.columns.fields().iter();
        let found = fields.map(|field| batch.column_by_name(field.name()).cloned()).collect::<Option<Vec<_>>>();
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let rows = found.and_then(|found| RecordBatch::try_new_with_options(Arc::clone(&self.columns), found, &options).ok());
        rows.ok_or_else(|| LayoutError::Columns { found: text(&batch.schema()), expected: text(&self.columns) })
    }

    fn check(&self, batch: &RecordBatch) -> Result<(), LayoutError> {
        let found = batch.schema();
        let same = found.fields().len() == self.columns.fields().len()
            && found
                .fields()
                .iter()
                .zip(self.columns.fields())
                .all(|(found, ours)| found.name() == ours.name() && found.data_type().equals_datatype(ours.data_type()));
        if !same {
            return Err(LayoutError::Columns { found: text(&found), expected: text(&self.columns) });
        }
        let mut columns = batch.columns().iter().zip(self.columns.fields());
        match columns.find(|(column, field)| !field.is_nullable() && column.null_count() > 0) {
            Some((_, field)) => Err(LayoutError::Null { column: field.name().clone() }),
            None => Ok(()),
        }
    }

    /// Whether these are addresses of the state.
    pub fn check_addresses(&self, addresses: &Addresses) -> Result<(), LayoutError> {
        let fields = self.columns.fields();
        let fits = |columns: &[ArrayRef], first: usize| {
            let typed = columns.iter().zip(&fields[first..]);
            typed.clone().count() == columns.len()
                && typed.into_iter().all(|(column, field)| {
                    column.len() == addresses.rows && column.data_type().equals_datatype(field.data_type())
                })
        };
        let namespace = addresses.namespace.as_ref();
        let same = addresses.keys.len() == self.schema.keys.len()
            && fits(&addresses.keys, 0)
            && namespace.is_none_or(|column| self.schema.windowed && fits(std::slice::from_ref(column), self.schema.keys.len()))
            && (addresses.below.is_empty() || addresses.below.len() == self.below_columns())
            && fits(&addresses.below, self.key_columns());
        if same {
            return Ok(());
        }
        let columns = addresses.keys.iter().chain(namespace).chain(&addresses.below);
        let found = columns.map(|column| column.data_type().to_string()).collect::<Vec<_>>().join(", ");
        Err(LayoutError::Columns { found, expected: text(&self.columns) })
    }
}

/// Whether entries of a key have an index: elements of a list, rows.
fn is_indexed(schema: &StateSchema) -> bool {
    matches!(schema.shape, StateShape::List | StateShape::Rows)
}

fn text(schema: &Schema) -> String {
    schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
