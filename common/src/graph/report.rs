//! Walking a located tree: every look-up knows its path, every defect is collected, nothing stops at the first.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::tree::{Entry, Node, Value, join, shown};
use super::{GraphError, GraphErrors, Lines};
use crate::declaration::Options;
use crate::human::{BadQuantity, ByteSize, HumanDuration};
use crate::nearest::{did_you_mean, nearest};

/// Longest path that is remembered with its line; what lies deeper gets the line of what is around it.
pub(super) const PATH_BYTES_MAX: usize = 512;
/// Most errors of one report.
const ERRORS_MAX: usize = 200;

/// A node and its path.
#[derive(Debug, Clone)]
pub(super) struct At<'t> {
    /// The node.
    pub node: &'t Node,
    /// Its path.
    pub path: String,
}

/// The keys that a map may have.
pub(super) struct Keys {
    /// Those that are read.
    pub allowed: &'static [&'static str],
    /// Those that a later release reads.
    pub later: &'static [&'static str],
    /// Words for the same thing elsewhere, and ours.
    pub synonyms: &'static [(&'static str, &'static str)],
}

/// The entries of a map whose keys were checked.
pub(super) struct Fields<'t> {
    path: String,
    entries: &'t [Entry],
}

impl<'t> Fields<'t> {
    /// The value under `key`.
    pub fn get(&self, key: &str) -> Option<At<'t>> {
        let entry = self.entries.iter().find(|entry| entry.key == key)?;
        Some(At { node: &entry.value, path: join(&self.path, key) })
    }

    /// The path of `key`, whether it is there or not.
    pub fn path_of(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// The path of the map.
    pub fn path(&self) -> &str {
        &self.path
    }
}

/// The defects found, and where everything stands.
pub(super) struct Report {
    /// Lines of the document.
    pub lines: Lines,
    errors: GraphErrors,
    left_out: usize,
}

impl Report {
    /// A report on the document with this tree, going on from what reading it found.
    pub fn new(root: &Node, errors: GraphErrors) -> Self {
        let mut lines = Lines::default();
        lines.0.insert(String::new(), root.line);
        record_lines("", &root.value, &mut lines);
        Self { lines, errors, left_out: 0 }
    }

    /// Adds a defect at `path`.
    pub fn error(&mut self, path: &str, message: impl Into<String>) {
        if self.is_full() {
            self.left_out += 1;
            return;
        }
        let line = self.lines.of(path);
        let cut = path.char_indices().map(|(at, _)| at).find(|at| *at > PATH_BYTES_MAX);
        let path = cut.map_or_else(|| path.to_owned(), |at| format!("{}...", &path[..at]));
        self.errors.0.push(GraphError { line, path, message: message.into() });
    }

    /// Whether no further defect is shown.
    pub fn is_full(&self) -> bool {
        self.errors.0.len() >= ERRORS_MAX
    }

    /// Number of defects.
    pub fn count(&self) -> usize {
        self.errors.0.len() + self.left_out
    }

    /// The lines, and every defect in the order of lines.
    pub fn finish(mut self) -> (Lines, GraphErrors) {
        self.errors.0.sort_by_key(|error| error.line);
        if self.left_out > 0 {
            let line = self.errors.0.last().map_or(1, |error| error.line);
            let message = format!("{} further errors are not shown", self.left_out);
            self.errors.0.push(GraphError { line, path: String::new(), message });
        }
        (self.lines, self.errors)
    }

