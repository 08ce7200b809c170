//! The job of the round trip: its operators at any width, from nothing or from a snapshot.

use std::sync::Arc;

use levada_common::fault::Failure;
use levada_common::ids::{CheckpointId, TaskId, VertexId};
use levada_common::plan::{BackendKind, JobSettings, OperatorSpec, Plan, Vertex};
use levada_jobmanager_core::restore::assign;
use levada_state::cold::ColdStores;

pub use super::super::shipping::{Place, Snapshot};

use super::super::Restored;
use super::super::shipping::Shipping;
use super::run::{Feed, MAX_PARALLELISM, Run};
use super::specs::specs;
use crate::testing::{attempt, plan, settings};
use crate::upload::Taken;

/// The vertex of the operators.
const VERTEX: VertexId = VertexId(0);

/// What all runs of a job share.
pub struct Rig {
    shipping: Shipping,
    attempts: u32,
    /// Whose state it is from now on.
    pub backend: BackendKind,
    /// What runs from now on.
    pub operators: Vec<OperatorSpec>,
}

impl Rig {
    pub async fn new(backend: BackendKind, place: Place) -> Self {
        Self { shipping: Shipping::new(place).await, attempts: 0, backend, operators: specs() }
    }

    fn plan(&self, parallelism: u32) -> Arc<Plan> {
        let settings = JobSettings { parallelism, backend: self.backend, ..settings() };
        let operators = self.operators.clone();
        let vertex = Vertex { id: VERTEX, name: "all".into(), parallelism, source: None, operators, sink: None };
        let of_test = plan(settings, "end", "collect");
        Arc::new(Plan { max_parallelism: MAX_PARALLELISM, vertices: vec![vertex], edges: Vec::new(), ..of_test })
    }

    /// Starts at this width, from a snapshot or from nothing.
    pub async fn start(&mut self, parallelism: u32, from: Option<&Snapshot>) -> Result<Run, Failure> {
        self.attempts += 1;
        let (attempt, plan) = (attempt(self.attempts), self.plan(parallelism));
        let restorer = self.shipping.restorer(&plan, attempt);
        let directory = from.map(|from| from.directory.clone()).unwrap_or_default();
        let mut assigned = from.map(|from| assign(&plan, &from.metadata).unwrap()).unwrap_or_default();
        let mut run = Run::new(plan, attempt);
        for subtask in 0..parallelism {
            let task = TaskId::new(VERTEX, subtask);
            let states = assigned.remove(&task).unwrap_or_default().states;
            let mut restored = self.shipping.restore(&restorer, task, states, &directory).await?;
            let cold = restored.databases.take().map(|databases| databases as Arc<dyn ColdStores>);
            run.open(restored.states, cold.as_ref());
        }
        Ok(run)
    }

    /// What the first task of a job of this width is restored with.
    pub async fn restored(&mut self, parallelism: u32, from: &Snapshot) -> Restored {
        self.attempts += 1;
        let (attempt, plan, task) = (attempt(self.attempts), self.plan(parallelism), TaskId::new(VERTEX, 0));
        let restorer = self.shipping.restorer(&plan, attempt);
        let states = assign(&plan, &from.metadata).unwrap().remove(&task).unwrap_or_default().states;
        self.shipping.restore(&restorer, task, states, &from.directory).await.unwrap()
    }

    /// Takes a snapshot of every task, which goes out while `meanwhile` comes.
    pub async fn snapshot(&mut self, run: &mut Run, meanwhile: &[Feed]) -> Snapshot {
        let checkpoint = CheckpointId(u64::from(self.attempts));
        let (kind, _) = self.shipping.destination(checkpoint);
        let plan = self.plan(run.width() as u32);
        let uploads = self.shipping.uploads(&plan, run.attempt);
        let (finished, sync_ns) = (false, 0);
        for subtask in 0..run.width() {
            let (task, parts) = (TaskId::new(VERTEX, subtask as u32), run.barrier(subtask, checkpoint));
            let (kind, durable) = (kind.clone(), Vec::new());
            uploads.submit(Taken { task, checkpoint, kind, finished, parts, durable, sync_ns });
        }
        meanwhile.iter().for_each(|feed| run.feed(feed));
        run.send_rest();
        let mut tasks = Vec::new();
        for _ in 0..run.width() {
            tasks.push(self.shipping.acknowledged().await);
        }
        self.shipping.snapshot(&plan, checkpoint, tasks)
    }
}
