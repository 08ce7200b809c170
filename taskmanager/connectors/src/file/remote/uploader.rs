//! The background of a sink: stores, publishes and removes, one thing after the other.
//!
//! What fails for a passing reason is tried again until it works or the task is gone: the task is held back meanwhile, and
//! checkpoints are declined. A lasting failure fails the task.

use std::collections::HashMap;

use bytes::Bytes;
use levada_common::fault::{Faulty, Retry};
use levada_common::ids::{CheckpointId, Uid};
use levada_common::storage::{Pauses, StagedWriter, Staging, Storage, StorageError};

use super::names::Names;
use super::queue::{Command, File, Note, Queue};
use crate::error::ConnectorError;

/// The background of one sink.
pub(super) struct Uploader {
    pub uid: Uid,
    /// URI of the sink's folder.
    pub folder: String,
    pub names: Names,
    pub restored_from: Option<CheckpointId>,
    pub queue: Queue,
    /// Staging by folder: a restored file may lie in another one than the sink's.
    pub stagings: HashMap<String, Staging>,
    /// The file that is being written.
    pub open: Option<(u64, StagedWriter)>,
}

impl Uploader {
    /// Works until the task is gone, or something fails for good.
    pub async fn run(mut self) {
        while let Some(command) = self.queue.next().await {
            let stored = if let Command::Write { part, .. } = &command { part.len() } else { 0 };
            let queue = self.queue.clone();
            let done = tokio::select! {
                done = self.perform(command) => done,
                () = queue.stopped() => break,
            };
            match done {
                Ok(()) => self.queue.finished(stored),
                Err(error) => {
                    self.queue.failed(error);
                    break;
                }
            }
        }
        // Never prepared, so nobody knows of it. What cannot be removed now is when the job is started again.
        if let Some((_, writer)) = self.open.take()
            && let Err(error) = writer.abort().await
        {
            tracing::warn!(node = %self.uid, "{error}: it is removed when the job is started again");
        }
    }

    async fn perform(&mut self, command: Command) -> Result<(), ConnectorError> {
        match command {
            Command::Write { file, part } => self.write(file, part).await,
            Command::Close { file } => self.close(file).await,
            Command::Publish { up_to } => self.publish(up_to).await,
            Command::Clean => self.clean().await,
            Command::Forget { complete } => self.forget(complete).await,
        }
    }

    async fn write(&mut self, number: u64, part: Bytes) -> Result<(), ConnectorError> {
        if self.open.is_none() {
            let file = self.queue.file(number).expect("a file is known before its first part");
            let staging = self.staging(&file.folder)?;
            let begin = until_it_works(&self.uid, || staging.begin(&file.path)).await;
            self.open = Some((number, begin.map_err(|source| ConnectorError::Storage { source })?));
        }
        let (_, writer) = self.open.as_mut().expect("opened above");
        let mut pauses = Pauses::default();
        loop {
            match writer.write(part.clone()).await {
                Ok(()) => return Ok(()),
                Err(error) if writer.can_retry() && passes(&error) => {
                    tracing::warn!(node = %self.uid, "{error}; it is tried again");
                    tokio::time::sleep(pauses.pause()).await;
                }
                Err(source) => return Err(ConnectorError::Storage { source }),
            }
        }
    }

    async fn close(&mut self, number: u64) -> Result<(), ConnectorError> {
        let (open, mut writer) = self.open.take().expect("a file is closed after its last part");
        debug_assert_eq!(open, number, "files are written one after the other");
        let staged = writer.finish().await.map_err(|source| ConnectorError::Storage { source })?;
        self.queue.staged(number, staged);
        Ok(())
    }

    async fn publish(&mut self, up_to: CheckpointId) -> Result<(), ConnectorError> {
        for (number, File { folder, path, staged, .. }) in self.queue.to_publish(up_to) {
            let (staging, staged) = (self.staging(&folder)?, staged.expect("only stored files are published"));
            let shown = format!("{}/{path}", folder.trim_end_matches('/'));
            match until_it_works(&self.uid, || staging.publish(&staged)).await {
                Ok(()) => note(&self.uid, &staging, &path).await,
                // A reader has taken it away.
                Err(StorageError::NotFound { .. }) if is_noted(&self.uid, &staging, &path).await? => {}
                Err(StorageError::NotFound { .. }) => return Err(ConnectorError::MissingUpload { path: shown }),
                Err(source) => return Err(ConnectorError::Storage { source }),
            }
            self.queue.published(number);
        }
        Ok(())
    }

