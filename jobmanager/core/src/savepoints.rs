//! Savepoints of one job: who asked for them, and what became of each.
//!
//! A request is known by its id, so that asking again asks nothing new. Those that wait are taken one after another, before the
//! next periodic checkpoint. Must never know: how a snapshot is taken.

use std::collections::VecDeque;

use levada_common::ids::CheckpointId;

/// Requests that are remembered.
pub const SAVEPOINTS_COUNT_MAX: usize = 20;

/// What becomes of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SavepointMode {
    /// It goes on.
    Continue,
    /// It ends: sources stop at the barrier, and nothing fires that has not.
    Stop,
    /// It ends: sources end, event time ends with them, windows fire; then the savepoint is taken.
    Drain,
}

impl SavepointMode {
    /// Whether the job ends with it.
    pub fn ends_job(self) -> bool {
        self != Self::Continue
    }

    /// The name that users see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Continue => "savepoint",
            Self::Stop => "stop",
            Self::Drain => "drain",
        }
    }
}

/// Somebody wants a savepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavepointRequest {
    /// The request's id, chosen by the client; the same id is the same request.
    pub id: String,
    /// URI of the directory below which its folder is made.
    pub directory: String,
    /// What becomes of the job.
    pub mode: SavepointMode,
}

/// How far a savepoint is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SavepointPhase {
    /// A checkpoint under way comes first, or sources are ending.
    Waiting,
    /// The tasks take it.
    InProgress,
    /// It is written.
    Completed,
    /// It was not taken, and why.
    Failed(String),
}

/// A savepoint at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavepointStatus {
    /// Who asked for what.
    pub request: SavepointRequest,
    /// How far it is.
    pub phase: SavepointPhase,
    /// Its id, once begun.
    pub checkpoint: Option<CheckpointId>,
    /// URI of its folder, once begun.
    pub folder: String,
    /// Wall-clock time of the request, milliseconds since 1970.
    pub requested_at_ms: u64,
    /// From trigger to end, in milliseconds.
    pub duration_ms: u64,
    /// Bytes of state.
    pub bytes: u64,
}

impl SavepointStatus {
    /// Whether it can still come about.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, SavepointPhase::Waiting | SavepointPhase::InProgress)
    }
}

/// The savepoints of one job, oldest first.
#[derive(Debug, Default)]
pub struct Savepoints {
    known: VecDeque<SavepointStatus>,
}

impl Savepoints {
    /// Takes a request, failed already where `refused` says why. One that is known is left as it is.
    pub fn request(&mut self, request: SavepointRequest, requested_at_ms: u64, refused: Option<String>) {
        if self.find(&request.id).is_some() {
            return;
        }
        if self.known.len() >= SAVEPOINTS_COUNT_MAX {
            match self.dispensable() {
                Some(place) => drop(self.known.remove(place)),
                None => return,
            }
        }
        let phase = refused.map_or(SavepointPhase::Waiting, SavepointPhase::Failed);
        self.known.push_back(SavepointStatus {
            request,
            phase,
            checkpoint: None,
            folder: String::new(),
            requested_at_ms,
            duration_ms: 0,
            bytes: 0,
        });
    }

    /// What is forgotten first: what was refused, then what failed, then what completed; never what ended the job.
    fn dispensable(&self) -> Option<usize> {
        let failed = |known: &SavepointStatus| matches!(known.phase, SavepointPhase::Failed(_));
        let refused = self.known.iter().position(|known| failed(known) && known.checkpoint.is_none());
        let failed = || self.known.iter().position(failed);
        let completed = || self.known.iter().position(|known| !known.is_open() && !known.request.mode.ends_job());
        refused.or_else(failed).or_else(completed)
    }

    /// The savepoint of this request.
    pub fn find(&self, id: &str) -> Option<&SavepointStatus> {
        self.known.iter().find(|known| known.request.id == id)
    }

    /// The savepoint that ends, or has ended, the job.
    pub fn ending(&self) -> Option<&SavepointStatus> {
        let ends = |known: &&SavepointStatus| known.request.mode.ends_job() && !matches!(known.phase, SavepointPhase::Failed(_));
        self.known.iter().find(ends)
    }

    /// The one that is taken next.
    pub fn next(&self) -> Option<&SavepointRequest> {
        self.known.iter().find(|known| known.phase == SavepointPhase::Waiting).map(|known| &known.request)
    }

    /// The tasks take it.
    pub fn begun(&mut self, id: &str, checkpoint: CheckpointId, folder: String) {
        if let Some(known) = self.known.iter_mut().find(|known| known.request.id == id) {
            (known.phase, known.checkpoint, known.folder) = (SavepointPhase::InProgress, Some(checkpoint), folder);
        }
    }

    /// What was taken as this checkpoint ended: with this failure, or completed.
    pub fn ended(&mut self, checkpoint: CheckpointId, failure: Option<String>, duration_ms: u64, bytes: u64) {
        let open = |known: &&mut SavepointStatus| known.checkpoint == Some(checkpoint) && known.is_open();
        if let Some(known) = self.known.iter_mut().find(open) {
            known.phase = failure.map_or(SavepointPhase::Completed, SavepointPhase::Failed);
            (known.duration_ms, known.bytes) = (duration_ms, bytes);
        }
    }

    /// None that waits comes about.
    pub fn fail_waiting(&mut self, why: &str) {
        for known in self.known.iter_mut().filter(|known| known.phase == SavepointPhase::Waiting) {
            known.phase = SavepointPhase::Failed(why.into());
        }
    }

    /// All, newest first.
    pub fn all(&self) -> Vec<SavepointStatus> {
        self.known.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(id: &str, mode: SavepointMode) -> SavepointRequest {
        SavepointRequest { id: id.into(), directory: "file:///sp".into(), mode }
    }

    #[test]
    fn a_request_is_taken_once_and_remembered_while_there_is_room() {
        let mut savepoints = Savepoints::default();
        savepoints.request(request("a", SavepointMode::Continue), 1, None);
        savepoints.request(request("a", SavepointMode::Stop), 2, None);
        assert_eq!(savepoints.next().map(|next| next.mode), Some(SavepointMode::Continue));
        savepoints.begun("a", CheckpointId(4), "file:///sp/x".into());
        assert_eq!(savepoints.next(), None);
        savepoints.ended(CheckpointId(4), None, 5, 6);
        savepoints.ended(CheckpointId(4), Some("late".into()), 5, 6);
        assert_eq!(savepoints.find("a").map(|known| known.phase.clone()), Some(SavepointPhase::Completed));
        for number in 0..30 {
            savepoints.request(request(&number.to_string(), SavepointMode::Continue), 3, Some("no".into()));
        }
        assert_eq!(savepoints.all().len(), SAVEPOINTS_COUNT_MAX);
        assert!(savepoints.find("a").is_some(), "what was refused goes first");
        assert_eq!(savepoints.all()[0].request.id, "29");
        for number in 100..100 + SAVEPOINTS_COUNT_MAX as u64 {
            savepoints.request(request(&number.to_string(), SavepointMode::Continue), 3, None);
            savepoints.begun(&number.to_string(), CheckpointId(number), String::new());
            savepoints.ended(CheckpointId(number), None, 1, 1);
        }
        assert_eq!(savepoints.find("a"), None);
    }

    #[test]
    fn one_that_failed_ends_no_job() {
        let mut savepoints = Savepoints::default();
        savepoints.request(request("a", SavepointMode::Stop), 1, None);
        assert!(savepoints.ending().is_some());
        savepoints.fail_waiting("the attempt ended");
        assert_eq!(savepoints.ending(), None);
    }
}
