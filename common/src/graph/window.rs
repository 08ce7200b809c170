//! Reads `window:` of a transform.

use super::firing::{FIRING_KEYS, read_firing};
use super::report::{At, Fields, Keys, Report};
use super::tree::Value;
use super::{GraphGap, GraphWindow};
use crate::plan::FiringSpec;

/// The kinds of windows, one of which a map has.
const KINDS: [&str; 7] = ["tumbling", "sliding", "cumulate", "session", "count", "same", "global"];

const WINDOW: Keys = Keys {
    allowed: &[
        "tumbling",
        "sliding",
        "cumulate",
        "session",
        "count",
        "same",
        "global",
        "early",
        "allowed_lateness",
        "late",
        "accumulate",
    ],
    later: &["evictor"],
    synonyms: &[
        ("trigger", "early"),
        ("lateness", "allowed_lateness"),
        ("grace", "allowed_lateness"),
        ("purge", "accumulate"),
        ("tumble", "tumbling"),
        ("fixed", "tumbling"),
        ("hop", "sliding"),
        ("hopping", "sliding"),
        ("slide", "sliding"),
        ("cumulative", "cumulate"),
        ("cumulating", "cumulate"),
        ("sessions", "session"),
    ],
};

const TUMBLING: Keys = Keys { allowed: &["size", "offset"], later: &[], synonyms: &[("length", "size")] };

const SLIDING: Keys = Keys {
    allowed: &["size", "slide", "offset"],
    later: &[],
    synonyms: &[("length", "size"), ("step", "slide"), ("hop", "slide"), ("every", "slide")],
};

const CUMULATE: Keys = Keys {
    allowed: &["size", "step", "offset"],
    later: &[],
    synonyms: &[("length", "size"), ("max_size", "size"), ("slide", "step"), ("every", "step")],
};

const COUNT: Keys = Keys {
    allowed: &["size", "slide"],
    later: &[],
    synonyms: &[("rows", "size"), ("length", "size"), ("step", "slide"), ("every", "slide")],
};

const SESSION: Keys =
    Keys { allowed: &["gap"], later: &[], synonyms: &[("timeout", "gap"), ("inactivity", "gap"), ("size", "gap")] };

/// Reads a window, and when it gives results where it says so; what is defective is reported.
pub(super) fn read_window(at: &At<'_>, report: &mut Report) -> Option<(GraphWindow, Option<FiringSpec>)> {
    if let Value::Scalar { text, .. } = &at.node.value {
        let example = match text.as_str() {
            "tumbling" => "{ tumbling: { size: 10s } }",
            "sliding" => "{ sliding: { size: 10s, slide: 2s } }",
            "cumulate" => "{ cumulate: { size: 1h, step: 5m } }",
            "session" => "{ session: { gap: 10s } }",
            "count" => "{ count: { size: 100 } }",
            _ => {
                let window = report.one_of(at, &[("same", GraphWindow::Same), ("global", GraphWindow::Global)], &[]);
                return window.map(|window| (window, None));
            }
        };
        report.error(&at.path, format!("this window is a map, such as {example}"));
        return None;
    }
    let fields = report.fields(at, &WINDOW)?;
    let firing = read_firing(&fields, report);
    let kinds: Vec<At<'_>> = KINDS.iter().filter_map(|kind| fields.get(kind)).collect();
    let window = match kinds.as_slice() {
        [] if report.entries(at).is_some_and(|entries| entries.iter().all(|entry| FIRING_KEYS.contains(&entry.key.as_str()))) => {
            report.error(&at.path, "`same`, `global` or a map such as { tumbling: { size: 10s } } is expected");
            None
        }
        [] => None,
        [kind] => read_kind(kind, report),
        _ => {
            report.error(&at.path, format!("one window is expected, found {}", kinds.len()));
            None
        }
    };
    Some((window?, firing))
}

fn read_kind(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    match at.path.rsplit('.').next() {
        Some("sliding") => read_sliding(at, report),
        Some("cumulate") => read_cumulate(at, report),
        Some("session") => read_session(at, report),
        Some("count") => read_count(at, report),
        Some("same") => read_empty(at, report).map(|()| GraphWindow::Same),
        Some("global") => read_empty(at, report).map(|()| GraphWindow::Global),
        _ => read_tumbling(at, report),
    }
}

