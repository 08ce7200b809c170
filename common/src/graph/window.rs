//! Reads `window:` of a transform: its kind, when it gives results, and what time it goes by.

use super::firing::{FIRING_KEYS, read_firing};
use super::report::{At, Fields, Keys, Report};
use super::transform::read_process;
use super::tree::Value;
use super::watermark::read_zone;
use super::{GraphGap, GraphProcess, GraphWindow};
use crate::plan::{FiringSpec, WindowTime};

const DAY_MS: i64 = 86_400_000;

/// The kinds of windows, one of which a map has.
const KINDS: [&str; 7] = ["tumbling", "sliding", "cumulate", "session", "count", "same", "global"];

/// The keys that say what time a window goes by.
const TIME_KEYS: [&str; 2] = ["time", "time_zone"];

const WINDOW: Keys = Keys {
    allowed: &[
        "tumbling",
        "sliding",
        "cumulate",
        "session",
        "count",
        "same",
        "global",
        "time",
        "time_zone",
        "early",
        "allowed_lateness",
        "late",
        "accumulate",
        "trigger",
    ],
    later: &[],
    synonyms: &[
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
        ("timezone", "time_zone"),
        ("zone", "time_zone"),
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

/// A window, when it gives results where it says so, and what time it goes by.
pub(super) struct ReadWindow {
    pub(super) window: GraphWindow,
    pub(super) firing: Option<FiringSpec>,
    pub(super) trigger: Option<GraphProcess>,
    pub(super) time: WindowTime,
}

/// Reads a window; what is defective is reported.
pub(super) fn read_window(at: &At<'_>, report: &mut Report) -> Option<ReadWindow> {
    if let Value::Scalar { text, .. } = &at.node.value {
        let example = match text.as_str() {
            "tumbling" => "{ tumbling: { size: 10s } }",
            "sliding" => "{ sliding: { size: 10s, slide: 2s } }",
            "cumulate" => "{ cumulate: { size: 1h, step: 5m } }",
            "session" => "{ session: { gap: 10s } }",
            "count" => "{ count: { size: 100 } }",
            _ => {
                let window = report.one_of(at, &[("same", GraphWindow::Same), ("global", GraphWindow::Global)], &[]);
                let time = WindowTime::default();
                return window.map(|window| ReadWindow { window, firing: None, trigger: None, time });
            }
        };
        report.error(&at.path, format!("this window is a map, such as {example}"));
        return None;
    }
    let fields = report.fields(at, &WINDOW)?;
    let firing = read_firing(&fields, report);
    let trigger = fields.get("trigger").and_then(|at| read_process(&at, report));
    let time = read_time(&fields, report);
    let is_kind = |key: &str| !FIRING_KEYS.contains(&key) && !TIME_KEYS.contains(&key) && key != "trigger";
    let kinds: Vec<At<'_>> = KINDS.iter().filter_map(|kind| fields.get(kind)).collect();
    let window = match kinds.as_slice() {
        [] if report.entries(at).is_some_and(|entries| !entries.iter().any(|entry| is_kind(&entry.key))) => {
            report.error(&at.path, "`same`, `global` or a map such as { tumbling: { size: 10s } } is expected");
            None
        }
        [] => None,
        [kind] => {
            let window = read_kind(kind, report)?;
            if !time.is_default() {
                check_time(&window, &time, &fields, report);
            }
            if time.time_zone.is_some() {
                check_zone(&window, kind, &fields, report);
            }
            Some(window)
        }
        _ => {
            report.error(&at.path, format!("one window is expected, found {}", kinds.len()));
            None
        }
    };
    let late = ["allowed_lateness", "late"].into_iter().find(|key| time.processing && fields.get(key).is_some());
    if let Some(key) = late {
        let message = "a row is in the window of processing time that is open when it comes, and none is late; leave \
                       `allowed_lateness` and `late` out";
        report.error(&fields.path_of(key), message);
    }
    Some(ReadWindow { window: window?, firing, trigger, time })
}

/// `time:` and `time_zone:`.
fn read_time(fields: &Fields<'_>, report: &mut Report) -> WindowTime {
    let processing = fields.get("time").and_then(|at| report.one_of(&at, &[("event", false), ("processing", true)], &[]));
    let time_zone = fields.get("time_zone").and_then(|at| read_zone(&at, report));
    WindowTime { processing: processing.unwrap_or_default(), time_zone }
}

/// Not every window goes by a time.
fn check_time(window: &GraphWindow, time: &WindowTime, fields: &Fields<'_>, report: &mut Report) {
    let message = match window {
        GraphWindow::Same => "the window that rows came from has the time that it has",
        GraphWindow::Global => "one window over everything goes by no time",
        GraphWindow::Count { .. } => "a window of so many rows goes by no time",
        GraphWindow::Tumbling { .. }
        | GraphWindow::Sliding { .. }
        | GraphWindow::Cumulate { .. }
        | GraphWindow::Session { .. } => {
            return;
        }
    };
    report.error(&fields.path_of(if time.processing { "time" } else { "time_zone" }), message);
}

/// In a zone days have different lengths, so lengths must say how they go with a day.
fn check_zone(window: &GraphWindow, kind: &At<'_>, fields: &Fields<'_>, report: &mut Report) {
    let is_whole_days = |ms: i64| ms % DAY_MS == 0;
    let goes_with_days = |ms: i64| is_whole_days(ms) || DAY_MS % ms == 0;
    let of_day =
        "with a `time_zone` a window is of whole days, or of what divides a day, such as 1h: clocks are set now and then";
    let mut refuse = |key: &str, message: &str| report.error(&format!("{}.{key}", kind.path), message);
    match window {
        GraphWindow::Tumbling { size_ms, .. } if !goes_with_days(*size_ms) => refuse("size", of_day),
        GraphWindow::Cumulate { size_ms, .. } if !goes_with_days(*size_ms) => refuse("size", of_day),
        GraphWindow::Cumulate { step_ms, .. } if !goes_with_days(*step_ms) => refuse("step", of_day),
        GraphWindow::Sliding { size_ms, slide_ms, .. } => {
            for (key, ms) in [("size", *size_ms), ("slide", *slide_ms)] {
                if !is_whole_days(ms) {
                    refuse(key, "with a `time_zone` sliding windows are of whole days; shorter ones begin where `offset` says");
                }
            }
        }
        GraphWindow::Session { .. } => {
            report.error(&fields.path_of("time_zone"), "a session begins with a row, whatever clocks show: it has no time zone");
        }
        GraphWindow::Tumbling { .. } | GraphWindow::Cumulate { .. } => {}
        GraphWindow::Count { .. } | GraphWindow::Same | GraphWindow::Global => {}
    }
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
