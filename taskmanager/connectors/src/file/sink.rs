//! Rows to files of this machine that appear exactly once, in two phases.
//!
//! A barrier closes the file that is being written; the background makes it durable; when the checkpoint is complete it gets
//! its final name. A checkpoint that is given up leaves its files to the next one, unless one could not be made durable: then the
//! task fails, and writes the rows again.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

use super::closed::{Closed, SyncFile};
use super::declaration::FileSinkOptions;
use super::durable::{create_folder, failed, remove, sync_folder};
use super::part::{Names, Part};
use super::place::Place;
use super::remote::RemoteSink;
use super::run;
use crate::error::ConnectorError;
use crate::formats::ndjson::write::NdjsonEncoder;
use crate::options::checked;

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes NDJSON into a folder of this machine.
pub struct FileSink {
    uid: Uid,
    folder: PathBuf,
    encoder: NdjsonEncoder,
    buffer: Vec<u8>,
    names: Option<Names>,
    /// The file that is being written: none before the first row after a barrier.
    open: Option<(PathBuf, File)>,
    /// Files that are closed and not published.
    prepared: Vec<Closed>,
    /// What says that files were published, and the newest checkpoint whose snapshot has the file.
    notes: Vec<(PathBuf, CheckpointId)>,
    sync: SyncFile,
}

/// Makes a sink of these options.
pub fn create(spec: &SinkSpec) -> Result<Box<dyn Sink>, EngineError> {
    let options = checked(FileSinkOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    let folder = match Place::parse(&options.path).map_err(|error| error.at(&spec.uid, &spec.connector))? {
        Place::Local(folder) => folder,
        Place::Remote(uri) => return Ok(Box::new(RemoteSink::new(spec, uri))),
    };
    Ok(Box::new(FileSink::new(spec, folder, Arc::new(File::sync_all))))
}

impl FileSink {
    fn new(spec: &SinkSpec, folder: PathBuf, sync: SyncFile) -> Self {
        Self {
            uid: spec.uid.clone(),
            folder,
            encoder: NdjsonEncoder::new(&spec.input),
            buffer: Vec::new(),
            names: None,
            open: None,
            prepared: Vec::new(),
            notes: Vec::new(),
            sync,
        }
    }

    fn failed(&self, error: ConnectorError) -> EngineError {
        error.at(&self.uid, "file")
    }

    fn start(&mut self, context: &SinkContext, restored: &[String]) -> Result<(), ConnectorError> {
        create_folder(&self.folder)?;
        let names = Names::new(&self.folder, &self.uid, &context.attempt, context.subtask);
        // What cannot be written is found out now, not after an hour of work.
        let probe = names.in_progress();
        File::create_new(&probe).map_err(|source| failed("create", &probe, source))?;
        remove(&probe)?;
        for entry in restored {
            let parts = run::parse(entry)?.into_iter();
            self.prepared.extend(parts.map(|part| Closed::restored(part, context.restored_from)));
        }
        self.publish(CheckpointId(u64::MAX))?;
        let notes = names.remove_leftovers(context.parallelism, context.restored_from)?;
        let restored_from = context.restored_from.unwrap_or(CheckpointId(0));
        self.notes.extend(notes.into_iter().map(|note| (note, restored_from)));
        self.names = Some(names);
        Ok(())
    }

    /// Publishes what checkpoints up to this one have closed.
    fn publish(&mut self, checkpoint: CheckpointId) -> Result<(), ConnectorError> {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.prepared).into_iter().partition(|closed| closed.part.checkpoint <= checkpoint);
        self.prepared = later;
        let mut folders: Vec<&PathBuf> = due.iter().map(|closed| &closed.part.folder).collect();
        folders.dedup();
        due.iter().try_for_each(|closed| closed.part.publish())?;
        folders.into_iter().try_for_each(|folder| sync_folder(folder))?;
        self.notes.extend(due.iter().map(|closed| (closed.part.note_path(), closed.last)));
        Ok(())
    }

    /// Removes what says of files that they were published, where no checkpoint before this one is restored any more; all of it
    /// where there is none.
    fn forget(&mut self, complete: Option<CheckpointId>) {
        let is_over = |last: CheckpointId| complete.is_none_or(|complete| last < complete);
        for (note, _) in self.notes.extract_if(.., |(_, last)| is_over(*last)) {
            if let Err(error) = remove(&note) {
                tracing::warn!(node = %self.uid, "{error}: it is empty, and stays behind");
            }
        }
    }

    /// Says that rows were lost on their way to the disk: the task is to write them again.
    fn check(&self) -> Result<(), ConnectorError> {
        self.prepared.iter().try_for_each(Closed::check)
    }

    fn write_buffer(&mut self) -> Result<(), ConnectorError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let (path, file) = match &mut self.open {
            Some(open) => open,
            none => {
                let path = self.names.as_ref().expect("open comes before write").in_progress();
                let file = File::create_new(&path).map_err(|source| failed("create", &path, source))?;
                none.insert((path, file))
            }
        };
        file.write_all(&self.buffer).map_err(|source| failed("write", path, source))?;
        self.buffer.clear();
        Ok(())
    }

    /// Closes the file that is being written, if there is one.
    fn close(&mut self, checkpoint: CheckpointId) -> Result<(), ConnectorError> {
        self.write_buffer()?;
        if let Some((path, file)) = self.open.take() {
            let part = self.names.as_ref().expect("open comes before prepare").part(checkpoint);
            fs::rename(&path, part.hidden_path()).map_err(|source| failed("close", &path, source))?;
            self.prepared.push(Closed::new(part, file));
        }
        Ok(())
    }
}

impl Sink for FileSink {
    fn open(&mut self, context: SinkContext, restored: Vec<String>) -> Result<(), EngineError> {
        self.start(&context, &restored).map_err(|error| self.failed(error))
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.encoder.encode(batch, &mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES {
            self.write_buffer().map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        self.check().and_then(|()| self.close(checkpoint)).map_err(|error| self.failed(error))?;
        if self.prepared.is_empty() {
            return Ok(Prepared::default());
        }
        self.prepared.iter_mut().for_each(|closed| closed.last = checkpoint);
        let parts: Vec<Part> = self.prepared.iter().map(|closed| closed.part.clone()).collect();
        let entries = run::entries(&parts);
        // Files of checkpoints that were given up are in this one too: theirs may never have become durable.
        let new: Vec<Closed> = self.prepared.iter().filter(|closed| closed.is_new()).cloned().collect();
        let (uid, sync) = (self.uid.clone(), Arc::clone(&self.sync));
        let durable = move || new.iter().try_for_each(|closed| closed.sync(&sync)).map_err(|error| error.at(&uid, "file"));
        Ok(Prepared { entries, durable: Some(Box::new(durable)), late: None })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.publish(checkpoint).and_then(|()| self.check()).map_err(|error| self.failed(error))?;
        self.forget(Some(checkpoint));
        Ok(())
    }

    fn abort(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.check().map_err(|error| self.failed(error))
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.forget(None);
        Ok(())
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        // Whoever goes on from the savepoint asks for the files.
        Ok(())
    }

    fn discard(&mut self) {
        self.buffer.clear();
        if let Some((path, _)) = self.open.take()
            && let Err(error) = remove(&path)
        {
            tracing::warn!(node = %self.uid, "{error}: it is removed when the job is started again");
        }
    }
}

#[cfg(test)]
mod tests;
