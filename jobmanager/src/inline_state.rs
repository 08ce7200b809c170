//! The limits of state that travels inside acknowledgements and stays in this process.
//!
//! Keeps no bytes (those are in the core's checkpoints), only who holds how many. Invariant: `used` is the sum of what is held
//! and never above the budget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_common::checkpoint::{DeclineReason, Handle, StateHandle, TaskSnapshot};
use levada_common::ids::{CheckpointId, JobId, TaskId};

/// Reserve of a frame for everything that is not state.
const FRAME_RESERVE_BYTES: u64 = 64 * 1024;

/// The JobManager's memory for inline state, shared by all jobs.
#[derive(Debug, Clone)]
pub(crate) struct InlineBudget {
    ledger: Arc<Mutex<Ledger>>,
}

#[derive(Debug)]
struct Ledger {
    limit_bytes: u64,
    used_bytes: u64,
    held: BTreeMap<(JobId, CheckpointId, TaskId), Vec<Held>>,
}

/// One inline state that is held.
#[derive(Debug, Clone)]
struct Held {
    what: String,
    bytes: u64,
}

impl InlineBudget {
    /// A budget of so many bytes.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let ledger = Ledger { limit_bytes, used_bytes: 0, held: BTreeMap::new() };
        Self { ledger: Arc::new(Mutex::new(ledger)) }
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a snapshot's inline bytes into account; the same snapshot again changes nothing.
    ///
    /// Errors: `InlineBudget`, naming the five largest states, and nothing is taken.
    pub(crate) fn reserve(&self, job: JobId, checkpoint: CheckpointId, snapshot: &TaskSnapshot) -> Result<(), DeclineReason> {
        let key = (job, checkpoint, snapshot.task);
        let states: Vec<Held> = snapshot.states.iter().filter_map(held).collect();
        let size_bytes: u64 = states.iter().map(|state| state.bytes).sum();
        let mut ledger = self.lock();
        if size_bytes == 0 || ledger.held.contains_key(&key) {
            return Ok(());
        }
        if size_bytes > ledger.limit_bytes - ledger.used_bytes {
            return Err(DeclineReason::InlineBudget {
                size_bytes,
                used_bytes: ledger.used_bytes,
                limit_bytes: ledger.limit_bytes,
                largest: largest(ledger.held.values().flatten().chain(&states)),
            });
        }
        ledger.used_bytes += size_bytes;
        ledger.held.insert(key, states);
        Ok(())
    }

    /// Forgets what one task holds for a checkpoint.
    pub(crate) fn release_task(&self, job: JobId, checkpoint: CheckpointId, task: TaskId) {
        self.lock().release(|key| *key == (job, checkpoint, task));
    }

    /// Forgets what a checkpoint holds.
    pub(crate) fn release_checkpoint(&self, job: JobId, checkpoint: CheckpointId) {
        self.lock().release(|key| key.0 == job && key.1 == checkpoint);
    }

    /// Forgets what a job holds.
    pub(crate) fn release_job(&self, job: JobId) {
        self.lock().release(|key| key.0 == job);
    }

    /// Bytes held.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.lock().used_bytes
    }

    /// Bytes that may be held.
    pub(crate) fn limit_bytes(&self) -> u64 {
        self.lock().limit_bytes
    }
}

impl Ledger {
    fn release(&mut self, matches: impl Fn(&(JobId, CheckpointId, TaskId)) -> bool) {
        let mut freed_bytes = 0;
        self.held.retain(|key, states| {
            let keep = !matches(key);
            if !keep {
                freed_bytes += states.iter().map(|state| state.bytes).sum::<u64>();
            }
            keep
        });
        self.used_bytes -= freed_bytes;
    }
}

fn held(state: &StateHandle) -> Option<Held> {
    match &state.handle {
        Handle::Inline(bytes) => {
            let what = format!("operator \"{}\", state \"{}\", subtask {}", state.uid, state.name, state.subtask);
            Some(Held { what, bytes: bytes.len() as u64 })
        }
        Handle::File { .. } | Handle::Database { .. } => None,
    }
}

fn largest<'a>(states: impl Iterator<Item = &'a Held>) -> String {
    let mut states: Vec<&Held> = states.collect();
    states.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.what.cmp(&b.what)));
    let lines: Vec<String> = states.iter().take(5).map(|state| format!("{}: {} bytes", state.what, state.bytes)).collect();
    lines.join("; ")
}

