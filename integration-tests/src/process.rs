//! A cluster of real processes on loopback: one JobManager, TaskManagers, each of which can be killed.
//!
//! Everything a cluster writes lies in one temporary folder; whatever still runs when it is dropped is killed.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use levada::client::{Client, is_terminal};
use levada_proto::v1::{JobState, JobStatus};
use tempfile::TempDir;

use crate::metrics;

/// How long anything that a test waits for may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at something that no one announces.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What to start.
#[derive(Debug, Clone)]
pub struct Setup {
    /// TaskManagers.
    pub task_managers: usize,
    /// Slots of each.
    pub slots: u32,
    /// Settings of every process, `key=value`.
    pub settings: Vec<String>,
    /// Environment variables of every process, beside its own.
    pub environment: Vec<(String, String)>,
    /// The TaskManagers' program.
    pub task_manager: &'static str,
    /// Most files that each process may have open; `None` = as many as this one.
    pub open_files: Option<u32>,
}

impl Default for Setup {
    fn default() -> Self {
        let settings = vec!["heartbeat.interval=500ms".into(), "heartbeat.timeout=3s".into()];
        Self { task_managers: 2, slots: 2, settings, environment: Vec::new(), task_manager: "test-taskmanager", open_files: None }
    }
}

/// A running cluster.
pub struct Processes {
    /// The folder that everything lies in.
    pub dir: TempDir,
    setup: Setup,
    port: u16,
    http_port: u16,
    job_manager: Option<Child>,
    task_managers: Vec<Option<Child>>,
    task_manager_http_ports: Vec<u16>,
}

/// The folder of the built programs: that of the running one, or the one above it for a test.
pub(crate) fn programs() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    let folder = own.parent().context("a program lies in a folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().context("deps lies in a folder")? } else { folder };
    Ok(folder.to_path_buf())
}

/// The built program of this name.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = programs()?.join(name);
    if !path.exists() {
        bail!("\"{}\" is not built; `make test` builds it (cargo build --workspace --all-targets)", path.display());
    }
    Ok(path)
}

/// Ports that are given out: below those that the system gives to whoever asks for any, which would take one of ours at any time.
const PORTS: std::ops::Range<u32> = 12_000..32_000;

/// A port that is free, and that no one else in this process is given.
pub fn free_port() -> anyhow::Result<u16> {
    free_ports(1)
}

/// The first of so many ports in a row that are free, and that no one else in this process is given.
///
/// Errors: there are none.
pub fn free_ports(count: u16) -> anyhow::Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Other processes that do the same begin elsewhere.
    let begin = std::process::id().wrapping_mul(7_919);
    for _ in 0..PORTS.len() {
        let place = begin.wrapping_add(NEXT.fetch_add(count.into(), Relaxed)) % (PORTS.end - PORTS.start - u32::from(count));
        let first = (PORTS.start + place) as u16;
        let taken: Result<Vec<_>, _> =
            (first..first + count).map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port))).collect();
        if taken.is_ok() {
            return Ok(first);
        }
    }
    bail!("no {count} ports in a row are free between {} and {}", PORTS.start, PORTS.end)
}

