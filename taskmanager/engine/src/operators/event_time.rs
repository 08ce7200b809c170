//! Event times in a column (TIMESTAMP, or INT64 taken as milliseconds), and how far time has come, as snapshots have it.

use arrow::array::{Array, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMillisecondType};
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::reached::Reached;
use crate::task::entries;

/// The column's values, milliseconds since 1970; those of nulls are undefined. `None` where it is of another type.
pub(super) fn event_times(column: &dyn Array) -> Option<&ScalarBuffer<i64>> {
    match column.data_type() {
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().values()),
        DataType::Timestamp(TimeUnit::Millisecond, None) => Some(column.as_primitive::<TimestampMillisecondType>().values()),
        _ => None,
    }
}

/// How far event time had come for the operator's key groups in the snapshot's state `name`, taken out of `restored`: without it a row
/// that is late would be taken again after a restore, and its window would fire twice. A union of what all subtasks had, so that each
/// new one knows how far those were that had its keys: of several the one behind, which had given least.
pub(super) fn restored_watermark(
    uid: &Uid,
    name: &str,
    context: &OperatorContext,
    restored: &mut Vec<RestoredState>,
) -> Result<i64, EngineError> {
    let reached = Reached::read(uid, name, context.max_parallelism, restored)?;
    Ok(reached.earliest(context.key_groups).unwrap_or(i64::MIN))
}

/// How far event time has come, for a snapshot's state `name`.
pub(super) fn watermark_part(uid: &Uid, name: &str, context: &OperatorContext, watermark: i64) -> Vec<StatePart> {
    Reached::part(uid, name, (context.key_groups, context.max_parallelism), watermark)
}

/// The greatest number that any subtask had saved under `name`, taken out of `restored`; the least where there is none.
pub(super) fn restored_number(uid: &Uid, name: &str, restored: &mut Vec<RestoredState>) -> Result<i64, EngineError> {
    let found: Vec<RestoredState> = restored.extract_if(.., |state| state.name == name).collect();
    let mut greatest = i64::MIN;
    for entry in entries::read(uid, name, &found)? {
        let number: i64 = entry.parse().map_err(|_| EngineError::Restore {
            uid: uid.clone(),
            state: name.into(),
            reason: format!("\"{entry}\" is not a whole number"),
        })?;
        greatest = greatest.max(number);
    }
    Ok(greatest)
}

/// Such a number, for a snapshot.
pub(super) fn number_part(uid: &Uid, name: &str, number: i64) -> Vec<StatePart> {
    entries::part_of(uid, name, StateKind::OperatorUnion, vec![number.to_string()])
}
