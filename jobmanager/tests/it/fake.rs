//! A JobManager to test, and a TaskManager that says what a test wants it to say.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use levada_common::config::{Configuration, JobManagerConfig, Layers};
use levada_common::declaration::{CustomSink, CustomSource, Declarations};
use levada_common::ids::TaskManagerId;
use levada_common::types::{Column, LogicalType};
use levada_jobmanager::{JobManager, JobManagerHandle};
use levada_proto::v1::cluster_client::ClusterClient;
use levada_proto::v1::from_task_manager::Message as Up;
use levada_proto::v1::job_manager_client::JobManagerClient;
use levada_proto::v1::to_task_manager::Message as Down;
use levada_proto::{PROTOCOL, v1};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// How long anything may take before a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A job of one source and one sink, in two vertices or one; `settings` stands under `settings:`.
pub fn graph(name: &str, settings: &str) -> String {
    format!(
        "version: 1\nname: {name}\nsettings: {{ {settings} }}\nsources:\n  numbers:\n    numbers: {{}}\n\
         sinks:\n  out:\n    inputs: [numbers]\n    nowhere: {{}}\n"
    )
}

/// Connectors of the tests: `numbers` with two splits, `nowhere`, and `missing`, whose splits cannot be listed.
pub fn declarations() -> Declarations {
    let source = CustomSource {
        name: "numbers".into(),
        options: vec!["path".into()],
        columns: vec![Column::new("n", LogicalType::Int64, false)],
        event_time: None,
        bounded: true,
        replayable: true,
        parallelism_max: None,
        splits: vec!["first".into(), "second".into()],
    };
    let sink = CustomSink { name: "nowhere".into(), options: vec!["path".into()], changelog: true, exactly_once: true };
    let mut declarations = Declarations::default();
    let mut missing = levada_common::declaration::SourceDeclaration::from(source.clone());
    missing.splits = std::sync::Arc::new(|_, _| Err("\"/no/such/file\" does not exist".into()));
    let mut numbers = levada_common::declaration::SourceDeclaration::from(source);
    numbers.path_options = vec!["path".into()];
    declarations.sources.insert("numbers".into(), numbers);
    declarations.sources.insert("missing".into(), missing);
    declarations.sinks.insert("nowhere".into(), sink.into());
    declarations
}

/// The settings of a JobManager on free ports.
pub fn config(set: &[&str]) -> JobManagerConfig {
    let mut set: Vec<String> = set.iter().map(|text| (*text).to_string()).collect();
    set.extend(["jobmanager.port=0".into(), "jobmanager.http_port=0".into()]);
    Configuration::load(&Layers { set, ..Layers::default() }).unwrap().job_manager().unwrap()
}

/// A JobManager and a client of it.
pub struct Fixture {
    pub handle: JobManagerHandle,
    pub client: JobManagerClient<Channel>,
}

impl Fixture {
    pub async fn start(set: &[&str]) -> Self {
        let handle = JobManager::start(config(set), declarations()).await.unwrap();
        let client = JobManagerClient::connect(format!("http://{}", handle.grpc_address())).await.unwrap();
        Self { handle, client }
    }

    pub async fn submit(&mut self, document: &str) -> Result<String, Status> {
        let request = v1::SubmitJobRequest { document: document.into(), document_name: "job.yaml".into(), ..Default::default() };
        Ok(self.client.submit_job(request).await?.into_inner().job_id)
    }

    pub async fn describe(&mut self, job: &str) -> v1::JobStatus {
        let request = v1::DescribeJobRequest { job: job.into() };
        self.client.describe_job(request).await.unwrap().into_inner().job.unwrap()
    }

    /// Waits until `holds` is true of the job's status.
    pub async fn wait_until(&mut self, job: &str, holds: impl Fn(&v1::JobStatus) -> bool) -> v1::JobStatus {
        let request = v1::WatchJobRequest { job: job.into(), period_ms: 100 };
        let mut statuses = self.client.watch_job(request).await.unwrap().into_inner();
        let mut last = None;
        let found = tokio::time::timeout(PATIENCE, async {
            while let Some(response) = statuses.message().await.unwrap() {
                last = response.job;
                if last.as_ref().is_some_and(&holds) {
                    return true;
                }
            }
            false
        });
        assert!(found.await.unwrap_or(false), "waited in vain; the job is {last:?}");
        last.unwrap()
    }

    pub async fn task_manager(&self, slots: u32) -> FakeTaskManager {
        FakeTaskManager::register(&self.handle, hello(slots)).await.unwrap()
    }

    /// A page of the HTTP server, read by hand.
    pub async fn http(&self, path: &str) -> String {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(self.handle.http_address()).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    }
}

/// A greeting of this release.
pub fn hello(slots: u32) -> v1::Hello {
    v1::Hello {
        task_manager_id: TaskManagerId::generate().to_string(),
        version: env!("CARGO_PKG_VERSION").into(),
        protocol: PROTOCOL,
        slots,
        data_address: "127.0.0.1:1".into(),
        memory_total_bytes: 1 << 30,
        network_memory_bytes: 1 << 28,
        heap_state_bytes: 1 << 28,
        custom_sources_json: vec![],
        custom_sinks_json: vec![],
        functions_json: vec![],
    }
}