    /// Removes what says of files that they were published, as far as it can be.
    async fn forget(&mut self, complete: Option<CheckpointId>) -> Result<(), ConnectorError> {
        for Note { folder, path, .. } in self.queue.to_forget(complete) {
            let staging = self.staging(&folder)?;
            if let Err(error) = until_it_works(&self.uid, || staging.forget(&path)).await {
                tracing::warn!(node = %self.uid, "{error}: it is empty, and stays behind");
            }
        }
        Ok(())
    }

    /// Lists and removes; who may not list is told once, and goes on.
    async fn clean(&mut self) -> Result<(), ConnectorError> {
        let staging = self.staging(&self.folder.clone())?;
        let leftovers = until_it_works(&self.uid, || staging.leftovers("", self.names.of_node())).await;
        let leftovers = leftovers.unwrap_or_else(|error| {
            tracing::warn!(node = %self.uid, "what older attempts left cannot be removed: {error}");
            Vec::new()
        });
        for leftover in leftovers.iter().filter(|leftover| self.names.is_leftover(&leftover.path, self.restored_from)) {
            if let Err(error) = until_it_works(&self.uid, || staging.remove(leftover)).await {
                tracing::warn!(node = %self.uid, "what an older attempt left cannot be removed: {error}");
            }
        }
        // Files of the snapshot that is restored are among them: they are asked for until the next one is complete.
        match until_it_works(&self.uid, || staging.notes("", self.names.of_node())).await {
            Ok(paths) => paths.into_iter().filter(|path| self.names.is_older(path)).for_each(|path| {
                self.queue.add_note(Note { folder: self.folder.clone(), path, last: self.restored_from });
            }),
            Err(error) => tracing::warn!(node = %self.uid, "what older attempts noted stays behind: {error}"),
        }
        Ok(())
    }

    fn staging(&mut self, folder: &str) -> Result<Staging, ConnectorError> {
        if let Some(staging) = self.stagings.get(folder) {
            return Ok(staging.clone());
        }
        let storage = Storage::open(folder).map_err(|source| ConnectorError::Storage { source })?;
        let staging = storage.staging().ok_or_else(|| ConnectorError::BadEntry {
            entry: folder.into(),
            reason: "files are not staged in a folder of this machine".into(),
        })?;
        self.stagings.insert(folder.into(), staging.clone());
        Ok(staging)
    }
}

fn passes(error: &StorageError) -> bool {
    error.retry() != Retry::Never
}

/// Notes that a file was published: a reader may take it away before a restore asks for it. No row depends on it.
async fn note(uid: &Uid, staging: &Staging, path: &str) {
    if let Err(error) = until_it_works(uid, || staging.note(path)).await {
        tracing::warn!(node = %uid, path, "{error}: a reader must not take this file away before the next checkpoint is complete");
    }
}

async fn is_noted(uid: &Uid, staging: &Staging, path: &str) -> Result<bool, ConnectorError> {
    until_it_works(uid, || staging.is_noted(path)).await.map_err(|source| ConnectorError::Storage { source })
}