    /// The entries of a map; nothing counts as an empty one. `None` where it is no map (reported).
    pub fn entries<'t>(&mut self, at: &At<'t>) -> Option<&'t [Entry]> {
        match &at.node.value {
            Value::Map(entries) => Some(entries),
            Value::Broken => None,
            _ if at.node.is_null() => Some(&[]),
            _ => {
                self.error(&at.path, format!("a map is expected, found {}", at.node.kind()));
                None
            }
        }
    }

    /// The entries of a map that may have only these keys; others are reported.
    pub fn fields<'t>(&mut self, at: &At<'t>, keys: &Keys) -> Option<Fields<'t>> {
        let entries = self.entries(at)?;
        for entry in entries {
            if !keys.allowed.contains(&entry.key.as_str()) {
                self.unknown_key(&at.path, &entry.key, keys);
            }
        }
        Some(Fields { path: at.path.clone(), entries })
    }

    /// Reports a key that is not among `keys`.
    pub fn unknown_key(&mut self, path: &str, key: &str, keys: &Keys) {
        if self.is_full() {
            self.left_out += 1;
            return;
        }
        let at = join(path, key);
        let allowed = keys.allowed.join(", ");
        let near = nearest(key, keys.allowed.iter().chain(keys.later).copied());
        let message = if keys.later.contains(&key) || near.is_some_and(|near| keys.later.contains(&near)) {
            format!("`{}` is not in this release; keys: {allowed}", shown(key))
        } else if let Some((_, ours)) = keys.synonyms.iter().find(|(theirs, _)| *theirs == key) {
            format!("unknown key \"{}\"; did you mean \"{ours}\"? keys: {allowed}", shown(key))
        } else {
            let hint = did_you_mean(key, keys.allowed.iter().copied());
            let hint = if hint.is_empty() { ";".to_owned() } else { hint };
            format!("unknown key \"{}\"{hint} keys: {allowed}", shown(key))
        };
        self.error(&at, message);
    }

    /// The text of a scalar; `None` where it is none or nothing (reported, naming `expected`).
    pub fn text<'t>(&mut self, at: &At<'t>, expected: &str) -> Option<&'t str> {
        match &at.node.value {
            Value::Broken => None,
            Value::Scalar { text, .. } if !at.node.is_null() && !text.trim().is_empty() => Some(text),
            Value::Scalar { .. } => {
                self.error(&at.path, format!("{expected} is expected, found nothing"));
                None
            }
            _ => {
                self.error(&at.path, format!("{expected} is expected, found {}", at.node.kind()));
                None
            }
        }
    }

    /// An SQL expression: any scalar, also one that YAML takes for a number or `null`.
    pub fn sql(&mut self, at: &At<'_>) -> Option<String> {
        match &at.node.value {
            Value::Scalar { text, .. } if text.eq_ignore_ascii_case("null") => Some(text.clone()),
            _ => self.text(at, "an SQL expression").map(str::to_owned),
        }
    }

    /// A whole number in `range`.
    pub fn integer<T>(&mut self, at: &At<'_>, range: RangeInclusive<T>) -> Option<T>
    where
        T: std::str::FromStr + PartialOrd + Display,
    {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let text = self.text(at, &expected)?;
        match text.parse::<T>() {
            Ok(number) if range.contains(&number) => Some(number),
            _ => {
                self.error(&at.path, format!("{expected} is expected, found \"{}\"", shown(text)));
                None
            }
        }
    }

    /// A duration in milliseconds, at least `min_ms`.
    pub fn duration_ms(&mut self, at: &At<'_>, min_ms: u64) -> Option<u64> {
        let text = self.text(at, "a duration such as 10s or 100ms")?;
        let parsed: Result<HumanDuration, BadQuantity> = shown(text).parse();
        match parsed {
            Ok(duration) if duration.as_ms() >= min_ms => Some(duration.as_ms()),
            Ok(duration) => {
                let least = HumanDuration::from_ms(min_ms);
                self.error(&at.path, format!("{duration} is too short; at least {least} is expected"));
                None
            }
            Err(error) => {
                self.error(&at.path, error.to_string());
                None
            }
        }
    }

    /// A duration in milliseconds, which a minus may precede.
    pub fn signed_duration_ms(&mut self, at: &At<'_>) -> Option<i64> {
        let text = self.text(at, "a duration such as 10s or -10s")?.trim();
        let (sign, length) = text.strip_prefix('-').map_or((1, text), |length| (-1, length));
        match shown(length).parse::<HumanDuration>() {
            Ok(duration) => Some(sign * duration.as_ms() as i64),
            // Zero needs no unit here: it is written as a bound.
            Err(_) if length == "0" => Some(0),
            Err(error) => {
                self.error(&at.path, error.to_string());
                None
            }
        }
    }

    /// A duration, or `off` (or `false`): `Some(None)`.
    pub fn duration_or_off(&mut self, at: &At<'_>, min_ms: u64) -> Option<Option<u64>> {
        match &at.node.value {
            Value::Scalar { text, .. } if matches!(text.as_str(), "off" | "false") => Some(None),
            _ => self.duration_ms(at, min_ms).map(Some),
        }
    }

    /// A size in bytes, at most `max_bytes`.
    pub fn size_bytes(&mut self, at: &At<'_>, max_bytes: u64) -> Option<u64> {
        let text = self.text(at, "a size such as 5MiB or 20KiB")?;
        let parsed: Result<ByteSize, BadQuantity> = shown(text).parse();
        match parsed {
            Ok(size) if size.as_bytes() <= max_bytes => Some(size.as_bytes()),
            Ok(size) => {
                let most = ByteSize::from_bytes(max_bytes);
                self.error(&at.path, format!("{size} is too large; at most {most} is allowed"));
                None
            }
            Err(error) => {
                self.error(&at.path, error.to_string());
                None
            }
        }
    }

    /// One of the named values; `later` names get their own message.
    pub fn one_of<T: Clone>(&mut self, at: &At<'_>, values: &[(&str, T)], later: &[&str]) -> Option<T> {
        let allowed = || values.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        let text = self.text(at, &format!("one of {}", allowed()))?;
        if let Some((_, value)) = values.iter().find(|(name, _)| *name == text) {
            return Some(value.clone());
        }
        let message = if later.contains(&text) {
            format!("`{text}` is not in this release; there are: {}", allowed())
        } else {
            let hint = did_you_mean(text, values.iter().map(|(name, _)| *name));
            format!("\"{}\" is not known{hint}; there are: {}", shown(text), allowed())
        };
        self.error(&at.path, message);
        None
    }

    /// A list of names, or one name; not empty, none twice. `what` says what the names are.
    pub fn names<'t>(&mut self, at: &At<'t>, what: &str) -> Vec<(&'t str, String)> {
        let single = std::slice::from_ref(at.node);
        let (items, indexed) = match &at.node.value {
            Value::Broken => return Vec::new(),
            Value::List(items) => (items.as_slice(), true),
            _ => (single, false),
        };
        if items.is_empty() {
            self.error(&at.path, format!("at least one {what} is expected"));
        }
        let mut names: Vec<(&str, String)> = Vec::new();
        for (index, node) in items.iter().enumerate() {
            let path = if indexed { format!("{}[{index}]", at.path) } else { at.path.clone() };
            let Some(text) = self.text(&At { node, path: path.clone() }, what) else { continue };
            if names.iter().any(|(name, _)| *name == text) {
                self.error(&path, format!("{what} \"{}\" stands here twice", shown(text)));
            } else {
                names.push((text, path));
            }
        }
        names
    }

    /// What stands under a connector's name, as options; nothing is an empty map.
    pub fn options(&mut self, at: &At<'_>) -> Options {
        let mut options = Options::new();
        for entry in self.entries(at).unwrap_or_default() {
            let value = self.json(&At { node: &entry.value, path: join(&at.path, &entry.key) });
            options.insert(entry.key.clone(), value);
        }
        options
    }

    /// A node as JSON: plain scalars that YAML's core schema takes for null, booleans and numbers become that.
    fn json(&mut self, at: &At<'_>) -> serde_json::Value {
        match &at.node.value {
            Value::Broken => serde_json::Value::Null,
            Value::Map(_) => serde_json::Value::Object(self.options(at)),
            Value::List(items) => {
                let json = |(index, node)| self.json(&At { node, path: format!("{}[{index}]", at.path) });
                items.iter().enumerate().map(json).collect()
            }
            Value::Scalar { text, plain: false } => serde_json::Value::String(text.clone()),
            Value::Scalar { .. } if at.node.is_null() => serde_json::Value::Null,
            Value::Scalar { text, plain: true } => match plain_json(text) {
                Some(value) => value,
                None => {
                    self.error(&at.path, format!("the number {} is too large; write it in quotes", shown(text)));
                    serde_json::Value::Null
                }
            },
        }
    }
}