/// A TaskManager that does nothing by itself.
pub struct FakeTaskManager {
    pub cluster: ClusterClient<Channel>,
    up: mpsc::Sender<v1::FromTaskManager>,
    down: Streaming<v1::ToTaskManager>,
    pub welcome: v1::Welcome,
    passed_over: VecDeque<Down>,
}

impl FakeTaskManager {
    pub async fn register(handle: &JobManagerHandle, hello: v1::Hello) -> Result<Self, Status> {
        let mut cluster = ClusterClient::connect(format!("http://{}", handle.grpc_address())).await.unwrap();
        let (up, rx) = mpsc::channel(16);
        up.send(v1::FromTaskManager { message: Some(Up::Hello(hello)) }).await.unwrap();
        let mut down = cluster.register(ReceiverStream::new(rx)).await?.into_inner();
        let Some(Down::Welcome(welcome)) = down.message().await?.and_then(|message| message.message) else {
            panic!("the first answer is a welcome")
        };
        Ok(Self { cluster, up, down, welcome, passed_over: VecDeque::new() })
    }

    pub async fn say(&self, message: Up) {
        self.up.send(v1::FromTaskManager { message: Some(message) }).await.unwrap();
    }

    /// The next command that `pick` takes; others are kept for later.
    async fn next<T>(&mut self, pick: impl Fn(&Down) -> Option<T>) -> T {
        if let Some(at) = self.passed_over.iter().position(|message| pick(message).is_some()) {
            return self.passed_over.remove(at).and_then(|message| pick(&message)).unwrap();
        }
        loop {
            let message = tokio::time::timeout(PATIENCE, self.down.message()).await.expect("no such command came").unwrap();
            let message = message.expect("the stream goes on").message.unwrap();
            match pick(&message) {
                Some(picked) => return picked,
                None => self.passed_over.push_back(message),
            }
        }
    }

    pub async fn deploy(&mut self) -> v1::Deploy {
        self.next(|message| if let Down::Deploy(deploy) = message { Some(deploy.clone()) } else { None }).await
    }

    pub async fn trigger(&mut self) -> v1::TriggerCheckpoint {
        self.next(|message| if let Down::Trigger(trigger) = message { Some(trigger.clone()) } else { None }).await
    }

    pub async fn notify(&mut self) -> v1::NotifyCheckpoint {
        self.next(|message| if let Down::Notify(notify) = message { Some(notify.clone()) } else { None }).await
    }

    pub async fn cancel(&mut self) -> v1::CancelAttempt {
        self.next(|message| if let Down::Cancel(cancel) = message { Some(cancel.clone()) } else { None }).await
    }

    /// The stream's end, however it comes.
    pub async fn end(&mut self) {
        let drained = async { while let Ok(Some(_)) = self.down.message().await {} };
        tokio::time::timeout(PATIENCE, drained).await.expect("the stream ends");
    }

    /// Every task of the deployment says this.
    pub async fn all(&self, deploy: &v1::Deploy, state: v1::task_event::State) {
        for task in &deploy.tasks {
            let event = v1::TaskEvent { task: Some(task_ref(deploy, task)), state: state.into(), failure: None, report: None };
            self.say(Up::TaskEvent(event)).await;
        }
    }

    /// Acknowledges a checkpoint for one task; answers whether it was taken.
    pub async fn acknowledge(
        &mut self,
        task: v1::TaskRef,
        checkpoint: u64,
        states: Vec<v1::StateHandleMessage>,
    ) -> Result<bool, Status> {
        let request = v1::AcknowledgeCheckpointRequest { task: Some(task), checkpoint, finished: false, states, sync_ns: 1 };
        Ok(self.cluster.acknowledge_checkpoint(request).await?.into_inner().accepted)
    }
}

/// A task of a deployment.
pub fn task_ref(deploy: &v1::Deploy, task: &v1::DeployTask) -> v1::TaskRef {
    v1::TaskRef { attempt: deploy.attempt.clone(), vertex: task.vertex, subtask: task.subtask }
}

/// An inline state of the source.
pub fn inline(name: &str, bytes: Bytes) -> v1::StateHandleMessage {
    v1::StateHandleMessage {
        uid: "numbers".into(),
        name: name.into(),
        kind: "operator_list".into(),
        key_group_start: 0,
        key_group_end: 127,
        rows: 2,
        crc32c: 7,
        schema_json: String::new(),
        place: Some(v1::state_handle_message::Place::Inline(bytes)),
    }
}

/// A state of the source in a file.
pub fn in_file(path: &str) -> v1::StateHandleMessage {
    let file = v1::FileHandle { path: path.into(), offset: 0, length: 4 };
    v1::StateHandleMessage { place: Some(v1::state_handle_message::Place::File(file)), ..inline("splits", Bytes::new()) }
}
