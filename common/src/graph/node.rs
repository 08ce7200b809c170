//! Reads a node under `sources:` or `sinks:`, and what every node has.

use super::report::{At, Keys, Report};
use super::tree::{Entry, Value, join, shown};
use super::watermark::read_watermark;
use super::{InputRef, SinkNode, SourceNode};
use crate::ids::Uid;
use crate::nearest::nearest;
use crate::plan::BadRecordPolicy;

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
        return Some((first.key.clone(), At { node: &first.value, path: join(&at.path, &first.key) }));
    }
    // Of several, those that are near a common key are misspelt; what is left over is the connector.
    let candidates: Vec<_> = std::iter::once(first).chain(rest).collect();
    let misspelt = |key: &str| {
        keys.synonyms.iter().any(|(theirs, _)| *theirs == key) || nearest(key, keys.allowed.iter().copied()).is_some()
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

/// Reads a source; `None` where something was too defective (reported).
pub(super) fn read_source(name: &str, at: &At<'_>, max_parallelism: u32, report: &mut Report) -> Option<SourceNode> {
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

/// Reads a sink; `None` where something was too defective (reported).
pub(super) fn read_sink(name: &str, at: &At<'_>, max_parallelism: u32, report: &mut Report) -> Option<SinkNode> {
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
    entries: &'t [Entry],
    path: String,
    /// `bad_records:`
    pub bad_records: BadRecordPolicy,
    /// `parallelism:`
    pub parallelism: Option<u32>,
}

impl<'t> Common<'t> {
    /// Reads what every node has; `None` where the node is no map, which is reported already.
    pub fn read(at: &At<'t>, max_parallelism: u32, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &at.node.value else { return None };
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
        Some(At { node: &entry.value, path: join(&self.path, key) })
    }
}

/// `inputs:` of a transform or sink.
pub(super) fn read_inputs(at: Option<At<'_>>, path: &str, report: &mut Report) -> Vec<InputRef> {
    match at {
        Some(at) => read_references(&at, report),
        None => {
            report.error(path, "`inputs` is missing: the names of the nodes that it reads, such as `inputs: [bids]`");
            Vec::new()
        }
    }
}

/// A list of what is read, or one.
pub(super) fn read_references(at: &At<'_>, report: &mut Report) -> Vec<InputRef> {
    report.names(at, "input").into_iter().map(|(text, _)| InputRef::new(text)).collect()
}