/// A plain scalar by YAML's core schema; `None` for a number that does not fit.
fn plain_json(text: &str) -> Option<serde_json::Value> {
    match text {
        "true" | "True" | "TRUE" => return Some(true.into()),
        "false" | "False" | "FALSE" => return Some(false.into()),
        _ => {}
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !unsigned.is_empty() && digits(unsigned) {
        let signed = text.strip_prefix('+').unwrap_or(text);
        return signed.parse::<i64>().map(Into::into).or_else(|_| signed.parse::<u64>().map(Into::into)).ok();
    }
    let looks_like_float = unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && unsigned.contains(|c: char| c.is_ascii_digit())
        && unsigned.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(number) if looks_like_float => serde_json::Number::from_f64(number).map(serde_json::Value::Number),
        _ => Some(text.into()),
    }
}

fn record_lines(path: &str, value: &Value, lines: &mut Lines) {
    let mut record = |path: String, line: u32, value: &Value| {
        if path.len() <= PATH_BYTES_MAX {
            record_lines(&path, value, lines);
            lines.0.entry(path).or_insert(line);
        }
    };
    match value {
        Value::Map(entries) => {
            entries.iter().for_each(|entry| record(join(path, &entry.key), entry.line, &entry.value.value));
        }
        Value::List(items) => {
            items.iter().enumerate().for_each(|(index, item)| record(format!("{path}[{index}]"), item.line, &item.value));
        }
        Value::Scalar { .. } | Value::Broken => {}
    }
}
