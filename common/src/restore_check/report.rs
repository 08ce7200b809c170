//! What keeps a job from being restored from a snapshot, as people read it.

use std::fmt;

use crate::checkpoint::StateHandle;
use crate::ids::{CheckpointId, Uid};

/// A state as messages name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateText {
    /// The operator.
    pub uid: Uid,
    /// The state.
    pub name: String,
    /// What it is: kind and type.
    pub what: String,
    /// Rows over all subtasks.
    pub rows: u64,
    /// Bytes over all subtasks.
    pub bytes: u64,
}

impl StateText {
    /// The state that these handles hold.
    pub fn of(uid: &Uid, name: &str, handles: &[&StateHandle]) -> Self {
        let what = handles
            .first()
            .map_or("", |handle| if handle.kind.is_keyed() { handle.schema.shape.name() } else { handle.kind.name() });
        Self {
            uid: uid.clone(),
            name: name.into(),
            what: what.into(),
            rows: handles.iter().map(|handle| handle.rows).sum(),
            bytes: handles.iter().map(|handle| handle.handle.length()).sum(),
        }
    }
}

impl fmt::Display for StateText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" of operator \"{}\" ({}, {} rows, {} bytes)", self.name, self.uid, self.what, self.rows, self.bytes)
    }
}

/// One thing in which snapshot and job do not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// The job has no state of this operator.
    Operator {
        /// The operator.
        uid: Uid,
        /// It is in the job, but keeps no state there.
        stateless: bool,
        /// What the snapshot has of it.
        states: Vec<StateText>,
        /// What it may be called now.
        renamed: Option<String>,
    },
    /// The job has the operator, but not this state of it.
    State {
        /// The state.
        state: StateText,
        /// What it may be called now.
        renamed: Option<String>,
        /// States of the operator that the snapshot lacks.
        planned: Vec<String>,
    },
    /// A state is something else now.
    Changed {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// Which part of it.
        what: &'static str,
        /// As it is in the snapshot.
        found: String,
        /// As it is in the job.
        planned: String,
    },
    /// A state of windows would mean something else in the job.
    Window {
        /// The operator.
        uid: Uid,
        /// The state.
        state: String,
        /// Why, and what else can be done than to drop all that the operator has.
        reason: &'static str,
    },
    /// Key groups do not nest.
    MaxParallelism {
        /// The snapshot's.
        found: u32,
        /// The job's.
        planned: u32,
    },
    /// A job's parallelism is above what its state can be cut into.
    Parallelism {
        /// The greatest of the job.
        wanted: u32,
        /// The snapshot's max parallelism.
        max_parallelism: u32,
    },
    /// What is to be dropped is not there.
    NothingToDrop {
        /// As the user wrote it.
        drop: String,
        /// What may be meant.
        near: Option<String>,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let meant =
            |near: &Option<String>| near.as_ref().map(|near| format!("; was it renamed to \"{near}\"?")).unwrap_or_default();
        match self {
            Self::Operator { uid, stateless, states, renamed } => {
                let where_to = if *stateless { "keeps no state in the job" } else { "is not in the job" };
                let states: Vec<String> = states
                    .iter()
                    .map(|state| format!("\"{}\" ({}, {} rows, {} bytes)", state.name, state.what, state.rows, state.bytes))
                    .collect();
                write!(f, "operator \"{uid}\" {where_to}, the snapshot has its state {}{}", states.join(", "), meant(renamed))?;
                write!(f, "; --drop-state {uid} leaves it behind")
            }
            Self::State { state, renamed, planned } => {
                write!(f, "state {state} is not in the job{}", meant(renamed))?;
                if renamed.is_none() && !planned.is_empty() {
                    write!(f, "; new there: {}", planned.join(", "))?;
                }
                write!(f, "; --drop-state {}/{} leaves it behind", state.uid, state.name)
            }
            Self::Changed { uid, state, what, found, planned } => {
                write!(
                    f,
                    "state \"{state}\" of operator \"{uid}\": its {what} is {found} in the snapshot, {planned} in the job; --drop-state {uid}/{state} begins anew"
                )
            }
            Self::Window { uid, state, reason } => {
                write!(f, "state \"{state}\" of operator \"{uid}\": {reason}; --drop-state {uid} begins anew")
            }
            Self::MaxParallelism { found, planned } => {
                write!(
                    f,
                    "max parallelism is {found} in the snapshot, {planned} in the job; it must be {found} or a multiple of it (without max_parallelism in the job it is {found})"
                )
            }
            Self::Parallelism { wanted, max_parallelism } => {
                write!(
                    f,
                    "parallelism {wanted} is above the snapshot's max parallelism {max_parallelism}; use at most {max_parallelism}, or set max_parallelism to a multiple of {max_parallelism}"
                )
            }
            Self::NothingToDrop { drop, near } => {
                let near = near.as_ref().map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
                write!(f, "--drop-state {drop}: the snapshot has no such state{near}")
            }
        }
    }
}

/// Why a job is not restored from a snapshot: every mismatch, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreReport {
    /// The snapshot.
    pub checkpoint: CheckpointId,
    /// It is a savepoint.
    pub savepoint: bool,
    /// What does not fit; not empty.
    pub mismatches: Vec<Mismatch>,
}

impl fmt::Display for RestoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.savepoint { "savepoint" } else { "checkpoint" };
        let count = self.mismatches.len();
        let plural = if count == 1 { "" } else { "es" };
        write!(f, "{count} mismatch{plural} between {what} {} and the job", self.checkpoint)?;
        self.mismatches.iter().try_for_each(|mismatch| write!(f, "\n  {mismatch}"))
    }
}

impl std::error::Error for RestoreReport {}
