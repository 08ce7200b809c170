//! The source `rmw: { keys: K, records: N }` of the keyed-state benchmark: columns `key` and `second`, INT64.
//!
//! Records 0 to K − 1 fill: every key once, in the order n · 2654435761 mod K. Records K to K + N − 1 are measured, keys uniform.
//! Between the two every subtask waits for all of them, and the last one notes CPU time, time and resident memory. A program may
//! hold a source of one subtask: then it gives the keys that it is told to, and nothing else until it is released.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::RecordBatch;
use levada_common::declaration::CustomSource;
use levada_common::fault::{Fault, Retry};
use levada_common::ids::CheckpointId;
use levada_common::plan::SourceSpec;
use levada_common::types::{Column, LogicalType};
use levada_connectors::stripes::{self, Stripes};
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourceFactory, SourcePoll};

use crate::digest::draw;
use crate::usage;

/// Numbers of a block, as many as a batch has rows.
const BLOCK: u64 = 8192;

/// What was used up to a moment.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// The moment.
    pub at: Instant,
    /// CPU time of the process, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in bytes.
    pub rss_bytes: u64,
}

impl Usage {
    /// Now.
    pub fn now() -> Self {
        Self { at: Instant::now(), cpu_seconds: usage::cpu_seconds(), rss_bytes: usage::rss_bytes() }
    }
}

/// What the program holds of all subtasks: before record 0 and before record K.
#[derive(Debug, Default)]
pub struct Marks(Mutex<Meeting>);

#[derive(Debug, Default)]
struct Meeting {
    start: Option<Usage>,
    filled: Option<Usage>,
    arrived: u32,
    waiting: Vec<Waker>,
    /// While held: the keys that are still to be given.
    held: Option<Range<u64>>,
}

impl Meeting {
    fn wake(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }
}

impl Marks {
    fn meeting(&self) -> std::sync::MutexGuard<'_, Meeting> {
        self.0.lock().expect("no holder panics")
    }

    /// Before record 0.
    pub fn start(&self) -> Option<Usage> {
        self.meeting().start
    }

    /// Before record K.
    pub fn filled(&self) -> Option<Usage> {
        self.meeting().filled
    }

    /// Holds the source, which gives these keys once and then nothing.
    pub fn hold(&self, keys: Range<u64>) {
        let mut meeting = self.meeting();
        meeting.held = Some(keys);
        meeting.wake();
    }

    /// Lets a source that is held go on.
    pub fn go_on(&self) {
        let mut meeting = self.meeting();
        meeting.held = None;
        meeting.wake();
    }

    /// While held: whether the source has given every key that it was told to.
    pub fn is_quiet(&self) -> bool {
        self.meeting().held.as_ref().is_some_and(Range::is_empty)
    }

    /// The next of at most `most` keys that are to be given now; `None` where the source is not held.
    fn take_held(&self, most: u64, waker: &Waker) -> Option<Range<u64>> {
        let mut meeting = self.meeting();
        let held = meeting.held.as_mut()?;
        let keys = held.start..held.end.min(held.start + most);
        held.start = keys.end;
        if keys.is_empty() {
            meeting.waiting.push(waker.clone());
        }
        Some(keys)
    }

    fn begin(&self) {
        self.meeting().start.get_or_insert_with(Usage::now);
    }

    /// A subtask has given its part of the fill. Whether all of `subtasks` have.
    fn arrive(&self, first_time: bool, subtasks: u32, waker: &Waker) -> bool {
        let mut meeting = self.meeting();
        meeting.arrived += u32::from(first_time);
        if meeting.arrived < subtasks {
            meeting.waiting.push(waker.clone());
            return false;
        }
        if meeting.filled.is_none() {
            meeting.filled = Some(Usage::now());
            meeting.wake();
        }
        true
    }
}

/// The key of record `n`.
pub fn key(n: u64, keys: u64) -> i64 {
    if n < keys { (u128::from(n) * 2_654_435_761 % u128::from(keys)) as i64 } else { (((draw(n) >> 32) * keys) >> 32) as i64 }
}

