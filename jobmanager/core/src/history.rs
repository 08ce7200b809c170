//! Counts and remembers how checkpoints ended.
//!
//! Invariant: triggered = completed + failed + those in progress, always; a checkpoint is counted once, where it leaves `pending`.

use std::collections::VecDeque;

use crate::status::{CheckpointRecord, CheckpointsStatus};

/// Checkpoints remembered.
pub const HISTORY_COUNT_MAX: usize = 20;

/// How the checkpoints of one job ended.
#[derive(Debug, Default)]
pub struct History {
    triggered: u64,
    completed: u64,
    failed: u64,
    last_completed: Option<CheckpointRecord>,
    last_failed: Option<CheckpointRecord>,
    records: VecDeque<CheckpointRecord>,
}

impl History {
    /// A checkpoint began.
    pub fn triggered(&mut self) {
        self.triggered += 1;
    }

    /// It ended, as the record says.
    pub fn ended(&mut self, record: CheckpointRecord) {
        let (count, last) = match record.failure {
            None => (&mut self.completed, &mut self.last_completed),
            Some(_) => (&mut self.failed, &mut self.last_failed),
        };
        *count += 1;
        if !record.savepoint {
            *last = Some(record.clone());
        }
        self.records.push_front(record);
        self.records.truncate(HISTORY_COUNT_MAX);
    }

    /// The numbers, with `in_progress` under way; the rest is the coordinator's to fill in.
    pub fn status(&self, in_progress: u64) -> CheckpointsStatus {
        CheckpointsStatus {
            triggered: self.triggered,
            completed: self.completed,
            failed: self.failed,
            in_progress,
            consecutive_failures: 0,
            last_completed: self.last_completed.clone(),
            last_failed: self.last_failed.clone(),
            history: self.records.iter().cloned().collect(),
            age_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use levada_common::ids::CheckpointId;

    use super::*;

    #[test]
    fn twenty_are_remembered_newest_first() {
        let mut history = History::default();
        for id in 1..=30 {
            history.triggered();
            let failure = (id % 3 == 0).then(|| "expired".to_string());
            let record = CheckpointRecord {
                id: CheckpointId(id),
                savepoint: id == 20,
                triggered_at_ms: 0,
                duration_ms: 0,
                bytes: 0,
                inline_bytes: 0,
                failure,
                metadata: String::new(),
            };
            history.ended(record);
        }
        let status = history.status(0);
        assert_eq!((status.triggered, status.completed, status.failed), (30, 20, 10));
        assert_eq!(status.history.len(), HISTORY_COUNT_MAX);
        assert_eq!(status.history[0].id, CheckpointId(30));
        assert_eq!(status.last_completed.map(|record| record.id), Some(CheckpointId(29)));
    }
}
