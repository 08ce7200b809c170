//! From the text of a document to a job graph, or to every defect in it.

use super::node::{read_sink, read_source};
use super::report::{At, Keys, Report};
use super::settings::read_settings;
use super::transform::read_transform;
use super::tree::{Builder, DOCUMENT_BYTES_MAX, Node, join, shown};
use super::{GRAPH_VERSION, GraphError, GraphErrors, JobGraph, Lines, check, json, yaml};
use crate::ids::Uid;
use crate::keys::MAX_PARALLELISM_LIMIT;

/// Most sources, transforms and sinks together.
const NODES_MAX: usize = 1_000;

const DOCUMENT: Keys = Keys {
    allowed: &["version", "name", "settings", "sources", "transforms", "sinks"],
    later: &["sql", "functions"],
    synonyms: &[("nodes", "transforms"), ("operators", "transforms"), ("config", "settings")],
};

/// Reads a job graph, written as YAML or JSON.
///
/// Errors: all defects at once, each with line and path, in the order of lines; at most 200 are shown. The document is the
/// user's; nothing is opened or resolved, so connectors, columns and expressions are still unchecked.
pub fn parse(document: &str) -> Result<JobGraph, GraphErrors> {
    match read(document) {
        (Some(graph), errors) if errors.0.is_empty() => Ok(graph),
        (_, errors) => Err(errors),
    }
}

/// As `parse`, but gives what could be read beside the defects, so that more of them can be found in it: nodes with a defect may
/// be missing, and then their readers' inputs name nothing.
pub fn read(document: &str) -> (Option<JobGraph>, GraphErrors) {
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    let (root, errors) = match read_tree(document) {
        Ok(read) => read,
        Err(errors) => return (None, errors),
    };
    let mut report = Report::new(&root, errors);
    let graph = read_document(&root, &mut report);
    let (lines, errors) = report.finish();
    (graph.map(|graph| JobGraph { lines, ..graph }), errors)
}

/// Reads the document into a tree; what was refused and worked around comes with it.
pub(super) fn read_tree(document: &str) -> Result<(Node, GraphErrors), GraphErrors> {
    let refused = |line, message: String| Err(GraphErrors(vec![GraphError { line, path: String::new(), message }]));
    if document.len() > DOCUMENT_BYTES_MAX {
        return refused(1, format!("the document has {} bytes; at most {DOCUMENT_BYTES_MAX} are allowed", document.len()));
    }
    let start = document.trim_start();
    let mut not_json = None;
    let mut builder = Builder::default();
    if start.starts_with('{') {
        match json::read(document, &mut builder) {
            Ok(()) | Err(json::Refusal::Limit) => return finish_tree(builder),
            Err(json::Refusal::Syntax(line, reason)) => not_json = Some((line, reason)),
        }
        builder = Builder::default();
    }
    if yaml::read(document, &mut builder).is_err() {
        // A map in braces whose first key is quoted was meant as JSON.
        let meant_json = start.trim_start_matches('{').trim_start().starts_with('"');
        if let Some((line, reason)) = not_json.filter(|_| meant_json) {
            return refused(line, format!("this is not JSON: {reason}"));
        }
    }
    finish_tree(builder)
}

fn finish_tree(builder: Builder) -> Result<(Node, GraphErrors), GraphErrors> {
    match builder.finish() {
        (Some(root), errors) => Ok((root, errors)),
        (None, errors) if errors.0.is_empty() => {
            let message = "the document is empty".to_owned();
            Err(GraphErrors(vec![GraphError { line: 1, path: String::new(), message }]))
        }
        (None, errors) => Err(errors),
    }
}

/// The graph; `None` only where something was reported.
fn read_document(root: &Node, report: &mut Report) -> Option<JobGraph> {
    let at = At { node: root, path: String::new() };
    if root.is_null() {
        report.error("", "the document is empty");
        return None;
    }
    let fields = report.fields(&at, &DOCUMENT)?;
    match fields.get("version") {
        None => report.error("", format!("the version of the document is missing; write `version: {GRAPH_VERSION}`")),
        Some(at) => read_version(&at, report),
    }
    let name = match fields.get("name") {
        None => {
            report.error("", "the job has no name; write `name: my-job`");
            None
        }
        Some(at) => read_name(&at, report),
    };
    let settings = fields.get("settings").map(|at| read_settings(&at, report)).unwrap_or_default();
    let max_parallelism = settings.max_parallelism.unwrap_or(MAX_PARALLELISM_LIMIT);

    let [sources, transforms, sinks] = ["sources", "transforms", "sinks"].map(|section| {
        let Some(at) = fields.get(section) else { return Vec::new() };
        let entries = report.entries(&at).unwrap_or_default();
        entries.iter().map(|entry| (entry.key.as_str(), At { node: &entry.value, path: join(&at.path, &entry.key) })).collect()
    });
    let count = sources.len() + transforms.len() + sinks.len();
    if count > NODES_MAX {
        report.error("", format!("the job has {count} nodes; at most {NODES_MAX} are allowed"));
        return None;
    }
    check::names(&[&sources, &transforms, &sinks], report);
    let graph = JobGraph {
        name: name.unwrap_or_default(),
        settings,
        sources: sources.iter().filter_map(|(name, at)| read_source(name, at, max_parallelism, report)).collect(),
        transforms: transforms.iter().filter_map(|(name, at)| read_transform(name, at, max_parallelism, report)).collect(),
        sinks: sinks.iter().filter_map(|(name, at)| read_sink(name, at, max_parallelism, report)).collect(),
        lines: Lines::default(),
    };
    let all_read = graph.sources.len() + graph.transforms.len() + graph.sinks.len() == count;
    check::structure(&graph, [sources.len(), sinks.len()], all_read, report);
    Some(graph)
}

fn read_version(at: &At<'_>, report: &mut Report) {
    let Some(text) = report.text(at, "a version") else { return };
    if text.parse() != Ok(GRAPH_VERSION) {
        report.error(&at.path, format!("version {} is not known; this release reads version {GRAPH_VERSION}", shown(text)));
    }
}

fn read_name(at: &At<'_>, report: &mut Report) -> Option<String> {
    let text = report.text(at, "the job's name")?;
    let defect = if text.len() > Uid::BYTES_MAX {
        Some(format!("a name has at most {} bytes, this one has {}", Uid::BYTES_MAX, text.len()))
    } else {
        text.chars().find(|c| c.is_control()).map(|c| format!("a name must not contain {}", c.escape_default()))
    };
    match defect {
        Some(defect) => {
            report.error(&at.path, defect);
            None
        }
        None => Some(text.to_owned()),
    }
}
