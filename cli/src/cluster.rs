//! The embedded cluster: JobManager and TaskManagers of this process, on loopback, through the same ports as anywhere.

use std::net::SocketAddr;

use anyhow::{Context, bail};
use levada_common::config::{Configuration, Layers};
use levada_jobmanager::{JobManager, JobManagerHandle};
use levada_proto::v1::JobStatus;
use levada_taskmanager::{Builder, TaskManager};

use crate::client::Client;

/// How long TaskManagers may take to register.
const REGISTER_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// Between two looks at who is registered.
const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(5);

/// What to embed.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// TaskManagers.
    pub task_managers: u32,
    /// Slots of each.
    pub slots: u32,
    /// Further settings, `key=value`.
    pub settings: Vec<String>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self { task_managers: 1, slots: 1, settings: Vec::new() }
    }
}

/// A running cluster in this process.
pub struct Embedded {
    address: String,
    job_manager: JobManagerHandle,
    task_managers: Vec<TaskManager>,
}

impl Embedded {
    /// Starts a cluster on free ports of loopback and waits until its TaskManagers are registered; `customise` adds a caller's
    /// own sources and sinks to each TaskManager.
    pub async fn start(options: EmbeddedOptions, customise: impl Fn(Builder) -> Builder) -> anyhow::Result<Self> {
        let configuration = |extra: &[String]| {
            let ports = ["jobmanager.port", "jobmanager.http_port", "taskmanager.data_port", "taskmanager.http_port"];
            let mut set: Vec<String> = ports.iter().map(|port| format!("{port}=0")).collect();
            set.extend_from_slice(&options.settings);
            set.extend_from_slice(extra);
            Configuration::load(&Layers::of_process(None, set))
        };
        let declarations = levada_connectors::registry().declarations;
        let job_manager = JobManager::start(configuration(&[])?.job_manager()?, declarations).await?;
        let address = job_manager.grpc_address().to_string();
        let own = [format!("taskmanager.jobmanager={address}"), format!("taskmanager.slots={}", options.slots)];
        let mut task_managers = Vec::new();
        for _ in 0..options.task_managers {
            let config = configuration(&own)?.task_manager_of(options.task_managers)?;
            task_managers.push(customise(Builder::new(config)).start().await?);
        }
        let cluster = Self { address, job_manager, task_managers };
        tokio::time::timeout(REGISTER_TIMEOUT, cluster.registered())
            .await
            .with_context(|| format!("the embedded TaskManagers did not register within {} s", REGISTER_TIMEOUT.as_secs()))??;
        Ok(cluster)
    }

    async fn registered(&self) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        while client.describe_cluster().await?.task_managers.len() < self.task_managers.len() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// A client of its JobManager.
    pub async fn client(&self) -> anyhow::Result<Client> {
        Client::connect(&self.address).await
    }

    /// Where its TaskManagers show their health and figures.
    pub fn http_addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.task_managers.iter().map(TaskManager::http_address)
    }

    /// Submits a job graph; answers the job's id.
    pub async fn submit(&self, graph: &str, name: &str) -> anyhow::Result<String> {
        self.client().await?.submit(graph, name, 0).await
    }

    /// Waits for the job's end.
    pub async fn wait(&self, job: &str) -> anyhow::Result<JobStatus> {
        let status = self.client().await?.watch(job, 100, |_| ()).await?;
        if status.job_id.is_empty() {
            bail!("the JobManager answered without a job");
        }
        Ok(status)
    }

    /// Stops everything.
    pub async fn shutdown(self) {
        for task_manager in self.task_managers {
            task_manager.shutdown().await;
        }
        self.job_manager.shutdown().await;
    }
}
