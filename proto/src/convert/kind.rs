//! What a checkpoint is taken for.

use levada_common::checkpoint::CheckpointKind;

use super::ConvertError;
use crate::v1;

/// The kind as a trigger carries it: nothing for an ordinary checkpoint.
pub fn kind_to_target(kind: &CheckpointKind) -> Option<v1::SavepointTarget> {
    match kind {
        CheckpointKind::Checkpoint => None,
        CheckpointKind::Savepoint { directory, stops } => {
            Some(v1::SavepointTarget { directory: directory.to_string(), stops: *stops })
        }
    }
}

/// Reads the kind of a trigger.
pub fn kind_from_target(target: Option<v1::SavepointTarget>) -> Result<CheckpointKind, ConvertError> {
    match target {
        None => Ok(CheckpointKind::Checkpoint),
        Some(target) if target.directory.is_empty() => Err(ConvertError::Missing { field: "directory" }),
        Some(v1::SavepointTarget { directory, stops }) => Ok(CheckpointKind::Savepoint { directory: directory.into(), stops }),
    }
}
