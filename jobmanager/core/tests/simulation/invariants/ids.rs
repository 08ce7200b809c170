//! Ids of checkpoints rise and never come again, over all attempts; so do the numbers of attempts.

use levada_common::ids::{AttemptId, CheckpointId};
use levada_jobmanager_core::Effect;

use super::{Invariant, Step};

/// The newest ids seen.
#[derive(Debug, Default)]
pub struct Ids {
    newest: CheckpointId,
    of: Option<AttemptId>,
    attempt: u32,
}

impl Invariant for Ids {
    fn step(&mut self, step: &Step<'_>) {
        for effect in step.effects {
            match effect {
                Effect::TriggerCheckpoint { attempt, checkpoint, .. } => {
                    // The same checkpoint is triggered again for tasks that are finishing meanwhile.
                    let again = *checkpoint == self.newest && self.of == Some(*attempt);
                    let new = *checkpoint == self.newest.next();
                    assert!(again || new, "checkpoint {checkpoint} of {attempt} after {} of {:?}", self.newest, self.of);
                    (self.newest, self.of) = (*checkpoint, Some(*attempt));
                }
                Effect::Deploy { attempt, .. } => {
                    assert_eq!(attempt.attempt.0, self.attempt + 1, "attempts are numbered one by one");
                    self.attempt += 1;
                }
                _ => {}
            }
        }
    }
}
