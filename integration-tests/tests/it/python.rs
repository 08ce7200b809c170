//! A foreign client: Python with grpcio, its code generated from our protos, submits a job and watches it end.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::python::{python, run};
use levada_integration_tests::streams::StreamB;

/// The versions that the test was written with.
const PACKAGES: [&str; 3] = ["grpcio==1.76.0", "grpcio-tools==1.76.0", "grpcio-reflection==1.76.0"];

#[tokio::test(flavor = "multi_thread")]
async fn python_submits_a_job() -> anyhow::Result<()> {
    let python = python("grpcio", &PACKAGES)?;
    let cluster = Processes::start(Setup { task_managers: 1, ..Setup::default() }).await?;
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/proto");
    let generated = cluster.path("generated");
    std::fs::create_dir_all(&generated)?;
    run(Command::new(&python)
        .args(["-m", "grpc_tools.protoc"])
        .arg(format!("-I{}", protos.display()))
        .arg(format!("--python_out={}", generated.display()))
        .arg(format!("--grpc_python_out={}", generated.display()))
        .arg("levada/v1/client.proto"))?;
    let stream = StreamB { rows: 1000, rate: None, settings: "  parallelism: 2".into() };
    let out = cluster.path("out");
    std::fs::write(cluster.path("job.yaml"), stream.graph(&out))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/submit.py");
    let printed = run(Command::new(&python)
        .arg(script)
        .arg(cluster.address())
        .arg(cluster.path("job.yaml"))
        .env("PYTHONPATH", &generated))?;
    ensure!(printed.contains("FINISHED"), "the script printed: {printed}");
    assert_eq!(output_lines(&out)?, stream.expected());
    Ok(())
}
