//! The source `rmw: { keys: K, records: N }` of the keyed-state benchmark: columns `key` and `second`, INT64.
//!
//! Records 0 to K − 1 fill: every key once, in the order n · 2654435761 mod K. Records K to K + N − 1 are measured, keys uniform.
//! Between the two every subtask waits for all of them, and the last one notes CPU time, time and resident memory.

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
            meeting.waiting.drain(..).for_each(Waker::wake);
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
    fn batch(&self, numbers: std::ops::Range<u64>) -> RecordBatch {
        let keys = self.keys;
        let columns = self.spec.schema.columns.iter().map(|column| -> ArrayRef {
            match column.name.as_str() {
                "key" => Arc::new(Int64Array::from_iter_values(numbers.clone().map(|n| key(n, keys)))),
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
        let end = numbers.end.min(numbers.start + state.context.batch_rows_max as u64);
        let end = if in_fill { end.min(self.keys) } else { end };
        state.stripes.advance(end);
        Ok(SourcePoll::Batch(self.batch(numbers.start..end)))
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
