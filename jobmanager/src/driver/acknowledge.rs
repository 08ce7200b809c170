//! Acknowledgements: the limits first, then the core.

use levada_jobmanager_core::Event as CoreEvent;
use tracing::warn;

use super::Acknowledgement;
use super::run::Driver;
use crate::inline_state::check_limits;

impl Driver {
    /// Takes a snapshot, or refuses it for a limit. Answers whether the checkpoint owns it now; else the sender deletes its files.
    pub(super) fn acknowledge(&mut self, acknowledgement: Acknowledgement) -> bool {
        let Acknowledgement { attempt, checkpoint, snapshot, message_bytes } = acknowledgement;
        // Sent again because the first answer was lost: whatever has become of the attempt, the files are a checkpoint's.
        if self.machine.holds(checkpoint, &snapshot) {
            return true;
        }
        if attempt != self.machine.attempt() {
            return false;
        }
        let (job, task) = (self.job.id, snapshot.task);
        let state_bytes_max = self.job.plan.settings.max_state_size_bytes;
        let fits = check_limits(&snapshot, message_bytes, state_bytes_max, self.context.frame_bytes)
            .and_then(|()| self.context.budget.reserve(job, checkpoint, &snapshot));
        if let Err(reason) = fits {
            warn!(%job, %checkpoint, %task, "snapshot refused: {reason}");
            self.apply(CoreEvent::SnapshotDeclined { attempt, checkpoint, task, reason });
            return false;
        }
        let discarded = self.apply(CoreEvent::SnapshotTaken { attempt, checkpoint, snapshot });
        if discarded.0 {
            self.context.budget.release_task(job, checkpoint, task);
        }
        !discarded.0
    }
}
