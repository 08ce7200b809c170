//! A snapshot of a function in memory, and who gets what of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::concat_batches;
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::state_schema::{Stamps, StateDeclaration};
use levada_state::format::with_groups;
use levada_state::row_codec::restamped;
use levada_state::snapshot::{Contents, DatabaseSnapshot, StatePart};

use super::HarnessError;
use crate::operator::RestoredState;

/// A snapshot of a function.
#[derive(Debug, Clone)]
pub struct HarnessSnapshot {
    pub(super) checkpoint: u64,
    states: BTreeMap<String, HarnessState>,
    /// Those that some of the states are in.
    pub(super) databases: Vec<Arc<dyn DatabaseSnapshot>>,
}

#[derive(Debug, Clone)]
struct HarnessState {
    kind: StateKind,
    stamps: Stamps,
    /// Whether they are in databases too.
    in_databases: bool,
    /// The rows of each instance.
    parts: Vec<Vec<RecordBatch>>,
}

impl HarnessSnapshot {
    pub(super) fn new(checkpoint: u64) -> Self {
        Self { checkpoint, states: BTreeMap::new(), databases: Vec::new() }
    }

    /// The states by name, each with its rows as a checkpoint has them, whichever instance they come from.
    pub fn states(&self) -> impl Iterator<Item = (&str, Vec<RecordBatch>)> {
        self.states.iter().map(|(name, state)| (name.as_str(), state.parts.iter().flatten().cloned().collect()))
    }

    /// Takes a state of one instance.
    pub(super) fn take(&mut self, part: StatePart, max_parallelism: u32) -> Result<(), HarnessError> {
        let (name, kind, stamps) = (part.meta.name.clone(), part.meta.kind, part.meta.schema.ttl);
        let in_databases = part.is_in_database();
        if let Contents::Database(database) = &part.contents {
            self.databases.push(Arc::clone(database));
        }
        let failed = || HarnessError::Snapshot { state: name.clone() };
        let (_, pieces) = part.into_pieces().map_err(|_| failed())?;
        let batches = pieces.collect::<Result<Vec<_>, _>>().map_err(|_| failed())?;
        let keyed = |batch: RecordBatch| if kind.is_keyed() { with_groups(&batch, max_parallelism) } else { batch };
        let batches = batches.into_iter().map(keyed).collect();
        let state = HarnessState { kind, stamps, in_databases, parts: Vec::new() };
        self.states.entry(name).or_insert(state).parts.push(batches);
        Ok(())
    }

    /// What falls to one instance. Keyed states go whole to each, which takes its key groups; lists are cut into even parts. Stamps of
    /// another clock than that of `declared` mean nothing. Without those that are in databases, where these are restored.
    pub(super) fn of(
        &self,
        (subtask, parallelism): (u32, u32),
        declared: &[StateDeclaration],
        in_databases: bool,
    ) -> Vec<RestoredState> {
        let states = self.states.iter().filter(|(_, state)| !(in_databases && state.in_databases));
        let states = states.map(|(name, HarnessState { kind, stamps, parts, .. })| {
            let batches: Vec<RecordBatch> = match kind {
                StateKind::OperatorList => share(parts, subtask as usize, parallelism as usize),
                StateKind::OperatorBroadcast => parts[subtask as usize % parts.len()].clone(),
                _ => parts.iter().flatten().cloned().collect(),
            };
            let now = declared.iter().find(|state| state.name == *name).map_or(Stamps::None, |state| state.schema.ttl);
            let batches = batches.into_iter().map(|batch| restamped(batch, *stamps, now)).collect();
            RestoredState { name: name.clone(), kind: *kind, batches }
        });
        states.collect()
    }
}

/// Of all rows in order, the `subtask`-th of `parallelism` even parts; each instance its own where there are as many.
fn share(parts: &[Vec<RecordBatch>], subtask: usize, parallelism: usize) -> Vec<RecordBatch> {
    if parts.len() == parallelism {
        return parts[subtask].clone();
    }
    let all: Vec<&RecordBatch> = parts.iter().flatten().collect();
    let Some(first) = all.first() else { return Vec::new() };
    let all = concat_batches(&first.schema(), all).expect("the pieces of one state have one schema");
    let rows = all.num_rows();
    let (start, end) = (rows * subtask / parallelism, rows * (subtask + 1) / parallelism);
    if start == end { Vec::new() } else { vec![all.slice(start, end - start)] }
}
