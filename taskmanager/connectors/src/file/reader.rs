//! Reading bytes, on a thread of its own: whole records of splits, in chunks, through a bounded queue.
//!
//! Knows of records only what it takes to begin and to end a split between two of them.

use std::sync::mpsc;

use memchr::memchr;
use tokio::sync::mpsc as queue;

use super::input::Input;
use super::split::FileSplit;
use crate::error::ConnectorError;
use crate::text::frame::RECORD_BYTES_MAX;

/// Bytes of a chunk.
const CHUNK_BYTES: usize = 1 << 20;

/// Chunks read ahead.
const CHUNKS_AHEAD: usize = 3;

/// Bytes looked at where a split's last record goes on beyond it.
const TAIL_BYTES: usize = 64 << 10;

/// What the reader has.
#[derive(Debug)]
pub(super) enum Event {
    /// The split of this place begins; its first record is at `position`.
    Begin { place: usize, position: u64 },
    /// Bytes of the split.
    Chunk(Vec<u8>),
    /// The split has ended.
    End,
    /// Reading failed; nothing follows.
    Failed(ConnectorError),
}

/// The task's end of a reader; the thread ends when it is dropped.
pub(super) struct Reader {
    /// What was read.
    pub events: queue::Receiver<Event>,
    /// Takes chunks back, to be filled again.
    pub spent: mpsc::Sender<Vec<u8>>,
}

/// Starts reading these splits, each with its place among the source's.
///
/// Contract: called within the shell's IO runtime, whose pool for blocking work runs it.
pub(super) fn start(splits: Vec<(usize, FileSplit)>) -> Reader {
    let (sender, events) = queue::channel(CHUNKS_AHEAD);
    let (spent, buffers) = mpsc::channel();
    tokio::task::spawn_blocking(move || {
        let mut work = Work { sender, buffers };
        for (place, split) in splits {
            match work.read(place, &split) {
                Ok(()) => {}
                Err(Stop::Dropped) => return,
                Err(Stop::Failed(error)) => {
                    // The task is gone: nobody is left to be told.
                    let _ = work.sender.blocking_send(Event::Failed(error));
                    return;
                }
            }
        }
    });
    Reader { events, spent }
}

/// Why reading stops before the end.
enum Stop {
    Dropped,
    Failed(ConnectorError),
}

struct Work {
    sender: queue::Sender<Event>,
    buffers: mpsc::Receiver<Vec<u8>>,
}

impl Work {
    fn read(&mut self, place: usize, split: &FileSplit) -> Result<(), Stop> {
        let mut input = Input::open(split).map_err(Stop::Failed)?;
        let position = match split.position {
            Some(position) => position,
            None => first_record(&mut input, split).map_err(Stop::Failed)?,
        };
        self.send(Event::Begin { place, position })?;
        let mut at = position;
        let mut last = b'\n';
        while at < split.end {
            let wanted = CHUNK_BYTES.min((split.end - at) as usize);
            let chunk = self.chunk(&mut input, split, at, wanted).map_err(Stop::Failed)?;
            let Some(byte) = chunk.last() else {
                let (path, length) = (split.path.clone(), at);
                return Err(Stop::Failed(ConnectorError::ShrunkenFile { path, length, expected: split.end }));
            };
            last = *byte;
            at += chunk.len() as u64;
            self.send(Event::Chunk(chunk))?;
        }
        // The last record may go on beyond the split; a longer one than allowed need not be read to its end.
        while last != b'\n' && at - split.end <= RECORD_BYTES_MAX as u64 + 2 {
            let mut chunk = self.chunk(&mut input, split, at, TAIL_BYTES).map_err(Stop::Failed)?;
            if chunk.is_empty() {
                break;
            }
            if let Some(end) = memchr(b'\n', &chunk) {
                chunk.truncate(end + 1);
                last = b'\n';
            }
            at += chunk.len() as u64;
            self.send(Event::Chunk(chunk))?;
        }
        self.send(Event::End)
    }

    fn send(&self, event: Event) -> Result<(), Stop> {
        self.sender.blocking_send(event).map_err(|_| Stop::Dropped)
    }

    /// At most `wanted` bytes at `at`, fewer only at the file's end.
    fn chunk(&self, input: &mut Input, split: &FileSplit, at: u64, wanted: usize) -> Result<Vec<u8>, ConnectorError> {
        let mut buffer = self.buffers.try_recv().unwrap_or_default();
        buffer.resize(wanted, 0);
        let filled = input.read_full(&split.path, &mut buffer, at)?;
        buffer.truncate(filled);
        Ok(buffer)
    }
}

/// Where the first record that begins in the split begins; the split's end where none does.
fn first_record(input: &mut Input, split: &FileSplit) -> Result<u64, ConnectorError> {
    if split.start == 0 {
        return Ok(0);
    }
    // A record begins after a line's end, so the byte before the split counts and the split's last does not.
    let mut buffer = vec![0; TAIL_BYTES];
    let (mut at, end) = (split.start - 1, split.end - 1);
    while at < end {
        let wanted = TAIL_BYTES.min((end - at) as usize);
        let filled = input.read_full(&split.path, &mut buffer[..wanted], at)?;
        if let Some(found) = memchr(b'\n', &buffer[..filled]) {
            return Ok(at + found as u64 + 1);
        }
        if filled < wanted {
            break;
        }
        at += filled as u64;
    }
    Ok(split.end)
}
