//! Which files that several snapshots share are still needed, and which of them may go.
//!
//! A TaskManager writes its next snapshot upon the newest checkpoint that it knows complete, which may be the one before the
//! newest: so what the two newest completed checkpoints have stays, retained or not. An acknowledgement that comes with a file
//! which was deleted all the same is refused. Must never know: what is in the files.
//!
//! Invariant: a file is given up once, when the last snapshot that names it has gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use levada_common::checkpoint::{CheckpointMetadata, TaskSnapshot};

/// Completed checkpoints whose files stay, retained or not.
const RECENT_COUNT: usize = 2;

/// Deleted files that are remembered; who still builds on an older one has missed thousands of checkpoints.
const DELETED_COUNT_MAX: usize = 65_536;

/// The shared files of one job.
#[derive(Debug, Default)]
pub struct SharedFiles {
    holders: BTreeMap<String, u32>,
    /// Files of the newest completed checkpoints, oldest first.
    recent: VecDeque<Vec<String>>,
    deleted: BTreeSet<String>,
    deleted_in_order: VecDeque<String>,
}

/// The shared files that a snapshot names, each once.
fn paths(snapshot: &TaskSnapshot) -> BTreeSet<&str> {
    snapshot.states.iter().flat_map(|state| state.handle.shared_paths()).collect()
}

impl SharedFiles {
    /// A file of the snapshot that was deleted: nothing can be restored from it.
    pub fn missing<'a>(&self, snapshot: &'a TaskSnapshot) -> Option<&'a str> {
        paths(snapshot).into_iter().find(|path| self.deleted.contains(*path))
    }

    /// A snapshot was taken: its files stay until it is released.
    pub fn hold(&mut self, snapshot: &TaskSnapshot) {
        for path in paths(snapshot) {
            *self.holders.entry(path.to_owned()).or_default() += 1;
        }
    }

    /// Snapshots that were held are wanted no more. Answers the files that no one needs.
    pub fn release<'a>(&mut self, snapshots: impl IntoIterator<Item = &'a TaskSnapshot>) -> Vec<String> {
        let paths: Vec<String> = snapshots.into_iter().flat_map(paths).map(str::to_owned).collect();
        self.release_paths(paths)
    }

    /// A snapshot that was never held is not wanted. Answers those of its files that no one needs.
    pub fn refuse(&mut self, snapshot: &TaskSnapshot) -> Vec<String> {
        self.hold(snapshot);
        self.release([snapshot])
    }

    /// A checkpoint whose snapshots are held completed. Answers the files that no one needs since.
    pub fn completed(&mut self, metadata: &CheckpointMetadata) -> Vec<String> {
        let mut files = Vec::new();
        for snapshot in &metadata.tasks {
            self.hold(snapshot);
            files.extend(paths(snapshot).into_iter().map(str::to_owned));
        }
        self.recent.push_back(files);
        let oldest = if self.recent.len() > RECENT_COUNT { self.recent.pop_front() } else { None };
        oldest.map(|files| self.release_paths(files)).unwrap_or_default()
    }

    /// No further checkpoint comes. Answers the files that only one to come would have needed.
    pub fn ended(&mut self) -> Vec<String> {
        let files = std::mem::take(&mut self.recent).into_iter().flatten().collect();
        self.release_paths(files)
    }

    /// The files that snapshots name.
    pub fn held(&self) -> BTreeSet<String> {
        self.holders.keys().cloned().collect()
    }

    fn release_paths(&mut self, paths: Vec<String>) -> Vec<String> {
        let mut free = Vec::new();
        for path in paths {
            let holders = self.holders.get_mut(&path).expect("what is released was held");
            *holders -= 1;
            if *holders == 0 {
                self.holders.remove(&path);
                self.remember(path.clone());
                free.push(path);
            }
        }
        free
    }

    fn remember(&mut self, path: String) {
        if self.deleted.insert(path.clone()) {
            self.deleted_in_order.push_back(path);
        }
        if self.deleted_in_order.len() > DELETED_COUNT_MAX
            && let Some(oldest) = self.deleted_in_order.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levada_common::checkpoint::{DatabaseFile, Handle};
    use levada_common::ids::{CheckpointId, TaskId, VertexId};

    use super::*;
    use crate::testing::{attempt, snapshot};

    /// A snapshot of two states in one database with these shared files, and one of its own.
    fn database(names: &[&str]) -> TaskSnapshot {
        let file = |path: String| DatabaseFile { name: path.clone(), path, length: 1, crc32c: 0 };
        let shared = names.iter().map(|name| file(format!("shared/{name}")));
        let files: Arc<[DatabaseFile]> = shared.chain([file("chk-1/manifest".into())]).collect();
        let mut snapshot = snapshot(TaskId::new(VertexId(0), 0), "");
        let mut state = snapshot.states.remove(0);
        for family in ["a", "b"] {
            state.handle = Handle::Database { files: Arc::clone(&files), family: family.into() };
            snapshot.states.push(state.clone());
        }
        snapshot
    }

    fn checkpoint(id: u64, names: &[&str]) -> CheckpointMetadata {
        let attempt = attempt(1);
        CheckpointMetadata {
            job: attempt.job,
            epoch: attempt.epoch,
            id: CheckpointId(id),
            triggered_at_ms: 0,
            max_parallelism: 128,
            savepoint: false,
            vertices: Vec::new(),
            tasks: vec![database(names)],
        }
    }

    /// Takes a checkpoint to its end, with one retained; answers what may go.
    fn complete(shared: &mut SharedFiles, id: u64, names: &[&str], before: Option<&CheckpointMetadata>) -> Vec<String> {
        let metadata = checkpoint(id, names);
        shared.hold(&metadata.tasks[0]);
        let mut free = shared.completed(&metadata);
        free.extend(before.map(|before| shared.release(&before.tasks)).unwrap_or_default());
        free
    }

    #[test]
    fn a_file_stays_for_one_further_checkpoint() {
        let mut shared = SharedFiles::default();
        assert!(complete(&mut shared, 1, &["a", "b"], None).is_empty());
        assert!(complete(&mut shared, 2, &["b", "c"], Some(&checkpoint(1, &["a", "b"]))).is_empty(), "1 may be built on yet");
        assert_eq!(complete(&mut shared, 3, &["c"], Some(&checkpoint(2, &["b", "c"]))), ["shared/a"]);
        assert_eq!(shared.missing(&database(&["a", "d"])), Some("shared/a"));
        assert_eq!(shared.missing(&database(&["b", "d"])), None);
        assert_eq!(shared.ended(), ["shared/b"], "3 is retained and stays");
        assert_eq!(shared.release(&checkpoint(3, &["c"]).tasks), ["shared/c"]);
        assert!(shared.holders.is_empty());
    }

    #[test]
    fn what_is_refused_keeps_what_others_need() {
        let mut shared = SharedFiles::default();
        complete(&mut shared, 1, &["a"], None);
        assert_eq!(shared.refuse(&database(&["a", "new"])), ["shared/new"]);
        assert_eq!(shared.missing(&database(&["a"])), None);
    }
}
