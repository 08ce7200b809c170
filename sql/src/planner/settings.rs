//! Settings of a job: what the graph says, else what the cluster or this release assumes.

use levada_common::graph::{GraphCheckpoint, GraphSettings};
use levada_common::plan::{BackendKind, CheckpointMode, CheckpointSettings, JobSettings, RestartSettings};

/// What the caller wants of a plan beside the graph.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlanOverrides {
    /// Parallelism of nodes that set none, before the graph's own setting (`--parallelism`).
    pub parallelism: Option<u32>,
    /// What holds where the graph says nothing.
    pub defaults: PlanDefaults,
}

/// What holds where a graph says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanDefaults {
    /// Parallelism.
    pub parallelism: u32,
    /// Largest inline state of one (state, subtask), in bytes.
    pub max_state_size_bytes: u64,
    /// Largest state that `fs` keeps inline, in bytes.
    pub inline_threshold_bytes: u64,
    /// Most rows of a batch.
    pub batch_rows_max: usize,
    /// No row waits longer than this for its batch to fill, in milliseconds.
    pub buffer_timeout_ms: u64,
}

impl Default for PlanDefaults {
    fn default() -> Self {
        Self {
            parallelism: 1,
            max_state_size_bytes: 5 << 20,
            inline_threshold_bytes: 20 << 10,
            batch_rows_max: 8192,
            buffer_timeout_ms: 100,
        }
    }
}

const INTERVAL_DEFAULT_MS: u64 = 10_000;
const TIMEOUT_DEFAULT_MS: u64 = 600_000;

/// A defect of the settings: path and message.
type Defect = (String, String);

/// Fills in what `settings` leaves open. What is wrong goes to `defects`; what should be known to `warnings`.
pub(super) fn resolve(
    settings: &GraphSettings,
    overrides: &PlanOverrides,
    defects: &mut Vec<Defect>,
    warnings: &mut Vec<String>,
) -> JobSettings {
    let defaults = &overrides.defaults;
    let backend = settings.backend.unwrap_or(BackendKind::Memory);
    let checkpoint = checkpoint_settings(settings.checkpoint.as_ref());
    check_directory(backend, &checkpoint, defects);
    let checkpointing = checkpoint.interval_ms.is_some();
    if checkpointing && backend == BackendKind::Memory && checkpoint.dir.is_none() {
        warnings.push(
            "state backend memory without `checkpoint.dir`: checkpoints live in the JobManager only and are lost with it".into(),
        );
    }
    let restart = settings.restart.clone().unwrap_or(if checkpointing {
        RestartSettings::FixedDelay { attempts: 10, delay_ms: 1_000 }
    } else {
        RestartSettings::None
    });
    JobSettings {
        parallelism: overrides.parallelism.or(settings.parallelism).unwrap_or(defaults.parallelism),
        backend,
        max_state_size_bytes: settings.max_state_size_bytes.unwrap_or(defaults.max_state_size_bytes),
        inline_threshold_bytes: settings.inline_threshold_bytes.unwrap_or(defaults.inline_threshold_bytes),
        checkpoint,
        restart,
        batch_rows_max: settings.batch_rows_max.unwrap_or(defaults.batch_rows_max),
        buffer_timeout_ms: settings.buffer_timeout_ms.unwrap_or(defaults.buffer_timeout_ms),
    }
}

fn checkpoint_settings(written: Option<&GraphCheckpoint>) -> CheckpointSettings {
    let absent = GraphCheckpoint { interval_ms: Some(None), ..GraphCheckpoint::default() };
    let written = written.unwrap_or(&absent);
    CheckpointSettings {
        interval_ms: written.interval_ms.unwrap_or(Some(INTERVAL_DEFAULT_MS)),
        timeout_ms: written.timeout_ms.unwrap_or(TIMEOUT_DEFAULT_MS),
        min_pause_ms: written.min_pause_ms.unwrap_or(0),
        tolerable_failures: written.tolerable_failures.unwrap_or(3),
        num_retained: written.num_retained.unwrap_or(3),
        dir: written.dir.clone(),
        mode: written.mode.unwrap_or(CheckpointMode::ExactlyOnce),
        retain: written.retain.unwrap_or(true),
    }
}

/// The snapshots of all backends but `memory` are in files, so their checkpoints need a place.
fn check_directory(backend: BackendKind, checkpoint: &CheckpointSettings, defects: &mut Vec<Defect>) {
    if backend != BackendKind::Memory && checkpoint.interval_ms.is_some() && checkpoint.dir.is_none() {
        let message = format!(
            "state backend {} needs a directory for its checkpoints; set `checkpoint.dir`, as in file:///var/lib/levada",
            backend.name()
        );
        defects.push(("settings.checkpoint".into(), message));
    }
}
