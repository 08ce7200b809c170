//! The program around a TaskManager: flags, log, signals, exit code. The same for binaries that bring their own connectors.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use levada_common::config::{ConfigError, Configuration, Layers};
use levada_common::log;

use crate::builder::Builder;
use crate::error::TaskManagerError;

/// Runs tasks for a JobManager until SIGTERM or SIGINT.
#[derive(Debug, Parser)]
#[command(version)]
struct Flags {
    /// A file with settings, YAML.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A setting: taskmanager.slots=4. Overrides file and environment (LEVADA__TASKMANAGER__SLOTS); may be given again.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Why the program failed.
#[derive(Debug, thiserror::Error)]
enum ProgramError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    TaskManager(#[from] TaskManagerError),
    #[error("starting the program failed")]
    Start(#[source] std::io::Error),
}

impl ProgramError {
    /// 1: it failed; 2: it was told something wrong.
    fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) => 2,
            Self::TaskManager(_) | Self::Start(_) => 1,
        }
    }
}

/// A TaskManager's whole program: reads flags, file and environment, and runs what `customise` makes of the builder until
/// SIGTERM or SIGINT.
///
/// Exit code: 0 after a signal, 1 where it could not run, 2 where flags or settings are wrong.
pub fn run_main(customise: impl FnOnce(Builder) -> Builder) -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    match run(flags, customise) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("levada-taskmanager: {}", text_of(&error));
            ExitCode::from(error.exit_code())
        }
    }
}

fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn run(flags: Flags, customise: impl FnOnce(Builder) -> Builder) -> Result<(), ProgramError> {
    let config = Configuration::load(&Layers::of_process(flags.config, flags.set))?.task_manager()?;
    log::start(&config.log)?;
    let builder = customise(Builder::new(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ProgramError::Start)?;
    runtime.block_on(async {
        let stop = stop_signal().map_err(ProgramError::Start)?;
        let task_manager = builder.start().await?;
        let signal = stop.await;
        tracing::info!(signal, "shutting down");
        task_manager.shutdown().await;
        Ok(())
    })
}

/// The name of the first signal that says stop. From this call on signals no longer end the process by themselves.
fn stop_signal() -> std::io::Result<impl Future<Output = &'static str>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    })
}
