//! The rows of a state, batch by batch.
//!
//! Shape: the columns of the state's file (`levada_state::format`), rows sorted by key group within a subtask.

use std::vec;

use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::{Handle, StateHandle, StateKind};
use levada_common::keys::KeyGroupRange;
use levada_state::format::{DecodeError, Layout, TRAILER_BYTES, WantedRows, footer_range};

use super::database::DatabaseRows;
use super::{Checked, OperatorState, Snapshot, SnapshotError};

/// An Arrow file whose checksum is right and whose footer was read.
#[derive(Debug)]
pub struct ArrowFile {
    handle: StateHandle,
    bytes: Checked,
    /// What its footer says.
    pub layout: Layout,
}

impl ArrowFile {
    /// Opens the file of `handle`.
    ///
    /// Contract: the handle is no database.
    pub async fn open(snapshot: &Snapshot, handle: &StateHandle) -> Result<Self, SnapshotError> {
        let bytes = Checked::read(snapshot.storage(), handle).await?;
        let length = bytes.length();
        let read = |range| async { bytes.range(range).await.map_err(|error| SnapshotError::unreadable(handle, error)) };
        let undecodable = |error: DecodeError| SnapshotError::damaged(handle, with_causes(&error));
        let trailer = read(length.saturating_sub(TRAILER_BYTES)..length).await?;
        let footer = read(footer_range(&trailer, length).map_err(undecodable)?).await?;
        let layout = Layout::read(&footer, length).map_err(undecodable)?;
        Ok(Self { handle: handle.clone(), bytes, layout })
    }

    /// Reads one batch.
    pub async fn batch(&self, batch: usize) -> Result<RecordBatch, SnapshotError> {
        let bytes = self.bytes.range(self.layout.range(batch)).await;
        let bytes = bytes.map_err(|error| SnapshotError::unreadable(&self.handle, error))?;
        self.layout.decode(batch, bytes).map_err(|error| self.undecodable(&error))
    }

    fn undecodable(&self, error: &DecodeError) -> SnapshotError {
        SnapshotError::damaged(&self.handle, with_causes(error))
    }

    /// The next rows of those that are wanted.
    async fn next(&self, wanted: &mut WantedRows) -> Result<Option<RecordBatch>, SnapshotError> {
        if let Some(batch) = wanted.missing() {
            wanted.put(batch, self.batch(batch).await?);
        }
        wanted.next_rows().map_err(|error| self.undecodable(&error))
    }
}

/// An error and what caused it, in one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

/// All rows of a state, subtask by subtask.
pub struct StateRows<'a> {
    snapshot: &'a Snapshot,
    handles: vec::IntoIter<StateHandle>,
    key_groups: Option<KeyGroupRange>,
    open: Option<HandleRows>,
}

/// The rows of one subtask that are still to come.
enum HandleRows {
    Arrow(Box<ArrowFile>, WantedRows),
    Database(DatabaseRows),
}

impl HandleRows {
    async fn open(snapshot: &Snapshot, handle: &StateHandle, key_groups: Option<KeyGroupRange>) -> Result<Self, SnapshotError> {
        if let Handle::Database { .. } = handle.handle {
            return Ok(Self::Database(DatabaseRows::open(snapshot, handle, key_groups).await?));
        }
        let file = ArrowFile::open(snapshot, handle).await?;
        let wanted = file.layout.rows_of(key_groups).map_err(|error| file.undecodable(&error))?;
        Ok(Self::Arrow(Box::new(file), wanted))
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, SnapshotError> {
        match self {
            Self::Arrow(file, wanted) => file.next(wanted).await,
            Self::Database(rows) => rows.next().await,
        }
    }
}

impl<'a> StateRows<'a> {
    /// The rows of `state`, only those of `key_groups` where they are given; broadcast state once, as every subtask has all of it.
    pub fn new(snapshot: &'a Snapshot, state: &OperatorState, key_groups: Option<KeyGroupRange>) -> Self {
        let is_wanted = |handle: &&StateHandle| key_groups.is_none_or(|wanted| handle.key_groups.intersects(wanted));
        let mut handles: Vec<StateHandle> = state.handles.iter().filter(is_wanted).cloned().collect();
        if state.kind == StateKind::OperatorBroadcast {
            handles.truncate(1);
        }
        Self { snapshot, handles: handles.into_iter(), key_groups, open: None }
    }

    /// The next batch, which has rows; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>, SnapshotError> {
        loop {
            let Some(open) = &mut self.open else {
                let Some(handle) = self.handles.next() else { return Ok(None) };
                self.open = Some(HandleRows::open(self.snapshot, &handle, self.key_groups).await?);
                continue;
            };
            match open.next().await? {
                Some(batch) if batch.num_rows() > 0 => return Ok(Some(batch)),
                Some(_) => {}
                None => self.open = None,
            }
        }
    }
}
