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
            self.prepared.extend(run::parse(entry)?.into_iter().map(Closed::restored));
        }
        self.publish(CheckpointId(u64::MAX))?;
        names.remove_leftovers(context.parallelism, context.restored_from)?;
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
        folders.into_iter().try_for_each(|folder| sync_folder(folder))
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
        let parts: Vec<Part> = self.prepared.iter().map(|closed| closed.part.clone()).collect();
        let entries = run::entries(&parts);
        // Files of checkpoints that were given up are in this one too: theirs may never have become durable.
        let new: Vec<Closed> = self.prepared.iter().filter(|closed| closed.is_new()).cloned().collect();
        let (uid, sync) = (self.uid.clone(), Arc::clone(&self.sync));
        let durable = move || new.iter().try_for_each(|closed| closed.sync(&sync)).map_err(|error| error.at(&uid, "file"));
        Ok(Prepared { entries, durable: Some(Box::new(durable)), late: None })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        if self.prepared.is_empty() {
            return Ok(());
        }
        self.publish(checkpoint).and_then(|()| self.check()).map_err(|error| self.failed(error))
    }

    fn abort(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.check().map_err(|error| self.failed(error))
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
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use arrow::array::Int64Array;
    use levada_common::fault::{Fault, Faulty, Retry};
    use levada_common::types::{Column, LogicalType, StreamSchema};

    use super::*;
    use crate::testing::{sink_context, sink_spec};

    /// An open sink, and the folder that it writes into.
    fn open(folder: &std::path::Path, sync: SyncFile) -> FileSink {
        let schema = StreamSchema::append(vec![Column::new("id", LogicalType::Int64, false)]);
        let spec = sink_spec("out", "file", "{}", schema);
        let mut sink = FileSink::new(&spec, folder.to_path_buf(), sync);
        sink.open(sink_context(&spec, 0, 1, 1, None), vec![]).expect("opens");
        sink
    }

    fn write(sink: &mut FileSink) {
        let schema = StreamSchema::append(vec![Column::new("id", LogicalType::Int64, false)]).to_arrow();
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1]))]).expect("a batch");
        sink.write(&batch).expect("written");
    }

    fn durable(prepared: Prepared) -> Result<(), EngineError> {
        prepared.durable.expect("there is a file")()
    }

    /// A disk that refuses the first sync, as EIO is told, and takes all others.
    fn refuses_once() -> SyncFile {
        let refusals = Mutex::new(1);
        Arc::new(move |_| {
            let mut left = refusals.lock().expect("nobody panics with it");
            let refused = *left > 0;
            *left = 0;
            if refused { Err(io::Error::from_raw_os_error(libc::EIO)) } else { Ok(()) }
        })
    }

    #[test]
    fn a_file_that_could_not_be_synced_is_written_again_and_never_published() {
        for via_abort in [true, false] {
            let dir = tempfile::tempdir().expect("a folder");
            let mut sink = open(dir.path(), refuses_once());
            write(&mut sink);
            let first = sink.prepare(CheckpointId(1)).expect("prepared");
            write(&mut sink);
            let second = sink.prepare(CheckpointId(2)).expect("what became of the first one is not known");
            assert!(durable(first).expect_err("the disk refuses").to_string().contains("os error 5"));
            durable(second).expect_err("the rows of the first checkpoint are in the second too");
            let failed = match via_abort {
                true => sink.abort(CheckpointId(1)),
                false => sink.prepare(CheckpointId(3)).map(drop),
            };
            let error = failed.expect_err("rows were lost, whatever a later sync says");
            let text = error.to_string();
            assert!(text.contains(".prepared") && text.contains("os error 5") && text.contains("written again"), "{text}");
            assert_eq!((error.fault(), error.retry()), (Fault::External, Retry::Backoff));
        }
    }

    /// What was complete before is not held back by what was lost after.
    #[test]
    fn files_before_one_that_was_lost_are_published() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut sink = open(dir.path(), Arc::new(|_| Ok(())));
        write(&mut sink);
        durable(sink.prepare(CheckpointId(1)).expect("prepared")).expect("synced");
        sink.sync = refuses_once();
        write(&mut sink);
        durable(sink.prepare(CheckpointId(2)).expect("prepared")).expect_err("the disk refuses");
        sink.commit(CheckpointId(1)).expect_err("rows were lost");
        let entries = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("listed").file_name());
        let visible = entries.filter(|name| !name.to_string_lossy().starts_with('.'));
        assert_eq!(visible.count(), 1);
    }

    /// Files that have become durable are not written to disk again with each later one.
    #[test]
    fn a_file_becomes_durable_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let syncs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&syncs);
        let mut sink = open(
            dir.path(),
            Arc::new(move |file| {
                counter.fetch_add(1, Ordering::Relaxed);
                file.sync_all()
            }),
        );
        for checkpoint in 1..=3 {
            write(&mut sink);
            durable(sink.prepare(CheckpointId(checkpoint)).expect("prepared")).expect("synced");
        }
        assert_eq!(syncs.load(Ordering::Relaxed), 3);
    }
}