impl Processes {
    /// Starts a cluster and waits until every TaskManager is registered.
    pub async fn start(setup: Setup) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("levada-it-").tempdir()?;
        let (port, http_port) = (free_port()?, free_port()?);
        let mut cluster = Self {
            dir,
            setup,
            port,
            http_port,
            job_manager: None,
            task_managers: Vec::new(),
            task_manager_http_ports: Vec::new(),
        };
        cluster.start_job_manager()?;
        for _ in 0..cluster.setup.task_managers {
            cluster.start_task_manager()?;
        }
        cluster.wait_for_task_managers(cluster.setup.task_managers).await?;
        Ok(cluster)
    }

    /// A path below the cluster's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The JobManager's gRPC address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The JobManager's HTTP address.
    pub fn http_address(&self) -> String {
        format!("127.0.0.1:{}", self.http_port)
    }

    fn spawn(&self, name: &str, log: &str, settings: &[String]) -> anyhow::Result<Child> {
        let log = File::create(self.path(log))?;
        let mut command = match self.setup.open_files {
            None => Command::new(program(name)?),
            Some(files) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")]).arg(program(name)?);
                shell
            }
        };
        for setting in self.setup.settings.iter().chain(settings) {
            command.arg("--set").arg(setting);
        }
        command.envs(self.setup.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| format!("starting {name}"))
    }

    /// Starts the JobManager (again).
    pub fn start_job_manager(&mut self) -> anyhow::Result<()> {
        let settings = [format!("jobmanager.port={}", self.port), format!("jobmanager.http_port={}", self.http_port)];
        self.job_manager = Some(self.spawn("levada-jobmanager", "jobmanager.log", &settings)?);
        Ok(())
    }

    /// Starts one more TaskManager; answers its number.
    pub fn start_task_manager(&mut self) -> anyhow::Result<usize> {
        self.start_task_manager_for(&self.address())
    }

    /// Starts one more TaskManager, which finds the JobManager at `address`; answers its number.
    pub fn start_task_manager_for(&mut self, address: &str) -> anyhow::Result<usize> {
        let (number, http_port) = (self.task_managers.len(), free_port()?);
        let settings = [
            format!("taskmanager.jobmanager={address}"),
            "taskmanager.data_port=0".into(),
            format!("taskmanager.http_port={http_port}"),
            format!("taskmanager.slots={}", self.setup.slots),
            format!("taskmanager.data_dir={}", self.path(&format!("taskmanager-{number}")).display()),
        ];
        let child = self.spawn(self.setup.task_manager, &format!("taskmanager-{number}.log"), &settings)?;
        self.task_managers.push(Some(child));
        self.task_manager_http_ports.push(http_port);
        Ok(number)
    }

    /// Kills a TaskManager with SIGKILL.
    pub fn kill_task_manager(&mut self, number: usize) -> anyhow::Result<()> {
        if let Some(mut child) = self.task_managers[number].take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Kills the JobManager with SIGKILL.
    pub fn kill_job_manager(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.job_manager.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// The process id of a TaskManager that runs.
    pub fn task_manager_pid(&self, number: usize) -> Option<u32> {
        self.task_managers[number].as_ref().map(Child::id)
    }

    /// The sum of a figure over the TaskManagers that run; of those that have it.
    pub async fn figure(&self, name: &str) -> f64 {
        let mut sum = 0.0;
        for number in self.running() {
            let address = (Ipv4Addr::LOCALHOST, self.task_manager_http_ports[number]).into();
            sum += metrics::read(address, name).await.unwrap_or(0.0);
        }
        sum
    }

    /// The process ids of all that runs.
    pub fn pids(&self) -> Vec<u32> {
        self.job_manager.iter().chain(self.task_managers.iter().flatten()).map(Child::id).collect()
    }

    /// The numbers of the TaskManagers that run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.task_managers.len()).filter(|number| self.task_managers[*number].is_some()).collect()
    }

    /// A client of the JobManager, as soon as it answers.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let start = Instant::now();
        loop {
            match Client::connect(&self.address()).await {
                Ok(client) => return Ok(client),
                Err(error) if start.elapsed() > PATIENCE => return Err(error.context(self.logs())),
                Err(_) => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Waits until `count` TaskManagers are registered.
    pub async fn wait_for_task_managers(&self, count: usize) -> anyhow::Result<()> {
        let mut client = self.client().await?;
        let start = Instant::now();
        while client.describe_cluster().await?.task_managers.len() != count {
            if start.elapsed() > PATIENCE {
                bail!("{count} TaskManagers did not register\n{}", self.logs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Submits a job graph.
    pub async fn submit(&self, graph: &str) -> anyhow::Result<String> {
        self.client().await?.submit(graph, "test.yaml", 0).await
    }

    /// The job's status now.
    pub async fn describe(&self, job: &str) -> anyhow::Result<JobStatus> {
        self.client().await?.describe(job).await
    }

    /// Waits until `holds` is true of the job's status.
    pub async fn wait_until(&self, job: &str, what: &str, holds: impl Fn(&JobStatus) -> bool) -> anyhow::Result<JobStatus> {
        let mut client = self.client().await?;
        let start = Instant::now();
        loop {
            let status = client.describe(job).await?;
            if holds(&status) {
                return Ok(status);
            }
            if is_terminal(status.state()) || start.elapsed() > PATIENCE {
                bail!("waited in vain for: {what}; the job is {:?}: {}\n{}", status.state(), status.failure, self.logs());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Waits for the job's end, whatever it is.
    pub async fn wait(&self, job: &str) -> anyhow::Result<JobStatus> {
        self.wait_until(job, "the job's end", |status| is_terminal(status.state())).await
    }

    /// Waits for the job's end, which must be FINISHED.
    pub async fn finish(&self, job: &str) -> anyhow::Result<JobStatus> {
        let status = self.wait(job).await?;
        if status.state() != JobState::Finished {
            bail!("the job is {:?}: {}\n{}", status.state(), status.failure, self.logs());
        }
        Ok(status)
    }

    /// Waits until the job has completed at least `count` checkpoints.
    pub async fn wait_for_checkpoints(&self, job: &str, count: u64) -> anyhow::Result<JobStatus> {
        let done = |status: &JobStatus| status.checkpoints.as_ref().is_some_and(|all| all.completed >= count);
        self.wait_until(job, &format!("{count} completed checkpoints"), done).await
    }

    /// The logs of every process, for a message.
    pub fn logs(&self) -> String {
        let mut text = String::new();
        let Ok(entries) = fs::read_dir(self.dir.path()) else { return text };
        for entry in entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "log")) {
            let log = fs::read_to_string(entry.path()).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(30).collect();
            text += &format!("--- {}\n", entry.file_name().display());
            for line in tail.into_iter().rev() {
                text += line;
                text.push('\n');
            }
        }
        text
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.task_managers.iter_mut().chain(std::iter::once(&mut self.job_manager)).flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The lines of every final file of a file sink (names without a leading dot), sorted.
pub fn output_lines(dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    if dir.exists() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            if !entry.file_name().to_string_lossy().starts_with('.') {
                lines.extend(fs::read_to_string(entry.path())?.lines().map(String::from));
            }
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// Files of a file sink that are not final: there must be none once a job has ended.
pub fn leftovers(dir: &Path) -> anyhow::Result<Vec<String>> {
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let names = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    Ok(names.into_iter().filter(|name| name.starts_with('.')).collect())
}
