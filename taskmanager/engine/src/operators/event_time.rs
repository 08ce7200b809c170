//! Event times in a column (TIMESTAMP, or INT64 taken as milliseconds), and how far time has come, as snapshots have it.

use arrow::array::{Array, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{DataType, Int64Type, TimeUnit, TimestampMillisecondType};
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::planned_state::WATERMARK;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::task::entries;

/// The column's values, milliseconds since 1970; those of nulls are undefined. `None` where it is of another type.
pub(super) fn event_times(column: &dyn Array) -> Option<&ScalarBuffer<i64>> {
    match column.data_type() {
        DataType::Int64 => Some(column.as_primitive::<Int64Type>().values()),
        DataType::Timestamp(TimeUnit::Millisecond, None) => Some(column.as_primitive::<TimestampMillisecondType>().values()),
        _ => None,
    }
}

/// How far time had come in the snapshot, taken out of `restored`: without it a row that is late would be taken again after a
/// restore, and its window would fire twice. The same in every subtask, so any entry will do; a union, so that each new subtask has
/// one.
pub(super) fn restored_watermark(uid: &Uid, restored: &mut Vec<RestoredState>) -> Result<i64, EngineError> {
    restored_time(uid, WATERMARK, restored)
}

/// As `restored_watermark`, of the time that is saved under `name`; the least where there is none.
pub(super) fn restored_time(uid: &Uid, name: &str, restored: &mut Vec<RestoredState>) -> Result<i64, EngineError> {
    let found: Vec<RestoredState> = restored.extract_if(.., |state| state.name == name).collect();
    let mut reached = i64::MIN;
    for entry in entries::read(uid, name, &found)? {
        let time: i64 = entry.parse().map_err(|_| EngineError::Restore {
            uid: uid.clone(),
            state: name.into(),
            reason: format!("\"{entry}\" is not a whole number"),
        })?;
        reached = reached.max(time);
    }
    Ok(reached)
}

/// How far event time has come, for a snapshot.
pub(super) fn watermark_part(uid: &Uid, watermark: i64) -> Vec<StatePart> {
    time_part(uid, WATERMARK, watermark)
}

/// As `watermark_part`, of the time that is to be saved under `name`.
pub(super) fn time_part(uid: &Uid, name: &str, reached: i64) -> Vec<StatePart> {
    entries::part_of(uid, name, StateKind::OperatorUnion, vec![reached.to_string()])
}
