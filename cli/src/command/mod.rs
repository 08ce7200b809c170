//! The commands: one file each where there is more to one than a call.

mod checkpoints;
mod describe;
mod document;
mod run;
mod savepoint;
mod snapshot;
mod state;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use levada_proto::v1::{JobState, JobStatus};

use crate::client::{Client, is_terminal, state_name};
use crate::progress::Progress;

/// The command line was wrong: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Levada: distributed, stateful stream processing.
#[derive(Parser)]
#[command(name = "levada", version, about, propagate_version = true)]
pub struct Command {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Runs a job on a cluster inside this process and waits for its end.
    ///
    /// Ctrl-c and SIGTERM cancel the job; a second one ends the process at once.
    /// Exit code: 0 finished, 1 failed or canceled, 2 the command line or the job file is wrong.
    Run(run::RunArguments),
    /// Submits a job to a JobManager and prints its id.
    Submit(SubmitArguments),
    /// Lists the jobs of a JobManager.
    List(Remote),
    /// Shows a job, or with no job the cluster.
    Describe(DescribeArguments),
    /// Cancels a job and waits until it has ended.
    Cancel(JobArguments),
    /// Waits for a job's end. Exit code 0 only where it FINISHED.
    Wait(JobArguments),
    /// Checks a job file and prints its execution graph; needs no JobManager.
    ///
    /// With --from also whether the job can be restored from a snapshot, of which the metadata is read.
    /// Exit code: 0 fine, 1 the snapshot cannot be read or does not fit, 2 the command line or the job file is wrong.
    Check(CheckArguments),
    /// Takes a savepoint of a job, which goes on, and prints its path.
    ///
    /// Exit code: 0 it is written, 1 it failed.
    Savepoint(savepoint::SavepointArguments),
    /// Takes a savepoint of a job and stops it there; prints the savepoint's path.
    ///
    /// Sources stop, sinks publish what was written before, the job is FINISHED. Windows that are open stay in the savepoint, but
    /// with --drain. Exit code: 0 the savepoint is written and the job FINISHED, else 1; where the savepoint fails the job goes on.
    Stop(savepoint::StopArguments),
    /// Takes a checkpoint of a job now and prints its path.
    ///
    /// Exit code: 0 it is complete, 1 it failed.
    Checkpoint(JobArguments),
    /// Lists the completed checkpoints of a job that are kept, with their states.
    Checkpoints(checkpoints::CheckpointsArguments),
    /// Looks into checkpoints and savepoints, without the job's code.
    #[command(subcommand)]
    State(state::StateAction),
}

/// Where the JobManager is.
#[derive(Args, Clone)]
pub struct Remote {
    /// The JobManager's gRPC address.
    #[arg(long, env = "LEVADA_JOBMANAGER", default_value = "127.0.0.1:6123", value_name = "HOST:PORT")]
    jobmanager: String,
}

#[derive(Args)]
struct SubmitArguments {
    /// The job file: YAML or JSON.
    job: PathBuf,
    /// Overrides `settings.parallelism`.
    #[arg(long, value_name = "N")]
    parallelism: Option<u32>,
    #[command(flatten)]
    restore: snapshot::RestoreArguments,
    /// Waits for the job's end, showing its progress.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct JobArguments {
    /// The job's id or name.
    job: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct DescribeArguments {
    /// The job's id or name.
    job: Option<String>,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Args)]
struct CheckArguments {
    /// The job file: YAML or JSON.
    job: PathBuf,
    /// Overrides `settings.parallelism`.
    #[arg(long, value_name = "N")]
    parallelism: Option<u32>,
    #[command(flatten)]
    restore: snapshot::RestoreArguments,
    /// The plan as JSON instead of text.
    #[arg(long)]
    json: bool,
}

