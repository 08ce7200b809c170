//! Visiting entries: a thread of its own reads ahead of whoever asks, from a view of the moment of the call.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use arrow::record_batch::RecordBatch;
use levada_state::cold::ColdError;
use levada_state::row_codec::RowReader;

use crate::database::{Database, Family};
use crate::load::bad_entry;
use crate::options::long_read;

/// Batches that are read ahead.
const AHEAD: usize = 2;

/// Bounds of keys: the first, and not included, the last.
pub type Bounds = (Vec<u8>, Vec<u8>);

/// What the thread sends: a batch, or at the end nothing.
type Message = Result<Option<RecordBatch>, ColdError>;

/// A scan that runs.
pub struct RunningScan {
    // Dropped before the thread is joined: it ends where nobody takes what it reads.
    batches: Option<Receiver<Message>>,
    thread: Option<JoinHandle<()>>,
    database: Arc<Database>,
    state: String,
}

impl RunningScan {
    /// Begins to read the entries between these bounds; the view is taken before this returns.
    ///
    /// Errors: `Read`: no thread can be had.
    pub fn start(database: &Arc<Database>, family: &Arc<Family>, ranges: Vec<Bounds>) -> Result<Self, ColdError> {
        let (tx, batches) = sync_channel(AHEAD);
        let (begun, has_begun) = sync_channel::<()>(0);
        let (own, of_family) = (Arc::clone(database), Arc::clone(family));
        let work = move || {
            let sent = read(&own, &of_family, &ranges, begun, &tx);
            let _ = tx.send(sent.map(|()| None));
        };
        let thread = thread::Builder::new().name("levada-scan".into()).spawn(work);
        let thread = thread.map_err(|error| database.read_error(&family.state, Arc::new(error)))?;
        // Nothing is ever sent: it ends when the view is taken.
        let _ = has_begun.recv();
        let (database, state) = (Arc::clone(database), family.state.clone());
        Ok(Self { batches: Some(batches), thread: Some(thread), database, state })
    }
}

/// The thread's work. It ends early where nobody takes the batches.
fn read(
    database: &Database,
    family: &Family,
    ranges: &[Bounds],
    begun: SyncSender<()>,
    tx: &SyncSender<Message>,
) -> Result<(), ColdError> {
    let mut entries = database.db.raw_iterator_cf_opt(&database.handle(&family.family), long_read());
    drop(begun);
    let mut reader = RowReader::whole(&family.layout);
    for (first, end) in ranges {
        entries.seek(first);
        while let Some((key, value)) = entries.item().filter(|(key, _)| *key < end.as_slice()) {
            reader.push(0, key, value).map_err(|error| bad_entry(database, family, error))?;
            if reader.is_full() && tx.send(Ok(Some(reader.finish()))).is_err() {
                return Ok(());
            }
            entries.next();
        }
        entries.status().map_err(|error| database.read_error(&family.state, Arc::new(error)))?;
    }
    if reader.rows() > 0 {
        let _ = tx.send(Ok(Some(reader.finish())));
    }
    Ok(())
}

impl Iterator for RunningScan {
    type Item = Result<RecordBatch, ColdError>;

    fn next(&mut self) -> Option<Self::Item> {
        let message = self.batches.as_ref()?.recv();
        let batch = message.unwrap_or_else(|_| {
            // A panic of the thread must not look like the end of the state.
            let error = std::io::Error::other("the thread of a scan ended early");
            Err(self.database.read_error(&self.state, Arc::new(error)))
        });
        if !matches!(batch, Ok(Some(_))) {
            self.batches = None;
        }
        batch.transpose()
    }
}

impl Drop for RunningScan {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been said, and answered by `next`.
            let _ = thread.join();
        }
    }
}
