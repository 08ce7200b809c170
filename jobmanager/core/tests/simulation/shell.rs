//! The simulated shell: performs effects. Storage answers late, wrongly, or after the checkpoint's time.

use std::collections::BTreeMap;

use levada_common::checkpoint::{DeclineReason, shared_path_writer};
use levada_common::ids::TaskId;
use levada_jobmanager_core::{Effect, Event};
use rand::Rng;

use crate::network::{Command, Happening};
use crate::world::{World, paths};

impl World {
    /// Does what the machine asks for.
    pub fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Deploy { attempt, tasks, .. } => {
                let mut by_manager: BTreeMap<_, Vec<(TaskId, bool, Vec<String>)>> = BTreeMap::new();
                for task in tasks {
                    let shared = task.states.iter().flat_map(|assigned| assigned.state.handle.shared_paths());
                    let base = shared.map(str::to_owned).collect();
                    by_manager.entry(task.task_manager).or_default().push((task.task, task.finished, base));
                }
                for (id, tasks) in by_manager {
                    self.down(id, Command::Deploy { attempt, tasks });
                }
            }
            Effect::CancelAttempt { attempt, task_managers } => {
                for id in task_managers {
                    self.down(id, Command::Cancel { attempt });
                }
            }
            Effect::EndSources { attempt, tasks } => {
                for (id, task) in tasks {
                    self.down(id, Command::EndSources { attempt, tasks: vec![task] });
                }
            }
            Effect::TriggerCheckpoint { attempt, checkpoint, kind, tasks, .. } => {
                self.kinds.insert(checkpoint, kind);
                let mut by_manager: BTreeMap<_, Vec<TaskId>> = BTreeMap::new();
                for (id, task) in tasks {
                    by_manager.entry(id).or_default().push(task);
                }
                for (id, tasks) in by_manager {
                    self.down(id, Command::Trigger { attempt, checkpoint: checkpoint.0, tasks });
                }
            }
            Effect::NotifyCheckpoint { attempt, last: true, task_managers, .. } => {
                for id in task_managers {
                    self.down(id, Command::Last { attempt });
                }
            }
            Effect::NotifyCheckpoint { attempt, checkpoint, completed, task_managers, .. } => {
                for id in task_managers {
                    self.down(id, Command::Notify { attempt, checkpoint: checkpoint.0, completed });
                }
            }
            Effect::ReleaseSlots | Effect::ForgetBase { .. } => {}
            Effect::WriteMetadata { attempt, metadata, within_ms, .. } => {
                let fails = self.chance(self.faults.write_error);
                let hangs = self.chance(self.faults.write_hang);
                let takes_ms = if hangs { within_ms + self.rng.random_range(1..1_000) } else { self.delay_ms() };
                // An answer at the very deadline may count or not; both are right, so it is not asked.
                let takes_ms = if takes_ms == within_ms { takes_ms + 1 } else { takes_ms };
                let result = if fails {
                    Err(DeclineReason::Finalize { path: "_metadata".into(), cause: "injected".into() })
                } else {
                    Ok(format!("file:///checkpoints/chk-{}/_metadata", metadata.id))
                };
                let answer = Event::MetadataWritten { attempt, checkpoint: metadata.id, result };
                self.queue.add(self.now_ms + takes_ms, Happening::Call(answer));
            }
            Effect::DiscardCheckpoint { tasks, .. } => {
                for path in tasks.iter().flat_map(paths) {
                    self.storage.remove(&path);
                }
            }
            Effect::DeleteShared { files } => {
                self.tally.shared_deleted += files.len() as u64;
                for path in files {
                    self.storage.remove(&path);
                }
            }
            Effect::SweepShared { before, keep } => {
                let before = before.map(|attempt| (attempt.epoch, attempt.attempt));
                let old = |path: &String| {
                    shared_path_writer(path).is_some_and(|writer| before.is_none_or(|before| writer < before))
                        && !keep.contains(path)
                };
                let count = self.storage.len();
                self.storage.retain(|path| !old(path));
                self.tally.shared_swept += (count - self.storage.len()) as u64;
            }
            Effect::DiscardSnapshot { snapshot, .. } => {
                self.tally.refused += 1;
                for path in paths(&snapshot) {
                    self.storage.remove(&path);
                }
            }
        }
    }
}
