//! Rows to files of this machine that appear exactly once, in two phases.
//!
//! A barrier closes the file that is being written; the background makes it durable; when the checkpoint is complete it gets
//! its final name. A checkpoint that is given up leaves its files to the next one.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

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
    /// Files that are closed and not published, and whether they have become durable.
    prepared: Vec<(Part, Arc<AtomicBool>)>,
}

/// Makes a sink of these options.
pub fn create(spec: &SinkSpec) -> Result<Box<dyn Sink>, EngineError> {
    let options = checked(FileSinkOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    let folder = match Place::parse(&options.path).map_err(|error| error.at(&spec.uid, &spec.connector))? {
        Place::Local(folder) => folder,
        Place::Remote(uri) => return Ok(Box::new(RemoteSink::new(spec, uri))),
    };
    Ok(Box::new(FileSink {
        uid: spec.uid.clone(),
        folder,
        encoder: NdjsonEncoder::new(&spec.input),
        buffer: Vec::new(),
        names: None,
        open: None,
        prepared: Vec::new(),
    }))
}

impl FileSink {
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
            self.prepared.extend(run::parse(entry)?.into_iter().map(|part| (part, Arc::new(AtomicBool::new(true)))));
        }
        self.publish(CheckpointId(u64::MAX))?;
        names.remove_leftovers(context.parallelism, context.restored_from)?;
        self.names = Some(names);
        Ok(())
    }

    /// Publishes what checkpoints up to this one have closed.
    fn publish(&mut self, checkpoint: CheckpointId) -> Result<(), ConnectorError> {
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.prepared).into_iter().partition(|(part, _)| part.checkpoint <= checkpoint);
        self.prepared = later;
        let mut folders: Vec<&PathBuf> = due.iter().map(|(part, _)| &part.folder).collect();
        folders.dedup();
        due.iter().try_for_each(|(part, _)| part.publish())?;
        folders.into_iter().try_for_each(|folder| sync_folder(folder))
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
            drop(file);
            let part = self.names.as_ref().expect("open comes before prepare").part(checkpoint);
            fs::rename(&path, part.hidden_path()).map_err(|source| failed("close", &path, source))?;
            self.prepared.push((part, Arc::default()));
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
        self.close(checkpoint).map_err(|error| self.failed(error))?;
        if self.prepared.is_empty() {
            return Ok(Prepared::default());
        }
        let parts: Vec<Part> = self.prepared.iter().map(|(part, _)| part.clone()).collect();
        let entries = run::entries(&parts);
        // Files of checkpoints that were given up are in this one too: theirs may never have become durable.
        let is_new = |(_, durable): &&(Part, Arc<AtomicBool>)| !durable.load(Ordering::Acquire);
        let new: Vec<(Part, Arc<AtomicBool>)> = self.prepared.iter().filter(is_new).cloned().collect();
        let uid = self.uid.clone();
        let durable = move || {
            let synced = new.iter().try_for_each(|(part, _)| part.sync());
            let folders = new.first().map_or(Ok(()), |(part, _)| sync_folder(&part.folder));
            synced.and(folders).map_err(|error| error.at(&uid, "file"))?;
            new.iter().for_each(|(_, durable)| durable.store(true, Ordering::Release));
            Ok(())
        };
        Ok(Prepared { entries, durable: Some(Box::new(durable)), late: None })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        if self.prepared.is_empty() {
            return Ok(());
        }
        self.publish(checkpoint).map_err(|error| self.failed(error))
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
