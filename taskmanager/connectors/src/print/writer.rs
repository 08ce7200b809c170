//! The side of `print` that may stand still, as a paused terminal or a full pipe does: never the task's thread.
//!
//! A blocking thread of the shell's IO runtime writes what the sink hands over, in order. Invariant: pieces ahead of it are few,
//! so that a reader who stops holds the task back, and the task can be cancelled all the same.

use std::io::{self, Write};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use tokio::sync::mpsc;

/// Pieces that wait to be written.
const PIECES_MAX: usize = 4;

enum Piece {
    /// Lines.
    Lines(Vec<u8>),
    /// Everything before this is written: says so by being dropped.
    Mark(#[allow(dead_code)] std::sync::mpsc::Sender<()>),
}

/// Why writing ended.
type Failure = Arc<OnceLock<(io::ErrorKind, String)>>;

/// The task's end.
pub(super) struct Writer {
    pieces: mpsc::Sender<Piece>,
    failure: Failure,
}

/// Waits until what was handed over before it is written.
pub(super) struct Written {
    mark: std::sync::mpsc::Receiver<()>,
    failure: Failure,
}

impl Writer {
    /// Starts a thread that writes to `output` and wakes the task whenever there is room again.
    ///
    /// Contract: called within the shell's IO runtime.
    pub(super) fn start(mut output: Box<dyn Write + Send>, waker: Waker) -> Self {
        let (pieces, mut waiting) = mpsc::channel(PIECES_MAX + 1);
        let failure = Failure::default();
        let failed = Arc::clone(&failure);
        tokio::task::spawn_blocking(move || {
            while let Some(piece) = waiting.blocking_recv() {
                let written = match &piece {
                    Piece::Lines(lines) => output.write_all(lines).and_then(|()| output.flush()),
                    Piece::Mark(_) => Ok(()),
                };
                if let Err(error) = written {
                    let _ = failed.set((error.kind(), error.to_string()));
                    drop(waiting);
                    return waker.wake();
                }
                waker.wake_by_ref();
            }
        });
        Self { pieces, failure }
    }

    /// Whether there is room. One place is kept for a mark.
    pub(super) fn is_ready(&self) -> bool {
        self.pieces.is_closed() || self.pieces.capacity() > 1
    }

    /// Hands lines over. Contract: only after `is_ready`. Errors: of writing, earlier ones too.
    pub(super) fn write(&self, lines: Vec<u8>) -> io::Result<()> {
        match self.pieces.try_send(Piece::Lines(lines)) {
            Ok(()) => check(&self.failure),
            Err(_) => check(&self.failure).and_then(|()| Err(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// Errors: of writing what was handed over.
    pub(super) fn check(&self) -> io::Result<()> {
        check(&self.failure)
    }

    /// What to wait for until everything so far is written.
    pub(super) fn mark(&self) -> Written {
        let (sender, mark) = std::sync::mpsc::channel();
        let pieces = self.pieces.clone();
        // Of several marks only the first is sure to have room: another comes early where a checkpoint was given up.
        if let Err(mpsc::error::TrySendError::Full(piece)) = pieces.try_send(Piece::Mark(sender)) {
            tokio::spawn(async move { pieces.send(piece).await.is_ok() });
        }
        Written { mark, failure: Arc::clone(&self.failure) }
    }
}

impl Written {
    /// Waits. Errors: of writing.
    pub(super) fn wait(self) -> io::Result<()> {
        // The other end says nothing; it is dropped when its turn has come, or when writing has failed.
        let _ = self.mark.recv();
        check(&self.failure)
    }
}

fn check(failure: &Failure) -> io::Result<()> {
    failure.get().map_or(Ok(()), |(kind, reason)| Err(io::Error::new(*kind, reason.clone())))
}
