//! A checkpoint or savepoint as it lies in a storage, read without the job's code.
//!
//! `levada_proto::snapshot` finds it, `bytes` fetches and checks a state's bytes, `database` has those of RocksDB, `rows` decodes
//! them batch by batch, `groups` puts the subtasks' rows together by key group. Must never know: how anything is shown. Invariant: no byte is decoded whose length and CRC-32C are
//! not those that were noted, and no more than one batch or `bytes::WHOLE_MAX` bytes of a state are in memory.

mod bytes;
pub mod database;
mod error;
pub mod groups;
pub mod rows;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use levada_common::checkpoint::{CheckpointMetadata, Handle, StateHandle, StateKind};
use levada_common::ids::Uid;
use levada_common::nearest::did_you_mean;
use levada_common::state_schema::StateSchema;
use levada_common::storage::Storage;
use levada_proto::snapshot;

pub use bytes::Checked;
pub use error::{SnapshotError, place_text};

/// The URI of a place that is written as one, or as a path.
pub fn uri(place: &str) -> Result<String, SnapshotError> {
    if place.contains("://") {
        return Ok(place.into());
    }
    let refuse = |source| SnapshotError::Place { place: place.into(), source };
    let path = std::path::absolute(place).map_err(refuse)?;
    let text = path.to_str().ok_or_else(|| refuse(io::Error::new(io::ErrorKind::InvalidInput, "it is not UTF-8")))?;
    Ok(format!("file://{text}"))
}

/// One state of one operator: what all its subtasks wrote.
#[derive(Debug, Clone)]
pub struct OperatorState {
    /// The operator.
    pub uid: Uid,
    /// The state's name.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// What it holds.
    pub schema: Arc<StateSchema>,
    /// The handles, in the order of subtasks, which is that of key groups.
    pub handles: Vec<StateHandle>,
}

impl OperatorState {
    /// `UID/STATE`.
    pub fn path(&self) -> String {
        format!("{}/{}", self.uid, self.name)
    }

    /// Rows of all subtasks.
    pub fn rows(&self) -> u64 {
        self.handles.iter().map(|handle| handle.rows).sum()
    }
}

/// A snapshot whose metadata was read.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The URI of its `_metadata`.
    pub uri: String,
    /// What `_metadata` says.
    pub metadata: CheckpointMetadata,
    /// By operator and name.
    pub states: Vec<OperatorState>,
    /// What the paths of handles are relative to.
    storage: Storage,
}

impl Snapshot {
    /// Finds and reads a snapshot: `place` is a path or URI of a `_metadata` file, of its folder, or of a folder of checkpoints,
    /// of which the newest is taken.
    pub async fn open(place: &str) -> Result<Self, SnapshotError> {
        let snapshot::Snapshot { metadata, file, directory } = snapshot::open(&uri(place)?).await?;
        Ok(Self::new(file, metadata, Storage::open(&directory)?))
    }

    fn new(uri: String, metadata: CheckpointMetadata, storage: Storage) -> Self {
        let mut states = BTreeMap::<(Uid, String), OperatorState>::new();
        for handle in metadata.tasks.iter().flat_map(|task| &task.states) {
            let state = states.entry((handle.uid.clone(), handle.name.clone())).or_insert_with(|| OperatorState {
                uid: handle.uid.clone(),
                name: handle.name.clone(),
                kind: handle.kind,
                schema: Arc::clone(&handle.schema),
                handles: Vec::new(),
            });
            state.handles.push(handle.clone());
        }
        let mut states: Vec<OperatorState> = states.into_values().collect();
        for state in &mut states {
            state.handles.sort_by_key(|handle| (handle.key_groups.start, handle.subtask));
        }
        Self { uri, metadata, states, storage }
    }

    /// To be asked before something missing or wrong is called damage: whether it is the snapshot of before that is read.
    ///
    /// Errors: `Replaced`. A job deletes the metadata of a checkpoint before any other file of it.
    pub async fn still_there(&self) -> Result<(), SnapshotError> {
        let replaced = match snapshot::open(&self.uri).await {
            Ok(now) => now.metadata != self.metadata,
            Err(snapshot::SnapshotError::NotFound { .. }) => true,
            // What cannot be read now says nothing about then.
            Err(_) => false,
        };
        if replaced { Err(SnapshotError::Replaced { file: self.uri.clone() }) } else { Ok(()) }
    }

    /// What the paths of handles are relative to.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The states that `UID` or `UID/STATE` means.
    ///
    /// Errors: there is none; the nearest name is told.
    pub fn find(&self, path: &str) -> Result<Vec<&OperatorState>, SnapshotError> {
        let (uid, name) = path.split_once('/').map_or((path, None), |(uid, name)| (uid, Some(name)));
        let of_operator: Vec<&OperatorState> = self.states.iter().filter(|state| state.uid.as_str() == uid).collect();
        if of_operator.is_empty() {
            let uids = self.states.iter().map(|state| state.uid.as_str());
            return Err(SnapshotError::NoOperator { uid: uid.into(), hint: did_you_mean(uid, uids) });
        }
        let Some(name) = name else { return Ok(of_operator) };
        match of_operator.iter().find(|state| state.name == name) {
            Some(state) => Ok(vec![*state]),
            None => {
                let names: Vec<&str> = of_operator.iter().map(|state| state.name.as_str()).collect();
                Err(SnapshotError::NoState { uid: uid.into(), name: name.into(), names: names.join(", ") })
            }
        }
    }

    /// The one state that `UID` or `UID/STATE` means.
    ///
    /// Errors: none, or several, which are named.
    pub fn find_one(&self, path: &str) -> Result<&OperatorState, SnapshotError> {
        match self.find(path)?[..] {
            [state] => Ok(state),
            ref states => {
                let names: Vec<String> = states.iter().map(|state| state.path()).collect();
                Err(SnapshotError::SeveralStates { uid: path.into(), names: names.join(", ") })
            }
        }
    }

    /// Where the bytes of most of a state's handles are.
    pub fn place_of(state: &OperatorState) -> &'static str {
        let is = |wanted: fn(&Handle) -> bool| state.handles.iter().any(|handle| wanted(&handle.handle));
        match (
            is(|handle| matches!(handle, Handle::Inline(_))),
            is(|handle| matches!(handle, Handle::File { .. })),
            is(|handle| matches!(handle, Handle::Database { .. })),
        ) {
            (_, _, true) => "rocksdb",
            (true, true, _) => "inline, files",
            (false, true, _) => "files",
            _ => "inline",
        }
    }
}
