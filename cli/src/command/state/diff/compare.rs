//! Two states, row by row: by key, namespace and map key where they have one, else as bags of rows.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Context;
use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use levada_common::state_schema::{StateSchema, StateShape};
use levada_state::format::{KEY_GROUP_COLUMN, KEY_PREFIX};
use levada_state::row_codec::{INDEX_COLUMN, NAMESPACE_COLUMN};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::command::state::plain::cells;
use crate::snapshot::groups::GroupedRows;
use crate::snapshot::{OperatorState, Snapshot};

/// How two states differ.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Rows that only the second has.
    pub added: u64,
    /// Rows that only the first has.
    pub removed: u64,
    /// Rows that both have, with other values.
    pub changed: u64,
    /// Rows that both have.
    pub same: u64,
    /// The first keys that differ, a line each.
    pub examples: Vec<String>,
}

/// A state of a snapshot, and how many of its key groups are taken together.
type Side<'a> = (&'a Snapshot, &'a OperatorState, u16);

/// Compares the rows of two states of one type.
pub async fn compare(before: Side<'_>, after: Side<'_>, examples_max: usize) -> anyhow::Result<Comparison> {
    let mut left = GroupedRows::new(before.0, before.1, before.2);
    let mut right = GroupedRows::new(after.0, after.1, after.2);
    let schema = Arc::clone(&before.1.schema);
    let mut comparer = Comparer { found: Comparison::default(), examples_max, schema, columns: None };
    let (mut of_left, mut of_right) = (left.next().await?, right.next().await?);
    loop {
        // A group that only one side has is compared with none.
        let group = match (&of_left, &of_right) {
            (None, None) => return Ok(comparer.found),
            (Some((group, _)), None) | (None, Some((group, _))) => *group,
            (Some((one, _)), Some((other, _))) => *one.min(other),
        };
        let is_now = |side: &Option<(u16, Vec<RecordBatch>)>| side.as_ref().is_some_and(|(of, _)| *of == group);
        let rows_before = if is_now(&of_left) { of_left.take() } else { None };
        let rows_after = if is_now(&of_right) { of_right.take() } else { None };
        if rows_before.is_some() {
            of_left = left.next().await?;
        }
        if rows_after.is_some() {
            of_right = right.next().await?;
        }
        let rows = |side: Option<(u16, Vec<RecordBatch>)>| side.map(|(_, rows)| rows).unwrap_or_default();
        let (rows_before, rows_after) = (rows(rows_before), rows(rows_after));
        comparer.group(&rows_before, &rows_after).with_context(|| format!("comparing state \"{}\"", before.1.path()))?;
    }
}

/// Rows of the first side that no row of the second has met yet.
struct Unmet {
    value: u64,
    count: u64,
    /// Batch and row of the first.
    place: (usize, usize),
}

struct Comparer {
    found: Comparison,
    examples_max: usize,
    schema: Arc<StateSchema>,
    columns: Option<Columns>,
}

impl Comparer {
    fn group(&mut self, before: &[RecordBatch], after: &[RecordBatch]) -> anyhow::Result<()> {
        let Some(first) = before.first().or(after.first()) else { return Ok(()) };
        let columns = match self.columns.take() {
            Some(columns) => columns,
            None => Columns::of(first, &self.schema)?,
        };
        let mut unmet = HashMap::<u128, Unmet>::new();
        for (batch, rows) in before.iter().enumerate() {
            for (row, (key, value)) in columns.fingerprints(rows)?.into_iter().enumerate() {
                unmet.entry(key).or_insert(Unmet { value, count: 0, place: (batch, row) }).count += 1;
            }
        }
        for rows in after {
            for (row, (key, value)) in columns.fingerprints(rows)?.into_iter().enumerate() {
                match unmet.get_mut(&key).filter(|unmet| unmet.count > 0) {
                    None => {
                        self.found.added += 1;
                        self.example("added  ", &columns, rows, row)?;
                    }
                    Some(met) => {
                        met.count -= 1;
                        if met.value == value {
                            self.found.same += 1;
                        } else {
                            self.found.changed += 1;
                            self.example("changed", &columns, rows, row)?;
                        }
                    }
                }
            }
        }
        let mut removed: Vec<(usize, usize)> = Vec::new();
        for left in unmet.values().filter(|left| left.count > 0) {
            self.found.removed += left.count;
            removed.push(left.place);
        }
        removed.sort_unstable();
        for (batch, row) in removed.into_iter().take(self.examples_max) {
            self.example("removed", &columns, &before[batch], row)?;
        }
        self.columns = Some(columns);
        Ok(())
    }

