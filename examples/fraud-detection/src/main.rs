//! A TaskManager with the functions of this example: takes the flags and settings of `levada-taskmanager`.

use std::process::ExitCode;

fn main() -> ExitCode {
    levada_taskmanager::run_main(fraud_detection::register)
}
