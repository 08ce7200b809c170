//! What tests of the shell share: a small plan, test connectors, a JobManager that writes down what it is told.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use arrow::array::{ArrayRef, Int64Array};
use arrow::record_batch::RecordBatch;
use bytes::Bytes;
use futures::Stream;
use levada_common::config::RocksdbProfile;
use levada_common::declaration::Options;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId, TaskId, Uid, VertexId};
use levada_common::plan::{
    BackendKind, BadRecordPolicy, CheckpointMode, CheckpointSettings, Edge, JobSettings, PLAN_VERSION, Partition, Plan,
    RestartSettings, SinkSpec, SourceSpec, Vertex,
};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};
use levada_engine::source::{Source, SourceContext, SourcePoll};
use levada_engine::task::Environment;
use levada_proto::v1;
use levada_proto::v1::cluster_server::{Cluster, ClusterServer};
use levada_state_rocksdb::RocksdbSettings;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status, Streaming};

use crate::databases::Databases;
use crate::rpc::JobManager;

/// An attempt of the one test job.
pub fn attempt(number: u32) -> AttemptId {
    AttemptId { job: JobId::from_u128(1), attempt: Attempt(number), epoch: Epoch(1) }
}

/// The source's task, and the sink's.
pub fn task(vertex: u32, subtask: u32) -> TaskId {
    TaskId::new(VertexId(vertex), subtask)
}

/// One column `n`.
pub fn schema() -> StreamSchema {
    StreamSchema::append(vec![Column::new("n", LogicalType::Int64, false)])
}

/// Rows of it.
pub fn rows(values: impl IntoIterator<Item = i64>) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
    RecordBatch::try_new(schema().to_arrow(), vec![column]).unwrap()
}

/// Settings with checkpoints on, into memory.
pub fn settings() -> JobSettings {
    JobSettings {
        parallelism: 1,
        backend: BackendKind::Memory,
        max_state_size_bytes: 5 * 1024 * 1024,
        inline_threshold_bytes: 20 * 1024,
        checkpoint: CheckpointSettings {
            interval_ms: Some(1000),
            timeout_ms: 60_000,
            min_pause_ms: 0,
            tolerable_failures: 3,
            num_retained: 3,
            dir: None,
            mode: CheckpointMode::ExactlyOnce,
            retain: true,
        },
        restart: RestartSettings::None,
        batch_rows_max: 8192,
        buffer_timeout_ms: 100,
    }
}

/// A source vertex and a sink vertex of one subtask each, every row to the sink.
pub fn plan(settings: JobSettings, source: &str, sink: &str) -> Plan {
    let vertex = |id: u32, name: &str| Vertex {
        id: VertexId(id),
        name: name.into(),
        parallelism: 1,
        source: None,
        operators: Vec::new(),
        sink: None,
    };
    let (mut first, mut second) = (vertex(0, "numbers"), vertex(1, "out"));
    first.source = Some(SourceSpec {
        uid: Uid::new("numbers"),
        connector: source.into(),
        options: Options::new(),
        schema: schema(),
        bad_records: BadRecordPolicy::Fail,
    });
    second.sink = Some(SinkSpec {
        uid: Uid::new("out"),
        connector: sink.into(),
        options: Options::new(),
        input: schema(),
        bad_records: BadRecordPolicy::Fail,
    });
    Plan {
        version: PLAN_VERSION,
        name: "test".into(),
        settings,
        max_parallelism: 128,
        vertices: vec![first, second],
        edges: vec![Edge {
            from: VertexId(0),
            to: VertexId(1),
            input: 0,
            output: 0,
            partition: Partition::Rebalance,
            schema: schema(),
        }],
        warnings: Vec::new(),
        changelogs: std::collections::BTreeMap::new(),
    }
}

/// What a test source does once its three batches are read.
#[derive(Clone, Copy)]
enum Then {
    End,
    Wait,
    Panic,
}

struct TestSource {
    batches: VecDeque<RecordBatch>,
    then: Then,
}

