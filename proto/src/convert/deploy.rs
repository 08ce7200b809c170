//! A state to restore, as a deployment carries it: everything but the bytes.

use std::ops::Range;
use std::sync::Arc;

use levada_common::checkpoint::{DatabaseFile, StateKind};
use levada_common::ids::{SubtaskIndex, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;

use super::state::{
    database_file_from_message, database_file_to_message, key_groups_of, kind_of_word, path_of, schema_of_json, schema_to_json,
    uid_of,
};
use super::{ConvertError, required};
use crate::v1;

/// A state (or a part of an operator list) that a task restores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreState {
    /// The operator.
    pub uid: Uid,
    /// The state's name within the operator.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// What it holds.
    pub schema: Arc<StateSchema>,
    /// The subtask that wrote it.
    pub subtask: SubtaskIndex,
    /// The key groups that it holds.
    pub key_groups: KeyGroupRange,
    /// Entries in it.
    pub rows: u64,
    /// CRC-32C of the bytes.
    pub crc32c: u32,
    /// Number of bytes.
    pub length: u64,
    /// Where the bytes are.
    pub place: RestorePlace,
    /// Number of key groups of the snapshot, where it is not the plan's but a divisor of it. `key_groups`, and those in the bytes,
    /// are of these.
    pub max_parallelism: Option<u32>,
    /// Of an operator list: the entries that are this task's.
    pub entries: Range<u64>,
}

/// Where the bytes of a state to restore are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestorePlace {
    /// With the JobManager, which gives them by `FetchState` with this number.
    Inline(u64),
    /// In a file.
    File {
        /// URI of the job's checkpoint directory.
        directory: String,
        /// Path below it.
        path: String,
        /// First byte.
        offset: u64,
    },
    /// In a family of a database.
    Database {
        /// URI of the job's checkpoint directory.
        directory: String,
        /// The database's files.
        files: Arc<[DatabaseFile]>,
        /// The column family.
        family: String,
    },
}

impl From<RestoreState> for v1::StateRef {
    fn from(state: RestoreState) -> Self {
        let place = match state.place {
            RestorePlace::Inline(id) => v1::state_ref::Place::InlineId(id),
            RestorePlace::File { directory, path, offset } => {
                v1::state_ref::Place::File(v1::FilePlace { directory, path, offset })
            }
            RestorePlace::Database { directory, files, family } => {
                let files = files.iter().map(database_file_to_message).collect();
                v1::state_ref::Place::Database(v1::DatabasePlace { directory, files, family })
            }
        };
        Self {
            uid: state.uid.to_string(),
            name: state.name,
            kind: state.kind.name().into(),
            schema_json: schema_to_json(&state.schema),
            subtask: state.subtask.0,
            key_group_start: state.key_groups.start.into(),
            key_group_end: state.key_groups.end.into(),
            rows: state.rows,
            crc32c: state.crc32c,
            length: state.length,
            place: Some(place),
            entries_from: state.entries.start,
            entries_to: state.entries.end,
            max_parallelism: state.max_parallelism.unwrap_or(0),
        }
    }
}

impl TryFrom<v1::StateRef> for RestoreState {
    type Error = ConvertError;

    fn try_from(message: v1::StateRef) -> Result<Self, ConvertError> {
        let place = match required(message.place, "place")? {
            v1::state_ref::Place::InlineId(id) => RestorePlace::Inline(id),
            v1::state_ref::Place::File(file) => {
                RestorePlace::File { directory: file.directory, path: path_of(file.path)?, offset: file.offset }
            }
            v1::state_ref::Place::Database(database) => RestorePlace::Database {
                directory: database.directory,
                files: database.files.into_iter().map(database_file_from_message).collect::<Result<_, _>>()?,
                family: database.family,
            },
        };
        Ok(Self {
            uid: uid_of(message.uid)?,
            name: message.name,
            kind: kind_of_word(&message.kind)?,
            schema: schema_of_json(&message.schema_json)?,
            subtask: SubtaskIndex(message.subtask),
            key_groups: key_groups_of(message.key_group_start, message.key_group_end)?,
            rows: message.rows,
            crc32c: message.crc32c,
            length: message.length,
            place,
            max_parallelism: (message.max_parallelism != 0).then_some(message.max_parallelism),
            entries: message.entries_from..message.entries_to,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_to_restore_comes_back_as_it_went() {
        let inline = RestoreState {
            uid: Uid::new("lines"),
            name: "splits".into(),
            kind: StateKind::OperatorList,
            schema: Arc::default(),
            subtask: SubtaskIndex(0),
            key_groups: KeyGroupRange { start: 0, end: 127 },
            rows: 4,
            crc32c: 1,
            length: 80,
            place: RestorePlace::Inline(17),
            max_parallelism: Some(64),
            entries: 2..4,
        };
        let place = RestorePlace::File { directory: "file:///c/job".into(), path: "chk-1/a".into(), offset: 3 };
        let file = RestoreState { place, ..inline.clone() };
        let files =
            [DatabaseFile { name: "000012.sst".into(), path: "shared/a".into(), length: 70, crc32c: 7 }].into_iter().collect();
        let place = RestorePlace::Database { directory: "file:///c/job".into(), files, family: "count".into() };
        let database = RestoreState { place, kind: StateKind::Keyed, ..inline.clone() };
        for state in [inline, file, database] {
            assert_eq!(RestoreState::try_from(v1::StateRef::from(state.clone())).unwrap(), state);
        }
    }
}
