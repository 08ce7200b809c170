//! Planning: a job graph to the checked plan that TaskManagers run.
//!
//! The way of a graph: `settings` -> `source`, `transform`, `sink` give each node a `Stream` and put `Stage`s behind one
//! another -> `cut::read` leaves out stages and `prune` columns that no one reads -> `cut` makes vertices of stages. Every defect is collected; a
//! column whose type is unknown because of one is not reported again where it is used. `explain` shows a plan.

mod aggregate;
mod call;
mod changes;
mod clauses;
mod cut;
mod distinct;
mod explain;
mod firing;
mod graph;
mod join;
mod lookup;
mod outputs;
mod process;
mod process_window;
mod prune;
mod select;
mod settings;
mod sink;
mod source;
mod split;
mod stream;
#[cfg(test)]
mod tests;
mod top;
mod transform;
mod union;
mod watermark;
mod window;

use levada_common::declaration::Declarations;
use levada_common::graph::{GraphErrors, JobGraph};
use levada_common::plan::{PLAN_VERSION, Plan};

pub use explain::explain;
pub use settings::{PlanDefaults, PlanOverrides};

/// Reads a document, checks it and plans it for the connectors of `declarations`.
///
/// Errors: every defect, those of its form and those of its meaning, in the order of lines. What a defect of form hides is
/// not reported: below a place that could not be read nothing more is said.
pub fn plan_document(
    document: &str,
    declarations: &Declarations,
    overrides: &PlanOverrides,
) -> Result<(JobGraph, Plan), GraphErrors> {
    let (graph, mut errors) = levada_common::graph::read(document);
    let Some(graph) = graph else { return Err(errors) };
    match plan(&graph, declarations, overrides) {
        Ok(plan) if errors.0.is_empty() => Ok((graph, plan)),
        Ok(_) => Err(errors),
        Err(found) => {
            let known: Vec<String> = errors.0.iter().map(|error| error.path.clone()).collect();
            let hidden = |path: &str| known.iter().any(|known| is_at_or_below(path, known) || is_at_or_below(known, path));
            errors.0.extend(found.0.into_iter().filter(|error| !hidden(&error.path)));
            errors.0.sort_by_key(|error| error.line);
            Err(errors)
        }
    }
}

/// Whether the thing at `path` is, or lies in, the one at `place`.
fn is_at_or_below(path: &str, place: &str) -> bool {
    path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || (!place.is_empty() && rest.starts_with(['.', '['])))
}

/// Checks `graph` and plans it for the connectors of `declarations`.
///
/// Errors: every defect of the graph, with its path and line, in the order of lines.
pub fn plan(graph: &JobGraph, declarations: &Declarations, overrides: &PlanOverrides) -> Result<Plan, GraphErrors> {
    let mut planner = graph::Planner::new(graph, declarations, overrides);
    planner.add_nodes();
    let graph::Planner { settings, stages, streams, mut errors, warnings, max_parallelism, .. } = planner;
    if !errors.0.is_empty() {
        errors.0.sort_by_key(|error| error.line);
        return Err(errors);
    }
    let changes = |(uid, stream): (_, Option<stream::Stream>)| Some((uid, stream?.changes?));
    let changelogs = streams.into_iter().filter_map(changes).collect();
    let mut stages = cut::read(stages);
    prune::prune(&mut stages);
    let (vertices, edges) = cut::cut(stages);
    Ok(Plan { version: PLAN_VERSION, name: graph.name.clone(), settings, max_parallelism, vertices, edges, warnings, changelogs })
}
