//! The process's three runtimes, so that none can delay another: control, data, snapshots.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::error::TaskManagerError;

/// Most worker threads of the data plane.
const DATA_WORKERS_MAX: usize = 8;

/// The runtimes. Dropping them ends what still runs on them, without waiting for it.
pub struct Runtimes {
    control: Option<Runtime>,
    data: Option<Runtime>,
    snapshots: Option<Runtime>,
}

impl Runtimes {
    /// Starts them.
    pub fn start() -> Result<Self, TaskManagerError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let make = |name: &'static str, workers: usize| {
            let runtime = Builder::new_multi_thread().worker_threads(workers).thread_name(name).enable_all().build();
            runtime.map(Some).map_err(|source| TaskManagerError::Runtime { name, source })
        };
        Ok(Self {
            control: make("levada-control", 1)?,
            data: make("levada-data", cores.clamp(1, DATA_WORKERS_MAX))?,
            snapshots: make("levada-snapshot", 1)?,
        })
    }

    /// Registration, manager, HTTP.
    pub fn control(&self) -> Handle {
        handle(&self.control)
    }

    /// Streams between TaskManagers, and the connectors' IO.
    pub fn data(&self) -> Handle {
        handle(&self.data)
    }

    /// Encoding, storing and restoring state; its blocking threads are the pool for that.
    pub fn snapshots(&self) -> Handle {
        handle(&self.snapshots)
    }
}

fn handle(runtime: &Option<Runtime>) -> Handle {
    runtime.as_ref().expect("taken only when dropped").handle().clone()
}

impl Drop for Runtimes {
    fn drop(&mut self) {
        for runtime in [&mut self.control, &mut self.data, &mut self.snapshots] {
            if let Some(runtime) = runtime.take() {
                runtime.shutdown_background();
            }
        }
    }
}
