//! `levada state`: looks into checkpoints and savepoints, without the job's code and without a JobManager.

mod diff;
mod export;
mod key;
mod ls;
mod plain;
mod show;
#[cfg(test)]
mod testing;
mod verify;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};

use crate::snapshot::Snapshot;

/// What `levada state` can do.
///
/// SNAPSHOT is a path or URI (file, s3, hdfs): of a `_metadata` file, of the folder that holds it, or of a job's checkpoint folder,
/// of which the newest is taken.
#[derive(Subcommand)]
pub enum StateAction {
    /// Lists operators and their states: kind, type, subtasks, rows, bytes, key groups.
    Ls(LsArguments),
    /// Prints the rows of a state.
    Show(ShowArguments),
    /// Writes the rows of a state as a Parquet file.
    Export(ExportArguments),
    /// Compares two snapshots. Exit code 1 where they differ.
    Diff(DiffArguments),
    /// Checks every file of a snapshot: length, CRC-32C, content. Exit code 1 where one is damaged, which is named.
    Verify(VerifyArguments),
}

/// What `ls` takes.
#[derive(Args)]
pub struct LsArguments {
    /// The snapshot.
    snapshot: String,
    /// JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RowFormat {
    /// Columns side by side, long values cut.
    Table,
    /// A JSON object a line, as the file sink writes it.
    Ndjson,
}

/// What `show` takes.
#[derive(Args)]
pub struct ShowArguments {
    /// The snapshot.
    snapshot: String,
    /// The operator and its state; the operator alone where it has one state, or for a table of each.
    #[arg(value_name = "UID[/STATE]")]
    state: String,
    /// Only rows of this key: a value where the key is one column, else `COLUMN=VALUE` once a column, some or all of them.
    #[arg(long = "key", value_name = "[COLUMN=]VALUE")]
    keys: Vec<String>,
    /// Most rows; by default 100 as a table and all as NDJSON.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// How rows are printed.
    #[arg(long, value_enum, default_value_t = RowFormat::Table)]
    format: RowFormat,
}

/// What `export` takes.
#[derive(Args)]
pub struct ExportArguments {
    /// The snapshot.
    snapshot: String,
    /// The operator and its state; the operator alone where it has one state.
    #[arg(value_name = "UID[/STATE]")]
    state: String,
    /// The Parquet file, on this machine; one that exists is replaced.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Only rows of this key, as for `show`.
    #[arg(long = "key", value_name = "[COLUMN=]VALUE")]
    keys: Vec<String>,
}

/// What `diff` takes.
#[derive(Args)]
pub struct DiffArguments {
    /// The snapshot from before.
    before: String,
    /// The snapshot from after.
    after: String,
    /// Differing keys that are shown of each state.
    #[arg(long, value_name = "N", default_value_t = 3)]
    keys: usize,
}

/// What `verify` takes.
#[derive(Args)]
pub struct VerifyArguments {
    /// The snapshot.
    snapshot: String,
}

/// Does it; a reader of the output that goes away early (`head`) is no error.
pub async fn run(action: StateAction) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::new(io::stdout().lock());
    let done = perform(action, &mut out).await;
    let done = match done {
        Ok(code) => out.flush().map(|()| code).map_err(anyhow::Error::from),
        Err(error) => {
            let _ = out.flush();
            Err(error)
        }
    };
    match done {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        done => done,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

async fn perform(action: StateAction, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    match action {
        StateAction::Ls(arguments) => {
            let snapshot = Snapshot::open(&arguments.snapshot).await?;
            out.write_all(if arguments.json { ls::json(&snapshot) } else { ls::text(&snapshot) }.as_bytes())?;
        }
        StateAction::Show(arguments) => {
            let snapshot = Snapshot::open(&arguments.snapshot).await?;
            unless_replaced(&[&snapshot], show::show(&snapshot, &arguments, out).await).await?;
        }
        StateAction::Export(arguments) => {
            let snapshot = Snapshot::open(&arguments.snapshot).await?;
            unless_replaced(&[&snapshot], export::export(&snapshot, &arguments, out).await).await?;
        }
        StateAction::Diff(arguments) => {
            let (before, after) = (Snapshot::open(&arguments.before).await?, Snapshot::open(&arguments.after).await?);
            let done = diff::diff(&before, &after, arguments.keys, out).await;
            return Ok(code(unless_replaced(&[&before, &after], done).await?));
        }
        StateAction::Verify(arguments) => {
            let snapshot = Snapshot::open(&arguments.snapshot).await?;
            return Ok(code(verify::verify(&snapshot, out).await?));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done; where it failed because one of the snapshots is not there any more, that.
async fn unless_replaced<T>(snapshots: &[&Snapshot], done: anyhow::Result<T>) -> anyhow::Result<T> {
    if done.as_ref().is_err_and(|error| !is_broken_pipe(error)) {
        for snapshot in snapshots {
            snapshot.still_there().await?;
        }
    }
    done
}

/// 0 where all is well.
fn code(is_well: bool) -> ExitCode {
    if is_well { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