    fn example(&mut self, what: &str, columns: &Columns, rows: &RecordBatch, row: usize) -> anyhow::Result<()> {
        if self.found.examples.len() < self.examples_max {
            let key = columns.key_text(&rows.slice(row, 1))?;
            self.found.examples.push(format!("{what} {key}"));
        }
        Ok(())
    }
}

/// Which columns say which row it is, and which what it holds; by name, as backends may order them otherwise.
struct Columns {
    keys: Vec<String>,
    values: Vec<String>,
    key_rows: RowConverter,
    value_rows: RowConverter,
}

impl Columns {
    fn of(batch: &RecordBatch, state: &StateSchema) -> anyhow::Result<Self> {
        let schema = batch.schema();
        let is_key = |name: &str| {
            let is_map_key = || state.map_key.iter().any(|column| column.name == name);
            name.starts_with(KEY_PREFIX) || matches!(name, NAMESPACE_COLUMN | INDEX_COLUMN) || is_map_key()
        };
        let fields: Vec<_> = schema.fields().iter().filter(|field| field.name() != KEY_GROUP_COLUMN).collect();
        // Timers are their keys; entries of an operator have none.
        let is_bag =
            matches!(state.shape, StateShape::Timers | StateShape::Rows) || !fields.iter().any(|field| is_key(field.name()));
        let (keys, values): (Vec<_>, Vec<_>) = fields.into_iter().partition(|field| is_bag || is_key(field.name()));
        let rows = |fields: &[&arrow::datatypes::FieldRef]| {
            RowConverter::new(fields.iter().map(|field| SortField::new(field.data_type().clone())).collect())
        };
        let names = |fields: &[&arrow::datatypes::FieldRef]| fields.iter().map(|field| field.name().clone()).collect();
        Ok(Self { key_rows: rows(&keys)?, value_rows: rows(&values)?, keys: names(&keys), values: names(&values) })
    }

    /// For each row, who it is and what it holds.
    fn fingerprints(&self, batch: &RecordBatch) -> anyhow::Result<Vec<(u128, u64)>> {
        let keys = self.key_rows.convert_columns(&columns(batch, &self.keys)?)?;
        if self.values.is_empty() {
            return Ok(keys.iter().map(|key| (xxh3_128(key.as_ref()), 0)).collect());
        }
        let values = self.value_rows.convert_columns(&columns(batch, &self.values)?)?;
        Ok(keys.iter().zip(values.iter()).map(|(key, value)| (xxh3_128(key.as_ref()), xxh3_64(value.as_ref()))).collect())
    }

    /// The key of a batch's one row.
    fn key_text(&self, row: &RecordBatch) -> anyhow::Result<String> {
        let arrays = columns(row, &self.keys)?;
        let named: Vec<(&String, ArrayRef)> = self.keys.iter().zip(arrays).collect();
        let cells = cells(&RecordBatch::try_from_iter(named)?)?;
        let parts = self.keys.iter().zip(&cells[0]).map(|(name, value)| format!("{name}={value}"));
        Ok(parts.collect::<Vec<_>>().join(" "))
    }
}

fn columns(batch: &RecordBatch, names: &[String]) -> anyhow::Result<Vec<ArrayRef>> {
    let column = |name: &String| {
        let column = batch.column_by_name(name).with_context(|| format!("the rows have no column \"{name}\""))?;
        Ok(ArrayRef::clone(column))
    };
    names.iter().map(column).collect()
}
