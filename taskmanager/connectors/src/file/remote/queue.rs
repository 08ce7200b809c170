//! Between the task and the background: what is to be done, in order, and what has become of each file.
//!
//! Invariant: a file is in `files` from its first part until it is published.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;
use levada_common::ids::CheckpointId;
use levada_common::storage::Staged;
use tokio::sync::Notify;

use super::part::RemotePart;
use crate::error::ConnectorError;

/// What the background is to do.
#[derive(Debug)]
pub(super) enum Command {
    /// Add a part to a file; the first one begins it.
    Write { file: u64, part: Bytes },
    /// No more parts come.
    Close { file: u64 },
    /// Publish what checkpoints up to this one have closed.
    Publish { up_to: CheckpointId },
    /// Remove what older attempts have left.
    Clean,
    /// Remove what says that files were published, which no snapshot of this checkpoint or later has; without one all of it.
    Forget { complete: Option<CheckpointId> },
}

/// A file that is not published.
#[derive(Debug, Clone)]
pub(super) struct File {
    /// URI of its folder.
    pub folder: String,
    /// Its name in there.
    pub path: String,
    /// The checkpoint whose barrier closed it.
    pub checkpoint: Option<CheckpointId>,
    /// Set once all of it is stored.
    pub staged: Option<Staged>,
    /// The newest checkpoint whose snapshot has it.
    pub last: Option<CheckpointId>,
}

/// What says that a file was published.
#[derive(Debug)]
pub(super) struct Note {
    /// URI of the file's folder.
    pub folder: String,
    /// The file's name in there.
    pub path: String,
    /// The newest checkpoint whose snapshot has the file, or may have.
    pub last: Option<CheckpointId>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Command>,
    /// Bytes of parts that are not stored.
    queued_bytes: usize,
    /// The background works on a command.
    busy: bool,
    files: BTreeMap<u64, File>,
    notes: Vec<Note>,
    failure: Option<ConnectorError>,
    /// The newest checkpoint that was given up.
    given_up: Option<CheckpointId>,
    /// The task is gone.
    stopped: bool,
}

/// The queue, shared by both sides.
#[derive(Clone)]
pub(super) struct Queue {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
    more: Arc<Notify>,
    task: Waker,
}

/// Why waiting ended without what was waited for.
pub(super) enum Unfinished {
    /// The background has failed; the task is told when it next looks.
    Failed(String),
    /// The checkpoint was given up.
    GivenUp,
    /// Time is over.
    Late,
}

impl Queue {
    pub fn new(task: Waker) -> Self {
        Self { state: Arc::default(), changed: Arc::default(), more: Arc::default(), task }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The task's side.

    /// Adds a command.
    pub fn push(&self, command: Command) {
        let mut state = self.lock();
        if let Command::Write { part, .. } = &command {
            state.queued_bytes += part.len();
        }
        state.queue.push_back(command);
        drop(state);
        self.more.notify_one();
    }

    /// Bytes that wait to be stored.
    pub fn queued_bytes(&self) -> usize {
        self.lock().queued_bytes
    }

    /// Knows a file from now on.
    pub fn add_file(&self, number: u64, file: File) {
        self.lock().files.insert(number, file);
    }

    /// Says which checkpoint has closed a file.
    pub fn closed_by(&self, number: u64, checkpoint: CheckpointId) {
        if let Some(file) = self.lock().files.get_mut(&number) {
            file.checkpoint = Some(checkpoint);
        }
    }

    /// Whether there are files that are not published.
    pub fn has_files(&self) -> bool {
        !self.lock().files.is_empty()
    }

    /// Whether something says of files that they were published.
    pub fn has_notes(&self) -> bool {
        !self.lock().notes.is_empty()
    }

    /// The failure of the background, once.
    pub fn failure(&self) -> Option<ConnectorError> {
        self.lock().failure.take()
    }

    /// Nobody waits for this checkpoint any more.
    pub fn give_up(&self, checkpoint: CheckpointId) {
        let mut state = self.lock();
        state.given_up = state.given_up.max(Some(checkpoint));
        drop(state);
        self.changed.notify_all();
    }

    /// The task is gone: the background gives up what it works on, and ends.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
        self.more.notify_one();
    }

