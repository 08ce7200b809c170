//! A foreign client: Python with grpcio, its code generated from our protos, submits a job and watches it end.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_integration_tests::streams::StreamB;

/// The versions that the test was written with.
const PACKAGES: [&str; 3] = ["grpcio==1.76.0", "grpcio-tools==1.76.0", "grpcio-reflection==1.76.0"];

fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// A Python with grpcio, kept beside the build.
fn python() -> anyhow::Result<PathBuf> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into());
    let venv = Path::new(&target).join("python-grpcio");
    let python = venv.join("bin/python");
    if !venv.join("complete").exists() {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(PACKAGES))?;
        std::fs::write(venv.join("complete"), "")?;
    }
    Ok(python)
}

#[tokio::test(flavor = "multi_thread")]
async fn python_submits_a_job() -> anyhow::Result<()> {
    let python = python()?;
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
