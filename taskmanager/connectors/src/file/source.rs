//! Splits to batches.

use std::task::{Context, Poll, Waker};

use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SourceSpec;
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourcePoll};

use super::declaration::FileSourceOptions;
use super::reader::{self, Event, Reader};
use super::split::FileSplit;
use crate::error::ConnectorError;
use crate::options::checked;
use crate::text::reader::{Filled, RecordReader};

/// Chunks looked at in one `poll`: where all of their records are bad, or are one that is too long, the task must still get
/// to its other work.
const EVENTS_PER_POLL_MAX: usize = 16;

/// Reads its splits one after the other.
pub struct FileSource {
    options: FileSourceOptions,
    uid: Uid,
    opened: Option<Opened>,
}

struct Opened {
    context: SourceContext,
    splits: Vec<FileSplit>,
    /// The split that is being read.
    current: Option<usize>,
    /// `None` where nothing is left to read.
    reader: Option<Reader>,
    records: RecordReader,
    waker: Waker,
}

/// Makes a source of these options.
pub fn create(spec: &SourceSpec) -> Result<Box<dyn Source>, EngineError> {
    let options = checked(FileSourceOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    Ok(Box::new(FileSource { options, uid: spec.uid.clone(), opened: None }))
}

impl FileSource {
    fn failed(&self, error: ConnectorError) -> EngineError {
        error.at(&self.uid, "file")
    }

    fn opened(&mut self) -> &mut Opened {
        self.opened.as_mut().expect("open comes first")
    }

    fn next_batch(&mut self) -> Result<SourcePoll, EngineError> {
        for _ in 0..EVENTS_PER_POLL_MAX {
            let opened = self.opened();
            if let Some(current) = opened.current {
                let place = opened.splits[current].path.display();
                if opened.records.fill(&opened.context, &place)? == Filled::Full {
                    return self.take();
                }
            } else if opened.records.is_full() {
                return self.take();
            }
            match self.next_event()? {
                Step::Again => {}
                Step::Wait if self.opened().records.has_rows() => return self.take(),
                Step::Wait => return Ok(SourcePoll::Pending),
                Step::End if self.opened().records.has_rows() => return self.take(),
                Step::End => return Ok(SourcePoll::End),
            }
        }
        if self.opened().records.has_rows() {
            return self.take();
        }
        self.opened().waker.wake_by_ref();
        Ok(SourcePoll::Pending)
    }

    /// Takes what the reader has next.
    fn next_event(&mut self) -> Result<Step, EngineError> {
        let opened = self.opened.as_mut().expect("open comes first");
        let Some(reader) = &mut opened.reader else { return Ok(Step::End) };
        let event = match reader.events.poll_recv(&mut Context::from_waker(&opened.waker)) {
            Poll::Pending => return Ok(Step::Wait),
            Poll::Ready(event) => event,
        };
        match event {
            Some(Event::Begin { place, position }) => {
                opened.records.start(position);
                opened.current = Some(place);
            }
            Some(Event::Chunk(chunk)) => {
                let spent = opened.records.push(chunk);
                // The reader has ended, and needs no buffers.
                let _ = reader.spent.send(spent);
            }
            Some(Event::End) => {
                let current = opened.current.take().expect("a split begins before it ends");
                let split = &mut opened.splits[current];
                opened.records.finish(&opened.context, &split.path.display())?;
                split.position = Some(opened.records.position().max(split.end));
            }
            Some(Event::Failed(error)) => return Err(error.at(&self.uid, "file")),
            None => opened.reader = None,
        }
        Ok(Step::Again)
    }

    fn take(&mut self) -> Result<SourcePoll, EngineError> {
        let batch = self.opened().records.take();
        batch.map(SourcePoll::Batch).map_err(|error| self.failed(error))
    }
}

/// What to do after an event.
enum Step {
    Again,
    Wait,
    End,
}

impl Source for FileSource {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        let splits: Result<Vec<FileSplit>, _> = splits.iter().map(|text| FileSplit::parse(text)).collect();
        let splits = splits.map_err(|error| self.failed(error))?;
        // Files that were read to their end are not opened: they may be gone.
        let left: Vec<(usize, FileSplit)> =
            splits.iter().cloned().enumerate().filter(|(_, split)| !split.is_finished()).collect();
        let reader = (!left.is_empty()).then(|| reader::start(left));
        let records = RecordReader::new(&self.options.format, &context);
        let waker = context.waker.clone();
        self.opened = Some(Opened { context, splits, current: None, reader, records, waker });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        self.next_batch()
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        let opened = self.opened();
        debug_assert!(!opened.records.has_rows(), "rows wait only within a poll");
        if let Some(current) = opened.current {
            opened.splits[current].position = Some(opened.records.position());
        }
        Ok(opened.splits.iter().map(FileSplit::entry).collect())
    }
}
