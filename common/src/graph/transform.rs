//! Reads a node under `transforms:`, and checks that its clauses make sense together.

use super::join::{check_join, read_columns_on, read_join};
use super::node::{Common, read_inputs, read_references};
use super::report::{At, Fields, Keys, Report};
use super::top::{check_top, read_deduplicate, read_top};
use super::tree::{Value, join, shown};
use super::window::read_window;
use super::{GraphEvict, GraphProcess, TransformNode};
use crate::declaration::Options;
use crate::ids::Uid;
use crate::plan::{Evict, WindowTime};
use crate::types::OP_COLUMN;

const TRANSFORM: Keys = Keys {
    allowed: &[
        "inputs",
        "where",
        "join",
        "key_by",
        "window",
        "aggregate",
        "having",
        "process",
        "with",
        "evict",
        "broadcast",
        "order_by",
        "limit",
        "rank",
        "with_ties",
        "deduplicate",
        "ttl",
        "select",
        "split",
        "changelog",
        "bad_records",
        "parallelism",
    ],
    later: &["sql", "late"],
    synonyms: &[
        ("input", "inputs"),
        ("from", "inputs"),
        ("filter", "where"),
        ("group_by", "key_by"),
        ("keyBy", "key_by"),
        ("partition_by", "key_by"),
        ("aggregates", "aggregate"),
        ("map", "select"),
        ("project", "select"),
        ("function", "process"),
        ("flat_map", "process"),
        ("on_error", "bad_records"),
        ("top", "order_by"),
        ("dedup", "deduplicate"),
        ("distinct_by", "deduplicate"),
        ("route", "split"),
        ("branch", "split"),
    ],
};

const EVICT: Keys = Keys {
    allowed: &["rows", "time", "function", "options"],
    later: &[],
    synonyms: &[("count", "rows"), ("size", "rows"), ("name", "function"), ("evictor", "function"), ("class", "function")],
};

const PROCESS: Keys = Keys {
    allowed: &["function", "options"],
    later: &[],
    synonyms: &[("name", "function"), ("class", "function"), ("config", "options"), ("parameters", "options")],
};

/// Reads a transform; `None` where it is no map (reported). What is defective is reported and left out.
pub(super) fn read_transform(name: &str, at: &At<'_>, max_parallelism: u32, report: &mut Report) -> Option<TransformNode> {
    if at.node.is_null() {
        report.error(&at.path, "a map with `inputs` and clauses is expected, found nothing");
        return None;
    }
    let fields = report.fields(at, &TRANSFORM)?;
    let common = Common::read(at, max_parallelism, report)?;
    let window = fields.get("window").and_then(|at| read_window(&at, report));
    let (window, firing, trigger, window_time) = match window {
        Some(read) => (Some(read.window), read.firing, read.trigger, read.time),
        None => (None, None, None, WindowTime::default()),
    };
    let is_pairs = fields.get("key_by").is_some_and(|at| matches!(at.node.value, Value::Map(_)));
    let key_by = fields.get("key_by").map(|at| read_key_by(&at, report));
    let node = TransformNode {
        uid: Uid::new(name),
        inputs: read_inputs(fields.get("inputs"), &at.path, report),
        filter: fields.get("where").and_then(|at| report.sql(&at)),
        join: fields.get("join").and_then(|at| read_join(&at, report)),
        evict: fields.get("evict").and_then(|at| read_evict(&at, report)),
        with: fields.get("with").map(|at| read_references(&at, report)).unwrap_or_default(),
        key_by: key_by.as_ref().map(|keys| keys.iter().map(|(key, _)| key.clone()).collect()),
        with_key: key_by.filter(|_| is_pairs).map(|keys| keys.into_iter().map(|(_, key)| key).collect()),
        window,
        firing,
        trigger,
        window_time,
        aggregate: fields.get("aggregate").map(|at| read_columns(&at, report)),
        having: fields.get("having").and_then(|at| report.sql(&at)),
        process: fields.get("process").and_then(|at| read_process(&at, report)),
        broadcast: fields.get("broadcast").map(|at| read_references(&at, report)).unwrap_or_default(),
        top: read_top(&fields, report),
        deduplicate: fields.get("deduplicate").and_then(|at| read_deduplicate(&at, report)),
        ttl_ms: fields.get("ttl").and_then(|at| report.duration_ms(&at, 1)),
        select: fields.get("select").map(|at| read_columns(&at, report)),
        split: fields.get("split").map(|at| read_split(&at, report)),
        changelog_full: fields.get("changelog").is_some_and(|at| read_changelog(&at, report)),
        bad_records: common.bad_records,
        parallelism: common.parallelism,
    };
    check_clauses(&fields, report);
    check_changelog(&fields, &node, report);
    Some(node)
}

