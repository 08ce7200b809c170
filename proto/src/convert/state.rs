//! Snapshots and checkpoint metadata. Inline bytes are moved, never copied.

use std::sync::Arc;

use levada_common::checkpoint::{
    CheckpointMetadata, DatabaseFile, Handle, StateHandle, StateKind, TaskSnapshot, VertexOperators,
};
use levada_common::ids::{CheckpointId, Epoch, SubtaskIndex, TaskId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;

use super::{ConvertError, ids, required};
use crate::v1;

/// Reads a kind of state.
pub(super) fn kind_of_word(word: &str) -> Result<StateKind, ConvertError> {
    // Release 0.1 wrote "operator_list".
    StateKind::from_name(&word.replace('_', "-")).ok_or_else(|| ConvertError::Bad {
        field: "kind",
        found: word.into(),
        allowed: "keyed, operator-list, operator-union, operator-broadcast",
    })
}

/// Reads a node's name; whoever sent it, it never becomes a path unchecked.
pub(super) fn uid_of(text: String) -> Result<Uid, ConvertError> {
    match Uid::defect(&text) {
        None => Ok(Uid::new(text)),
        Some(_) => Err(ConvertError::Bad { field: "uid", found: text, allowed: "the name of a node" }),
    }
}

/// Reads a range of key groups.
pub(super) fn key_groups_of(start: u32, end: u32) -> Result<KeyGroupRange, ConvertError> {
    match (u16::try_from(start), u16::try_from(end)) {
        (Ok(start), Ok(end)) if start <= end => Ok(KeyGroupRange { start, end }),
        _ => Err(ConvertError::Bad {
            field: "key_group_start",
            found: format!("{start} to {end}"),
            allowed: "a range in 0 to 65535",
        }),
    }
}

/// Reads a path below the checkpoint directory, which must stay below it.
pub(super) fn path_of(path: String) -> Result<String, ConvertError> {
    let sound = !path.is_empty() && path.len() <= 4096 && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if sound { Ok(path) } else { Err(ConvertError::Bad { field: "path", found: path, allowed: "a relative path without `..`" }) }
}

/// A state as it travels.
pub fn state_to_message(state: StateHandle) -> v1::StateHandleMessage {
    let place = match state.handle {
        Handle::Inline(bytes) => v1::state_handle_message::Place::Inline(bytes),
        Handle::File { path, offset, length } => v1::state_handle_message::Place::File(v1::FileHandle { path, offset, length }),
        Handle::Database { files, family } => {
            let files = files.iter().map(database_file_to_message).collect();
            v1::state_handle_message::Place::Database(v1::DatabaseHandle { family, files })
        }
    };
    v1::StateHandleMessage {
        uid: state.uid.to_string(),
        name: state.name,
        kind: state.kind.name().into(),
        key_group_start: state.key_groups.start.into(),
        key_group_end: state.key_groups.end.into(),
        rows: state.rows,
        crc32c: state.crc32c,
        place: Some(place),
        schema_json: schema_to_json(&state.schema),
    }
}

/// A state's schema as it travels; nothing where there is nothing to say.
pub(super) fn schema_to_json(schema: &StateSchema) -> String {
    if *schema == StateSchema::default() {
        return String::new();
    }
    serde_json::to_string(schema).expect("a schema is JSON")
}

/// Reads a state's schema.
pub(super) fn schema_of_json(json: &str) -> Result<Arc<StateSchema>, ConvertError> {
    if json.is_empty() {
        return Ok(Arc::default());
    }
    let bad = |error: serde_json::Error| ConvertError::Bad {
        field: "schema_json",
        found: error.to_string(),
        allowed: "a state's schema",
    };
    serde_json::from_str(json).map(Arc::new).map_err(bad)
}

/// A database's file as it travels.
pub(super) fn database_file_to_message(file: &DatabaseFile) -> v1::DatabaseFileMessage {
    let DatabaseFile { name, path, length, crc32c } = file.clone();
    v1::DatabaseFileMessage { name, path, length, crc32c }
}

/// Reads a database's file, whose name must be one.
pub(super) fn database_file_from_message(file: v1::DatabaseFileMessage) -> Result<DatabaseFile, ConvertError> {
    let v1::DatabaseFileMessage { name, path, length, crc32c } = file;
    if name.contains('/') || path_of(name.clone()).is_err() {
        return Err(ConvertError::Bad { field: "name", found: name, allowed: "the name of a file" });
    }
    Ok(DatabaseFile { name, path: path_of(path)?, length, crc32c })
}

/// Reads a state that `subtask` wrote.
pub fn state_from_message(subtask: SubtaskIndex, message: v1::StateHandleMessage) -> Result<StateHandle, ConvertError> {
    let handle = match required(message.place, "place")? {
        v1::state_handle_message::Place::Inline(bytes) => Handle::Inline(bytes),
        v1::state_handle_message::Place::File(file) => {
            Handle::File { path: path_of(file.path)?, offset: file.offset, length: file.length }
        }
        v1::state_handle_message::Place::Database(database) => Handle::Database {
            files: database.files.into_iter().map(database_file_from_message).collect::<Result<_, _>>()?,
            family: database.family,
        },
    };
    Ok(StateHandle {
        uid: uid_of(message.uid)?,
        name: message.name,
        kind: kind_of_word(&message.kind)?,
        schema: schema_of_json(&message.schema_json)?,
        subtask,
        key_groups: key_groups_of(message.key_group_start, message.key_group_end)?,
        rows: message.rows,
        crc32c: message.crc32c,
        handle,
    })
}

/// A task's snapshot as it travels.
pub fn snapshot_to_message(snapshot: TaskSnapshot) -> v1::TaskSnapshotMessage {
    v1::TaskSnapshotMessage {
        vertex: snapshot.task.vertex.0,
        subtask: snapshot.task.subtask.0,
        finished: snapshot.finished,
        states: snapshot.states.into_iter().map(state_to_message).collect(),
    }
}

/// Reads a task's snapshot.
pub fn snapshot_from_message(message: v1::TaskSnapshotMessage) -> Result<TaskSnapshot, ConvertError> {
    let task = TaskId::new(VertexId(message.vertex), message.subtask);
    let states = message.states.into_iter().map(|state| state_from_message(task.subtask, state)).collect::<Result<_, _>>()?;
    Ok(TaskSnapshot { task, finished: message.finished, states })
}

/// A completed checkpoint as it is written.
pub fn metadata_to_file(metadata: CheckpointMetadata) -> v1::CheckpointMetadataFile {
    v1::CheckpointMetadataFile {
        job_id: metadata.job.to_string(),
        epoch: metadata.epoch.0,
        checkpoint: metadata.id.0,
        triggered_at_ms: metadata.triggered_at_ms,
        max_parallelism: metadata.max_parallelism,
        tasks: metadata.tasks.into_iter().map(snapshot_to_message).collect(),
        savepoint: metadata.savepoint,
        vertices: metadata.vertices.into_iter().map(vertex_to_message).collect(),
    }
}

fn vertex_to_message(vertex: VertexOperators) -> v1::VertexMessage {
    v1::VertexMessage { parallelism: vertex.parallelism, uids: vertex.uids.iter().map(ToString::to_string).collect() }
}

fn vertex_from_message(message: v1::VertexMessage) -> Result<VertexOperators, ConvertError> {
    let uids = message.uids.into_iter().map(uid_of).collect::<Result<_, _>>()?;
    Ok(VertexOperators { parallelism: message.parallelism, uids })
}

/// Reads a completed checkpoint.
pub fn metadata_from_file(file: v1::CheckpointMetadataFile) -> Result<CheckpointMetadata, ConvertError> {
    Ok(CheckpointMetadata {
        job: ids::job_id(&file.job_id)?,
        epoch: Epoch(file.epoch),
        id: CheckpointId(file.checkpoint),
        triggered_at_ms: file.triggered_at_ms,
        max_parallelism: file.max_parallelism,
        savepoint: file.savepoint,
        vertices: file.vertices.into_iter().map(vertex_from_message).collect::<Result<_, _>>()?,
        tasks: file.tasks.into_iter().map(snapshot_from_message).collect::<Result<_, _>>()?,
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use levada_common::state_schema::StateShape;
    use levada_common::types::{Column, LogicalType};

    use super::*;

    fn schema() -> Arc<StateSchema> {
        let values = vec![Column::new("value", LogicalType::Decimal(10, 2), true)];
        Arc::new(StateSchema { shape: StateShape::Value, values, ..StateSchema::default() })
    }

    fn state(handle: Handle) -> StateHandle {
        StateHandle {
            uid: Uid::new("counts"),
            name: "count".into(),
            kind: StateKind::Keyed,
            schema: schema(),
            subtask: SubtaskIndex(1),
            key_groups: KeyGroupRange { start: 64, end: 127 },
            rows: 12,
            crc32c: 0xdead_beef,
            handle,
        }
    }

    #[test]
    fn a_snapshot_comes_back_as_it_went() {
        let file = DatabaseFile { name: "000012.sst".into(), path: "shared/a".into(), length: 70, crc32c: 7 };
        let snapshot = TaskSnapshot {
            task: TaskId::new(VertexId(2), 1),
            finished: true,
            states: vec![
                state(Handle::Inline(Bytes::from_static(b"abc"))),
                state(Handle::File { path: "chk-3/a".into(), offset: 5, length: 9 }),
                state(Handle::Database { files: [file].into(), family: "count".into() }),
            ],
        };
        assert_eq!(snapshot_from_message(snapshot_to_message(snapshot.clone())).unwrap(), snapshot);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = state_to_message(state(Handle::Inline(Bytes::new())));
        let bad = [
            v1::StateHandleMessage { place: None, ..good.clone() },
            v1::StateHandleMessage { uid: "../x".into(), ..good.clone() },
            v1::StateHandleMessage { kind: "queue".into(), ..good.clone() },
            v1::StateHandleMessage { key_group_start: 128, ..good.clone() },
            v1::StateHandleMessage { key_group_end: 70_000, ..good },
        ];
        for message in bad {
            assert!(state_from_message(SubtaskIndex(0), message.clone()).is_err(), "{message:?}");
        }
        for path in ["", "/etc/passwd", "../x", "a/../b", "a//b", "."] {
            assert!(path_of(path.into()).is_err(), "{path}");
        }
    }
}
