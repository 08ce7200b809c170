//! The program `levada-jobmanager`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use levada_common::config::{Configuration, JobManagerConfig, Layers};
use levada_common::log;
use levada_jobmanager::{JobManager, JobManagerError};
use tokio::signal::unix::{SignalKind, signal};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Levada's JobManager: takes jobs and coordinates TaskManagers.
///
/// Exit code: 0 stopped by SIGTERM or ctrl-c, 1 failed, 2 the command line or the configuration is wrong.
#[derive(Parser)]
#[command(name = "levada-jobmanager", version)]
struct Arguments {
    /// A configuration file (YAML).
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting: `jobmanager.port=6123`. Stronger than the file and the environment (`LEVADA__JOBMANAGER__PORT=6123`).
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let layers = Layers::of_process(arguments.config, arguments.settings);
    let config = Configuration::load(&layers).and_then(|configuration| configuration.job_manager());
    let config = match config.and_then(|config| log::start(&config.log).map(|()| config)) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("levada-jobmanager: {error}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build()
        .expect("threads can be started");
    match runtime.block_on(run(config)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(1)
        }
    }
}

async fn run(config: JobManagerConfig) -> anyhow::Result<()> {
    let declarations = levada_connectors::registry().declarations;
    let mut handle = JobManager::start(config, declarations).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let failure: Option<JobManagerError> = tokio::select! {
        _ = terminate.recv() => None,
        _ = tokio::signal::ctrl_c() => None,
        failure = handle.failed() => Some(failure),
    };
    handle.shutdown().await;
    failure.map_or(Ok(()), |failure| Err(failure.into()))
}