/// `key_by:`, columns, or a map of columns to those of the second input.
fn read_key_by(at: &At<'_>, report: &mut Report) -> Vec<(String, String)> {
    if matches!(&at.node.value, Value::List(items) if items.is_empty()) {
        report.error(&at.path, "at least one column is expected; leave `key_by` out for one global group");
        return Vec::new();
    }
    read_columns_on(at, report)
}

/// `select:` and `aggregate:`: output columns and SQL, in order.
fn read_columns(at: &At<'_>, report: &mut Report) -> Vec<(String, String)> {
    let Some(entries) = report.entries(at) else { return Vec::new() };
    if entries.is_empty() {
        report.error(&at.path, "at least one column is expected, such as `n: count(*)`");
    }
    let mut columns = Vec::new();
    for entry in entries {
        let path = join(&at.path, &entry.key);
        if entry.key.trim().is_empty() {
            report.error(&path, "a column's name must not be blank");
        } else if entry.key.len() > Uid::BYTES_MAX {
            let (most, found) = (Uid::BYTES_MAX, entry.key.len());
            report.error(&path, format!("a column's name has at most {most} bytes, this one has {found}"));
        } else if entry.key == OP_COLUMN {
            report.error(&path, format!("the column name `{OP_COLUMN}` is reserved for changelogs"));
        }
        if let Some(sql) = report.sql(&At { node: &entry.value, path }) {
            columns.push((entry.key.clone(), sql));
        }
    }
    columns
}

/// `split:`, outputs and their conditions, in order.
fn read_split(at: &At<'_>, report: &mut Report) -> Vec<(String, Option<String>)> {
    let Some(entries) = report.entries(at) else { return Vec::new() };
    if entries.is_empty() {
        report.error(&at.path, "at least one output is expected, such as { large: price > 100, small: else }");
    }
    let mut branches: Vec<(String, Option<String>)> = Vec::new();
    for entry in entries {
        let path = join(&at.path, &entry.key);
        if let Some(defect) = Uid::defect(&entry.key) {
            report.error(&path, defect);
        }
        if let Some((last, None)) = branches.last() {
            let last = shown(last);
            report.error(&path, format!("\"{last}\" before it is `else` and takes every row that is left; write it last"));
        }
        if let Some(sql) = report.sql(&At { node: &entry.value, path }) {
            let is_else = sql.trim().eq_ignore_ascii_case("else");
            branches.push((entry.key.clone(), (!is_else).then_some(sql)));
        }
    }
    branches
}

/// `evict:`, which rows of a window a function gets.
fn read_evict(at: &At<'_>, report: &mut Report) -> Option<GraphEvict> {
    let fields = report.fields(at, &EVICT)?;
    match (fields.get("rows"), fields.get("time"), fields.get("function")) {
        (Some(at), None, None) => report.integer(&at, 1..=u32::MAX).map(|rows| GraphEvict::Last(Evict::Rows { rows })),
        (None, Some(at), None) => report.duration_ms(&at, 1).map(|ms| GraphEvict::Last(Evict::Time { ms: ms as i64 })),
        (None, None, Some(function)) => {
            let function = report.text(&function, "the name of an evictor")?.to_owned();
            let options = fields.get("options").map(|at| report.options(&at)).unwrap_or_default();
            Some(GraphEvict::Function(GraphProcess { function, options }))
        }
        _ => {
            let message = "one of `rows`, `time` and `function` is expected, such as { rows: 100 } for the last 100 rows that came, or \
                           { function: NAME } for an evictor that a TaskManager brings";
            report.error(&at.path, message);
            None
        }
    }
}

