//! `levada`: runs, submits, watches and cancels jobs.

use std::process::ExitCode;

use clap::Parser;
use levada::command::Command;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let command = Command::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        std::process::exit(if error.use_stderr() { 2 } else { 0 });
    });
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("levada: {error:#}");
            ExitCode::from(error.downcast_ref::<levada::command::Usage>().map_or(1, |_| 2))
        }
    }
}