    /// Blocks until all files that are closed by `checkpoint` and before are stored or published; answers the former.
    pub fn stored(&self, checkpoint: CheckpointId, within: Duration) -> Result<Vec<RemotePart>, Unfinished> {
        let due = |file: &&File| file.checkpoint.is_some_and(|closed_by| closed_by <= checkpoint);
        let given_up = |state: &State| state.given_up.is_some_and(|given_up| given_up >= checkpoint);
        self.wait(within, given_up, |state| state.files.values().filter(due).all(|file| file.staged.is_some()))?;
        let mut state = self.lock();
        let parts = state.files.values_mut().filter(|file| due(&&**file)).filter_map(|file| {
            file.last = file.last.max(Some(checkpoint));
            Some(RemotePart { checkpoint: file.checkpoint?, folder: file.folder.clone(), staged: file.staged.clone()? })
        });
        Ok(parts.collect())
    }

    /// Blocks until everything that was asked for is done.
    pub fn done(&self, within: Duration) -> Result<(), Unfinished> {
        self.wait(within, |_| false, |state| state.queue.is_empty() && !state.busy)
    }

    fn wait(
        &self,
        within: Duration,
        given_up: impl Fn(&State) -> bool,
        holds: impl Fn(&State) -> bool,
    ) -> Result<(), Unfinished> {
        let end = Instant::now() + within;
        let mut state = self.lock();
        loop {
            if let Some(failure) = &state.failure {
                return Err(Unfinished::Failed(failure.to_string()));
            }
            if holds(&state) {
                return Ok(());
            }
            if state.stopped || given_up(&state) {
                return Err(Unfinished::GivenUp);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Unfinished::Late);
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    // The background's side.

    /// The next command; `None` once the task is gone.
    pub async fn next(&self) -> Option<Command> {
        loop {
            {
                let mut state = self.lock();
                if state.stopped {
                    return None;
                }
                if let Some(command) = state.queue.pop_front() {
                    state.busy = true;
                    return Some(command);
                }
            }
            self.more.notified().await;
        }
    }

    /// Waits until the task is gone.
    pub async fn stopped(&self) {
        while !self.lock().stopped {
            self.more.notified().await;
        }
    }

    /// The command was done, which took `stored` bytes off the queue.
    pub fn finished(&self, stored: usize) {
        let mut state = self.lock();
        state.busy = false;
        state.queued_bytes -= stored;
        drop(state);
        self.changed.notify_all();
        self.task.wake_by_ref();
    }

    /// The background ends by this.
    pub fn failed(&self, error: ConnectorError) {
        let mut state = self.lock();
        state.failure = Some(error);
        drop(state);
        self.changed.notify_all();
        self.task.wake_by_ref();
    }

    /// A file by its number.
    pub fn file(&self, number: u64) -> Option<File> {
        self.lock().files.get(&number).cloned()
    }

    /// All of a file is stored.
    pub fn staged(&self, number: u64, staged: Staged) {
        if let Some(file) = self.lock().files.get_mut(&number) {
            file.staged = Some(staged);
        }
    }

    /// The files that are stored and were closed by `up_to` or before.
    pub fn to_publish(&self, up_to: CheckpointId) -> Vec<(u64, File)> {
        let state = self.lock();
        let due = |file: &File| file.staged.is_some() && file.checkpoint.is_some_and(|closed_by| closed_by <= up_to);
        state.files.iter().filter(|(_, file)| due(file)).map(|(number, file)| (*number, file.clone())).collect()
    }

    /// Knows what says of a file of an older attempt that it was published.
    pub fn add_note(&self, note: Note) {
        self.lock().notes.push(note);
    }

    /// A file is published, and that is noted.
    pub fn published(&self, number: u64) {
        let mut state = self.lock();
        if let Some(File { folder, path, last, .. }) = state.files.remove(&number) {
            state.notes.push(Note { folder, path, last });
        }
    }

    /// Takes what says of files that they were published which are in no snapshot of this checkpoint or later.
    pub fn to_forget(&self, complete: Option<CheckpointId>) -> Vec<Note> {
        let is_over = |note: &mut Note| complete.is_none_or(|complete| note.last < Some(complete));
        self.lock().notes.extract_if(.., is_over).collect()
    }
}
