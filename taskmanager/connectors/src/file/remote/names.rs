//! Names of the files of one subtask of one attempt, and which of others' are leftovers.

use levada_common::ids::{AttemptId, CheckpointId, Uid};

use crate::file::part::fnv;

/// Names of one subtask of one attempt.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// What the names of all attempts of this node begin with.
    node: String,
    /// Epoch and attempt.
    attempt: (u64, u32),
    subtask: u32,
    parallelism: u32,
}

impl Names {
    pub fn new(uid: &Uid, attempt: &AttemptId, subtask: u32, parallelism: u32) -> Self {
        let job = attempt.job.to_string();
        let node = format!("part-{}-{:08x}-", &job[job.len() - 8..], fnv(uid.as_str()));
        Self { node, attempt: (attempt.epoch.0, attempt.attempt.0), subtask, parallelism: parallelism.max(1) }
    }

    /// What the names of this node begin with.
    pub fn of_node(&self) -> &str {
        &self.node
    }

    /// The name of this attempt's file of this number.
    pub fn file(&self, after: CheckpointId, number: u64) -> String {
        let (epoch, attempt) = self.attempt;
        format!("{}{:010}-{}-{epoch}-{attempt}-{number}.ndjson", self.node, after.0, self.subtask)
    }

    /// Whether something staged under this name was lost by an older attempt: of this subtask, or of one beyond the parallelism
    /// that falls to it; and begun after the checkpoint that is restored. What was begun before is in somebody's snapshot.
    pub fn is_leftover(&self, name: &str, restored_from: Option<CheckpointId>) -> bool {
        let Some(after) = self.after(name) else { return false };
        restored_from.is_none_or(|restored| after >= restored)
    }

    /// Whether a file of this name is one of an older attempt, as above.
    pub fn is_older(&self, name: &str) -> bool {
        self.after(name).is_some()
    }

    /// The checkpoint after which such a file was begun.
    fn after(&self, name: &str) -> Option<CheckpointId> {
        let [after, subtask, epoch, attempt, _] = self.parse(name)?;
        let is_mine = subtask % u64::from(self.parallelism) == u64::from(self.subtask);
        let is_older = (epoch, attempt) < (self.attempt.0, u64::from(self.attempt.1));
        (is_mine && is_older).then_some(CheckpointId(after))
    }

    fn parse(&self, name: &str) -> Option<[u64; 5]> {
        let numbers = name.strip_prefix(&self.node)?.strip_suffix(".ndjson")?.split('-').map(|text| text.parse().ok());
        numbers.collect::<Option<Vec<u64>>>()?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use levada_common::ids::{Attempt, Epoch, JobId};

    use super::*;

    fn names(attempt: u32, subtask: u32) -> Names {
        let attempt = AttemptId { job: JobId::from_u128(7), attempt: Attempt(attempt), epoch: Epoch(1) };
        Names::new(&Uid::new("out"), &attempt, subtask, 2)
    }

    #[test]
    fn only_what_an_older_attempt_lost_is_a_leftover() {
        let (mine, restored) = (names(3, 1), Some(CheckpointId(5)));
        let file = |attempt, subtask, after| names(attempt, subtask).file(CheckpointId(after), 0);
        assert!(mine.is_leftover(&file(2, 1, 5), restored) && mine.is_leftover(&file(2, 3, 7), restored));
        assert!(mine.is_leftover(&file(2, 1, 0), None), "nothing is restored: nobody has it");
        for (name, why) in [
            (file(2, 1, 4), "it is in the snapshot"),
            (file(2, 0, 5), "it is another subtask's"),
            (file(3, 1, 5), "it is this attempt's"),
            (file(4, 1, 5), "it is a newer attempt's"),
            ("part-x".into(), "it is not ours"),
            (file(2, 1, 5).replace(".ndjson", ".txt"), "it is not ours"),
        ] {
            assert!(!mine.is_leftover(&name, restored), "{name}: {why}");
        }
    }
}