/// A window that has nothing to say but when it gives results: `{}`.
fn read_empty(at: &At<'_>, report: &mut Report) -> Option<()> {
    report.fields(at, &Keys { allowed: &[], later: &[], synonyms: &[] }).map(|_| ())
}

fn read_tumbling(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    let fields = report.fields(at, &TUMBLING)?;
    let size_ms = length(&fields, "size", "10s", report)?;
    let offset_ms = offset(&fields, "size", size_ms, report)?;
    Some(GraphWindow::Tumbling { size_ms, offset_ms })
}

fn read_sliding(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    let fields = report.fields(at, &SLIDING)?;
    let (size_ms, slide_ms) = (length(&fields, "size", "10s", report), length(&fields, "slide", "2s", report));
    let (size_ms, slide_ms) = (size_ms?, slide_ms?);
    if slide_ms > size_ms {
        let message = "the slide must not be greater than the size: rows between two windows would be in none";
        report.error(&fields.path_of("slide"), message);
        return None;
    }
    let offset_ms = offset(&fields, "slide", slide_ms, report)?;
    Some(GraphWindow::Sliding { size_ms, slide_ms, offset_ms })
}

fn read_cumulate(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    let fields = report.fields(at, &CUMULATE)?;
    let (size_ms, step_ms) = (length(&fields, "size", "1h", report), length(&fields, "step", "5m", report));
    let (size_ms, step_ms) = (size_ms?, step_ms?);
    if size_ms % step_ms != 0 {
        report.error(&fields.path_of("step"), "the size must be a multiple of the step");
        return None;
    }
    let offset_ms = offset(&fields, "size", size_ms, report)?;
    Some(GraphWindow::Cumulate { size_ms, step_ms, offset_ms })
}

/// A gap that begins with a digit is a duration; anything else is SQL.
fn read_session(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    let fields = report.fields(at, &SESSION)?;
    let Some(gap) = fields.get("gap") else {
        report.error(fields.path(), "`gap` is missing, such as `gap: 10s`");
        return None;
    };
    let is_sql = |text: &str| !text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let gap = match &gap.node.value {
        Value::Scalar { text, .. } if !gap.node.is_null() && is_sql(text) => GraphGap::Sql(report.sql(&gap)?),
        _ => GraphGap::Fixed { ms: report.duration_ms(&gap, 1)? as i64 },
    };
    Some(GraphWindow::Session { gap })
}

/// Windows of rows; without `slide` one after the other.
fn read_count(at: &At<'_>, report: &mut Report) -> Option<GraphWindow> {
    let fields = report.fields(at, &COUNT)?;
    let Some(size) = fields.get("size") else {
        report.error(fields.path(), "`size` is missing: rows of a window, such as `size: 100`");
        return None;
    };
    let size = report.integer(&size, 1..=u32::MAX)?;
    let slide = match fields.get("slide") {
        Some(at) => report.integer(&at, 1..=u32::MAX)?,
        None => size,
    };
    if slide > size {
        let message = "the slide must not be greater than the size: rows between two windows would be in none";
        report.error(&fields.path_of("slide"), message);
        return None;
    }
    Some(GraphWindow::Count { size, slide })
}

fn length(fields: &Fields<'_>, key: &str, example: &str, report: &mut Report) -> Option<i64> {
    let Some(at) = fields.get(key) else {
        report.error(fields.path(), format!("`{key}` is missing, such as `{key}: {example}`"));
        return None;
    };
    report.duration_ms(&at, 1).map(|ms| ms as i64)
}

/// The shift of windows that begin anew every `period_ms`, as `period` says.
fn offset(fields: &Fields<'_>, period: &str, period_ms: i64, report: &mut Report) -> Option<i64> {
    let offset_ms = match fields.get("offset") {
        Some(at) => report.duration_ms(&at, 0)? as i64,
        None => 0,
    };
    if offset_ms >= period_ms {
        report.error(&fields.path_of("offset"), format!("the offset must be less than the {period}"));
        return None;
    }
    Some(offset_ms)
}
