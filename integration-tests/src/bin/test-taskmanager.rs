//! A TaskManager with the test nodes and functions: what a user's own binary looks like.

use std::process::ExitCode;
use std::sync::Arc;

use levada_integration_tests::nodes::{sluggish, tally, throttle};
use levada_integration_tests::{counting, several};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    levada_taskmanager::run_main(|mut builder| {
        let (declaration, factory) = tally::sink(Arc::default());
        builder = builder.sink(declaration, factory);
        let (declaration, factory) = sluggish::source();
        builder = builder.source(declaration, factory);
        for (declaration, factory) in throttle::sinks() {
            builder = builder.sink(declaration, factory);
        }
        several::register(counting::register(builder))
    })
}
