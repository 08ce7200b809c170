//! Reads `settings:` of a job graph.

use super::report::{At, Fields, Keys, Report};
use super::tree::Value;
use super::{GraphCheckpoint, GraphSettings};
use crate::keys::MAX_PARALLELISM_LIMIT;
use crate::plan::{BackendKind, CheckpointMode, RestartSettings};

const SETTINGS: Keys = Keys {
    allowed: &["parallelism", "max_parallelism", "state", "checkpoint", "restart", "batch"],
    later: &["savepoint", "mode"],
    synonyms: &[("checkpointing", "checkpoint"), ("state_backend", "state"), ("backend", "state")],
};

const STATE: Keys =
    Keys { allowed: &["backend", "max_state_size", "inline_threshold"], later: &["ttl", "memory"], synonyms: &[] };

const CHECKPOINT: Keys = Keys {
    allowed: &["interval", "timeout", "min_pause", "tolerable_failures", "num_retained", "dir", "mode", "retention"],
    later: &["max_concurrent", "aligned_timeout", "unaligned", "incremental", "file_merging"],
    synonyms: &[("retained", "num_retained"), ("path", "dir"), ("directory", "dir"), ("min_pause_between", "min_pause")],
};

const RESTART: Keys = Keys {
    allowed: &["strategy", "attempts", "delay"],
    later: &["max_delay", "multiplier", "jitter", "reset", "interval", "failures"],
    synonyms: &[],
};

const BATCH: Keys = Keys { allowed: &["rows", "timeout"], later: &["bytes"], synonyms: &[] };

/// Largest `inline_threshold`.
const INLINE_THRESHOLD_BYTES_MAX: u64 = 1 << 20;
/// Shortest interval and time-out of checkpoints.
const CHECKPOINT_MS_MIN: u64 = 10;
/// Restarts of a job that sets none: as many as `restart: fixed-delay` without more says.
const RESTART_ATTEMPTS: u32 = 10;
/// Delay before a restart where none is set.
const RESTART_DELAY_MS: u64 = 1_000;

/// Reads the settings; what is defective is reported and left out.
pub(super) fn read_settings(at: &At<'_>, report: &mut Report) -> GraphSettings {
    let mut settings = GraphSettings::default();
    let Some(fields) = report.fields(at, &SETTINGS) else { return settings };
    settings.max_parallelism = fields.get("max_parallelism").and_then(|at| report.integer(&at, 1..=MAX_PARALLELISM_LIMIT));
    let most = settings.max_parallelism.unwrap_or(MAX_PARALLELISM_LIMIT);
    settings.parallelism = fields.get("parallelism").and_then(|at| report.integer(&at, 1..=most));
    if let Some(fields) = fields.get("state").and_then(|at| report.fields(&at, &STATE)) {
        read_state(&fields, &mut settings, report);
    }
    settings.checkpoint = fields.get("checkpoint").and_then(|at| read_checkpoint(&at, report));
    settings.restart = fields.get("restart").and_then(|at| read_restart(&at, report));
    if let Some(fields) = fields.get("batch").and_then(|at| report.fields(&at, &BATCH)) {
        settings.batch_rows_max = fields.get("rows").and_then(|at| report.integer(&at, 1..=65_536));
        settings.buffer_timeout_ms = fields.get("timeout").and_then(|at| report.duration_ms(&at, 0));
    }
    settings
}

fn read_state(fields: &Fields<'_>, settings: &mut GraphSettings, report: &mut Report) {
    let backends = [
        ("memory", BackendKind::Memory),
        ("fs", BackendKind::Fs),
        ("rocksdb", BackendKind::Rocksdb),
        // The names that Flink has for the same.
        ("filesystem", BackendKind::Fs),
        ("hashmap", BackendKind::Fs),
    ];
    settings.backend = fields.get("backend").and_then(|at| report.one_of(&at, &backends, &[]));
    settings.max_state_size_bytes = fields.get("max_state_size").and_then(|at| report.size_bytes(&at, 1 << 30));
    settings.inline_threshold_bytes =
        fields.get("inline_threshold").and_then(|at| report.size_bytes(&at, INLINE_THRESHOLD_BYTES_MAX));
}

/// `false` and `off` are as good as leaving it out.
fn read_checkpoint(at: &At<'_>, report: &mut Report) -> Option<GraphCheckpoint> {
    if matches!(&at.node.value, Value::Scalar { text, .. } if matches!(text.as_str(), "false" | "off")) {
        return None;
    }
    let fields = report.fields(at, &CHECKPOINT)?;
    let modes = [("exactly-once", CheckpointMode::ExactlyOnce), ("at-least-once", CheckpointMode::AtLeastOnce)];
    let retentions = [("retain", true), ("delete", false)];
    Some(GraphCheckpoint {
        interval_ms: fields.get("interval").and_then(|at| report.duration_or_off(&at, CHECKPOINT_MS_MIN)),
        timeout_ms: fields.get("timeout").and_then(|at| report.duration_ms(&at, CHECKPOINT_MS_MIN)),
        min_pause_ms: fields.get("min_pause").and_then(|at| report.duration_ms(&at, 0)),
        tolerable_failures: fields.get("tolerable_failures").and_then(|at| report.integer(&at, 0..=u32::MAX)),
        num_retained: fields.get("num_retained").and_then(|at| report.integer(&at, 1..=1_000)),
        dir: fields.get("dir").and_then(|at| read_dir(&at, report)),
        mode: fields.get("mode").and_then(|at| report.one_of(&at, &modes, &["unaligned"])),
        retain: fields.get("retention").and_then(|at| report.one_of(&at, &retentions, &[])),
    })
}

fn read_dir(at: &At<'_>, report: &mut Report) -> Option<String> {
    let text = report.text(at, "a directory such as file:///var/lib/levada/checkpoints")?;
    match crate::storage::Location::parse(text) {
        Ok(_) => Some(text.to_owned()),
        Err(error) => {
            report.error(&at.path, error.to_string());
            None
        }
    }
}

fn read_restart(at: &At<'_>, report: &mut Report) -> Option<RestartSettings> {
    let fixed_delay = RestartSettings::FixedDelay { attempts: RESTART_ATTEMPTS, delay_ms: RESTART_DELAY_MS };
    let strategies = [("none", RestartSettings::None), ("fixed-delay", fixed_delay)];
    let later = ["exponential-delay", "failure-rate"];
    if matches!(at.node.value, Value::Scalar { .. }) {
        return report.one_of(at, &strategies, &later);
    }
    let fields = report.fields(at, &RESTART)?;
    let Some(strategy) = fields.get("strategy") else {
        report.error(fields.path(), "`strategy` is missing: none or fixed-delay");
        return None;
    };
    let mut strategy = report.one_of(&strategy, &strategies, &later)?;
    let attempts = fields.get("attempts").and_then(|at| report.integer(&at, 1..=u32::MAX));
    let delay = fields.get("delay").and_then(|at| report.duration_ms(&at, 0));
    match &mut strategy {
        RestartSettings::FixedDelay { attempts: chosen, delay_ms } => {
            *chosen = attempts.unwrap_or(*chosen);
            *delay_ms = delay.unwrap_or(*delay_ms);
        }
        RestartSettings::None => {
            for key in ["attempts", "delay"] {
                if fields.get(key).is_some() {
                    report.error(&fields.path_of(key), "means nothing with `strategy: none`");
                }
            }
        }
    }
    Some(strategy)
}
