//! What a snapshot had, checked and cut down to the operator's key groups.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array, new_null_array};
use arrow::datatypes::{Field, Fields};
use arrow::record_batch::RecordBatch;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::FiringSpec;
use levada_state::format::KEY_GROUP_COLUMN;

use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{RestoredState, in_groups, restored_column};

/// Rows of a restored state: the columns of `Shape::pieces`, in that order.
pub(super) struct RestoredRows {
    pub(super) rows: usize,
    pub(super) keys: Vec<ArrayRef>,
    /// The window's column, where there is one.
    pub(super) namespace: Option<ArrayRef>,
    pub(super) states: Vec<ArrayRef>,
}

/// The rows of `restored` that belong to `key_groups`, batch by batch.
///
/// Errors: `Restore` where another state, column or type was saved than this aggregation has.
pub(super) fn restored_rows(
    shape: &Shape,
    key_groups: KeyGroupRange,
    restored: Vec<RestoredState>,
) -> Result<Vec<RestoredRows>, EngineError> {
    let state = shape.state_name();
    let mut rows = Vec::new();
    for found in restored {
        if found.name != state {
            let reason = format!("this operator's state is \"{state}\"; the aggregation or its window has changed");
            return Err(refuse(shape, &found.name, reason));
        }
        for batch in found.batches {
            let batch = in_groups(&batch, key_groups).map_err(|reason| refuse(shape, state, reason))?;
            if batch.num_rows() > 0 {
                rows.push(split_columns(shape, state, &batch)?);
            }
        }
    }
    Ok(rows)
}

/// A partial aggregation has nothing to restore.
pub(super) fn no_state(shape: &Shape, restored: &[RestoredState]) -> Result<(), EngineError> {
    let refuse =
        |state: &RestoredState| refuse(shape, &state.name, "a partial aggregation keeps no state; the aggregation has changed");
    restored.first().map_or(Ok(()), |state| Err(refuse(state)))
}

/// A state cannot be restored.
pub(super) fn refuse(shape: &Shape, state: &str, reason: impl Into<String>) -> EngineError {
    EngineError::Restore { uid: shape.uid.clone(), state: state.into(), reason: reason.into() }
}

fn split_columns(shape: &Shape, state: &str, batch: &RecordBatch) -> Result<RestoredRows, EngineError> {
    let schema = batch.schema();
    let names = |fields: &'_ Fields| -> Vec<String> {
        let names = fields.iter().map(|field| field.name().clone());
        names.filter(|name| name != KEY_GROUP_COLUMN && !FiringSpec::is_state_column(name)).collect()
    };
    let (found, expected) = (names(schema.fields()), names(shape.pieces.fields()));
    if found.len() != expected.len() {
        let reason = format!("it has the columns {}, the job has {}", found.join(", "), expected.join(", "));
        return Err(refuse(shape, state, reason));
    }
    let mut columns = Vec::new();
    for field in shape.pieces.fields() {
        let column = match unmarked(batch, field) {
            Some(column) => column,
            None => Arc::clone(restored_column(batch, field).map_err(|reason| refuse(shape, state, reason))?),
        };
        columns.push(column);
    }
    let mut columns = columns.into_iter();
    let mut keys: Vec<ArrayRef> = columns.by_ref().take(shape.key_types.len() - shape.below).collect();
    let namespace = if shape.is_windowed { columns.next() } else { None };
    keys.extend(columns.by_ref().take(shape.below));
    Ok(RestoredRows { rows: batch.num_rows(), keys, namespace, states: columns.collect() })
}

/// What is noted of results in this column for rows of a job that did not note it: none of them has been given, or it is not known
/// which result was given last.
fn unmarked(batch: &RecordBatch, field: &Field) -> Option<ArrayRef> {
    let [rows, given] = FiringSpec::state_columns();
    let (name, count) = (field.name(), batch.num_rows());
    let found = batch.column_by_name(name);
    if found.is_some() {
        None
    } else if *name == FiringSpec::RESULT_COLUMN {
        Some(new_null_array(field.data_type(), count))
    } else if *name == rows.name {
        Some(Arc::new(Int64Array::from(vec![1; count])))
    } else if *name == given.name {
        Some(Arc::new(BooleanArray::from(vec![false; count])))
    } else {
        None
    }
}
