//! A service's log: lines on standard error, as its configuration has them.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{ConfigError, LogConfig, LogFormat};

/// What a level or a filter by target lets through.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, ConfigError> {
    EnvFilter::try_new(level).map_err(|error| ConfigError::OutOfRange {
        key: "log.level",
        value: level.into(),
        allowed: format!("error, warn, info, debug, trace, or a filter such as info,levada_engine=debug ({error})"),
    })
}

/// Starts the log of this process; colours are for terminals.
///
/// Errors: the level is none. Contract: called once.
pub fn start(config: &LogConfig) -> Result<(), ConfigError> {
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter(&config.level)?)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match config.format {
        LogFormat::Json => log.json().init(),
        LogFormat::Text => log.init(),
    }
    Ok(())
}
