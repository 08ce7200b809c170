//! `levada run`: a whole cluster in this process, for one job.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::snapshot::RestoreArguments;
use super::{document, outcome};
use crate::cluster::{Embedded, EmbeddedOptions};
use crate::progress::Progress;
use crate::signals::StopSignals;

/// What `levada run` takes.
#[derive(Args)]
pub struct RunArguments {
    /// The job file: YAML or JSON.
    job: PathBuf,
    /// Overrides `settings.parallelism`.
    #[arg(long, value_name = "N")]
    parallelism: Option<u32>,
    /// TaskManagers in the embedded cluster.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    task_managers: u32,
    #[command(flatten)]
    restore: RestoreArguments,
    /// No progress on standard error.
    #[arg(long)]
    quiet: bool,
    /// A setting of JobManager or TaskManager: `taskmanager.memory.total=4GiB`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

/// Runs the job; ctrl-c and SIGTERM cancel it, and when they come again they end the process at once.
pub async fn run(arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let document = document::read(&arguments.job)?;
    let restore = arguments.restore.resolve()?;
    let plan = document.plan(arguments.parallelism)?;
    for warning in &plan.warnings {
        eprintln!("levada: warning: {warning}");
    }
    let slots = plan.slots().div_ceil(arguments.task_managers);
    let options = EmbeddedOptions { task_managers: arguments.task_managers, slots, settings: arguments.settings };
    let cluster = Embedded::start(options, |builder| builder).await?;
    let mut client = cluster.client().await?;
    let parallelism = arguments.parallelism.unwrap_or(0);
    let job = client.submit_from(&document.text, &document.name, parallelism, restore).await?;
    let mut progress = Progress::new();
    let mut watcher = client.clone();
    let watched = watcher.watch(&job, 500, |status| {
        if !arguments.quiet {
            progress.show(status);
        }
    });
    tokio::pin!(watched);
    let mut signals = StopSignals::new()?;
    let ended = signals.before(&mut watched).await;
    let ending = async {
        let status = match ended {
            Ok(status) => status?,
            Err(_) => {
                client.cancel(&job).await?;
                watched.await?
            }
        };
        cluster.shutdown().await;
        anyhow::Ok(outcome(&status))
    };
    signals.before(ending).await.unwrap_or_else(|name| {
        eprintln!("levada: {name} while the job was ending; its tasks may not have cleaned up");
        // Not by a return: that would wait for the cluster's threads.
        std::process::exit(1)
    })
}
