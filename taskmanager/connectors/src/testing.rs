//! Running a connector in a test the way a task does, without a task.

use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};

use arrow::array::{AsArray, RecordBatch};
use levada_common::declaration::{Options, SourceDeclaration};
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId, Uid};
use levada_common::plan::{BadRecordPolicy, SinkSpec, SourceSpec};
use levada_common::types::{Column, StreamSchema};
use levada_engine::error::EngineError;
use levada_engine::metrics::NodeMetrics;
use levada_engine::sink::SinkContext;
use levada_engine::source::{Source, SourceContext, SourcePoll};

type Create = fn(&SourceSpec) -> Result<Box<dyn Source>, EngineError>;

/// A source node of a plan.
pub struct Node {
    pub spec: SourceSpec,
    pub splits: Vec<String>,
    create: Create,
}

/// Options out of JSON.
pub fn options(json: &str) -> Options {
    serde_json::from_str(json).expect("test options are JSON")
}

/// Remembers that the task was woken.
#[derive(Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Waits until somebody has woken the task.
    pub fn wait(&self) {
        let mut rung = self.rung.lock().expect("no test panics with the bell");
        while !*rung {
            let (guard, timeout) =
                self.changed.wait_timeout(rung, std::time::Duration::from_secs(30)).expect("no test panics with the bell");
            assert!(!timeout.timed_out(), "a source that is pending did not wake its task");
            rung = guard;
        }
        *rung = false;
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().expect("no test panics with the bell") = true;
        self.changed.notify_all();
    }
}

/// A source that was opened, and what its task would see.
pub struct Running {
    pub source: Box<dyn Source>,
    pub metrics: Arc<NodeMetrics>,
    pub bell: Arc<Bell>,
    runtime: Arc<tokio::runtime::Runtime>,
}

impl Running {
    /// The next batch, waiting for it as a task does; `None` at the end.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let _entered = self.runtime.enter();
        loop {
            match self.source.poll()? {
                SourcePoll::Begin(_) | SourcePoll::Ended(_) => {}
                SourcePoll::Batch(batch) | SourcePoll::Rows(_, batch) => {
                    assert!(batch.num_rows() > 0, "a batch is never empty");
                    return Ok(Some(batch));
                }
                SourcePoll::Pending => self.bell.wait(),
                SourcePoll::End => return Ok(None),
            }
        }
    }

    /// Everything that it says to the end, as text.
    pub fn polls(&mut self) -> Result<Vec<String>, EngineError> {
        let _entered = self.runtime.enter();
        let mut said = Vec::new();
        loop {
            match self.source.poll()? {
                SourcePoll::Begin(split) => said.push(format!("begin {}", split.0)),
                SourcePoll::Rows(split, batch) => said.push(format!("{} rows of {}", batch.num_rows(), split.0)),
                SourcePoll::Ended(split) => said.push(format!("end {}", split.0)),
                SourcePoll::Batch(batch) => said.push(format!("{} rows", batch.num_rows())),
                SourcePoll::Pending => self.bell.wait(),
                SourcePoll::End => return Ok(said),
            }
        }
    }

    /// Every batch to the end.
    pub fn drain(&mut self) -> Result<Vec<RecordBatch>, EngineError> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next()? {
            batches.push(batch);
        }
        Ok(batches)
    }

    /// Its positions.
    pub fn positions(&mut self) -> Vec<String> {
        self.source.snapshot(CheckpointId(1)).expect("positions can always be said")
    }
}

impl Node {
    /// A node with these options, as the planner would make it, with the splits that the JobManager would list.
    pub fn declared(connector: &str, declaration: SourceDeclaration, create: Create, json: &str) -> Self {
        let options = options(json);
        let shape = (declaration.read)(&options).expect("test options are right");
        let splits = (declaration.splits)(&options, 1).expect("test splits can be listed");
        let schema = StreamSchema::append(shape.columns);
        let spec =
            SourceSpec { uid: Uid::new("in"), connector: connector.into(), options, schema, bad_records: BadRecordPolicy::Fail };
        Self { spec, splits, create }
    }

    /// Only these columns; all of them where none is named.
    pub fn keep(mut self, names: &[&str]) -> Self {
        if !names.is_empty() {
            let is_kept = |column: &Column| names.contains(&column.name.as_str());
            self.spec.schema.columns.retain(is_kept);
        }
        self
    }

    pub fn with_splits(mut self, splits: Vec<String>) -> Self {
        self.splits = splits;
        self
    }

