//! Where the snapshots of a job go, and how large they may be.

use levada_common::ids::JobId;
use levada_common::plan::{BackendKind, JobSettings};
use levada_common::storage::{Storage, StorageError};

/// Room in a frame that state never takes: the rest of the message.
pub const FRAME_RESERVE_BYTES: u64 = 64 * 1024;

/// Where the snapshots of a job go.
pub enum Destination {
    /// Inline in the acknowledgement.
    Inline {
        /// Most bytes of one state.
        state_bytes_max: u64,
    },
    /// Files below the job's checkpoint directory.
    Files {
        /// The directory.
        storage: Storage,
        /// Most bytes of a state that stays inline.
        inline_bytes_max: u64,
        /// Most bytes of all states of a task that stay inline.
        inline_sum_max: u64,
    },
}

impl Destination {
    /// The job's checkpoint directory, where there is one.
    pub fn uri(&self) -> Option<&str> {
        match self {
            Self::Inline { .. } => None,
            Self::Files { storage, .. } => Some(storage.uri()),
        }
    }

    /// What the job's settings say: `memory` is inline; the others are files, but where there are no checkpoints (the last one
    /// is then inline, limited by the frame alone).
    pub fn of(job: JobId, settings: &JobSettings, frame_bytes: u64) -> Result<Self, StorageError> {
        let frame_limit = frame_bytes.saturating_sub(FRAME_RESERVE_BYTES);
        let checkpoint = &settings.checkpoint;
        Ok(match (settings.backend, checkpoint.interval_ms, &checkpoint.dir) {
            (_, None, _) | (BackendKind::Fs | BackendKind::Rocksdb, _, None) => Self::Inline { state_bytes_max: frame_limit },
            (BackendKind::Memory, Some(_), _) => Self::Inline { state_bytes_max: settings.max_state_size_bytes.min(frame_limit) },
            (BackendKind::Fs | BackendKind::Rocksdb, Some(_), Some(dir)) => Self::Files {
                storage: Storage::open(&format!("{}/{job}", dir.trim_end_matches('/')))?,
                inline_bytes_max: settings.inline_threshold_bytes,
                inline_sum_max: frame_bytes / 2,
            },
        })
    }
}
