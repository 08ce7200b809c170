//! Entries as the open format has them, and back: what only a store needs to tell rows apart is in no file.
//!
//! A store keeps rows by window, where their owner says so, and by number. The number is no part of the state, and given anew; nor is the
//! window, which is found anew, but where the state itself says that its entries have one.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::Schema;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::state_schema::{StateSchema, StateShape};

use super::{LayoutError, Namespaces, RowLayout, text};

/// The number of the first row that comes out of a file: all of them are below those that are given later.
const FIRST_NUMBER: i64 = i64::MIN;

impl RowLayout {
    /// The columns of entries in the open format.
    pub fn open_columns(&self) -> Schema {
        Schema::new(opened(&self.schema, self.columns.fields().iter().cloned().collect::<Vec<_>>()))
    }

    /// Entries of the open format, among whose columns are the state's, as the store has them; `before` of the same file came
    /// before them. Rows are in no window and have the numbers of their places in the file.
    ///
    /// Errors: `Columns` where a column is missing, or has another type.
    pub fn from_open(&self, batch: &RecordBatch, before: u64) -> Result<RecordBatch, LayoutError> {
        if self.schema.shape != StateShape::Rows {
            return self.pick(batch);
        }
        let wanted = self.open_columns();
        let found = wanted.fields().iter().map(|field| batch.column_by_name(field.name()).cloned());
        let found = found.collect::<Option<Vec<ArrayRef>>>();
        let refuse = || LayoutError::Columns { found: text(&batch.schema()), expected: text(&wanted) };
        let mut columns = found.ok_or_else(refuse)?;
        let rows = batch.num_rows();
        let window = self.schema.windowed.then(|| Namespaces::column(&vec![None; rows]));
        let first = FIRST_NUMBER.saturating_add_unsigned(before);
        let numbers: ArrayRef = Arc::new((first..first.saturating_add_unsigned(rows as u64)).collect::<Int64Array>());
        let keys = self.schema.keys.len();
        columns.splice(keys..keys, window.into_iter().chain([numbers]));
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.columns), columns, &options).map_err(|_| refuse())
    }
}

/// Entries of a store as the open format has them.
///
/// Contract: the columns are those of a layout of this schema, with windows or, where it has none, without; those of accumulators may stand
/// in any order, since a store may have some of them below the key.
pub fn to_open(schema: &StateSchema, batch: &RecordBatch) -> RecordBatch {
    match schema.shape {
        StateShape::Rows => {}
        StateShape::Accumulators => return in_order(schema, batch),
        _ => return batch.clone(),
    }
    let fields = of_state(schema, batch.schema().fields().iter().cloned().collect::<Vec<_>>());
    let columns = of_state(schema, batch.columns().to_vec());
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).expect("columns with their fields")
}

/// Entries with the values' columns in the order of the schema.
fn in_order(schema: &StateSchema, batch: &RecordBatch) -> RecordBatch {
    let (fields, first) = (batch.schema(), schema.keys.len() + usize::from(schema.windowed));
    let found = fields.fields().iter().skip(first).map(|field| field.name());
    if found.eq(schema.values.iter().map(|column| &column.name)) {
        return batch.clone();
    }
    let place = |name: &String| fields.fields().iter().skip(first).position(|field| field.name() == name).map(|at| first + at);
    let values: Option<Vec<usize>> = schema.values.iter().map(|column| place(&column.name)).collect();
    let places = values.map(|values| (0..first).chain(values).collect::<Vec<_>>());
    places.and_then(|places| batch.project(&places).ok()).unwrap_or_else(|| batch.clone())
}

/// What the state has of a store's columns of rows.
fn of_state<T>(schema: &StateSchema, mut columns: Vec<T>) -> Vec<T> {
    let window = schema.windowed.then(|| columns.remove(schema.keys.len()));
    let mut columns = opened(schema, columns);
    columns.splice(schema.keys.len()..schema.keys.len(), window);
    columns
}