/// The second column of record `n`.
pub fn second(n: u64) -> i64 {
    (draw(n) & 3) as i64
}

/// The source's declaration and factory. Its splits are those of `records` records over `keys` keys.
pub fn source(keys: u64, records: u64, marks: Arc<Marks>) -> (CustomSource, SourceFactory) {
    let declaration = CustomSource {
        name: "rmw".into(),
        options: Vec::new(),
        columns: vec![Column::new("key", LogicalType::Int64, false), Column::new("second", LogicalType::Int64, false)],
        event_time: None,
        bounded: true,
        replayable: true,
        parallelism_max: None,
        splits: stripes::list(keys + records, BLOCK),
    };
    let create = move |spec: &SourceSpec| {
        let spec = spec.clone();
        Ok(Box::new(Rmw { keys, end: keys + records, marks: Arc::clone(&marks), spec, state: None }) as Box<dyn Source>)
    };
    (declaration, Arc::new(create))
}

struct Rmw {
    keys: u64,
    end: u64,
    marks: Arc<Marks>,
    spec: SourceSpec,
    state: Option<State>,
}

struct State {
    context: SourceContext,
    stripes: Stripes,
    /// It has given its part of the fill.
    filled: bool,
    /// Everyone has.
    measured: bool,
}

impl Rmw {
    fn batch(&self, numbers: Range<u64>, key: impl Fn(u64) -> i64) -> RecordBatch {
        let columns = self.spec.schema.columns.iter().map(|column| -> ArrayRef {
            match column.name.as_str() {
                "key" => Arc::new(Int64Array::from_iter_values(numbers.clone().map(&key))),
                _ => Arc::new(Int64Array::from_iter_values(numbers.clone().map(second))),
            }
        });
        RecordBatch::try_new(self.spec.schema.to_arrow(), columns.collect()).expect("the columns are as declared")
    }
}

impl Source for Rmw {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        let stripes = Stripes::new(&splits, BLOCK, self.end).map_err(|error| EngineError::Connector {
            uid: self.spec.uid.clone(),
            connector: "rmw".into(),
            message: error.to_string(),
            fault: Fault::Internal,
            retry: Retry::Never,
        })?;
        self.marks.begin();
        self.state = Some(State { context, stripes, filled: false, measured: false });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        let state = self.state.as_mut().expect("a source is opened first");
        let (rows_max, waker) = (state.context.batch_rows_max as u64, &state.context.waker);
        match self.marks.take_held(rows_max, waker) {
            Some(keys) if keys.is_empty() => return Ok(SourcePoll::Pending),
            Some(keys) => return Ok(SourcePoll::Batch(self.batch(keys, |key| key as i64))),
            None => {}
        }
        let numbers = state.stripes.peek();
        let in_fill = numbers.as_ref().is_some_and(|numbers| numbers.start < self.keys);
        if !in_fill && !state.measured {
            let (subtasks, first_time) = (state.context.parallelism, !std::mem::replace(&mut state.filled, true));
            state.measured = self.marks.arrive(first_time, subtasks, &state.context.waker);
            if !state.measured {
                return Ok(SourcePoll::Pending);
            }
        }
        let Some(numbers) = numbers else { return Ok(SourcePoll::End) };
        let end = numbers.end.min(numbers.start + rows_max);
        let end = if in_fill { end.min(self.keys) } else { end };
        state.stripes.advance(end);
        let keys = self.keys;
        Ok(SourcePoll::Batch(self.batch(numbers.start..end, |n| key(n, keys))))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(self.state.as_ref().expect("a source is opened first").stripes.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fill_has_every_key_once() {
        for keys in [1, 7, 1000] {
            let mut filled: Vec<i64> = (0..keys).map(|n| key(n, keys)).collect();
            filled.sort_unstable();
            assert_eq!(filled, (0..keys as i64).collect::<Vec<_>>());
            assert!((keys..keys + 1000).all(|n| (0..keys as i64).contains(&key(n, keys)) && (0..4).contains(&second(n))));
        }
    }
}
