//! From the text of a document to a job graph, or to every defect in it.

use super::report::{At, Keys, Report};
use super::settings::read_settings;
use super::transform::read_transform;
use super::tree::{Builder, DOCUMENT_BYTES_MAX, Node, shown};
use super::{GRAPH_VERSION, GraphError, GraphErrors, JobGraph, SinkNode, SourceNode, WatermarkSetting, check, json, yaml};
use crate::ids::Uid;
use crate::keys::MAX_PARALLELISM_LIMIT;
use crate::plan::BadRecordPolicy;

/// Most sources, transforms and sinks together.
const NODES_MAX: usize = 1_000;

const DOCUMENT: Keys = Keys {
    allowed: &["version", "name", "settings", "sources", "transforms", "sinks"],
    later: &["sql", "functions"],
    synonyms: &[("nodes", "transforms"), ("operators", "transforms"), ("config", "settings")],
};

/// Keys of a source beside its connector's name.
pub(super) const SOURCE: Keys = Keys {
    allowed: &["watermark", "bad_records", "parallelism"],
    later: &[],
    synonyms: &[("watermarks", "watermark"), ("on_error", "bad_records")],
};

/// Keys of a sink beside its connector's name.
pub(super) const SINK: Keys = Keys {
    allowed: &["inputs", "bad_records", "parallelism"],
    later: &[],
    synonyms: &[("input", "inputs"), ("from", "inputs"), ("on_error", "bad_records")],
};

const WATERMARK: Keys = Keys {
    allowed: &["column", "disorder", "step", "idleness"],
    later: &[],
    synonyms: &[("delay", "disorder"), ("lateness", "disorder"), ("interval", "step")],
};

/// Reads a job graph, written as YAML or JSON.
///
/// Errors: all defects at once, each with line and path, in the order of lines; at most 200 are shown. The document is the
/// user's; nothing is opened or resolved, so connectors, columns and expressions are still unchecked.
pub fn parse(document: &str) -> Result<JobGraph, GraphErrors> {
    let document = document.strip_prefix('\u{feff}').unwrap_or(document);
    let (root, errors) = read_tree(document)?;
    let mut report = Report::new(&root, errors);
    let graph = read_document(&root, &mut report);
    let lines = report.finish()?;
    let mut graph = graph.expect("a document without defects is a graph");
    graph.lines = lines;
    Ok(graph)
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
        entries
            .iter()
            .map(|entry| (entry.key.as_str(), At { node: &entry.value, path: super::tree::join(&at.path, &entry.key) }))
            .collect()
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
        lines: super::Lines::default(),
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

/// The one key of a source or sink that is not a common one, and its options.
fn read_connector<'t>(at: &At<'t>, kind: &str, keys: &Keys, report: &mut Report) -> Option<(String, At<'t>)> {
    let entries = report.entries(at)?;
    let mut others = entries.iter().filter(|entry| !keys.allowed.contains(&entry.key.as_str()));
    let (first, rest): (_, Vec<_>) = (others.next(), others.collect());
    let Some(first) = first else {
        report.error(
            &at.path,
            format!("a {kind} names its connector as a key beside {}, for example `file:`", keys.allowed.join(", ")),
        );
        return None;
    };
    if rest.is_empty() {
        return Some((first.key.clone(), At { node: &first.value, path: super::tree::join(&at.path, &first.key) }));
    }
    // Of several, those that are near a common key are misspelt; what is left over is the connector.
    let candidates: Vec<_> = std::iter::once(first).chain(rest).collect();
    let misspelt = |key: &str| {
        keys.synonyms.iter().any(|(theirs, _)| *theirs == key)
            || crate::nearest::nearest(key, keys.allowed.iter().copied()).is_some()
    };
    let (wrong, connectors): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|entry| misspelt(&entry.key));
    wrong.iter().for_each(|entry| report.unknown_key(&at.path, &entry.key, keys));
    if connectors.len() > 1 {
        let names: Vec<String> = connectors.iter().map(|entry| shown(&entry.key)).collect();
        let allowed = keys.allowed.join(", ");
        report.error(&at.path, format!("a {kind} has one connector, found {}; other keys: {allowed}", names.join(", ")));
    }
    None
}

