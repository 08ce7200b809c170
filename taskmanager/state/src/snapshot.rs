//! What leaves a task at a barrier: its states as pieces, which the background sorts, encodes and sends.
//!
//! The synchronous part hands over a [`StatePart`] per state. A small state is in it whole; a large one sends the rest of
//! its rows while processing goes on (see `freeze`), and the last piece is followed by `PieceSender::finish`.

use std::fmt::Debug;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::state_schema::StateSchema;

use crate::cold::ColdError;
use crate::row_codec::to_open;

/// What a state is called and what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateMeta {
    /// The operator.
    pub uid: Uid,
    /// The state's name within the operator; unique there.
    pub name: String,
    /// What it is.
    pub kind: StateKind,
    /// What it holds.
    pub schema: Arc<StateSchema>,
}

/// One state of one operator in one snapshot.
///
/// Shape of the pieces of `Keyed`: columns `key.<name>` ..., then, where the state has a namespace, `namespace` (a struct of
/// `start` and `end`, TIMESTAMP), then the values' columns; each (namespace, key) is in exactly one row of one piece, in any
/// order. Shape of `OperatorList`: one column `entry` (Utf8, not null), in order.
#[derive(Debug)]
pub struct StatePart {
    /// Name and kind.
    pub meta: StateMeta,
    /// The rows.
    pub contents: Contents,
}

/// Where the rows of a state in a snapshot are.
#[derive(Debug)]
pub enum Contents {
    /// They come as pieces.
    Pieces(PieceReader),
    /// They are in a database, under the state's name, beside other states of the operator.
    Database(Arc<dyn DatabaseSnapshot>),
}

impl From<PieceReader> for Contents {
    fn from(pieces: PieceReader) -> Self {
        Self::Pieces(pieces)
    }
}

impl StatePart {
    /// Whether its rows are in a database.
    pub fn is_in_database(&self) -> bool {
        matches!(self.contents, Contents::Database(_))
    }

    /// The rows as pieces, as the open format has them; those of a database are all read at once. Blocks: never call it on a task's thread.
    pub fn into_pieces(self) -> Result<(StateMeta, PieceReader), ColdError> {
        let database = match self.contents {
            Contents::Pieces(reader) => return Ok((self.meta, reader)),
            Contents::Database(database) => database,
        };
        let (sender, reader) = pieces();
        database.rows(&self.meta.name, &mut |rows| {
            sender.send(to_open(&self.meta.schema, &rows));
            ControlFlow::Continue(())
        })?;
        sender.finish();
        Ok((self.meta, reader))
    }
}

/// A file of a database's snapshot, in a directory that lives as long as the snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Its name in the database's directory.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Number of bytes.
    pub length: u64,
    /// Whether a later snapshot of the same database that has a file of this name has the same file.
    pub is_immutable: bool,
}

/// What is done with rows of a database; `Break` ends the visit.
pub type VisitRows<'a> = &'a mut dyn FnMut(RecordBatch) -> ControlFlow<()>;

/// A database as it was at a barrier. Its calls block until it is there: never call them on a task's thread.
///
/// Contract: dropping the last reference gives the files back.
pub trait DatabaseSnapshot: Debug + Send + Sync {
    /// Its files; a database in a directory that has just these under their names is the same one.
    fn files(&self) -> Result<Vec<SnapshotFile>, ColdError>;

    /// Visits all entries of a state, in the columns of its layout and in the order of their key groups.
    fn rows(&self, state: &str, visit: VisitRows<'_>) -> Result<(), ColdError>;

    /// Number of entries of a state, estimated.
    fn entries(&self, state: &str) -> u64;
}

/// A message on the way from a task to the background.
#[derive(Debug)]
enum PieceMessage {
    Rows(RecordBatch),
    End,
}

/// The task's end: sends pieces, never blocks.
#[derive(Debug)]
pub struct PieceSender {
    tx: Sender<PieceMessage>,
    in_flight: Arc<AtomicUsize>,
    reader_gone: Arc<AtomicBool>,
}

/// The background's end.
#[derive(Debug)]
pub struct PieceReader {
    rx: Receiver<PieceMessage>,
    in_flight: Arc<AtomicUsize>,
    reader_gone: Arc<AtomicBool>,
    ended: bool,
}

/// The task ended, or gave the snapshot up, before the last piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the task gave the snapshot up before its last piece")]
pub struct SnapshotAbandoned;

/// Connects a state to the background for one snapshot.
pub fn pieces() -> (PieceSender, PieceReader) {
    let (tx, rx) = channel();
    let in_flight = Arc::new(AtomicUsize::new(0));
    let reader_gone = Arc::new(AtomicBool::new(false));
    let sender = PieceSender { tx, in_flight: Arc::clone(&in_flight), reader_gone: Arc::clone(&reader_gone) };
    (sender, PieceReader { rx, in_flight, reader_gone, ended: false })
}

/// A state that is whole at once.
pub fn ready(rows: impl IntoIterator<Item = RecordBatch>) -> PieceReader {
    let (sender, reader) = pieces();
    for batch in rows {
        sender.send(batch);
    }
    sender.finish();
    reader
}

impl PieceSender {
    /// Pieces in flight above which the cursor should wait; rows saved before a change are sent all the same.
    pub const IN_FLIGHT_MAX: usize = 64;

    /// Sends a piece. Where the background has gone the piece is dropped: that snapshot is declined already.
    pub fn send(&self, rows: RecordBatch) {
        if rows.num_rows() > 0 {
            // Counted first: the background may take it, and subtract, before `send` returns.
            self.in_flight.fetch_add(1, Ordering::Relaxed);
            let _ = self.tx.send(PieceMessage::Rows(rows));
        }
    }

    /// Whether the cursor should wait for the background.
    pub fn is_full(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) >= Self::IN_FLIGHT_MAX
    }

    /// Whether no one reads any more: the snapshot was declined or given up, and the rest need not be sent.
    pub fn is_abandoned(&self) -> bool {
        self.reader_gone.load(Ordering::Relaxed)
    }

    /// Says that every row was sent.
    pub fn finish(self) {
        let _ = self.tx.send(PieceMessage::End);
    }
}

impl Drop for PieceReader {
    fn drop(&mut self) {
        self.reader_gone.store(true, Ordering::Relaxed);
    }
}

impl Iterator for PieceReader {
    type Item = Result<RecordBatch, SnapshotAbandoned>;

    /// Blocks for the next piece: never call it on a task's thread.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let message = self.rx.recv();
        self.ended = !matches!(message, Ok(PieceMessage::Rows(_)));
        match message {
            Ok(PieceMessage::Rows(rows)) => {
                self.in_flight.fetch_sub(1, Ordering::Relaxed);
                Some(Ok(rows))
            }
            Ok(PieceMessage::End) => None,
            Err(_) => Some(Err(SnapshotAbandoned)),
        }
    }
}