    pub fn drop_bad_records(mut self) -> Self {
        self.spec.bad_records = BadRecordPolicy::Drop;
        self
    }

    /// Opens the source on these splits.
    pub fn open(&self, splits: &[String], rows_max: usize) -> Result<Running, EngineError> {
        let runtime =
            Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime"));
        self.open_in(runtime, splits, rows_max)
    }

    fn open_in(&self, runtime: Arc<tokio::runtime::Runtime>, splits: &[String], rows_max: usize) -> Result<Running, EngineError> {
        let bell = Arc::new(Bell::default());
        let metrics = Arc::new(NodeMetrics::new(self.spec.uid.clone()));
        let context = SourceContext {
            spec: Arc::new(self.spec.clone()),
            subtask: 0,
            parallelism: 1,
            batch_rows_max: rows_max,
            buffer_timeout_ms: 100,
            metrics: metrics.clone(),
            waker: Waker::from(bell.clone()),
        };
        let mut source = (self.create)(&self.spec)?;
        {
            let _entered = runtime.enter();
            source.open(context, splits.to_vec())?;
        }
        Ok(Running { source, metrics, bell, runtime })
    }

    /// Everything that one subtask with all splits gives.
    pub fn drain(&self, rows_max: usize) -> Vec<RecordBatch> {
        self.open(&self.splits, rows_max).and_then(|mut running| running.drain()).expect("the source gives all it has")
    }

    /// Everything, read by `parallelism` subtasks that stop after `stop_after` batches each, and then by one subtask more
    /// that is restored from their positions. A list of batches per subtask and try.
    pub fn drain_restored(&self, parallelism: u32, rows_max: usize, stop_after: usize) -> Vec<Vec<RecordBatch>> {
        let runtime =
            Arc::new(tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("runtime"));
        let deal = |entries: &[String], over: usize, subtask: usize| -> Vec<String> {
            entries.iter().skip(subtask).step_by(over).cloned().collect()
        };
        let (mut runs, mut entries) = (Vec::new(), Vec::new());
        for subtask in 0..parallelism as usize {
            let splits = deal(&self.splits, parallelism as usize, subtask);
            let mut running = self.open_in(runtime.clone(), &splits, rows_max).expect("the source opens");
            let mut batches = Vec::new();
            while batches.len() < stop_after {
                let Some(batch) = running.next().expect("the source reads") else { break };
                batches.push(batch);
            }
            entries.extend(running.positions());
            runs.push(batches);
        }
        for subtask in 0..parallelism as usize + 1 {
            let splits = deal(&entries, parallelism as usize + 1, subtask);
            let mut running = self.open_in(runtime.clone(), &splits, rows_max).expect("the source opens again");
            runs.push(running.drain().expect("the source reads on"));
        }
        runs
    }
}

/// Everything that one subtask gives.
pub fn drain(node: &Node, rows_max: usize) -> Vec<RecordBatch> {
    node.drain(rows_max)
}

/// The texts of a column over batches.
pub fn texts(batches: &[RecordBatch], name: &str) -> Vec<String> {
    let columns = batches.iter().map(|batch| batch.column_by_name(name).expect(name).as_string::<i32>().clone());
    columns.flat_map(|column| column.iter().map(|text| text.expect("not null").to_owned()).collect::<Vec<_>>()).collect()
}

/// A sink node of a plan.
pub fn sink_spec(uid: &str, connector: &str, json: &str, input: StreamSchema) -> SinkSpec {
    SinkSpec {
        uid: Uid::new(uid),
        connector: connector.into(),
        options: options(json),
        input,
        bad_records: BadRecordPolicy::Fail,
    }
}

/// What a sink's task would be told: subtask, parallelism, attempt and the checkpoint it is restored from.
pub fn sink_context(spec: &SinkSpec, subtask: u32, parallelism: u32, attempt: u32, restored_from: Option<u64>) -> SinkContext {
    SinkContext {
        spec: Arc::new(spec.clone()),
        subtask,
        parallelism,
        attempt: AttemptId { job: JobId::from_u128(0xABCD_0123_4567), attempt: Attempt(attempt), epoch: Epoch(1) },
        restored_from: restored_from.map(CheckpointId),
        metrics: Arc::new(NodeMetrics::new(spec.uid.clone())),
        waker: Waker::noop().clone(),
    }
}

/// Something to write to that a test can read.
#[derive(Clone, Default)]
pub struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no test panics with the capture").clone()).expect("UTF-8")
    }
}

impl std::io::Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no test panics with the capture").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