impl Source for TestSource {
    fn open(&mut self, _context: SourceContext, _splits: Vec<String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        match (self.batches.pop_front(), self.then) {
            (Some(batch), _) => Ok(SourcePoll::Batch(batch)),
            (None, Then::End) => Ok(SourcePoll::End),
            (None, Then::Wait) => Ok(SourcePoll::Pending),
            (None, Then::Panic) => panic!("the test source is out of batches"),
        }
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(vec![format!("{} left", self.batches.len())])
    }
}

/// What the test sinks of one environment saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Rows written.
    pub rows: usize,
    /// Checkpoints committed.
    pub commits: Vec<CheckpointId>,
    /// Sinks discarded.
    pub discards: usize,
}

/// Where sinks block their thread while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    /// Closes or opens it.
    pub fn set_closed(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.changed.notify_all();
    }

    fn pass(&self) {
        drop(self.changed.wait_while(self.closed.lock().unwrap(), |closed| *closed).unwrap());
    }
}

struct TestSink {
    seen: Arc<Mutex<Seen>>,
    gate: Option<Arc<Gate>>,
    ready: bool,
}

impl Sink for TestSink {
    fn open(&mut self, _context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        self.ready
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        self.seen.lock().unwrap().rows += batch.num_rows();
        Ok(())
    }

    fn prepare(&mut self, checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        Ok(Prepared { entries: vec![format!("up to {checkpoint}")], ..Prepared::default() })
    }

    fn commit(&mut self, checkpoint: CheckpointId) -> Result<(), EngineError> {
        self.seen.lock().unwrap().commits.push(checkpoint);
        Ok(())
    }

    fn discard(&mut self) {
        self.seen.lock().unwrap().discards += 1;
    }
}

/// Sources `end`, `wait` and `panic`; sinks `collect`, `full` (never ready) and `stuck` (blocks its thread while `gate` is closed).
/// Databases in a folder of their own below the system's temporary one, made when the first is needed.
pub fn databases() -> Databases {
    let folder = std::env::temp_dir().join(format!("levada-test-{}", std::process::id()));
    databases_in(&folder)
}

/// Databases in `folder`.
pub fn databases_in(folder: &Path) -> Databases {
    Databases::new(RocksdbSettings {
        data_dirs: vec![folder.to_owned()],
        owner: uuid::Uuid::new_v4().to_string(),
        memory_bytes: 1 << 30,
        // Shared by all operators of a test: where rows wait for memory a top-N changes more often.
        overlay_bytes: 512 << 20,
        profile: RocksdbProfile::Default,
        open_files: Some(1 << 18),
    })
}

/// Sources and sinks that tests watch.
pub fn environment(seen: &Arc<Mutex<Seen>>, gate: &Arc<Gate>) -> Arc<Environment> {
    let mut environment = Environment {
        compiler: Arc::new(levada_sql::Compiler::new()),
        sources: BTreeMap::new(),
        sinks: BTreeMap::new(),
        functions: BTreeMap::new(),
        heap_budget: Arc::new(levada_state::keyed::HeapBudget::unlimited()),
        processing_time_zero_ms: 0,
    };
    for (name, then) in [("end", Then::End), ("wait", Then::Wait), ("panic", Then::Panic)] {
        let source = move || TestSource { batches: (0..3).map(|batch| rows(batch * 10..batch * 10 + 10)).collect(), then };
        environment.sources.insert(name.into(), Arc::new(move |_| Ok(Box::new(source()))));
    }
    for (name, ready, gate) in [("collect", true, None), ("full", false, None), ("stuck", true, Some(gate))] {
        let (seen, gate) = (Arc::clone(seen), gate.map(Arc::clone));
        let sink = move || TestSink { seen: Arc::clone(&seen), gate: gate.clone(), ready };
        environment.sinks.insert(name.into(), Arc::new(move |_| Ok(Box::new(sink()))));
    }
    Arc::new(environment)
}

/// What the test JobManager was told.
#[derive(Debug)]
pub enum Told {
    /// An acknowledgement.
    Acknowledged(v1::AcknowledgeCheckpointRequest),
    /// A decline.
    Declined(v1::DeclineCheckpointRequest),
    /// Something up the stream.
    Up(v1::FromTaskManager),
}

type Down = UnboundedSender<Result<v1::ToTaskManager, Status>>;

