//! Splits to batches.

use std::task::{Context, Poll};

use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SourceSpec;
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourcePoll, SplitId};

use super::declaration::FileSourceOptions;
use super::reader::{self, Event, Reader};
use super::split::FileSplit;
use crate::error::ConnectorError;
use crate::options::checked;
use crate::text::reader::{Filled, RecordReader};

/// Chunks looked at in one `poll`: where all of their records are bad, or are one that is too long, the task must still get
/// to its other work.
const EVENTS_PER_POLL_MAX: usize = 16;

/// Reads its splits, one after the other or several side by side.
pub struct FileSource {
    options: FileSourceOptions,
    uid: Uid,
    opened: Option<Opened>,
}

struct Opened {
    context: SourceContext,
    splits: Vec<FileSplit>,
    lanes: Vec<Lane>,
    /// The lane to be asked next.
    next: usize,
    /// Lanes that time has not been told of, where there are several.
    untold: std::ops::Range<usize>,
}

/// Some of the splits, read one after the other beside those of the other lanes.
struct Lane {
    /// The split that is being read.
    current: Option<usize>,
    /// `None` where nothing is left to read.
    reader: Option<Reader>,
    records: RecordReader,
    ended: bool,
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

    /// The lanes in turn: what the first of them that has something has.
    fn next_of_lanes(&mut self) -> Result<SourcePoll, EngineError> {
        let opened = self.opened();
        if let Some(lane) = opened.untold.next() {
            return Ok(SourcePoll::Begin(split_id(lane)));
        }
        let count = opened.lanes.len();
        let (first, mut all_ended) = (opened.next, true);
        for lane in (first..count).chain(0..first) {
            if self.opened().lanes[lane].ended {
                continue;
            }
            self.opened().next = (lane + 1) % count;
            match self.next_batch(lane)? {
                SourcePoll::Batch(batch) if count > 1 => return Ok(SourcePoll::Rows(split_id(lane), batch)),
                SourcePoll::End if count > 1 => {
                    self.opened().lanes[lane].ended = true;
                    return Ok(SourcePoll::Ended(split_id(lane)));
                }
                SourcePoll::Pending => all_ended = false,
                other => return Ok(other),
            }
        }
        Ok(if all_ended { SourcePoll::End } else { SourcePoll::Pending })
    }

    fn next_batch(&mut self, lane: usize) -> Result<SourcePoll, EngineError> {
        for _ in 0..EVENTS_PER_POLL_MAX {
            let Opened { context, splits, lanes, .. } = self.opened();
            let Lane { current, records, .. } = &mut lanes[lane];
            if let Some(current) = *current {
                if records.fill(context, &splits[current].path.display())? == Filled::Full {
                    return self.take(lane);
                }
            } else if records.is_full() {
                return self.take(lane);
            }
            match self.next_event(lane)? {
                Step::Again => {}
                Step::Wait | Step::End if self.has_rows(lane) => return self.take(lane),
                Step::Wait => return Ok(SourcePoll::Pending),
                Step::End => return Ok(SourcePoll::End),
            }
        }
        if self.has_rows(lane) {
            return self.take(lane);
        }
        self.opened().context.waker.wake_by_ref();
        Ok(SourcePoll::Pending)
    }

    /// Takes what the lane's reader has next.
    fn next_event(&mut self, lane: usize) -> Result<Step, EngineError> {
        let Opened { context, splits, lanes, .. } = self.opened.as_mut().expect("open comes first");
        let Lane { current, reader: lane_reader, records, .. } = &mut lanes[lane];
        let Some(reader) = lane_reader else { return Ok(Step::End) };
        let event = match reader.events.poll_recv(&mut Context::from_waker(&context.waker)) {
            Poll::Pending => return Ok(Step::Wait),
            Poll::Ready(event) => event,
        };
        match event {
            Some(Event::Begin { place, position }) => {
                records.start(position);
                *current = Some(place);
            }
            Some(Event::Chunk(chunk)) => {
                let spent = records.push(chunk);
                // The reader has ended, and needs no buffers.
                let _ = reader.spent.send(spent);
            }
            Some(Event::End) => {
                let split = &mut splits[current.take().expect("a split begins before it ends")];
                records.finish(context, &split.path.display())?;
                split.position = Some(records.position().max(split.end));
            }
            Some(Event::Failed(error)) => return Err(error.at(&self.uid, "file")),
            None => *lane_reader = None,
        }
        Ok(Step::Again)
    }

    fn has_rows(&mut self, lane: usize) -> bool {
        self.opened().lanes[lane].records.has_rows()
    }

    fn take(&mut self, lane: usize) -> Result<SourcePoll, EngineError> {
        let batch = self.opened().lanes[lane].records.take();
        batch.map(SourcePoll::Batch).map_err(|error| self.failed(error))
    }
}

/// A lane, as time knows it: its splits come one after the other, so they are one to it.
fn split_id(lane: usize) -> SplitId {
    SplitId(u32::try_from(lane).expect("there are few lanes"))
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
        let count = self.options.side_by_side.min(left.len()).max(1);
        let lane = |lane: usize| {
            let mine: Vec<_> = left.iter().skip(lane).step_by(count).cloned().collect();
            let reader = (!mine.is_empty()).then(|| reader::start(mine));
            Lane { current: None, reader, records: RecordReader::new(&self.options.format, &context), ended: false }
        };
        let lanes: Vec<Lane> = (0..count).map(lane).collect();
        let untold = if count > 1 { 0..count } else { 0..0 };
        self.opened = Some(Opened { context, splits, lanes, next: 0, untold });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        self.next_of_lanes()
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        let opened = self.opened();
        for Lane { current, records, .. } in &opened.lanes {
            debug_assert!(!records.has_rows(), "rows wait only within a poll");
            if let Some(current) = *current {
                opened.splits[current].position = Some(records.position());
            }
        }
        Ok(opened.splits.iter().map(FileSplit::entry).collect())
    }
}
