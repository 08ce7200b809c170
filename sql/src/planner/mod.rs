//! Planning: a job graph to the checked plan that TaskManagers run.
//!
//! The way of a graph: `settings` -> `source`, `transform`, `sink` give each node a `Stream` and put `Stage`s behind one
//! another -> `prune` leaves out columns that no one uses -> `cut` makes vertices of stages. Every defect is collected; a
//! column whose type is unknown because of one is not reported again where it is used. `explain` shows a plan.

mod aggregate;
mod call;
mod clauses;
mod cut;
mod explain;
mod graph;
mod prune;
mod select;
mod settings;
mod sink;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod transform;
mod union;

use levada_common::declaration::Declarations;
use levada_common::graph::{GraphErrors, JobGraph};
use levada_common::plan::{PLAN_VERSION, Plan};

pub use explain::explain;
pub use settings::{PlanDefaults, PlanOverrides};

/// Checks `graph` and plans it for the connectors of `declarations`.
///
/// Errors: every defect of the graph, with its path and line, in the order of lines.
pub fn plan(graph: &JobGraph, declarations: &Declarations, overrides: &PlanOverrides) -> Result<Plan, GraphErrors> {
    let mut planner = graph::Planner::new(graph, declarations, overrides);
    planner.add_nodes();
    let graph::Planner { settings, mut stages, mut errors, warnings, max_parallelism, .. } = planner;
    if !errors.0.is_empty() {
        errors.0.sort_by_key(|error| error.line);
        return Err(errors);
    }
    prune::prune(&mut stages);
    let (vertices, edges) = cut::cut(stages);
    Ok(Plan { version: PLAN_VERSION, name: graph.name.clone(), settings, max_parallelism, vertices, edges, warnings })
}
