//! A snapshot of a function in memory, and who gets what of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt16Array};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::keys::key_groups;
use levada_state::format::{KEY_GROUP_COLUMN, KEY_PREFIX};
use levada_state::snapshot::StatePart;

use super::HarnessError;
use crate::operator::RestoredState;

/// A snapshot of a function.
#[derive(Debug, Clone)]
pub struct HarnessSnapshot {
    pub(super) checkpoint: u64,
    states: BTreeMap<String, (StateKind, Vec<Vec<RecordBatch>>)>,
}

impl HarnessSnapshot {
    pub(super) fn new(checkpoint: u64) -> Self {
        Self { checkpoint, states: BTreeMap::new() }
    }

    /// The states by name, each with its rows as a checkpoint has them, whichever instance they come from.
    pub fn states(&self) -> impl Iterator<Item = (&str, Vec<RecordBatch>)> {
        self.states.iter().map(|(name, (_, parts))| (name.as_str(), parts.iter().flatten().cloned().collect()))
    }

    /// Takes a state of one instance.
    pub(super) fn take(&mut self, part: StatePart, max_parallelism: u32) -> Result<(), HarnessError> {
        let (name, kind) = (part.meta.name.clone(), part.meta.kind);
        let failed = || HarnessError::Snapshot { state: name.clone() };
        let (_, pieces) = part.into_pieces().map_err(|_| failed())?;
        let batches = pieces.collect::<Result<Vec<_>, _>>().map_err(|_| failed())?;
        let keyed = |batch: RecordBatch| if kind.is_keyed() { with_groups(&batch, max_parallelism) } else { batch };
        let batches = batches.into_iter().map(keyed).collect();
        self.states.entry(name).or_insert_with(|| (kind, Vec::new())).1.push(batches);
        Ok(())
    }

    /// What falls to one instance. Keyed states go whole to each, which takes its key groups; lists are cut into even parts.
    pub(super) fn of(&self, subtask: u32, parallelism: u32) -> Vec<RestoredState> {
        let states = self.states.iter().map(|(name, (kind, parts))| {
            let batches: Vec<RecordBatch> = match kind {
                StateKind::OperatorList => share(parts, subtask as usize, parallelism as usize),
                StateKind::OperatorBroadcast => parts[subtask as usize % parts.len()].clone(),
                _ => parts.iter().flatten().cloned().collect(),
            };
            RestoredState { name: name.clone(), kind: *kind, batches }
        });
        states.collect()
    }
}

/// Of all rows in order, the `subtask`-th of `parallelism` even parts; each instance its own where there are as many.
fn share(parts: &[Vec<RecordBatch>], subtask: usize, parallelism: usize) -> Vec<RecordBatch> {
    if parts.len() == parallelism {
        return parts[subtask].clone();
    }
    let all: Vec<&RecordBatch> = parts.iter().flatten().collect();
    let Some(first) = all.first() else { return Vec::new() };
    let all = concat_batches(&first.schema(), all).expect("the pieces of one state have one schema");
    let rows = all.num_rows();
    let (start, end) = (rows * subtask / parallelism, rows * (subtask + 1) / parallelism);
    if start == end { Vec::new() } else { vec![all.slice(start, end - start)] }
}

/// Puts the key groups before the columns, as a file has them.
fn with_groups(batch: &RecordBatch, max_parallelism: u32) -> RecordBatch {
    let schema = batch.schema();
    let is_key = |field: &Field| field.name().starts_with(KEY_PREFIX);
    let keys: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .zip(batch.columns())
        .filter(|(field, _)| is_key(field))
        .map(|(_, column)| Arc::clone(column))
        .collect();
    let mut groups = Vec::new();
    key_groups(&keys, max_parallelism, &mut groups);
    let group = Arc::new(Field::new(KEY_GROUP_COLUMN, DataType::UInt16, false));
    let fields: Vec<_> = std::iter::once(group).chain(schema.fields().iter().cloned()).collect();
    let columns = std::iter::once(Arc::new(UInt16Array::from(groups)) as ArrayRef).chain(batch.columns().iter().cloned());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.collect()).expect("a column as long as the others is added")
}
