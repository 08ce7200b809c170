//! Python for tests: virtual environments kept beside the build, with packages of fixed versions.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

/// Runs a command to its end and answers what it printed.
pub fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// The interpreter of the environment `name`, which has these packages (`name==version`).
///
/// Contract: one test makes an environment; another name for another list.
pub fn python(name: &str, packages: &[&str]) -> anyhow::Result<PathBuf> {
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../target").into());
    let venv = Path::new(&target).join(format!("python-{name}"));
    let (python, complete) = (venv.join("bin/python"), venv.join("complete"));
    let wanted = packages.join(" ");
    if std::fs::read_to_string(&complete).ok().as_ref() != Some(&wanted) {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
        std::fs::write(complete, wanted)?;
    }
    Ok(python)
}
