//! Reads `order_by`, `limit`, `rank`, `with_ties` and `deduplicate` of a transform, and checks what goes with them.

use super::report::{At, Fields, Keys, Report};
use super::tree::{Value, shown};
use super::{GraphDeduplicate, GraphTop};
use crate::plan::TopSpec;
use crate::types::OP_COLUMN;

const DEDUPLICATE: Keys =
    Keys { allowed: &["keep", "by"], later: &[], synonyms: &[("on", "by"), ("order_by", "by"), ("time", "by")] };

/// `order_by`, `limit`, `rank` and `with_ties`; `None` where there is no `order_by`.
pub(super) fn read_top(fields: &Fields<'_>, report: &mut Report) -> Option<GraphTop> {
    let order = fields.get("order_by")?;
    let order = report.names(&order, "column").into_iter().filter_map(|(text, path)| read_order(text, &path, report)).collect();
    let limit = match fields.get("limit") {
        Some(at) => report.integer(&at, 1..=TopSpec::LIMIT_MAX),
        None => {
            report
                .error(&fields.path_of("order_by"), "`limit` is missing: how many rows of each key are kept, such as `limit: 3`");
            None
        }
    };
    let rank = fields.get("rank").and_then(|at| read_name(&at, report));
    let with_ties = fields.get("with_ties").and_then(|at| report.one_of(&at, &[("true", true), ("false", false)], &[]));
    Some(GraphTop { order, limit: limit.unwrap_or(1), rank, with_ties: with_ties.unwrap_or_default() })
}

/// `column`, `column asc` or `column desc`.
fn read_order(text: &str, path: &str, report: &mut Report) -> Option<(String, bool)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words.as_slice() {
        [column] => Some(((*column).to_owned(), false)),
        [column, way] if way.eq_ignore_ascii_case("asc") || way.eq_ignore_ascii_case("desc") => {
            Some(((*column).to_owned(), way.eq_ignore_ascii_case("desc")))
        }
        _ => {
            let found = shown(text);
            report.error(
                path,
                format!("a column, and `desc` behind it or not, is expected, found \"{found}\"; compute it in a `select` before"),
            );
            None
        }
    }
}

fn read_name(at: &At<'_>, report: &mut Report) -> Option<String> {
    let name = report.text(at, "the name of an output column")?;
    if name == OP_COLUMN {
        report.error(&at.path, format!("the column name `{OP_COLUMN}` is reserved for changelogs"));
        return None;
    }
    Some(name.to_owned())
}

/// `deduplicate:`, `first`, `last`, or a map.
pub(super) fn read_deduplicate(at: &At<'_>, report: &mut Report) -> Option<GraphDeduplicate> {
    let keeps = [("first", false), ("last", true)];
    if let Value::Scalar { .. } = at.node.value {
        return report.one_of(at, &keeps, &[]).map(|last| GraphDeduplicate { last, by_event_time: false });
    }
    let fields = report.fields(at, &DEDUPLICATE)?;
    let Some(keep) = fields.get("keep") else {
        report.error(&at.path, "`keep` is missing: which row of each key stays, `first` or `last`");
        return None;
    };
    let last = report.one_of(&keep, &keeps, &[])?;
    let by = [("arrival", false), ("event_time", true)];
    let by_event_time = fields.get("by").and_then(|at| report.one_of(&at, &by, &[])).unwrap_or_default();
    Some(GraphDeduplicate { last, by_event_time })
}

/// Clauses that do not go together, and those that do nothing alone.
pub(super) fn check_top(fields: &Fields<'_>, report: &mut Report) {
    let has = |key| fields.get(key).is_some();
    for key in ["order_by", "deduplicate"].into_iter().filter(|key| has(key)) {
        for other in ["aggregate", "process"].into_iter().filter(|other| has(other)) {
            let message = format!("a node has `{key}` or `{other}`, not both; give each a node of its own");
            report.error(&fields.path_of(key), message);
        }
        let has_own_time = has("window") && ["ttl", "changelog"].into_iter().any(has);
        if has("window") && key == "deduplicate" {
            let message = "`deduplicate` goes on from row to row; for the first or last row of a key in each window write `order_by` and `limit: 1`";
            report.error(&fields.path_of("window"), message);
        } else if has_own_time {
            let message =
                "in a window the best rows are given once, when it fires, and kept until then; leave `ttl` and `changelog` out";
            report.error(&fields.path_of("window"), message);
        }
    }
    if has("order_by") && has("deduplicate") {
        report.error(&fields.path_of("deduplicate"), "a node has `order_by` or `deduplicate`, not both");
    }
    if has("deduplicate") && !has("key_by") {
        report.error(&fields.path_of("deduplicate"), "`deduplicate` needs a `key_by`: of which columns there is one row");
    }
    if has("with_ties") && !has("window") {
        let message = "`with_ties` needs a `window`: as rows come, any number of equal ones might have to be taken back";
        report.error(&fields.path_of("with_ties"), message);
    }
    for key in ["limit", "rank", "with_ties"].into_iter().filter(|key| has(key) && !has("order_by")) {
        report.error(&fields.path_of(key), format!("`{key}` needs an `order_by`: which rows are the first"));
    }
    if has("ttl") && has("rank") && !has("window") {
        let message =
            "`ttl` lets rows go without a word, and the places of those behind them would change: leave `rank` or `ttl` out";
        report.error(&fields.path_of("ttl"), message);
    }
    if has("ttl") && !["join", "order_by", "deduplicate"].into_iter().any(has) {
        report.error(&fields.path_of("ttl"), "`ttl` needs a `join`, an `order_by` or a `deduplicate`, whose rows it lets go");
    }
}
