//! Reading a node's options: every defect is collected, none stops the reading.
//!
//! Unknown keys are the planner's business; here a key that is there is checked and one that is not has its default.

use levada_common::declaration::{OptionError, Options};
use levada_common::human::ByteSize;
use levada_common::types::{Column, OP_COLUMN, parse_column_type};
use serde_json::Value;

use crate::error::ConnectorError;

/// Reads options one by one and collects what is wrong with them.
pub struct OptionReader<'a> {
    options: &'a Options,
    errors: Vec<OptionError>,
}

impl<'a> OptionReader<'a> {
    /// Starts at these options.
    pub fn new(options: &'a Options) -> Self {
        Self { options, errors: Vec::new() }
    }

    /// Whether the option is there and not null.
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Adds a defect.
    pub fn defect(&mut self, key: &str, message: impl Into<String>) {
        self.errors.push(OptionError::new(key, message));
    }

    /// A whole number in `min..=max`; `None` where it is absent or wrong.
    pub fn integer(&mut self, key: &str, min: i64, max: i64) -> Option<i64> {
        let value = self.value(key)?;
        match value.as_i64() {
            Some(number) if (min..=max).contains(&number) => Some(number),
            _ => {
                self.defect(key, format!("expected a whole number from {min} to {max}, found {value}"));
                None
            }
        }
    }

    /// A number greater than 0, as rows per second; `None` where it is absent or wrong.
    pub fn rate(&mut self, key: &str) -> Option<f64> {
        let value = self.value(key)?;
        match value.as_f64() {
            Some(rate) if rate > 0.0 && rate <= 1e12 => Some(rate),
            _ => {
                self.defect(key, format!("expected rows per second, greater than 0 and at most 1e12, found {value}"));
                None
            }
        }
    }

    /// A text that is not empty.
    pub fn text(&mut self, key: &str) -> Option<String> {
        match self.value(key)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            other => {
                let message = format!("expected a text that is not empty, found {other}");
                self.defect(key, message);
                None
            }
        }
    }

    /// One of a few words.
    pub fn choice(&mut self, key: &str, words: &[&'static str]) -> Option<&'static str> {
        let value = self.value(key)?;
        let word = value.as_str().and_then(|text| words.iter().find(|word| **word == text));
        if word.is_none() {
            let message = format!("expected {}, found {value}", words.join(" or "));
            self.defect(key, message);
        }
        word.copied()
    }

    /// A size in bytes: a whole number, or a text such as `64MiB`.
    pub fn size(&mut self, key: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.value(key)?;
        let size = match value {
            Value::String(text) => text.parse::<ByteSize>().ok().map(ByteSize::as_bytes),
            other => other.as_u64(),
        };
        if !size.is_some_and(|size| (min..=max).contains(&size)) {
            self.defect(key, format!("expected a size from {min} to {max} bytes such as 64MiB, found {value}"));
            return None;
        }
        size
    }

    /// A text or a list of texts.
    pub fn texts(&mut self, key: &str) -> Vec<String> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let items = match value {
            Value::Array(items) => items.as_slice(),
            one => std::slice::from_ref(one),
        };
        let texts: Option<Vec<String>> =
            items.iter().map(|item| item.as_str().filter(|text| !text.is_empty()).map(str::to_owned)).collect();
        match texts {
            Some(texts) if !texts.is_empty() => texts,
            _ => {
                self.defect(key, format!("expected a text or a list of texts, none of them empty, found {value}"));
                Vec::new()
            }
        }
    }

    /// A map of names to texts, in order.
    pub fn text_map(&mut self, key: &str) -> Vec<(String, String)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(map) = value.as_object().filter(|map| !map.is_empty()) else {
            self.defect(key, format!("expected a map of names to texts with at least one entry, found {value}"));
            return Vec::new();
        };
        let mut entries = Vec::with_capacity(map.len());
        for (name, value) in map {
            let path = format!("{key}.{name}");
            if name.is_empty() || name == OP_COLUMN {
                self.defect(&path, format!("\"{name}\" cannot be a column's name"));
            } else if let Some(text) = value.as_str() {
                entries.push((name.clone(), text.to_owned()));
            } else {
                self.defect(&path, format!("expected a text, found {value}"));
            }
        }
        entries
    }

    /// `columns:` with names and types.
    pub fn columns(&mut self, key: &str) -> Vec<Column> {
        let mut columns = Vec::new();
        for (name, text) in self.text_map(key) {
            match parse_column_type(&text) {
                Ok((ty, nullable)) => columns.push(Column::new(name, ty, nullable)),
                Err(error) => self.defect(&format!("{key}.{name}"), error.to_string()),
            }
        }
        columns
    }

    /// Says that an option is missing, unless it is there.
    pub fn require(&mut self, key: &str, what: &str) {
        if !self.has(key) {
            self.defect(key, format!("`{key}` is missing: {what}"));
        }
    }

    /// What was read, if nothing was wrong.
    pub fn finish<T>(self, read: impl FnOnce() -> Option<T>) -> Result<T, Vec<OptionError>> {
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        read().ok_or_else(|| vec![OptionError::new("", "the options are incomplete")])
    }

    fn value(&self, key: &str) -> Option<&'a Value> {
        self.options.get(key).filter(|value| !value.is_null())
    }
}

/// Defects as one text, for an answer that has room for one.
pub fn joined(errors: &[OptionError]) -> String {
    let texts: Vec<String> = errors.iter().map(|error| format!("{}: {}", error.key, error.message)).collect();
    texts.join("; ")
}

/// Options that planning has passed, on a TaskManager: a defect now is Levada's own.
pub fn checked<T>(read: Result<T, Vec<OptionError>>) -> Result<T, ConnectorError> {
    read.map_err(|errors| {
        let first = errors.into_iter().next().unwrap_or_else(|| OptionError::new("", "unknown defect"));
        ConnectorError::Option { key: first.key, message: first.message }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_common::types::LogicalType;

    fn options(json: &str) -> Options {
        serde_json::from_str(json).expect("test options are JSON")
    }

    #[test]
    fn every_defect_is_reported_at_its_key() {
        let options =
            options(r#"{"a": -1, "b": "", "c": "yellow", "d": {"x": "INT65", "_op": "INT8", "y": "INT64"}, "s": "1 XiB"}"#);
        let mut reader = OptionReader::new(&options);
        assert_eq!(reader.integer("a", 0, 9), None);
        assert_eq!(reader.text("b"), None);
        assert_eq!(reader.choice("c", &["red", "blue"]), None);
        assert_eq!(reader.columns("d"), vec![Column::new("y", LogicalType::Int64, true)]);
        assert_eq!(reader.size("s", 1, 10), None);
        reader.require("e", "say it");
        let errors = reader.finish(|| Some(())).expect_err("six defects");
        let keys: Vec<&str> = errors.iter().map(|error| error.key.as_str()).collect();
        assert_eq!(keys, ["a", "b", "c", "d._op", "d.x", "s", "e"]);
        assert!(errors[2].message.contains("red or blue") && errors[2].message.contains("yellow"));
    }

    #[test]
    fn sizes_are_human() {
        for (text, bytes) in
            [("7", Some(7)), ("\"64MiB\"", Some(64 << 20)), ("\"2kB\"", Some(2000)), ("\"x\"", None), ("-1", None), ("1.5", None)]
        {
            let options = options(&format!("{{\"s\": {text}}}"));
            assert_eq!(OptionReader::new(&options).size("s", 1, 1 << 30), bytes, "{text}");
        }
    }
}
