//! A TaskManager with the built-in connectors.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    levada_taskmanager::run_main(|builder| builder)
}