fn read_source(name: &str, at: &At<'_>, max_parallelism: u32, report: &mut Report) -> Option<SourceNode> {
    let connector = read_connector(at, "source", &SOURCE, report);
    let common = Common::read(at, max_parallelism, report)?;
    let (connector, options) = connector?;
    Some(SourceNode {
        uid: Uid::new(name),
        connector,
        options: report.options(&options),
        watermark: common.get("watermark").map(|at| read_watermark(&at, report)).unwrap_or_default(),
        bad_records: common.bad_records,
        parallelism: common.parallelism,
    })
}

fn read_sink(name: &str, at: &At<'_>, max_parallelism: u32, report: &mut Report) -> Option<SinkNode> {
    let connector = read_connector(at, "sink", &SINK, report);
    let common = Common::read(at, max_parallelism, report)?;
    let inputs = read_inputs(common.get("inputs"), &at.path, report);
    let (connector, options) = connector?;
    Some(SinkNode {
        uid: Uid::new(name),
        inputs,
        connector,
        options: report.options(&options),
        bad_records: common.bad_records,
        parallelism: common.parallelism,
    })
}

/// What every node has, and a way to the rest.
pub(super) struct Common<'t> {
    entries: &'t [super::tree::Entry],
    path: String,
    /// `bad_records:`
    pub bad_records: BadRecordPolicy,
    /// `parallelism:`
    pub parallelism: Option<u32>,
}

impl<'t> Common<'t> {
    /// Reads what every node has; `None` where the node is no map, which is reported already.
    pub fn read(at: &At<'t>, max_parallelism: u32, report: &mut Report) -> Option<Self> {
        let super::tree::Value::Map(entries) = &at.node.value else { return None };
        let mut common = Self { entries, path: at.path.clone(), bad_records: BadRecordPolicy::Fail, parallelism: None };
        let policies = [("fail", BadRecordPolicy::Fail), ("drop", BadRecordPolicy::Drop)];
        if let Some(policy) =
            common.get("bad_records").and_then(|at| report.one_of(&at, &policies, &["dead_letter", "dead-letter"]))
        {
            common.bad_records = policy;
        }
        common.parallelism = common.get("parallelism").and_then(|at| report.integer(&at, 1..=max_parallelism));
        Some(common)
    }

    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<At<'t>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(At { node: &entry.value, path: super::tree::join(&self.path, key) })
    }
}

/// `inputs:` of a transform or sink.
pub(super) fn read_inputs(at: Option<At<'_>>, path: &str, report: &mut Report) -> Vec<Uid> {
    match at {
        Some(at) => report.names(&at, "input").into_iter().map(|(name, _)| Uid::new(name)).collect(),
        None => {
            report.error(path, "`inputs` is missing: the names of the nodes that it reads, such as `inputs: [bids]`");
            Vec::new()
        }
    }
}

fn read_watermark(at: &At<'_>, report: &mut Report) -> WatermarkSetting {
    match &at.node.value {
        super::tree::Value::Scalar { text, .. } if text == "none" => return WatermarkSetting::None,
        super::tree::Value::Scalar { .. } => {
            report.error(&at.path, "`none` or a map such as { column: time, disorder: 2s } is expected");
            return WatermarkSetting::Default;
        }
        _ => {}
    }
    let Some(fields) = report.fields(at, &WATERMARK) else { return WatermarkSetting::Default };
    WatermarkSetting::Column {
        column: fields.get("column").and_then(|at| report.text(&at, "a column")).map(str::to_owned),
        disorder_ms: fields.get("disorder").and_then(|at| report.duration_ms(&at, 0)).map(|ms| ms as i64),
        step_ms: fields.get("step").and_then(|at| report.duration_ms(&at, 0)).map(|ms| ms as i64),
        idleness_ms: fields.get("idleness").and_then(|at| report.duration_or_off(&at, 1)),
    }
}
