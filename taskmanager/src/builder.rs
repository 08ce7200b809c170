//! Starts a TaskManager, with the connectors that its binary brings, and holds it while it runs.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use levada_common::config::{HostPort, TaskManagerConfig};
use levada_common::declaration::{CustomSink, CustomSource, Options};
use levada_common::function::FunctionDeclaration;
use levada_common::ids::TaskManagerId;
use levada_common::keep_alive::KeepAlive;
use levada_connectors::Registry as Connectors;
use levada_engine::function::{
    AggregateFunction, BroadcastProcessFunction, CoFlatMapFunction, CoGroupFunction, FlatMapFunction, FoldFunction,
    FunctionError, Functions, KeyedCoProcessFunction, KeyedProcessFunction, ReduceFunction, RegisteredFunction,
    RegistrationError, WindowEvictor, WindowFunction, WindowTrigger,
};
use levada_engine::sink::SinkFactory;
use levada_engine::source::SourceFactory;
use levada_engine::task::Environment;
use levada_proto::{PROTOCOL, v1};
use levada_state::keyed::HeapBudget;
use levada_state::types::StateType;
use levada_state_rocksdb::RocksdbSettings;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::allocator;
use crate::board::Board;
use crate::clock::Clock;
use crate::databases::Databases;
use crate::error::TaskManagerError;
use crate::http::{self, Pages};
use crate::manager::{Event, Manager, Tools};
use crate::metrics::ProcessFigures;
use crate::net::client::Peers;
use crate::net::registry::Registry;
use crate::net::server;
use crate::observer::Observer;
use crate::registration::Registration;
use crate::runner::Surroundings;
use crate::runtimes::Runtimes;

/// Time that tasks have to end at a shutdown.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// A TaskManager before it starts: settings, the connectors that its binary brings beside the built-in ones, and its functions.
///
/// ```no_run
/// # async fn start(config: levada_common::config::TaskManagerConfig) -> Result<(), levada_taskmanager::TaskManagerError> {
/// let task_manager = levada_taskmanager::Builder::new(config).start().await?;
/// println!("data port: {}", task_manager.data_address());
/// task_manager.shutdown().await;
/// # Ok(()) }
/// ```
pub struct Builder {
    config: TaskManagerConfig,
    connectors: Connectors,
    custom_sources: Vec<CustomSource>,
    custom_sinks: Vec<CustomSink>,
    functions: Functions,
    /// The first function that could not be registered.
    refused: Option<RegistrationError>,
    observer: Option<Arc<dyn Observer>>,
}

impl Builder {
    /// A TaskManager with these settings and the built-in connectors.
    pub fn new(config: TaskManagerConfig) -> Self {
        Self {
            config,
            connectors: levada_connectors::registry(),
            custom_sources: Vec::new(),
            custom_sinks: Vec::new(),
            functions: Functions::new(),
            refused: None,
            observer: None,
        }
    }

    /// Adds a source. Its declaration travels with the registration; one of the same name is replaced.
    pub fn source(mut self, declaration: CustomSource, factory: SourceFactory) -> Self {
        self.connectors.add_source(declaration.clone(), factory);
        self.custom_sources.retain(|known| known.name != declaration.name);
        self.custom_sources.push(declaration);
        self
    }

    /// Adds a sink. Its declaration travels with the registration; one of the same name is replaced.
    pub fn sink(mut self, declaration: CustomSink, factory: SinkFactory) -> Self {
        self.connectors.add_sink(declaration.clone(), factory);
        self.custom_sinks.retain(|known| known.name != declaration.name);
        self.custom_sinks.push(declaration);
        self
    }

