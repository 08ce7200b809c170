//! What a task counts: written per batch on the task's thread, read by the shell at any time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use levada_common::ids::Uid;
use levada_state::cold::ColdMetrics;

/// Counters of one node in one subtask.
#[derive(Debug)]
pub struct NodeMetrics {
    /// The node.
    pub uid: Uid,
    /// Rows that came in (for a source: rows read).
    pub rows_in: AtomicU64,
    /// Rows that went out.
    pub rows_out: AtomicU64,
    /// Rows dropped because their window had fired.
    pub late_rows: AtomicU64,
    /// Rows too far ahead of processing time to move event time.
    pub future_rows: AtomicU64,
    /// Rows for which the table of a lookup join had none.
    pub lookup_misses: AtomicU64,
    /// Rows dropped by the bad-record policy.
    pub bad_records: AtomicU64,
    /// Bytes of working state, as far as it is counted.
    pub state_bytes: AtomicU64,
    /// Keys (or (window, key) pairs) in the state, as far as it is in memory.
    pub state_keys: AtomicU64,
    /// What the node's store did and has, where its state is in one.
    store: Mutex<Option<ColdMetrics>>,
    /// The newest bad record: position and reason.
    last_bad: Mutex<Option<String>>,
    /// Counters of a user's function, by name.
    counters: Mutex<BTreeMap<String, Counter>>,
}

/// A counter of a user's function.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    /// Counts `more`. Better once a batch than once a row.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// What was counted since the task's start.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl NodeMetrics {
    /// Counters at zero.
    pub fn new(uid: Uid) -> Self {
        Self {
            uid,
            rows_in: AtomicU64::new(0),
            rows_out: AtomicU64::new(0),
            late_rows: AtomicU64::new(0),
            future_rows: AtomicU64::new(0),
            lookup_misses: AtomicU64::new(0),
            bad_records: AtomicU64::new(0),
            state_bytes: AtomicU64::new(0),
            state_keys: AtomicU64::new(0),
            store: Mutex::new(None),
            last_bad: Mutex::new(None),
            counters: Mutex::new(BTreeMap::new()),
        }
    }

    /// The counter of this name, made where there is none.
    pub fn counter(&self, name: &str) -> Counter {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).entry(name.into()).or_default().clone()
    }

    /// The counters of the node's function, by name.
    pub fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|(name, counter)| (name.clone(), counter.get())).collect()
    }

    /// Shows what the node's store did and has. To be called once a batch.
    pub fn set_store(&self, metrics: ColdMetrics) {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(metrics);
    }

    /// What the node's store did and has, where its state is in one.
    pub fn store(&self) -> Option<ColdMetrics> {
        *self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one bad record and keeps its place and reason.
    pub fn bad_record(&self, position: &str, reason: &str) {
        self.bad_records.fetch_add(1, Ordering::Relaxed);
        let mut text: String = format!("{position}: {reason}");
        if text.len() > 500 {
            let end = (0..=500).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
        }
        *self.last_bad.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// The newest bad record: position and reason.
    pub fn last_bad(&self) -> Option<String> {
        self.last_bad.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counters of one task.
#[derive(Debug)]
pub struct TaskMetrics {
    /// Watermark at the task's input or source; `i64::MIN` where there is none.
    pub watermark_ms: AtomicI64,
    /// The input channel that holds the watermark back; `NO_CHANNEL` where there is none.
    pub held_back_by: AtomicU32,
    /// Whether a source has had nothing to read for its idleness.
    pub idle: AtomicBool,
    /// Whether a source waits for others of its group.
    pub paused: AtomicBool,
    /// Whether rows wait until a table has been read.
    pub waiting: AtomicBool,
    /// Nanoseconds spent working.
    pub busy_ns: AtomicU64,
    /// Nanoseconds spent waiting for room in the output, or for a store.
    pub blocked_ns: AtomicU64,
    /// Nanoseconds of these spent waiting for a store.
    pub writing_ns: AtomicU64,
    /// Nanoseconds spent waiting for input.
    pub idle_ns: AtomicU64,
    /// Nanoseconds of the newest snapshot's synchronous part: of the step in which the barrier passed.
    pub snapshot_sync_ns: AtomicU64,
}

impl TaskMetrics {
    /// In `held_back_by`: no channel.
    pub const NO_CHANNEL: u32 = u32::MAX;
}

impl Default for TaskMetrics {
    fn default() -> Self {
        Self {
            watermark_ms: AtomicI64::new(i64::MIN),
            held_back_by: AtomicU32::new(Self::NO_CHANNEL),
            idle: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            busy_ns: AtomicU64::new(0),
            blocked_ns: AtomicU64::new(0),
            writing_ns: AtomicU64::new(0),
            idle_ns: AtomicU64::new(0),
            snapshot_sync_ns: AtomicU64::new(0),
        }
    }
}