/// Tries until it works, or fails for good.
async fn until_it_works<T, F>(uid: &Uid, operation: impl Fn() -> F) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    let mut pauses = Pauses::default();
    loop {
        match operation().await {
            Err(error) if passes(&error) => {
                tracing::warn!(node = %uid, "{error}; it is tried again");
                tokio::time::sleep(pauses.pause()).await;
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;
    use std::time::Duration;

    use levada_common::ids::{Attempt, AttemptId, Epoch, JobId};
    use levada_common::storage::Staged;

    use super::super::part::RemotePart;
    use super::super::queue::Unfinished;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Rig {
        storage: Storage,
        queue: Queue,
        background: tokio::task::JoinHandle<()>,
    }

    fn names(attempt: u32) -> Names {
        let attempt = AttemptId { job: JobId::from_u128(7), attempt: Attempt(attempt), epoch: Epoch(1) };
        Names::new(&Uid::new("out"), &attempt, 0, 1)
    }

    fn start(storage: &Storage, attempt: u32, restored_from: Option<CheckpointId>) -> Rig {
        let queue = Queue::new(Waker::noop().clone());
        let staging = storage.staging().expect("memory stages");
        let uploader = Uploader {
            uid: Uid::new("out"),
            folder: "memory".into(),
            names: names(attempt),
            restored_from,
            queue: queue.clone(),
            stagings: HashMap::from([("memory".into(), staging)]),
            open: None,
        };
        Rig { storage: storage.clone(), queue, background: tokio::spawn(uploader.run()) }
    }

    fn file(path: &str, checkpoint: Option<u64>, staged: Option<Staged>) -> File {
        File { folder: "memory".into(), path: path.into(), checkpoint: checkpoint.map(CheckpointId), staged, last: None }
    }

    impl Rig {
        fn write(&self, number: u64, path: &str, parts: &[&'static str]) {
            self.queue.add_file(number, file(path, None, None));
            for part in parts {
                self.queue.push(Command::Write { file: number, part: Bytes::from_static(part.as_bytes()) });
            }
        }

        fn close(&self, number: u64, checkpoint: u64) {
            self.queue.push(Command::Close { file: number });
            self.queue.closed_by(number, CheckpointId(checkpoint));
        }

        async fn stored(&self, checkpoint: u64) -> Result<Vec<RemotePart>, Unfinished> {
            let queue = self.queue.clone();
            tokio::task::spawn_blocking(move || queue.stored(CheckpointId(checkpoint), PATIENCE)).await.expect("no panic")
        }

        async fn done(&self) -> Result<(), Unfinished> {
            let queue = self.queue.clone();
            tokio::task::spawn_blocking(move || queue.done(PATIENCE)).await.expect("no panic")
        }

        async fn shown(&self) -> Vec<String> {
            self.storage.list("").await.expect("list").into_iter().map(|file| file.path).collect()
        }
    }

    #[tokio::test]
    async fn parts_are_a_file_once_they_are_published() {
        let rig = start(&Storage::in_memory(), 1, None);
        rig.write(0, "a", &["x", "y"]);
        rig.close(0, 1);
        rig.write(1, "b", &["z"]);
        rig.close(1, 2);
        let Ok(parts) = rig.stored(1).await else { panic!("stored") };
        assert_eq!(parts.iter().map(|part| (part.staged.path.as_str(), part.staged.bytes)).collect::<Vec<_>>(), [("a", 2)]);
        assert_eq!(
            rig.stored(2).await.map(|parts| parts.len()).unwrap_or_default(),
            2,
            "what is not published stays in snapshots"
        );
        rig.queue.push(Command::Publish { up_to: CheckpointId(1) });
        assert!(rig.done().await.is_ok());
        assert_eq!(rig.shown().await, [".a.published", ".b.staged", "a"]);
        assert_eq!(rig.storage.get("a").await.expect("shown"), "xy");
        assert_eq!(rig.stored(2).await.map(|parts| parts.len()).unwrap_or_default(), 1);
        assert_eq!(rig.queue.queued_bytes(), 0);
    }

    #[tokio::test]
    async fn a_checkpoint_that_is_given_up_is_not_waited_for() {
        let rig = start(&Storage::in_memory(), 1, None);
        rig.queue.add_file(0, file("a", Some(1), None));
        rig.queue.give_up(CheckpointId(1));
        assert!(matches!(rig.stored(1).await, Err(Unfinished::GivenUp)));
    }

    #[tokio::test]
    async fn the_next_attempt_publishes_what_is_restored_and_removes_what_is_not() {
        let storage = Storage::in_memory();
        let first = start(&storage, 1, None);
        let (kept, lost) = (names(1).file(CheckpointId(0), 0), names(1).file(CheckpointId(1), 1));
        first.write(0, &kept, &["kept"]);
        first.close(0, 1);
        first.write(1, &lost, &["lost"]);
        first.close(1, 2);
        let Ok(parts) = first.stored(1).await else { panic!("stored") };
        assert!(first.done().await.is_ok());
        first.queue.stop();
        first.background.await.expect("it ends with its task");

        let second = start(&storage, 2, Some(CheckpointId(1)));
        second.queue.add_file(0, file(&kept, Some(1), Some(parts[0].staged.clone())));
        second.queue.push(Command::Publish { up_to: CheckpointId(u64::MAX) });
        second.queue.push(Command::Clean);
        assert!(second.done().await.is_ok());
        assert_eq!(second.shown().await, [format!(".{kept}.published"), kept]);
        assert!(!second.queue.has_files());
    }

    #[tokio::test]
    async fn rows_that_are_gone_are_said() {
        let rig = start(&Storage::in_memory(), 2, Some(CheckpointId(1)));
        rig.queue.add_file(0, file("a", Some(1), Some(Staged { path: "a".into(), bytes: 1, upload: None })));
        rig.queue.push(Command::Publish { up_to: CheckpointId(1) });
        assert!(matches!(rig.done().await, Err(Unfinished::Failed(_))));
        let error = rig.queue.failure().expect("it is told");
        assert!(error.to_string().contains("\"memory/a\"") && error.to_string().contains("may be lost"), "{error}");
        assert_eq!(error.retry(), Retry::Never);
    }

    #[tokio::test]
    async fn a_reader_may_take_published_files_away() {
        let storage = Storage::in_memory();
        let first = start(&storage, 1, None);
        for (number, path) in [(0, "a"), (1, "b")] {
            first.write(number, path, &["x"]);
            first.close(number, number + 1);
        }
        // The barrier of the second checkpoint comes before the first one is told complete: both files are in its snapshot.
        let Ok(parts) = first.stored(2).await else { panic!("stored") };
        for checkpoint in 1..3 {
            first.queue.push(Command::Publish { up_to: CheckpointId(checkpoint) });
            first.queue.push(Command::Forget { complete: Some(CheckpointId(checkpoint)) });
        }
        assert!(first.done().await.is_ok());
        for path in ["a", "b"] {
            storage.delete(path).await.expect("taken away");
        }
        first.queue.stop();
        first.background.await.expect("it ends with its task");

        let second = start(&storage, 2, Some(CheckpointId(2)));
        for (number, part) in (0..).zip(&parts) {
            let file = file(&part.staged.path, Some(part.checkpoint.0), Some(part.staged.clone()));
            second.queue.add_file(number, File { last: Some(CheckpointId(2)), ..file });
        }
        second.queue.push(Command::Publish { up_to: CheckpointId(u64::MAX) });
        second.queue.push(Command::Forget { complete: Some(CheckpointId(2)) });
        assert!(second.done().await.is_ok(), "{:?}", second.queue.failure());
        assert_eq!(second.shown().await, [".a.published", ".b.published"]);
        second.queue.push(Command::Forget { complete: Some(CheckpointId(3)) });
        assert!(second.done().await.is_ok());
        assert_eq!(second.shown().await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn what_a_lost_attempt_noted_goes_with_the_next_checkpoint() {
        let storage = Storage::in_memory();
        let staging = storage.staging().expect("memory stages");
        let (older, newer) = (names(1).file(CheckpointId(0), 0), names(2).file(CheckpointId(0), 0));
        for path in [older.as_str(), &newer, "part-x"] {
            staging.note(path).await.expect("noted");
        }
        let second = start(&storage, 2, Some(CheckpointId(2)));
        for complete in [2, 3] {
            assert_eq!(second.shown().await.len(), 3, "before checkpoint {complete}");
            second.queue.push(Command::Clean);
            second.queue.push(Command::Forget { complete: Some(CheckpointId(complete)) });
            assert!(second.done().await.is_ok());
        }
        assert_eq!(second.shown().await, [format!(".{newer}.published"), ".part-x.published".into()]);
    }
}