impl Command {
    /// Does what the command line says.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(async {
            match self.action {
                Action::Run(arguments) => run::run(arguments).await,
                Action::Submit(arguments) => submit(arguments).await,
                Action::List(remote) => list(remote).await,
                Action::Describe(arguments) => describe_any(arguments).await,
                Action::Cancel(arguments) => cancel(arguments).await,
                Action::Wait(arguments) => wait(arguments).await,
                Action::Check(arguments) => check(&arguments).await,
                Action::Savepoint(arguments) => savepoint::savepoint(arguments).await,
                Action::Stop(arguments) => savepoint::stop(arguments).await,
                Action::Checkpoint(arguments) => checkpoints::checkpoint(&arguments.job, &arguments.remote).await,
                Action::Checkpoints(arguments) => checkpoints::checkpoints(arguments).await,
                Action::State(action) => state::run(action).await,
            }
        })
    }
}

/// 0 where the job finished, else 1 with the reason on standard error.
fn outcome(status: &JobStatus) -> ExitCode {
    match status.state() {
        JobState::Finished => ExitCode::SUCCESS,
        state => {
            eprintln!("levada: job {} ended {}{}", status.job_id, state_name(state), reason(status));
            ExitCode::from(1)
        }
    }
}

fn reason(status: &JobStatus) -> String {
    if status.failure.is_empty() { String::new() } else { format!(": {}", status.failure) }
}

async fn submit(arguments: SubmitArguments) -> anyhow::Result<ExitCode> {
    let document = document::read(&arguments.job)?;
    let restore = arguments.restore.resolve()?;
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    let parallelism = arguments.parallelism.unwrap_or(0);
    let job = client.submit_from(&document.text, &document.name, parallelism, restore).await?;
    println!("{job}");
    if !arguments.wait {
        return Ok(ExitCode::SUCCESS);
    }
    let mut progress = Progress::new();
    let status = client.watch(&job, 1000, |status| progress.show(status)).await?;
    Ok(outcome(&status))
}

async fn list(remote: Remote) -> anyhow::Result<ExitCode> {
    let jobs = Client::connect(&remote.jobmanager).await?.list().await?;
    println!("{:32}  {:24}  {:11}  {:>8}  {:>10}", "JOB", "NAME", "STATE", "RESTARTS", "CHECKPOINT");
    for job in jobs {
        let checkpoint =
            job.checkpoints.as_ref().and_then(|all| all.last_completed.as_ref()).map_or("-".into(), |last| last.id.to_string());
        let state = format!("{}{}", state_name(job.state()), if job.degraded { "!" } else { "" });
        println!("{:32}  {:24}  {:11}  {:>8}  {:>10}", job.job_id, job.name, state, job.restarts, checkpoint);
    }
    Ok(ExitCode::SUCCESS)
}

async fn describe_any(arguments: DescribeArguments) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    match arguments.job {
        Some(job) => {
            let status = client.describe(&job).await?;
            print!("{}", if arguments.json { describe::job_json(&status) } else { describe::job(&status) });
        }
        None => {
            let cluster = client.describe_cluster().await?;
            print!("{}", if arguments.json { describe::cluster_json(&cluster) } else { describe::cluster(&cluster) });
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn cancel(arguments: JobArguments) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    let (accepted, status) = client.cancel(&arguments.job).await?;
    if !accepted {
        println!("job {} had already ended {}", status.job_id, state_name(status.state()));
        return Ok(ExitCode::SUCCESS);
    }
    let status = if is_terminal(status.state()) { status } else { client.watch(&status.job_id.clone(), 200, |_| ()).await? };
    println!("job {} {}", status.job_id, state_name(status.state()));
    Ok(if status.state() == JobState::Canceled { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

async fn wait(arguments: JobArguments) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    let mut progress = Progress::new();
    let status = client.watch(&arguments.job, 1000, |status| progress.show(status)).await?;
    Ok(outcome(&status))
}

async fn check(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let document = document::read(&arguments.job)?;
    let (graph, mut plan) = document.graph_and_plan(arguments.parallelism)?;
    for note in snapshot::check(&arguments.restore, &graph, &mut plan).await? {
        eprintln!("levada: {note}");
    }
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&plan)?);
    } else {
        print!("{}", levada_sql::explain(&plan));
    }
    Ok(ExitCode::SUCCESS)
}