    /// Adds a keyed process function, made anew for each task from the options of its node.
    ///
    /// A function's declaration travels with the registration; one of the same name is replaced. What is wrong with it is said by
    /// `start`.
    pub fn keyed_process<F: KeyedProcessFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::keyed_process(declaration, create))
    }

    /// Adds a flat map; as `keyed_process`.
    pub fn flat_map<F: FlatMapFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::flat_map(declaration, create))
    }

    /// Adds a broadcast process function; as `keyed_process`.
    pub fn broadcast_process<F: BroadcastProcessFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::broadcast_process(declaration, create))
    }

    /// Adds a keyed co-process function; as `keyed_process`.
    pub fn keyed_co_process<F: KeyedCoProcessFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::keyed_co_process(declaration, create))
    }

    /// Adds a co-flat map; as `keyed_process`.
    pub fn co_flat_map<F: CoFlatMapFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::co_flat_map(declaration, create))
    }

    /// Adds a window function; as `keyed_process`.
    pub fn window<F: WindowFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::window(declaration, create))
    }

    /// Adds a co-group function; as `keyed_process`.
    pub fn co_group<F: CoGroupFunction>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<F, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::co_group(declaration, create))
    }

    /// Adds a trigger of windows, made anew for each task from the options that stand beside its name; as `keyed_process`.
    pub fn trigger<T: WindowTrigger>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<T, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::trigger(declaration, create))
    }

    /// Adds an evictor of windows; as `trigger`.
    pub fn evictor<E: WindowEvictor>(
        self,
        declaration: FunctionDeclaration,
        create: impl Fn(&Options) -> Result<E, FunctionError> + Send + Sync + 'static,
    ) -> Self {
        self.function(RegisteredFunction::evictor(declaration, create))
    }

    /// Adds a reduce.
    pub fn reduce<F: ReduceFunction>(self, declaration: FunctionDeclaration) -> Self {
        self.function(RegisteredFunction::reduce::<F>(declaration))
    }

    /// Adds a fold.
    pub fn fold<F: FoldFunction>(self, declaration: FunctionDeclaration) -> Self {
        self.function(RegisteredFunction::fold::<F>(declaration))
    }

    /// Adds an aggregate.
    pub fn aggregate<A>(self, declaration: FunctionDeclaration) -> Self
    where
        A: AggregateFunction<Input: StateType, Output: StateType> + Default,
    {
        self.function(RegisteredFunction::aggregate::<A>(declaration))
    }

    fn function(mut self, registered: Result<RegisteredFunction, RegistrationError>) -> Self {
        match registered {
            Ok(function) => {
                self.functions.insert(function.declaration().name.clone(), function);
            }
            Err(error) => {
                self.refused.get_or_insert(error);
            }
        }
        self
    }

    /// Lets a benchmark watch.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Listens on both ports and begins to register; does not wait for the JobManager.
    ///
    /// Errors: as `TaskManagerError` says; nothing runs then.
    pub async fn start(mut self) -> Result<TaskManager, TaskManagerError> {
        self.config.storage.install();
        allocator::keep_free_memory();
        if let Some(refused) = self.refused.take() {
            return Err(TaskManagerError::Function(refused));
        }
        let (data, data_local) = listen(&self.config.bind, self.config.data_port, "taskmanager.data_port")?;
        let (http, http_local) = listen(&self.config.bind, self.config.http_port, "taskmanager.http_port")?;
        let data_address = HostPort::new(&self.config.advertise, data_local.port()).to_string();
        let runtimes = Runtimes::start()?;
        let id = TaskManagerId::generate();
        let hello = self.hello(id, &data_address)?;
        let (shutdown, tracker) = (CancellationToken::new(), TaskTracker::new());
        let (events, inbox) = unbounded_channel();
        let (registered, is_registered) = watch::channel(false);
        let (cluster_keep_alive, keep_alive) = watch::channel(KeepAlive::default());
        let (board, registry) = (Arc::new(Board::default()), Arc::new(Registry::default()));
        let databases = Arc::new(Databases::new(self.rocksdb_settings(id)));
        if let Err(error) = databases.shared() {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            tracing::warn!(%error, cause, "no job on the rocksdb backend can run here");
        }
        let tools = Tools {
            slots: self.config.slots,
            surroundings: self.surroundings(&runtimes),
            data: runtimes.data(),
            snapshots: runtimes.snapshots(),
            databases: Arc::clone(&databases),
            registry: Arc::clone(&registry),
            peers: Arc::new(Peers::new(keep_alive.clone())),
            board: Arc::clone(&board),
            events: events.clone(),
        };
        let registration = Registration {
            address: self.config.job_manager.to_string(),
            hello,
            events: events.clone(),
            board: Arc::clone(&board),
            orphan_timeout: self.config.orphan_timeout,
            ask_timeout: self.config.ask_timeout,
            registered,
            keep_alive: cluster_keep_alive,
            shutdown: shutdown.clone(),
        };
        let pages = Pages { board, registered: is_registered, figures: self.figures(), databases };
        let (control, data_runtime) = (runtimes.control(), runtimes.data());
        let stop = shutdown.clone();
        tracker.spawn_on(async move { server::serve(data.into_async(), registry, keep_alive, stop).await }, &data_runtime);
        let stop = shutdown.clone();
        tracker.spawn_on(async move { http::serve(http.into_async(), pages, stop).await }, &control);
        tracker.spawn_on(Manager::new(tools).run(inbox), &control);
        tracker.spawn_on(registration.run(), &control);
        tracker.close();
        tracing::info!(%id, data = data_address, http = %http_local, slots = self.config.slots, "TaskManager is up");
        Ok(TaskManager { id, data_address, http_address: http_local, events, shutdown, tracker, _runtimes: runtimes })
    }

    fn surroundings(&self, runtimes: &Runtimes) -> Surroundings {
        let clock = Clock::default();
        let environment = Environment {
            compiler: Arc::new(levada_sql::Compiler::new()),
            sources: self.connectors.sources.clone(),
            sinks: self.connectors.sinks.clone(),
            functions: self.functions.clone(),
            heap_budget: Arc::new(HeapBudget::new(usize::try_from(self.config.heap_state_bytes).unwrap_or(usize::MAX))),
            processing_time_zero_ms: clock.start_ms(),
        };
        Surroundings { environment: Arc::new(environment), io: runtimes.data(), clock, observer: self.observer.clone() }
    }

    fn rocksdb_settings(&self, id: TaskManagerId) -> RocksdbSettings {
        RocksdbSettings {
            data_dirs: self.config.data_dirs.clone(),
            owner: id.to_string(),
            memory_bytes: self.config.rocksdb_bytes,
            overlay_bytes: self.config.rocksdb_overlay_bytes,
            profile: self.config.rocksdb_profile,
            open_files: self.config.rocksdb_open_files,
        }
    }

    fn figures(&self) -> ProcessFigures {
        ProcessFigures {
            slots: self.config.slots,
            registered: false,
            network_memory_bytes: self.config.network_memory_bytes,
            heap_state_bytes: self.config.heap_state_bytes,
            rocksdb_bytes: self.config.rocksdb_bytes,
        }
    }

    fn hello(&self, id: TaskManagerId, data_address: &str) -> Result<v1::Hello, TaskManagerError> {
        let fail = |name: &str, source| TaskManagerError::Declaration { name: name.into(), source };
        let sources = self.custom_sources.iter();
        let sources = sources.map(|custom| serde_json::to_string(custom).map_err(|error| fail(&custom.name, error)));
        let sinks = self.custom_sinks.iter();
        let sinks = sinks.map(|custom| serde_json::to_string(custom).map_err(|error| fail(&custom.name, error)));
        let functions = self.functions.values().map(RegisteredFunction::declaration);
        let functions = functions.map(|function| serde_json::to_string(function).map_err(|error| fail(&function.name, error)));
        Ok(v1::Hello {
            task_manager_id: id.to_string(),
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: PROTOCOL,
            slots: self.config.slots,
            data_address: data_address.into(),
            memory_total_bytes: self.config.memory_total_bytes,
            network_memory_bytes: self.config.network_memory_bytes,
            heap_state_bytes: self.config.heap_state_bytes,
            custom_sources_json: sources.collect::<Result<_, _>>()?,
            custom_sinks_json: sinks.collect::<Result<_, _>>()?,
            functions_json: functions.collect::<Result<_, _>>()?,
        })
    }
}

