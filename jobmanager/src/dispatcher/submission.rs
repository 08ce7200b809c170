//! From a document to a job that may start: size, parsing, planning, paths, the snapshot that it begins with, splits, storage.
//!
//! Nothing unchecked passes; whatever is wrong is said before a job exists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use levada_common::declaration::{Declarations, Options};
use levada_common::graph::{GraphErrors, JobGraph};
use levada_common::plan::Plan;
use levada_common::restore_check::{self, DropState, Restorable};
use levada_jobmanager_core::RestoreBase;
use levada_jobmanager_core::placement::{PlacementError, place};
use levada_proto::snapshot::{self, Snapshot};
use levada_sql::PlanOverrides;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::refusal::Refusal;
use crate::checkpoints;
use crate::task_managers::TaskManagers;

/// Longest request id, in bytes.
pub(crate) const REQUEST_ID_BYTES_MAX: usize = 128;

/// Documents that are planned at a time.
const PLANNING_MAX: usize = 4;

/// Time in which a snapshot's metadata must be read.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(60);

/// A job as a client sends it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Submission {
    pub document: String,
    pub document_name: String,
    pub request_id: String,
    pub parallelism: u32,
    /// URI of what it begins with; empty = nothing.
    pub from: String,
    /// State of that to be left behind, each UID or UID/NAME.
    pub drop_state: Vec<String>,
}

/// A job that may start.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub plan: Arc<Plan>,
    pub splits: BTreeMap<u32, Vec<String>>,
    pub base: Option<RestoreBase>,
    pub notes: Vec<String>,
}

/// A job that was checked, and what it begins with.
#[derive(Debug)]
pub(crate) struct Checked {
    pub plan: Plan,
    pub base: Option<RestoreBase>,
    pub notes: Vec<String>,
}

/// Checks documents, a few at a time, off the control plane's threads.
#[derive(Clone)]
pub(crate) struct Planner {
    task_managers: TaskManagers,
    document_bytes_max: usize,
    permits: Arc<Semaphore>,
}

impl Planner {
    pub(crate) fn new(task_managers: TaskManagers, document_bytes_max: usize) -> Self {
        Self { task_managers, document_bytes_max, permits: Arc::new(Semaphore::new(PLANNING_MAX)) }
    }

    /// Plans a document, compares it with the snapshot that it is to begin with, and starts nothing.
    pub(crate) async fn check(&self, submission: Submission) -> Result<Checked, Refusal> {
        let snapshot = read_snapshot(&submission.from).await?;
        self.blocking(move |declarations| checked(&submission, snapshot, &declarations)).await
    }

    /// Plans a document, lists its sources' splits and tries its checkpoint directory.
    pub(crate) async fn accept(&self, submission: Submission) -> Result<Accepted, Refusal> {
        let snapshot = read_snapshot(&submission.from).await?;
        let accepted = self
            .blocking(move |declarations| {
                let Checked { plan, base, notes } = checked(&submission, snapshot, &declarations)?;
                let splits = list_splits(&plan, base.as_ref(), &declarations)?;
                Ok(Accepted { plan: Arc::new(plan), splits, base, notes })
            })
            .await?;
        self.check_network(&accepted.plan).await?;
        if let Some(dir) = &accepted.plan.settings.checkpoint.dir {
            checkpoints::probe(dir).await.map_err(|cause| Refusal::CheckpointDir { dir: dir.clone(), cause })?;
        }
        Ok(accepted)
    }

    /// Refuses a job whose channels do not fit the TaskManagers that there are, even if they had no other job. Where slots are
    /// missing, the job may wait for TaskManagers that are larger.
    async fn check_network(&self, plan: &Plan) -> Result<(), Refusal> {
        match place(plan, &self.task_managers.all().await) {
            Err(error @ PlacementError::NetworkMemory { .. }) => Err(Refusal::NetworkMemory(error.to_string())),
            Ok(_) | Err(PlacementError::TooFewSlots { .. }) => Ok(()),
        }
    }

    /// Checks what needs no planning.
    pub(crate) fn check_sizes(&self, submission: &Submission) -> Result<(), Refusal> {
        let (bytes, limit) = (submission.document.len(), self.document_bytes_max);
        if bytes > limit {
            return Err(Refusal::DocumentSize { bytes, limit });
        }
        let bytes = submission.request_id.len();
        if bytes > REQUEST_ID_BYTES_MAX {
            return Err(Refusal::RequestId { bytes, limit: REQUEST_ID_BYTES_MAX });
        }
        Ok(())
    }

    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Arc<Declarations>) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let _permit = self.permits.acquire().await.map_err(|_| Refusal::Stopping)?;
        let declarations = self.task_managers.declarations();
        match tokio::task::spawn_blocking(move || work(declarations)).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(Refusal::PlanningPanicked),
            Err(_) => Err(Refusal::Stopping),
        }
    }
}

