//! `levada savepoint` and `levada stop`.

use std::process::ExitCode;

use clap::Args;
use levada_proto::v1::JobState;

use super::{Remote, reason};
use crate::client::{Afterwards, Client, is_terminal, state_name};
use crate::progress::count;
use crate::snapshot::uri;

/// What `levada savepoint` takes.
#[derive(Args)]
pub struct SavepointArguments {
    /// The job's id or name.
    job: String,
    /// The directory in which the savepoint's folder is made: a path (of the JobManager's and the TaskManagers' machines) or a URI.
    directory: String,
    #[command(flatten)]
    remote: Remote,
}

/// What `levada stop` takes.
#[derive(Args)]
pub struct StopArguments {
    /// The job's id or name.
    job: String,
    /// The directory in which the savepoint's folder is made: a path (of the JobManager's and the TaskManagers' machines) or a URI.
    #[arg(long, value_name = "DIR")]
    savepoint: String,
    /// Ends the sources first, and event time with them: every window fires, and a job restored from the savepoint has ended.
    #[arg(long)]
    drain: bool,
    #[command(flatten)]
    remote: Remote,
}

/// Takes a savepoint; the job goes on.
pub async fn savepoint(arguments: SavepointArguments) -> anyhow::Result<ExitCode> {
    let directory = uri(&arguments.directory)?;
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    let savepoint = client.savepoint(&arguments.job, &directory, Afterwards::GoesOn).await?;
    eprintln!("levada: savepoint {}: {} bytes in {} ms", savepoint.id, count(savepoint.bytes), savepoint.duration_ms);
    println!("{}", savepoint.path);
    Ok(ExitCode::SUCCESS)
}

/// Takes a savepoint with which the job ends, and waits for that.
pub async fn stop(arguments: StopArguments) -> anyhow::Result<ExitCode> {
    let directory = uri(&arguments.savepoint)?;
    let afterwards = if arguments.drain { Afterwards::Drains } else { Afterwards::Stops };
    let mut client = Client::connect(&arguments.remote.jobmanager).await?;
    let job = client.describe(&arguments.job).await?.job_id;
    let savepoint = client.savepoint(&job, &directory, afterwards).await?;
    eprintln!("levada: savepoint {}: {} bytes in {} ms", savepoint.id, count(savepoint.bytes), savepoint.duration_ms);
    println!("{}", savepoint.path);
    let mut status = client.describe(&job).await?;
    if !is_terminal(status.state()) {
        status = client.watch(&job, 200, |_| ()).await?;
    }
    eprintln!("levada: job {job} {}{}", state_name(status.state()), reason(&status));
    Ok(if status.state() == JobState::Finished { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