/// Checks an acknowledgement against the limits that its sender should have kept.
///
/// Units: `message_bytes` is the encoded acknowledgement; `state_bytes_max` the job's limit for one inline state.
pub(crate) fn check_limits(
    snapshot: &TaskSnapshot,
    message_bytes: u64,
    state_bytes_max: u64,
    frame_bytes: u64,
) -> Result<(), DeclineReason> {
    let limit_bytes = state_bytes_max.min(frame_bytes.saturating_sub(FRAME_RESERVE_BYTES));
    let inline = || snapshot.states.iter().filter(|state| matches!(state.handle, Handle::Inline(_)));
    if let Some(state) = inline().find(|state| state.handle.length() > limit_bytes) {
        return Err(DeclineReason::StateTooLarge {
            uid: state.uid.clone(),
            state: state.name.clone(),
            subtask: state.subtask,
            size_bytes: state.handle.length(),
            limit_bytes,
        });
    }
    match inline().max_by_key(|state| state.handle.length()) {
        Some(state) if message_bytes > frame_bytes => Err(DeclineReason::FrameTooLarge {
            task: snapshot.task,
            uid: state.uid.clone(),
            state: state.name.clone(),
            state_bytes: state.handle.length(),
            size_bytes: message_bytes,
            limit_bytes: frame_bytes,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use levada_common::checkpoint::StateKind;
    use levada_common::ids::{SubtaskIndex, Uid, VertexId};
    use levada_common::keys::KeyGroupRange;

    use super::*;

    fn snapshot(subtask: u32, sizes: &[usize]) -> TaskSnapshot {
        let states = sizes.iter().enumerate().map(|(index, size)| StateHandle {
            uid: Uid::new("counts"),
            name: format!("s{index}"),
            kind: StateKind::Keyed,
            schema: Arc::default(),
            subtask: SubtaskIndex(subtask),
            key_groups: KeyGroupRange { start: 0, end: 127 },
            rows: 1,
            crc32c: 0,
            handle: Handle::Inline(Bytes::from(vec![0; *size])),
        });
        TaskSnapshot { task: TaskId::new(VertexId(0), subtask), finished: false, states: states.collect() }
    }

    #[test]
    fn a_full_budget_refuses_and_names_the_largest() {
        let budget = InlineBudget::new(100);
        let (job, first, second) = (JobId::from_u128(1), CheckpointId(1), CheckpointId(2));
        budget.reserve(job, first, &snapshot(0, &[60, 10])).unwrap();
        budget.reserve(job, first, &snapshot(0, &[60, 10])).unwrap();
        assert_eq!(budget.used_bytes(), 70);
        let error = budget.reserve(job, second, &snapshot(1, &[31])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("31 bytes") && text.contains("70 of 100"), "{text}");
        assert!(
            text.contains("operator \"counts\", state \"s0\", subtask 0: 60 bytes; operator \"counts\", state \"s0\""),
            "{text}"
        );
        for fits in [29, 30] {
            budget.reserve(job, second, &snapshot(1, &[fits])).unwrap();
            assert_eq!(budget.used_bytes(), 70 + fits as u64);
            budget.release_checkpoint(job, second);
        }
        budget.reserve(job, second, &snapshot(1, &[30])).unwrap();
        budget.release_checkpoint(job, first);
        assert_eq!(budget.used_bytes(), 30);
        budget.release_task(job, second, TaskId::new(VertexId(0), 1));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn only_five_are_named_and_a_job_s_end_frees_all() {
        let budget = InlineBudget::new(1000);
        let job = JobId::from_u128(1);
        budget.reserve(job, CheckpointId(1), &snapshot(0, &[9, 8, 7, 6, 5, 4, 3])).unwrap();
        let error = budget.reserve(job, CheckpointId(2), &snapshot(0, &[1000])).unwrap_err();
        let DeclineReason::InlineBudget { largest, .. } = error else { panic!("{error}") };
        assert_eq!(largest.matches("bytes").count(), 5);
        assert!(largest.starts_with("operator \"counts\", state \"s0\", subtask 0: 1000 bytes"), "{largest}");
        budget.release_job(job);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn limits_hold_to_the_byte() {
        let frame = 1 << 20;
        let limit = frame - FRAME_RESERVE_BYTES;
        assert_eq!(check_limits(&snapshot(0, &[499]), 600, 500, frame), Ok(()));
        assert_eq!(check_limits(&snapshot(0, &[500]), 600, 500, frame), Ok(()));
        let error = check_limits(&snapshot(0, &[501]), 600, 500, frame).unwrap_err();
        assert!(error.to_string().contains("Size=501, maxSize=500"), "{error}");
        assert_eq!(check_limits(&snapshot(0, &[limit as usize]), frame, u64::MAX, frame), Ok(()));
        assert!(check_limits(&snapshot(0, &[limit as usize + 1]), frame, u64::MAX, frame).is_err());
        assert_eq!(check_limits(&snapshot(0, &[500]), frame - 1, 500, frame), Ok(()));
        assert_eq!(check_limits(&snapshot(0, &[500]), frame, 500, frame), Ok(()));
        let error = check_limits(&snapshot(0, &[500]), frame + 1, 500, frame).unwrap_err();
        assert!(matches!(error, DeclineReason::FrameTooLarge { size_bytes, .. } if size_bytes == frame + 1));
    }
}