async fn read_snapshot(from: &str) -> Result<Option<Snapshot>, Refusal> {
    if from.is_empty() {
        return Ok(None);
    }
    match tokio::time::timeout(SNAPSHOT_TIMEOUT, snapshot::open(from)).await {
        Ok(read) => read.map(Some).map_err(|error| Refusal::Snapshot(error.to_string())),
        Err(_) => {
            let seconds = SNAPSHOT_TIMEOUT.as_secs();
            Err(Refusal::Snapshot(format!("reading the snapshot at \"{from}\" took more than {seconds} s")))
        }
    }
}

/// Plans, and compares with the snapshot: every mismatch is one refusal.
fn checked(submission: &Submission, snapshot: Option<Snapshot>, declarations: &Declarations) -> Result<Checked, Refusal> {
    let (graph, mut plan) = plan(submission, declarations)?;
    let Some(Snapshot { metadata, directory, .. }) = snapshot else {
        return match submission.drop_state.first() {
            None => Ok(Checked { plan, base: None, notes: Vec::new() }),
            Some(drop) => {
                Err(Refusal::Restore(format!("--drop-state {drop}: there is no snapshot to drop it from; name one with --from")))
            }
        };
    };
    let drops = submission.drop_state.iter().map(|drop| drop.parse()).collect::<Result<Vec<DropState>, _>>()?;
    restore_check::inherit_max_parallelism(&mut plan, graph.settings.max_parallelism, &metadata);
    let restorable = restore_check::check(&metadata, &plan, &drops);
    let Restorable { metadata, notes } = restorable.map_err(|report| Refusal::Restore(report.to_string()))?;
    Ok(Checked { plan, base: Some(RestoreBase { metadata, directory }), notes })
}

fn plan(submission: &Submission, declarations: &Declarations) -> Result<(JobGraph, Plan), Refusal> {
    let name = &submission.document_name;
    let refuse = |errors: GraphErrors| Refusal::document(name, &errors);
    let parallelism = (submission.parallelism > 0).then_some(submission.parallelism);
    let overrides = PlanOverrides { parallelism, ..PlanOverrides::default() };
    let (graph, plan) = levada_sql::plan_document(&submission.document, declarations, &overrides).map_err(refuse)?;
    let relative = relative_paths(&graph, declarations);
    if relative.0.is_empty() { Ok((graph, plan)) } else { Err(refuse(relative)) }
}

/// Paths that mean something only to the client: processes elsewhere would read them from another folder.
fn relative_paths(graph: &JobGraph, declarations: &Declarations) -> GraphErrors {
    let mut errors = GraphErrors::default();
    for source in &graph.sources {
        if let Some(declaration) = declarations.sources.get(&source.connector) {
            let place = format!("sources.{}.{}", source.uid, source.connector);
            check_paths(&mut errors, graph, &place, &source.options, &declaration.path_options);
        }
    }
    for sink in &graph.sinks {
        if let Some(declaration) = declarations.sinks.get(&sink.connector) {
            let place = format!("sinks.{}.{}", sink.uid, sink.connector);
            check_paths(&mut errors, graph, &place, &sink.options, &declaration.path_options);
        }
    }
    errors
}

fn check_paths(errors: &mut GraphErrors, graph: &JobGraph, place: &str, options: &Options, keys: &[String]) {
    for key in keys {
        let paths: Vec<&str> = match options.get(key) {
            Some(Value::String(path)) => vec![path],
            Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        for path in paths.into_iter().filter(|path| !path.starts_with('/') && !path.contains("://")) {
            let message =
                format!("\"{path}\" is relative; a JobManager takes absolute paths only (the command line makes them so)");
            errors.push(&graph.lines, format!("{place}.{key}"), message);
        }
    }
}

/// Lists what each source is to read, once in the job's life: not of those that the job's snapshot has positions of.
fn list_splits(
    plan: &Plan,
    base: Option<&RestoreBase>,
    declarations: &Declarations,
) -> Result<BTreeMap<u32, Vec<String>>, Refusal> {
    let mut splits = BTreeMap::new();
    for vertex in &plan.vertices {
        let Some(source) = &vertex.source else { continue };
        if base.is_some_and(|base| base.knows(&source.uid)) {
            continue;
        }
        let declaration = declarations.sources.get(&source.connector).expect("the planner knows every connector of its plan");
        let listed = (declaration.splits)(&source.options, vertex.parallelism)
            .map_err(|cause| Refusal::Splits { uid: source.uid.to_string(), cause })?;
        splits.insert(vertex.id.0, listed);
    }
    Ok(splits)
}
