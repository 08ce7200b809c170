//! Reads `join:` of a transform, and checks what goes with it.

use super::node::read_references;
use super::report::{At, Fields, Keys, Report};
use super::tree::{Value, join};
use super::{GraphInterval, GraphJoin};
use crate::plan::JoinKind;

const JOIN: Keys = Keys {
    allowed: &["with", "kind", "on", "within", "lookup", "take"],
    later: &[],
    synonyms: &[
        ("right", "with"),
        ("to", "with"),
        ("type", "kind"),
        ("using", "on"),
        ("key", "on"),
        ("between", "within"),
        ("interval", "within"),
        ("columns", "take"),
        ("select", "take"),
        ("table", "lookup"),
    ],
};

const WITHIN: Keys = Keys {
    allowed: &["from", "to"],
    later: &[],
    synonyms: &[("lower", "from"), ("upper", "to"), ("after", "to"), ("before", "from"), ("start", "from"), ("end", "to")],
};

/// Reads `join:`; `None` where it is no map, or lacks what it cannot be without (reported).
pub(super) fn read_join(at: &At<'_>, report: &mut Report) -> Option<GraphJoin> {
    let fields = report.fields(at, &JOIN)?;
    let with = match fields.get("with") {
        Some(at) => read_references(&at, report),
        None => {
            report.error(&at.path, "`with` is missing: the names of the nodes of the right side, such as `with: [auctions]`");
            Vec::new()
        }
    };
    let on = match fields.get("on") {
        Some(at) => read_columns_on(&at, report),
        None => {
            let message = "`on` is missing: the columns that must be equal, such as `on: [id]` or `on: { id: seller }`";
            report.error(&at.path, message);
            Vec::new()
        }
    };
    let kinds = JoinKind::ALL.map(|kind| (kind.name(), kind));
    let kind = fields.get("kind").and_then(|at| report.one_of(&at, &kinds, &[])).unwrap_or_default();
    let within = fields.get("within").and_then(|at| read_within(&at, report));
    let lookup = fields.get("lookup").and_then(|at| report.one_of(&at, &[("true", true), ("false", false)], &[]));
    let take = fields.get("take").map(|at| read_pairs(&at, report));
    if let Some(take) = fields.get("take")
        && matches!(kind, JoinKind::Semi | JoinKind::Anti)
    {
        report.error(&take.path, format!("a join of kind {kind} gives left rows as they are; leave `take` out"));
    }
    Some(GraphJoin { with, kind, on, within, lookup: lookup.unwrap_or_default(), take })
}

/// A map of left to right columns, or a list of columns that both sides have.
pub(super) fn read_columns_on(at: &At<'_>, report: &mut Report) -> Vec<(String, String)> {
    if !matches!(at.node.value, Value::Map(_)) {
        return report.names(at, "column").into_iter().map(|(name, _)| (name.to_owned(), name.to_owned())).collect();
    }
    read_pairs(at, report)
}

/// A map from column names to column names.
fn read_pairs(at: &At<'_>, report: &mut Report) -> Vec<(String, String)> {
    let Some(entries) = report.entries(at) else { return Vec::new() };
    if entries.is_empty() {
        report.error(&at.path, "at least one column is expected");
    }
    let mut pairs = Vec::new();
    for entry in entries {
        let path = join(&at.path, &entry.key);
        if entry.key.trim().is_empty() {
            report.error(&path, "a column's name must not be blank");
        }
        if let Some(column) = report.text(&At { node: &entry.value, path }, "a column") {
            pairs.push((entry.key.clone(), column.to_owned()));
        }
    }
    pairs
}

fn read_within(at: &At<'_>, report: &mut Report) -> Option<GraphInterval> {
    let fields = report.fields(at, &WITHIN)?;
    if fields.get("from").is_none() && fields.get("to").is_none() {
        report.error(
            &at.path,
            "`from` or `to` is expected, such as { from: -5s, to: 10s }: the right row's time less the left one's",
        );
        return None;
    }
    let mut bound = |key| match fields.get(key) {
        Some(at) => report.signed_duration_ms(&at),
        None => Some(0),
    };
    let (from_ms, to_ms) = (bound("from")?, bound("to")?);
    if from_ms > to_ms {
        report.error(&at.path, "`from` must not be greater than `to`");
        return None;
    }
    Some(GraphInterval { from_ms, to_ms })
}

fn is_true(value: &Value) -> bool {
    matches!(value, Value::Scalar { text, .. } if text == "true")
}

/// Clauses that do not go with a join.
pub(super) fn check_join(fields: &Fields<'_>, report: &mut Report) {
    let Some(at) = fields.get("join") else { return };
    let has = |key| fields.get(key).is_some();
    for key in ["aggregate", "process", "deduplicate", "order_by"] {
        if has(key) {
            report
                .error(&fields.path_of(key), format!("a node has a `join` or a `{key}`, not both; give each a node of its own"));
        }
    }
    if has("key_by") {
        report.error(&fields.path_of("key_by"), "the key of a join stands under `on`; leave `key_by` out");
    }
    let Value::Map(entries) = &at.node.value else { return };
    let is_within = entries.iter().any(|entry| entry.key == "within");
    if is_within && has("window") {
        report.error(&join(&at.path, "within"), "a join has a `window` or an interval `within`, not both");
    }
    if let Some(lookup) = entries.iter().find(|entry| entry.key == "lookup" && is_true(&entry.value.value)) {
        let path = join(&at.path, &lookup.key);
        for key in ["window", "ttl"].into_iter().filter(|key| has(key)) {
            let message = format!("a left row meets what the table has when the row comes, whatever the time; leave `{key}` out");
            report.error(&fields.path_of(key), message);
        }
        if is_within {
            report.error(&path, "a join has a `lookup` or an interval `within`, not both");
        }
        return;
    }
    if has("ttl") && (is_within || has("window")) {
        let message = "rows of a join with a `window` or `within` are kept until time has passed them; leave `ttl` out";
        report.error(&fields.path_of("ttl"), message);
    }
}
