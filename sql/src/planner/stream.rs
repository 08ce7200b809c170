//! What planning knows of the output of a node, and the stages that plans are cut from.

use std::collections::BTreeSet;

use levada_common::ids::Uid;
use levada_common::plan::{Changelog, OperatorSpec, Partition, SideOutput, SinkSpec, SourceSpec};
use levada_common::types::StreamSchema;

use crate::expression::{Compiler, TypedExpr};

/// Where rows come out: a stage and which of its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Outlet {
    /// The stage's place in the list of stages; inputs come before what reads them.
    pub(super) stage: usize,
    /// 0 is the main output, those after it are the sides of its operator.
    pub(super) output: usize,
}

/// One step of the job, before chains are made.
#[derive(Debug, Clone)]
pub(super) struct Stage {
    /// The node that it comes from.
    pub(super) uid: Uid,
    /// What it does.
    pub(super) kind: StageKind,
    /// Parallel instances.
    pub(super) parallelism: u32,
    /// What it reads; several are a union, or the two inputs of its operator.
    pub(super) inputs: Vec<(Outlet, Partition)>,
    /// What it takes (for a source: nothing) and gives.
    pub(super) output: StreamSchema,
    /// The columns that each expression of it names: one set a column of a projection, one for a filter.
    pub(super) uses: Vec<BTreeSet<String>>,
}

impl Stage {
    /// The outputs beside the main one.
    pub(super) fn sides(&self) -> &[SideOutput] {
        match &self.kind {
            StageKind::Operator(operator) => &operator.sides,
            StageKind::Source(_) | StageKind::Pass | StageKind::Sink(_) => &[],
        }
    }

    /// What an output carries.
    pub(super) fn schema(&self, output: usize) -> &StreamSchema {
        match output.checked_sub(1) {
            None => &self.output,
            Some(side) => &self.sides()[side].schema,
        }
    }

    /// Which input of its operator the `link`-th of what it reads is: a join or a function may have a second one, and all that is
    /// united is the first.
    pub(super) fn input(&self, link: usize) -> u32 {
        match &self.kind {
            StageKind::Operator(operator) if operator.kind.second_input().is_some() => link as u32,
            _ => 0,
        }
    }
}

/// What a stage does.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "nearly every stage is an operator, and a plan has few")]
pub(super) enum StageKind {
    /// Rows come in.
    Source(SourceSpec),
    /// Rows are changed.
    Operator(OperatorSpec),
    /// Rows go through: a union, or a transform that changes nothing.
    Pass,
    /// Rows go out.
    Sink(SinkSpec),
}

/// The output of a node (or of a clause of it) with what must be known of it to go on.
#[derive(Debug, Clone)]
pub(super) struct Stream {
    /// Where it comes out.
    pub(super) stage: Outlet,
    /// Its columns.
    pub(super) schema: StreamSchema,
    /// Columns whose type an error has left unknown; in `schema` they have any type.
    pub(super) unknown: BTreeSet<String>,
    /// Parallel instances of the stage.
    pub(super) parallelism: u32,
    /// Whether all rows are in one instance by necessity: an aggregate without key.
    pub(super) single: bool,
    /// The columns by whose key group rows are spread over the instances, in key order.
    pub(super) partitioned_by: Option<Vec<String>>,
    /// On a changelog: how changes are matched.
    pub(super) changes: Option<Changelog>,
    /// Whether `window_start` and `window_end` are those of a window.
    pub(super) windowed: bool,
    /// Why there is no event time, for the message of a window that needs it; `None` where an error said so already.
    pub(super) no_event_time: Option<String>,
    /// Whether its input ends.
    pub(super) bounded: bool,
}

/// What is known of an expression.
pub(super) enum Checked {
    /// Its type.
    Known(TypedExpr),
    /// Nothing: it uses a column whose type is unknown.
    Unknown,
}

impl Stream {
    /// Types `sql` over this stream.
    pub(super) fn check(&self, compiler: &Compiler, sql: &str) -> Result<Checked, String> {
        if !self.unknown.is_empty() && compiler.columns_of(sql, &self.schema)?.iter().any(|name| self.unknown.contains(name)) {
            return Ok(Checked::Unknown);
        }
        compiler.type_of(sql, &self.schema).map(Checked::Known)
    }

    /// Whether rows with equal `keys` are together in `parallelism` instances as it is.
    pub(super) fn is_in_place(&self, keys: &[String], parallelism: u32) -> bool {
        self.parallelism == parallelism && (parallelism == 1 || self.partitioned_by.as_deref() == Some(keys))
    }

    /// How rows of this stream get to `parallelism` instances by `keys`.
    pub(super) fn by_key(&self, keys: &[String], parallelism: u32) -> Partition {
        match self.is_in_place(keys, parallelism) {
            true => Partition::Forward,
            false => Partition::Hash { columns: keys.to_vec() },
        }
    }

    /// How rows of this stream get to a stage of `parallelism` instances without a key.
    pub(super) fn spread(&self, parallelism: u32) -> Result<Partition, String> {
        if self.parallelism == parallelism {
            return Ok(Partition::Forward);
        }
        match &self.changes {
            Some(changes) if parallelism > 1 && changes.key.is_empty() => Err(format!(
                "parallelism {parallelism} cannot be had: changes of a key would get out of order; it must be {}",
                self.parallelism
            )),
            Some(changes) if parallelism > 1 => Ok(Partition::Hash { columns: changes.key.clone() }),
            _ => Ok(Partition::Rebalance),
        }
    }
}
