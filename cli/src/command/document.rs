//! The job file: read, its relative paths made absolute against its folder.

use std::path::Path;

use anyhow::Context;
use levada_common::graph::{self, GraphErrors, JobGraph};
use levada_common::plan::Plan;
use levada_sql::PlanOverrides;

use super::Usage;

/// A job file, ready to be sent.
pub struct Document {
    /// Its name in messages.
    pub name: String,
    /// Its text; lines as in the file.
    pub text: String,
}

/// Reads a job file.
pub fn read(path: &Path) -> anyhow::Result<Document> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Usage(format!("reading job file \"{name}\": {error}")))?;
    let path = std::path::absolute(path).with_context(|| format!("finding the folder of \"{name}\""))?;
    let folder = path.parent().context("a file has a folder")?;
    let declarations = levada_connectors::registry().declarations;
    let text = graph::absolute_paths(&text, folder, &declarations).map_err(|errors| listed(&name, &errors))?;
    Ok(Document { name, text })
}

impl Document {
    /// Checks it as the JobManager would, with the built-in connectors.
    pub fn plan(&self, parallelism: Option<u32>) -> anyhow::Result<Plan> {
        Ok(self.graph_and_plan(parallelism)?.1)
    }

    /// The same, with the graph.
    pub fn graph_and_plan(&self, parallelism: Option<u32>) -> anyhow::Result<(JobGraph, Plan)> {
        let declarations = levada_connectors::registry().declarations;
        let overrides = PlanOverrides { parallelism, ..PlanOverrides::default() };
        let planned = levada_sql::plan_document(&self.text, &declarations, &overrides);
        Ok(planned.map_err(|errors| listed(&self.name, &errors))?)
    }
}

/// Every defect, a line each, each with the file's name before it.
fn listed(name: &str, errors: &GraphErrors) -> Usage {
    let lines: Vec<String> = errors.0.iter().map(|error| format!("{name}: {error}")).collect();
    Usage(format!("{} error{} in the job file\n{}", lines.len(), if lines.len() == 1 { "" } else { "s" }, lines.join("\n")))
}