/// A listener that no runtime has yet.
struct Listener(StdListener);

impl Listener {
    /// Contract: called on the runtime that will own it.
    fn into_async(self) -> TcpListener {
        TcpListener::from_std(self.0).expect("the listener does not block")
    }
}

fn listen(host: &str, port: u16, setting: &'static str) -> Result<(Listener, SocketAddr), TaskManagerError> {
    let fail = |source| TaskManagerError::Bind { address: HostPort::new(host, port).to_string(), setting, source };
    let listener = StdListener::bind((host, port)).map_err(fail)?;
    listener.set_nonblocking(true).map_err(fail)?;
    let address = listener.local_addr().map_err(fail)?;
    Ok((Listener(listener), address))
}

/// A TaskManager that runs. Dropping it ends it at once; its tasks' threads end on their own soon after.
pub struct TaskManager {
    id: TaskManagerId,
    data_address: String,
    http_address: SocketAddr,
    events: UnboundedSender<Event>,
    shutdown: CancellationToken,
    tracker: TaskTracker,
    _runtimes: Runtimes,
}

impl TaskManager {
    /// Its id, drawn at its start.
    pub fn id(&self) -> TaskManagerId {
        self.id
    }

    /// host:port under which other TaskManagers reach it.
    pub fn data_address(&self) -> &str {
        &self.data_address
    }

    /// Where its HTTP port listens.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address
    }

    /// Waits until everything of it has ended, which happens only after a shutdown.
    pub async fn join(&self) {
        self.tracker.wait().await;
    }

    /// Cancels its tasks, waits a while for them, leaves the JobManager and closes the ports.
    pub async fn shutdown(self) {
        let (answer, all_ended) = oneshot::channel();
        if self.events.send(Event::Shutdown(answer)).is_ok() {
            let _ = tokio::time::timeout(SHUTDOWN_PATIENCE, all_ended).await;
        }
        self.shutdown.cancel();
        let _ = tokio::time::timeout(SHUTDOWN_PATIENCE, self.join()).await;
    }
}

impl Drop for TaskManager {
    fn drop(&mut self) {
        let (answer, _) = oneshot::channel();
        let _ = self.events.send(Event::Shutdown(answer));
        self.shutdown.cancel();
    }
}

#[cfg(test)]
mod tests;
