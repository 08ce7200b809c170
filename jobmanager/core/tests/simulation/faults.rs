//! What goes wrong in one run, drawn from its seed.

use levada_common::plan::RestartSettings;
use rand::Rng;
use rand::rngs::StdRng;

use crate::plan::restarts;

/// When faults stop, in milliseconds.
pub const HEAL_AT_MS: u64 = 10_000;

/// When a run that is still going is looked at for the last time, in milliseconds.
pub const END_AT_MS: u64 = 25_000;

/// The faults of one run. Chances are out of 1000.
#[derive(Debug, Clone)]
pub struct Faults {
    /// TaskManagers.
    pub task_managers: u32,
    /// Slots of each.
    pub slots: u32,
    /// Parallelism of the job.
    pub parallelism: u32,
    /// Checkpoint interval.
    pub interval_ms: Option<u64>,
    /// Checkpoint timeout.
    pub timeout_ms: u64,
    /// Least pause.
    pub min_pause_ms: u64,
    /// Checkpoints kept.
    pub num_retained: u32,
    /// Whether they stay after cancel and failure.
    pub retain: bool,
    /// The restart strategy.
    pub restart: RestartSettings,
    /// Longest life of a source, drawn for each attempt; `None` = it never ends.
    pub source_ms_max: Option<u64>,
    /// Mean time between losses of a TaskManager; 0 = none.
    pub loss_every_ms: u64,
    /// Mean time between failures of a task; 0 = none.
    pub failure_every_ms: u64,
    /// Chance that a snapshot is declined.
    pub decline: u32,
    /// Chance that an acknowledgement comes twice.
    pub repeat: u32,
    /// Chance that an acknowledgement takes up to three times the timeout.
    pub slow: u32,
    /// Chance that the metadata cannot be written.
    pub write_error: u32,
    /// Chance that the metadata's answer comes only after the checkpoint's time.
    pub write_hang: u32,
    /// Longest delay of a message.
    pub delay_ms_max: u64,
    /// Chance that a TaskManager ignores a cancel.
    pub deaf: u32,
    /// When the user cancels.
    pub cancel_at_ms: Option<u64>,
    /// Mean time between wishes for a savepoint; 0 = none.
    pub savepoint_every_ms: u64,
    /// When the user stops the job with a savepoint.
    pub stop_at_ms: Option<u64>,
    /// Whether it is drained then.
    pub drain: bool,
}

impl Faults {
    /// Draws them.
    pub fn draw(rng: &mut StdRng) -> Self {
        let rare =
            |rng: &mut StdRng, chance: u32, most: u32| if rng.random_ratio(1, chance) { rng.random_range(1..=most) } else { 0 };
        let parallelism: u32 = rng.random_range(1..=3);
        let task_managers: u32 = rng.random_range(1..=3);
        let checkpointing = rng.random_ratio(9, 10);
        let bounded = rng.random_ratio(1, 2) || !checkpointing;
        Self {
            task_managers,
            slots: parallelism.div_ceil(task_managers) + rng.random_range(0..=1),
            parallelism,
            interval_ms: checkpointing.then(|| rng.random_range(50..=500)),
            timeout_ms: rng.random_range(300..=1_500),
            min_pause_ms: if rng.random() { 0 } else { rng.random_range(1..=200) },
            num_retained: rng.random_range(1..=3),
            retain: rng.random(),
            restart: match rng.random_range(0..12) {
                0 => RestartSettings::None,
                1 => RestartSettings::FixedDelay { attempts: 2, delay_ms: 100 },
                _ => restarts(),
            },
            source_ms_max: bounded.then(|| rng.random_range(100..=6_000)),
            loss_every_ms: if rng.random_ratio(2, 3) { rng.random_range(400..=4_000) } else { 0 },
            failure_every_ms: if rng.random_ratio(1, 2) { rng.random_range(300..=3_000) } else { 0 },
            decline: rare(rng, 3, 100),
            repeat: rare(rng, 2, 300),
            slow: rare(rng, 3, 50),
            write_error: rare(rng, 3, 200),
            write_hang: rare(rng, 3, 150),
            delay_ms_max: rng.random_range(2..=120),
            deaf: rare(rng, 4, 200),
            cancel_at_ms: rng.random_ratio(1, 4).then(|| rng.random_range(1..=HEAL_AT_MS)),
            savepoint_every_ms: if rng.random_ratio(1, 2) { rng.random_range(200..=2_000) } else { 0 },
            stop_at_ms: rng.random_ratio(1, 5).then(|| rng.random_range(1..=HEAL_AT_MS + 2_000)),
            drain: rng.random(),
        }
    }

    /// The same run without further faults.
    pub fn healed(&self) -> Self {
        Self {
            loss_every_ms: 0,
            failure_every_ms: 0,
            decline: 0,
            slow: 0,
            write_error: 0,
            write_hang: 0,
            deaf: 0,
            delay_ms_max: self.delay_ms_max.min(20),
            ..self.clone()
        }
    }
}
