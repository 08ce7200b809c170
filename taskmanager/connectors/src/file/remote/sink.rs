//! The task's side of a sink on an object store or HDFS.

use std::collections::HashMap;
use std::time::Duration;

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SinkSpec;
use levada_common::storage::{Staging, Storage};
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

use super::names::Names;
use super::part::RemotePart;
use super::queue::{Command, File, Queue, Unfinished};
use super::uploader::Uploader;
use crate::error::ConnectorError;
use crate::formats::ndjson::write::NdjsonEncoder;

/// Bytes of parts that wait to be stored, above which the task is held back.
const QUEUED_BYTES_MAX: usize = 2 * Staging::PART_BYTES;

/// Parts of a file, after which another is begun.
const PARTS_MAX: usize = 10_000;

/// How long a snapshot waits for its parts to be stored: no checkpoint waits longer.
const STORED_TIMEOUT: Duration = Duration::from_secs(3600);

/// How long the end of a task waits for its last files to be published.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(300);

/// Writes NDJSON to an object store or HDFS.
pub(in crate::file) struct RemoteSink {
    uid: Uid,
    folder: String,
    encoder: NdjsonEncoder,
    buffer: Vec<u8>,
    running: Option<Running>,
}

/// What an open sink has.
struct Running {
    names: Names,
    queue: Queue,
    /// The last checkpoint whose barrier has come.
    after: CheckpointId,
    next_file: u64,
    /// The file that is being written, and its parts.
    open: Option<(u64, usize)>,
    /// Files that are full, or ended by the barrier that is just being handled.
    full: Vec<u64>,
}

impl RemoteSink {
    /// A sink into the folder of this URI.
    pub fn new(spec: &SinkSpec, folder: String) -> Self {
        let encoder = NdjsonEncoder::new(&spec.input);
        Self { uid: spec.uid.clone(), folder, encoder, buffer: Vec::new(), running: None }
    }

    fn start(&mut self, context: &SinkContext, restored: &[String], storage: Storage) -> Result<(), ConnectorError> {
        let names = Names::new(&self.uid, &context.attempt, context.subtask, context.parallelism);
        let queue = Queue::new(context.waker.clone());
        let mut next_file = 0;
        for entry in restored {
            let RemotePart { checkpoint, folder, staged } = RemotePart::parse(entry)?;
            let (path, last) = (staged.path.clone(), context.restored_from);
            let file = File { folder, path, checkpoint: Some(checkpoint), staged: Some(staged), last };
            queue.add_file(next_file, file);
            next_file += 1;
        }
        // What is restored belongs to a checkpoint that is complete.
        queue.push(Command::Publish { up_to: CheckpointId(u64::MAX) });
        queue.push(Command::Clean);
        let staging = storage.staging().expect("the folder is not one of this machine");
        let uploader = Uploader {
            uid: self.uid.clone(),
            folder: self.folder.clone(),
            names: names.clone(),
            restored_from: context.restored_from,
            queue: queue.clone(),
            stagings: HashMap::from([(self.folder.clone(), staging)]),
            open: None,
        };
        // Ends when the queue is stopped, at the latest when this sink is dropped.
        tokio::spawn(uploader.run());
        let after = context.restored_from.unwrap_or(CheckpointId(0));
        self.running = Some(Running { names, queue, after, next_file, open: None, full: Vec::new() });
        Ok(())
    }

    fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("open comes first")
    }

    /// Tells the task of what failed in the background.
    fn look(&mut self) -> Result<(), EngineError> {
        match self.running().queue.failure() {
            Some(error) => Err(error.at(&self.uid, "file")),
            None => Ok(()),
        }
    }

    /// Hands the buffer over as a part.
    fn send_part(&mut self) {
        if self.buffer.is_empty() {
            return;
        }
        let part = std::mem::take(&mut self.buffer).into();
        let folder = self.folder.clone();
        let running = self.running();
        let (file, parts) = *running.open.get_or_insert_with(|| {
            let number = running.next_file;
            running.next_file += 1;
            let path = running.names.file(running.after, number);
            running.queue.add_file(number, File { folder, path, checkpoint: None, staged: None, last: None });
            (number, 0)
        });
        running.open = Some((file, parts + 1));
        running.queue.push(Command::Write { file, part });
    }
}

impl Sink for RemoteSink {
    fn open(&mut self, context: SinkContext, restored: Vec<String>) -> Result<(), EngineError> {
        let storage = Storage::open(&self.folder).map_err(|source| ConnectorError::Storage { source });
        let started = storage.and_then(|storage| self.start(&context, &restored, storage));
        started.map_err(|error| error.at(&self.uid, "file"))
    }

    fn is_ready(&mut self) -> bool {
        self.running().queue.queued_bytes() < QUEUED_BYTES_MAX
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.look()?;
        self.encoder.encode(batch, &mut self.buffer);
        if self.buffer.len() >= Staging::PART_BYTES {
            self.send_part();
            let running = self.running();
            if let Some((file, PARTS_MAX..)) = running.open {
                // Closed by the next barrier, whose file it is too.
                running.queue.push(Command::Close { file });
                running.full.push(file);
                running.open = None;
            }
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        self.look()?;
        self.send_part();
        let running = self.running();
        if let Some((file, _)) = running.open.take() {
            running.queue.push(Command::Close { file });
            running.full.push(file);
        }
        for file in running.full.drain(..) {
            running.queue.closed_by(file, checkpoint);
        }
        running.after = checkpoint;
        if !running.queue.has_files() {
            return Ok(Prepared::default());
        }
        let (queue, uid, folder) = (running.queue.clone(), self.uid.clone(), self.folder.clone());
        let late = move || match queue.stored(checkpoint, STORED_TIMEOUT) {
            Ok(parts) => Ok(parts.iter().map(RemotePart::entry).collect()),
            Err(unfinished) => Err(not_stored(&unfinished, folder).at(&uid, "file")),
        };
        Ok(Prepared { late: Some(Box::new(late)), ..Prepared::default() })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.look()?;
        let queue = &self.running().queue;
        if queue.has_files() {
            queue.push(Command::Publish { up_to: checkpoint });
        }
        if queue.has_notes() {
            queue.push(Command::Forget { complete: Some(checkpoint) });
        }
        Ok(())
    }

    fn abort(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.running().queue.give_up(checkpoint);
        Ok(())
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.running().queue.push(Command::Forget { complete: None });
        self.stop()
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        let done = self.running().queue.done(CLOSE_TIMEOUT);
        self.look()?;
        done.map_err(|unfinished| not_stored(&unfinished, self.folder.clone()).at(&self.uid, "file"))
    }

    fn discard(&mut self) {
        if let Some(running) = &self.running {
            running.queue.stop();
        }
    }
}

impl Drop for RemoteSink {
    fn drop(&mut self) {
        self.discard();
    }
}

fn not_stored(unfinished: &Unfinished, folder: String) -> ConnectorError {
    let reason = match unfinished {
        Unfinished::Failed(cause) => cause.clone(),
        Unfinished::GivenUp => "the checkpoint was given up meanwhile".into(),
        Unfinished::Late => "the storage took too long".into(),
    };
    ConnectorError::NotStored { folder, reason }
}