/// A JobManager that writes down what it is told.
pub struct TestJobManager {
    /// host:port.
    pub address: String,
    /// What it was told, in order.
    pub told: UnboundedReceiver<Told>,
    /// Whether acknowledgements are accepted.
    pub accepts: Arc<AtomicBool>,
    /// The way down of each TaskManager that registered, in order.
    pub registered: UnboundedReceiver<Down>,
    served: Served,
}

/// States that can be fetched, from number `SERVED_FROM` on.
type Served = Arc<Mutex<Vec<Bytes>>>;

const SERVED_FROM: u64 = 1 << 32;

struct Service {
    told: UnboundedSender<Told>,
    accepts: Arc<AtomicBool>,
    registered: UnboundedSender<Down>,
    served: Served,
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl Cluster for Service {
    type RegisterStream = Messages<v1::ToTaskManager>;
    type FetchStateStream = Messages<v1::StateChunk>;

    async fn register(&self, request: Request<Streaming<v1::FromTaskManager>>) -> Result<Response<Self::RegisterStream>, Status> {
        let (mut up, (down, commands)) = (request.into_inner(), unbounded_channel());
        let (told, registered) = (self.told.clone(), self.registered.clone());
        tokio::spawn(async move {
            let mut down = Some(down);
            while let Ok(Some(message)) = up.message().await {
                let _ = told.send(Told::Up(message));
                if let Some(down) = down.take() {
                    let _ = registered.send(down);
                }
            }
        });
        let commands = tokio_stream::wrappers::UnboundedReceiverStream::new(commands);
        Ok(Response::new(Box::pin(commands)))
    }

    async fn acknowledge_checkpoint(
        &self,
        request: Request<v1::AcknowledgeCheckpointRequest>,
    ) -> Result<Response<v1::AcknowledgeCheckpointResponse>, Status> {
        let _ = self.told.send(Told::Acknowledged(request.into_inner()));
        Ok(Response::new(v1::AcknowledgeCheckpointResponse { accepted: self.accepts.load(Ordering::SeqCst) }))
    }

    async fn decline_checkpoint(
        &self,
        request: Request<v1::DeclineCheckpointRequest>,
    ) -> Result<Response<v1::DeclineCheckpointResponse>, Status> {
        let _ = self.told.send(Told::Declined(request.into_inner()));
        Ok(Response::new(v1::DeclineCheckpointResponse {}))
    }

    /// Of what it does not serve, state n is n bytes of 7; all in chunks of 1 MiB. There is no state 0.
    async fn fetch_state(&self, request: Request<v1::FetchStateRequest>) -> Result<Response<Self::FetchStateStream>, Status> {
        let id = request.into_inner().inline_id;
        let served = id.checked_sub(SERVED_FROM).map(|place| self.served.lock().unwrap()[place as usize].to_vec());
        let state = served.unwrap_or_else(|| vec![7; id as usize]);
        if state.is_empty() {
            return Err(Status::not_found("no state 0"));
        }
        let chunks: Vec<_> = state.chunks(1 << 20).map(|chunk| Ok(v1::StateChunk { data: chunk.to_vec().into() })).collect();
        Ok(Response::new(Box::pin(tokio_stream::iter(chunks))))
    }
}

impl TestJobManager {
    /// Starts one.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let ((tell, told), (register, registered)) = (unbounded_channel(), unbounded_channel());
        let accepts = Arc::new(AtomicBool::new(true));
        let served = Served::default();
        let service = Service { told: tell, accepts: Arc::clone(&accepts), registered: register, served: Arc::clone(&served) };
        let service = ClusterServer::new(service).max_decoding_message_size(64 * 1024 * 1024);
        tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)));
        Self { address, told, accepts, registered, served }
    }

    /// Has these bytes to be fetched; answers their number.
    pub fn serve(&self, bytes: Bytes) -> u64 {
        let mut served = self.served.lock().unwrap();
        served.push(bytes);
        SERVED_FROM + served.len() as u64 - 1
    }

    /// Calls to it, with this frame size.
    pub fn calls(&self, frame_bytes: u64) -> JobManager {
        let connection = Endpoint::from_shared(format!("http://{}", self.address)).unwrap().connect_lazy();
        JobManager::new(connection, frame_bytes, std::time::Duration::from_secs(10))
    }
}
