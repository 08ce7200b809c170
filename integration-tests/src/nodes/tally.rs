//! The sink `tally: { hash: [up to four columns], last_by: [key columns] }`: counts rows and adds up their hashes.
//!
//! With `last_by` it keeps the last row of each key and counts and hashes those when the task ends. The totals of all subtasks
//! meet in a [`Totals`] that the program holds. It takes part in checkpoints with nothing to keep: totals are of one attempt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_common::declaration::CustomSink;
use levada_common::fault::{Fault, Retry};
use levada_common::ids::CheckpointId;
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext, SinkFactory};
use levada_state::key_index::KeyIndex;

use crate::digest::{absorb, absorb_first, fnv1a, row_hash};

/// Rows and hashes of every subtask that has ended.
#[derive(Debug, Default)]
pub struct Totals {
    rows: AtomicU64,
    hash: AtomicU64,
}

impl Totals {
    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// The sum of the rows' hashes so far.
    pub fn hash(&self) -> u64 {
        self.hash.load(Ordering::Relaxed)
    }
}

/// The sink's declaration and factory, adding into `totals`.
pub fn sink(totals: Arc<Totals>) -> (CustomSink, SinkFactory) {
    let declaration =
        CustomSink { name: "tally".into(), options: vec!["hash".into(), "last_by".into()], changelog: true, exactly_once: false };
    let factory: SinkFactory = Arc::new(move |spec| Ok(Box::new(Tally::new(spec, Arc::clone(&totals))?) as Box<dyn Sink>));
    (declaration, factory)
}

/// Columns that a row's hash is made of; missing ones are 0.
const HASHED_COLUMNS_MAX: usize = 4;

/// One column that enters the hash.
#[derive(Debug, Clone, Copy)]
struct HashColumn {
    /// Its place in the batch.
    place: usize,
    /// Whether it is a key of `last_by`, so that it never changes within a key.
    is_key: bool,
}

struct Tally {
    columns: Vec<HashColumn>,
    keys: Vec<usize>,
    index: Option<KeyIndex>,
    /// Of each key of `last_by`: the hash's inputs in its last row.
    last: Vec<[u64; 4]>,
    ids: Vec<u32>,
    hashes: Vec<u64>,
    rows: u64,
    hash: u64,
    totals: Arc<Totals>,
}

impl Tally {
    fn new(spec: &SinkSpec, totals: Arc<Totals>) -> Result<Self, EngineError> {
        let fail = |message: String| EngineError::Connector {
            uid: spec.uid.clone(),
            connector: "tally".into(),
            message,
            fault: Fault::User,
            retry: Retry::Never,
        };
        let names = |option: &str| -> Result<Vec<String>, EngineError> {
            let list = spec.options.get(option).and_then(|value| value.as_array()).cloned().unwrap_or_default();
            list.iter()
                .map(|name| {
                    name.as_str().map(String::from).ok_or_else(|| fail(format!("{option}: {name} is not a column's name")))
                })
                .collect()
        };
        let place = |name: &String| spec.input.batch_index(name).ok_or_else(|| fail(format!("no column \"{name}\"")));
        let (hash, last_by) = (names("hash")?, names("last_by")?);
        if hash.len() > HASHED_COLUMNS_MAX {
            return Err(fail(format!("hash: at most {HASHED_COLUMNS_MAX} columns, not {}", hash.len())));
        }
        let columns = hash
            .iter()
            .map(|name| Ok(HashColumn { place: place(name)?, is_key: last_by.contains(name) }))
            .collect::<Result<Vec<_>, EngineError>>()?;
        let keys = last_by.iter().map(place).collect::<Result<Vec<_>, EngineError>>()?;
        let types: Vec<DataType> =
            last_by.iter().filter_map(|name| spec.input.column(name)).map(|column| column.ty.to_arrow()).collect();
        let index = (!keys.is_empty()).then(|| KeyIndex::new(&types));
        Ok(Self { columns, keys, index, last: Vec::new(), ids: Vec::new(), hashes: Vec::new(), rows: 0, hash: 0, totals })
    }

    /// Column by column, so that no row asks what kind of column it has.
    fn count_each(&mut self, batch: &RecordBatch) {
        self.hashes.clear();
        self.hashes.resize(batch.num_rows(), 0);
        for slot in 0..HASHED_COLUMNS_MAX {
            let fold = |hash: u64, value: u64| if slot == 0 { absorb_first(value) } else { absorb(hash, value) };
            match self.columns.get(slot).map(|column| Input::of(batch.column(column.place))) {
                None => self.hashes.iter_mut().for_each(|hash| *hash = fold(*hash, 0)),
                Some(Input::Integers(values)) => {
                    self.hashes.iter_mut().zip(values.iter()).for_each(|(hash, value)| *hash = fold(*hash, *value as u64));
                }
                Some(Input::Text(values)) => {
                    for (row, hash) in self.hashes.iter_mut().enumerate() {
                        *hash = fold(*hash, fnv1a(values.value(row).as_bytes()));
                    }
                }
            }
        }
        self.hash = self.hashes.iter().fold(self.hash, |sum, hash| sum.wrapping_add(*hash));
        self.rows += batch.num_rows() as u64;
    }

    fn keep_last(&mut self, batch: &RecordBatch) {
        let index = self.index.as_mut().expect("last_by has keys");
        let keys: Vec<ArrayRef> = self.keys.iter().map(|place| Arc::clone(batch.column(*place))).collect();
        self.ids.clear();
        index.intern(&keys, batch.num_rows(), &mut self.ids);
        let known = self.last.len();
        self.last.resize(index.len(), [0; 4]);
        for (slot, column) in self.columns.iter().enumerate() {
            let input = Input::of(batch.column(column.place));
            for (row, id) in self.ids.iter().enumerate() {
                let id = *id as usize;
                if !column.is_key || id >= known {
                    self.last[id][slot] = input.value(row);
                }
            }
        }
    }

    fn report(&mut self) {
        if self.index.is_some() {
            self.rows = self.last.len() as u64;
            self.hash = self.last.iter().fold(0, |sum, values| sum.wrapping_add(row_hash(*values)));
        }
        self.totals.rows.fetch_add(std::mem::take(&mut self.rows), Ordering::Relaxed);
        self.totals.hash.fetch_add(std::mem::take(&mut self.hash), Ordering::Relaxed);
        self.last.clear();
    }
}

impl Sink for Tally {
    fn open(&mut self, _context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        if self.index.is_some() {
            self.keep_last(batch);
        } else {
            self.count_each(batch);
        }
        Ok(())
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.report();
    }
}

/// A column as the hash reads it.
enum Input {
    Integers(arrow::buffer::ScalarBuffer<i64>),
    Text(arrow::array::StringArray),
}

impl Input {
    /// Integers as they are, timestamps in milliseconds, strings to be hashed.
    fn of(column: &ArrayRef) -> Self {
        match column.data_type() {
            DataType::Int64 => Self::Integers(column.as_primitive::<Int64Type>().values().clone()),
            DataType::Timestamp(_, _) => Self::Integers(column.as_primitive::<TimestampMillisecondType>().values().clone()),
            DataType::Utf8 => Self::Text(column.as_string::<i32>().clone()),
            _ => {
                let integers = cast(column, &DataType::Int64).expect("benchmark columns are integers, times and strings");
                Self::Integers(integers.as_primitive::<Int64Type>().values().clone())
            }
        }
    }

    fn value(&self, row: usize) -> u64 {
        match self {
            Self::Integers(values) => values[row] as u64,
            Self::Text(values) => fnv1a(values.value(row).as_bytes()),
        }
    }
}
