//! From the rows of a snapshot back to those of a table.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_common::types::Column;

use crate::row_codec::{INDEX_COLUMN, NAMESPACE_COLUMN, STAMP_UNKNOWN, TTL_COLUMN};
use crate::types::{StateReader, StateType};

use super::at::{At, Namespace};
use super::cell::Cell;
use super::clock::Clock;
use super::error::{StateError, StateResult};
use super::piece::UNTOUCHED;
use super::row_index::RowIndex;
use super::table::{Table, TableInfo};
use crate::bits::Bits;

/// Rows of one state, whoever wrote them.
pub struct RestoredRows<'a> {
    /// All columns, found by their names.
    pub(super) batch: &'a RecordBatch,
    /// The id of each row's key.
    pub(super) keys: &'a [u32],
    /// The window of each row, where no column says it.
    pub(super) namespaces: Option<&'a [Option<Namespace>]>,
}

impl RestoredRows<'_> {
    fn column(&self, info: &TableInfo, name: &str) -> StateResult<ArrayRef> {
        let found = self.batch.column_by_name(name);
        found.map(ArrayRef::clone).ok_or_else(|| refuse(info, format!("its snapshot has no column \"{name}\"")))
    }

    fn columns(&self, info: &TableInfo, columns: &[Column]) -> StateResult<Vec<ArrayRef>> {
        columns.iter().map(|column| self.column(info, &column.name)).collect()
    }

    pub(super) fn reader<T: StateType>(&self, info: &TableInfo, columns: &[Column]) -> StateResult<T::Reader> {
        let arrays = self.columns(info, columns)?;
        let name = columns.first().map_or("", |column| column.name.as_str());
        T::reader(name, &arrays).map_err(|source| Box::new(StateError::Type { name: info.name.clone(), source }))
    }

    /// The window of each row; none where the state has no windows.
    fn namespaces(&self, info: &TableInfo) -> StateResult<Vec<Namespace>> {
        if !info.schema.windowed {
            return Ok(Vec::new());
        }
        if let Some(namespaces) = self.namespaces {
            return Ok(namespaces.iter().flatten().copied().collect());
        }
        let column = self.column(info, NAMESPACE_COLUMN)?;
        let times = |name: &str| {
            let column = column.as_struct_opt().and_then(|window| window.column_by_name(name)).cloned();
            column.and_then(|times| times.as_primitive_opt::<TimestampMillisecondType>().cloned())
        };
        match (times("start"), times("end")) {
            (Some(starts), Some(ends)) => {
                let pairs = starts.values().iter().zip(ends.values());
                Ok(pairs.map(|(start, end)| Namespace { start: *start, end: *end }).collect())
            }
            _ => Err(refuse(info, format!("column \"{NAMESPACE_COLUMN}\" is {}, not a window", column.data_type()))),
        }
    }

    /// The stamp of each row; none where it was written without a TTL, or where there is none now.
    pub(super) fn stamps(&self, info: &TableInfo) -> Vec<i64> {
        let column = self.batch.column_by_name(TTL_COLUMN).filter(|_| info.ttl.is_some());
        let column = column.and_then(|column| column.as_primitive_opt::<TimestampMillisecondType>());
        let known = |stamp: &i64| if *stamp == STAMP_UNKNOWN { UNTOUCHED } else { *stamp };
        column.map_or_else(Vec::new, |stamps| stamps.values().iter().map(known).collect())
    }

    /// The place of each element in its list; none where the state is no list.
    pub(super) fn indexes(&self, info: &TableInfo, is_list: bool) -> StateResult<Vec<i64>> {
        if !is_list {
            return Ok(Vec::new());
        }
        let column = self.column(info, INDEX_COLUMN)?;
        match column.as_primitive_opt::<Int64Type>() {
            Some(indexes) => Ok(indexes.values().to_vec()),
            None => Err(refuse(info, format!("column \"{INDEX_COLUMN}\" is {}, not INT64", column.data_type()))),
        }
    }
}

fn refuse(info: &TableInfo, problem: String) -> Box<StateError> {
    Box::new(StateError::Restore { name: info.name.clone(), problem })
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// Takes these rows in. Where the state has a TTL and the snapshot no stamps, entries are touched when first looked at.
    ///
    /// Errors: columns that are missing or of another type; elements of a list that come twice or out of order. Some may be missing:
    /// they have expired.
    pub(super) fn restore(&mut self, rows: &RestoredRows<'_>, clock: &Clock) -> StateResult<()> {
        self.take_rows(rows, clock, None)
    }

    /// Takes those of these rows in whose entries the table has not: whose row is in `absent`, or is made here.
    pub(super) fn take_loaded(&mut self, rows: &RestoredRows<'_>, at: &At, absent: &mut Bits) -> StateResult<()> {
        self.take_rows(rows, &at.clock, Some(absent))
    }

    fn take_rows(&mut self, rows: &RestoredRows<'_>, clock: &Clock, mut absent: Option<&mut Bits>) -> StateResult<()> {
        let info = &self.info;
        let map_keys = rows.reader::<I::MapKey>(info, &info.schema.map_key)?;
        let values = rows.reader::<C::Item>(info, &info.schema.values)?;
        let (namespaces, stamps) = (rows.namespaces(info)?, rows.stamps(info));
        let indexes = rows.indexes(info, C::IS_LIST)?;
        for (at, key) in rows.keys.iter().enumerate() {
            let place = At { key: *key, namespace: namespaces.get(at).copied(), clock: *clock };
            let map_key = map_keys.get(at);
            let is_new = !I::BY_KEY && absent.is_some() && self.index.find(&place, &map_key).is_none();
            let row = self.index.insert(&place, &map_key);
            self.cover(row);
            if let Some(absent) = &mut absent {
                if is_new {
                    absent.set(row);
                }
                if !absent.get(row) {
                    continue;
                }
            }
            let cell = &mut self.cells[row as usize];
            let (len, expected) = (cell.items().len(), indexes.get(at).map_or(0, |index| *index as usize));
            // A store drops elements that have expired wherever it comes past them, and keeps the places of the others.
            let is_gap = C::IS_LIST && len < expected;
            if len != expected && !is_gap {
                let found = if C::IS_LIST { format!("element {expected} of a list after {len}") } else { "a key twice".into() };
                return Err(refuse(&self.info, format!("its snapshot has {found}")));
            }
            let stamp = stamps.get(at).copied().unwrap_or(UNTOUCHED);
            self.heap_bytes += cell.restore(values.get(at), self.stamps.is_some().then_some(stamp));
            self.entries += usize::from(len == 0);
            if let Some(cold) = self.cold.as_mut().filter(|_| C::IS_LIST && absent.is_some()) {
                cold.list(row).loaded(len, expected as i64);
            }
            if let Some(stamps) = &mut self.stamps {
                stamps[row as usize] = stamps[row as usize].max(stamp);
            }
        }
        Ok(())
    }
}
