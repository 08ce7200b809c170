//! A source that reads a script, a sink that records.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;

use crate::error::EngineError;
use crate::sink::{Prepared, Sink, SinkContext, SinkFactory};
use crate::source::{Source, SourceContext, SourceFactory, SourcePoll};
use crate::testing::numbers;

/// What a source will give; nothing left means `Pending`.
#[derive(Clone, Default)]
pub(crate) struct Script {
    inner: Arc<Mutex<ScriptInner>>,
}

#[derive(Default)]
struct ScriptInner {
    polls: VecDeque<SourcePoll>,
    given: usize,
    opened_with: Vec<String>,
}

impl Script {
    pub(crate) fn push(&self, poll: SourcePoll) {
        self.inner.lock().unwrap().polls.push_back(poll);
    }

    pub(crate) fn opened_with(&self) -> Vec<String> {
        self.inner.lock().unwrap().opened_with.clone()
    }
}

impl Source for Script {
    fn open(&mut self, _context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        self.inner.lock().unwrap().opened_with = splits;
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        let mut inner = self.inner.lock().unwrap();
        let poll = inner.polls.pop_front().unwrap_or(SourcePoll::Pending);
        if let SourcePoll::Batch(batch) | SourcePoll::Rows(_, batch) = &poll {
            inner.given += batch.num_rows();
        }
        Ok(poll)
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(vec![format!("rows {}", self.inner.lock().unwrap().given)])
    }
}

/// The factory of sources that read `script`.
pub(crate) fn source_factory(script: &Script) -> SourceFactory {
    let script = script.clone();
    Arc::new(move |_| Ok(Box::new(script.clone())))
}

/// What a sink was told.
#[derive(Clone, Default)]
pub(crate) struct SinkLog {
    inner: Arc<Mutex<SinkInner>>,
}

#[derive(Default)]
struct SinkInner {
    rows: Vec<i64>,
    prepared: Vec<u64>,
    committed: Vec<u64>,
    aborted: Vec<u64>,
    ends: Vec<&'static str>,
    flushes: usize,
    discards: usize,
    opened_with: Vec<String>,
    refuses: bool,
}

impl SinkLog {
    pub(crate) fn rows(&self) -> Vec<i64> {
        self.inner.lock().unwrap().rows.clone()
    }

    pub(crate) fn committed(&self) -> Vec<u64> {
        self.inner.lock().unwrap().committed.clone()
    }

    pub(crate) fn aborted(&self) -> Vec<u64> {
        self.inner.lock().unwrap().aborted.clone()
    }

    pub(crate) fn ends(&self) -> Vec<&'static str> {
        self.inner.lock().unwrap().ends.clone()
    }

    pub(crate) fn flushes(&self) -> usize {
        self.inner.lock().unwrap().flushes
    }

    pub(crate) fn discards(&self) -> usize {
        self.inner.lock().unwrap().discards
    }

    pub(crate) fn opened_with(&self) -> Vec<String> {
        self.inner.lock().unwrap().opened_with.clone()
    }

    pub(crate) fn set_ready(&self, ready: bool) {
        self.inner.lock().unwrap().refuses = !ready;
    }
}

impl Sink for SinkLog {
    fn open(&mut self, _context: SinkContext, restored: Vec<String>) -> Result<(), EngineError> {
        self.inner.lock().unwrap().opened_with = restored;
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        !self.inner.lock().unwrap().refuses
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.inner.lock().unwrap().rows.extend(numbers(batch));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        self.inner.lock().unwrap().flushes += 1;
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        let mut inner = self.inner.lock().unwrap();
        inner.prepared.push(checkpoint.0);
        let entries = vec![format!("rows {}", inner.rows.len())];
        Ok(Prepared { entries, durable: Some(Box::new(|| Ok(()))), late: None })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.inner.lock().unwrap().committed.push(checkpoint.0);
        Ok(())
    }

    fn abort(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.inner.lock().unwrap().aborted.push(checkpoint.0);
        Ok(())
    }

    fn close(&mut self) -> Result<(), EngineError> {
        self.inner.lock().unwrap().ends.push("closed");
        Ok(())
    }

    fn stop(&mut self) -> Result<(), EngineError> {
        self.inner.lock().unwrap().ends.push("stopped");
        Ok(())
    }

    fn discard(&mut self) {
        self.inner.lock().unwrap().discards += 1;
    }
}

/// The factory of sinks that write to `log`.
pub(crate) fn sink_factory(log: &SinkLog) -> SinkFactory {
    let log = log.clone();
    Arc::new(move |_| Ok(Box::new(log.clone())))
}