/// `process:`, a map with the function's name, or the name alone; likewise `trigger:` of a window.
pub(super) fn read_process(at: &At<'_>, report: &mut Report) -> Option<GraphProcess> {
    if let Value::Scalar { .. } = &at.node.value {
        let function = report.text(at, "the name of a function, such as `process: { function: detect }`,")?;
        return Some(GraphProcess { function: function.to_owned(), options: Options::new() });
    }
    let fields = report.fields(at, &PROCESS)?;
    let options = fields.get("options").map(|at| report.options(&at)).unwrap_or_default();
    let Some(function) = fields.get("function") else {
        report.error(&at.path, "`function` is missing: the name of a function that a TaskManager brings");
        return None;
    };
    let function = report.text(&function, "the name of a function")?.to_owned();
    Some(GraphProcess { function, options })
}

fn read_changelog(at: &At<'_>, report: &mut Report) -> bool {
    match report.text(at, "`full`") {
        Some("full") => true,
        Some(text) => {
            let found = shown(text);
            report.error(&at.path, format!("\"{found}\" is not known; write `full`, or leave `changelog` out for no `-U` rows"));
            false
        }
        None => false,
    }
}

/// Clauses that need another one, or exclude it.
fn check_clauses(fields: &Fields<'_>, report: &mut Report) {
    check_join(fields, report);
    check_top(fields, report);
    let has = |key| fields.get(key).is_some();
    if has("process") && has("aggregate") {
        let message = "a node has an `aggregate` or a `process`, not both; give the function a node of its own";
        report.error(&fields.path_of("process"), message);
    }
    if has("broadcast") && !has("process") {
        report.error(&fields.path_of("broadcast"), "`broadcast` needs a `process` whose function takes it");
    }
    if has("with") && !has("process") {
        report.error(
            &fields.path_of("with"),
            "`with` needs a `process` whose function has a second input; a `join` has its own `with`",
        );
    }
    if has("evict") && !(has("process") && has("window")) {
        report.error(&fields.path_of("evict"), "`evict` needs a `window` and a `process`: which rows of it the function gets");
    }
    if !has("process")
        && !has("aggregate")
        && let Some(at) = fields.get("window")
        && let Value::Map(entries) = &at.node.value
        && entries.iter().any(|entry| entry.key == "trigger")
    {
        let message = "a trigger is asked by the window of an `aggregate` or a `process`; leave `trigger` out";
        report.error(&join(&at.path, "trigger"), message);
    }
    if let Some(at) = fields.get("key_by").filter(|at| matches!(at.node.value, Value::Map(_)) && !has("with")) {
        report.error(&at.path, "a list of columns is expected; pairs of columns are for a function `with` a second input");
    }
    if !has("aggregate") {
        let others = ["process", "join", "order_by", "deduplicate"];
        if has("key_by") && !others.into_iter().any(has) {
            let message = "`key_by` needs an `aggregate`, a `process`, an `order_by` or a `deduplicate`";
            report.error(&fields.path_of("key_by"), message);
        }
        if has("window") && !others.into_iter().any(has) {
            report.error(&fields.path_of("window"), "a window needs an `aggregate`, a `join`, an `order_by` or a `process`");
        }
        let needs = [("having", "`having` needs an `aggregate`; a condition on rows is a `where`")];
        if has("changelog") && !has("order_by") && !has("deduplicate") {
            let message = "only an `aggregate` whose results change, an `order_by` or a `deduplicate` takes `changelog`";
            report.error(&fields.path_of("changelog"), message);
        }
        for (key, message) in needs {
            if has(key) {
                report.error(&fields.path_of(key), message);
            }
        }
    }
}

/// A window whose results replace none has no rows that were replaced.
fn check_changelog(fields: &Fields<'_>, node: &TransformNode, report: &mut Report) {
    let replaces = node.firing.is_some_and(|firing| firing.accumulate);
    if node.changelog_full && node.aggregate.is_some() && node.window.is_some() && !replaces {
        let message = "results of this window replace none, so that there is nothing to give as `-U`: `changelog: full` is for a \
                       running `aggregate`, without `window`, and for a window with `early` or `allowed_lateness` that accumulates";
        report.error(&fields.path_of("changelog"), message);
    }
}