/// What a file has of a store's columns but for windows. They go by place: a column of the user's may have any name.
fn opened<T>(schema: &StateSchema, mut columns: Vec<T>) -> Vec<T> {
    if schema.shape == StateShape::Rows {
        let keys = schema.keys.len();
        let of_state = keys + schema.values.len() + usize::from(schema.ttl.is_some());
        columns.drain(keys..keys + columns.len().saturating_sub(of_state));
    }
    columns
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray};
    use arrow::datatypes::Int64Type;
    use levada_common::types::{Column, LogicalType};

    use super::*;
    use crate::row_codec::{NAMESPACE_COLUMN, RowBytes, RowReader, Window};

    fn schema(windowed: bool) -> StateSchema {
        StateSchema {
            shape: StateShape::Rows,
            keys: vec![Column::new("k", LogicalType::Int64, true)],
            // A user's column may be called as one of ours.
            values: vec![Column::new(NAMESPACE_COLUMN, LogicalType::String, true)],
            windowed,
            ..StateSchema::default()
        }
    }

    fn open_rows() -> RecordBatch {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(1)]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("b"), None]));
        RecordBatch::try_from_iter([(NAMESPACE_COLUMN, texts), ("key.k", keys)]).unwrap()
    }

    #[test]
    fn rows_go_into_a_store_and_out_of_it_without_what_it_adds() {
        for windowed in [false, true] {
            let layout = RowLayout::new(Arc::new(schema(windowed)), 16);
            let rows = layout.from_open(&open_rows(), 5).unwrap();
            let numbers = rows.column(1 + usize::from(windowed)).as_primitive::<Int64Type>().values().to_vec();
            assert_eq!(numbers, [i64::MIN + 5, i64::MIN + 6, i64::MIN + 7]);
            let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
            layout.write(&rows, &mut keys, &mut values).unwrap();
            let mut reader = RowReader::whole(&layout);
            keys.iter().zip(values.iter()).for_each(|(key, value)| reader.push(0, key, value).unwrap());
            let read = reader.finish();
            assert_eq!(read, rows);
            // Whoever opens it knows the state without windows.
            let open = to_open(&schema(false), &read);
            assert_eq!(open.schema().as_ref(), &layout.open_columns());
            for name in ["key.k", NAMESPACE_COLUMN] {
                assert_eq!(open.column_by_name(name), open_rows().column_by_name(name));
            }
        }
    }

    #[test]
    fn rows_of_a_state_with_windows_keep_theirs() {
        let schema = StateSchema { values: vec![Column::new("text", LogicalType::String, true)], ..schema(true) };
        let layout = RowLayout::new(Arc::new(schema.clone()), 16);
        let windows = Namespaces::column(&[Some(Window { end: 10, start: -1 })]);
        let (key, number): (ArrayRef, ArrayRef) = (Arc::new(Int64Array::from(vec![7])), Arc::new(Int64Array::from(vec![258])));
        let text: ArrayRef = Arc::new(StringArray::from(vec!["ab"]));
        let columns = vec![Arc::clone(&key), Arc::clone(&windows), number, Arc::clone(&text)];
        let open = to_open(&schema, &RecordBatch::try_new(Arc::clone(layout.columns()), columns).unwrap());
        let expected = [("key.k", key), (NAMESPACE_COLUMN, windows), ("text", text)];
        let found =
            open.schema().fields().iter().map(|field| field.name().clone()).zip(open.columns().to_vec()).collect::<Vec<_>>();
        assert_eq!(found, expected.map(|(name, column)| (name.to_owned(), column)));
    }

    #[test]
    fn accumulators_stand_in_their_order_whatever_a_store_has_below_the_key() {
        let names = |batch: &RecordBatch| batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        let column = |name: &str| Column::new(name, LogicalType::Int64, false);
        let open = StateSchema {
            shape: StateShape::Accumulators,
            keys: vec![column("k")],
            values: ["sum", "chunk", "rows"].map(column).into(),
            ..StateSchema::default()
        };
        let stored = StateSchema {
            shape: StateShape::Map,
            map_key: vec![column("chunk")],
            values: ["sum", "rows"].map(column).into(),
            ..open.clone()
        };
        let (stored, open_layout) = (RowLayout::new(Arc::new(stored), 16), RowLayout::new(Arc::new(open.clone()), 16));
        let columns = (0..4).map(|at| Arc::new(Int64Array::from(vec![at])) as ArrayRef).collect();
        let entries = RecordBatch::try_new(Arc::clone(stored.columns()), columns).unwrap();
        assert_eq!(names(&entries), ["key.k", "chunk", "sum", "rows"]);
        let opened = to_open(&open, &entries);
        assert_eq!(names(&opened), ["key.k", "sum", "chunk", "rows"]);
        assert_eq!(opened.column(1), entries.column(2));
        assert_eq!(stored.from_open(&opened, 0).unwrap(), entries);
        let as_it_is = open_layout.pick(&opened).unwrap();
        assert_eq!(to_open(&open, &as_it_is), as_it_is);
    }

    #[test]
    fn a_file_without_a_column_of_the_state_is_refused() {
        let layout = RowLayout::new(Arc::new(schema(true)), 16);
        let error = layout.from_open(&open_rows().project(&[0]).unwrap(), 0).unwrap_err();
        assert!(error.to_string().contains("key.k"), "{error}");
    }

    /// Never to change.
    #[test]
    fn the_bytes_of_a_row_are_golden() {
        let layout = RowLayout::new(Arc::new(schema(true)), 128);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![7])),
            Namespaces::column(&[Some(Window { end: 10, start: -1 })]),
            Arc::new(Int64Array::from(vec![258])),
            Arc::new(StringArray::from(vec!["ab"])),
        ];
        let rows = RecordBatch::try_new(Arc::clone(layout.columns()), columns).unwrap();
        let (mut keys, mut values) = (RowBytes::new(), RowBytes::new());
        layout.write(&rows, &mut keys, &mut values).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(keys.get(0))[4..], *"01800000000000000a7fffffffffffffff0107000000000000008000000000000102");
        assert_eq!(hex(values.get(0)), "01020000006162");
    }
}
