//! `--from` and `--drop-state`: what a job begins with.

use clap::Args;
use levada_common::graph::JobGraph;
use levada_common::plan::Plan;
use levada_common::restore_check::{self, DropState};
use levada_proto::snapshot;

use super::Usage;
use crate::client::RestoreFrom;
use crate::snapshot::uri;

/// The snapshot that a job begins with.
#[derive(Args, Clone, Default)]
pub struct RestoreArguments {
    /// Restores from this snapshot: a savepoint or checkpoint (its folder or `_metadata`), or a job's folder in `checkpoint.dir`, for
    /// its newest checkpoint.
    #[arg(long, value_name = "PATH")]
    from: Option<String>,
    /// State of the snapshot to be left behind, of an operator or one state of it; may be given again.
    #[arg(long, value_name = "UID[/NAME]", requires = "from")]
    drop_state: Vec<String>,
}

impl RestoreArguments {
    /// As the JobManager takes them.
    pub fn resolve(&self) -> anyhow::Result<RestoreFrom> {
        self.drops()?;
        let from = self.from.as_deref().map(uri).transpose()?.unwrap_or_default();
        Ok(RestoreFrom { from, drop_state: self.drop_state.clone() })
    }

    fn drops(&self) -> anyhow::Result<Vec<DropState>> {
        let parse = |text: &String| text.parse::<DropState>().map_err(|error| Usage(format!("--drop-state: {error}")).into());
        self.drop_state.iter().map(parse).collect()
    }
}

/// Compares the job with the snapshot that it is to begin with, if there is one; its max parallelism may come from there. Answers
/// what should be known.
pub async fn check(arguments: &RestoreArguments, graph: &JobGraph, plan: &mut Plan) -> anyhow::Result<Vec<String>> {
    let drops = arguments.drops()?;
    let from = arguments.resolve()?.from;
    if from.is_empty() {
        return Ok(Vec::new());
    }
    let snapshot = snapshot::open(&from).await?;
    restore_check::inherit_max_parallelism(plan, graph.settings.max_parallelism, &snapshot.metadata);
    Ok(restore_check::check(&snapshot.metadata, plan, &drops)?.notes)
}
