//! A document as a tree in which everything knows its line: what YAML and JSON are read into before anything is understood.
//!
//! The builder takes what a reader meets, one piece at a time, and enforces the limits. Must never know what a job is.

use std::collections::HashMap;
use std::ops::Range;

use super::{GraphError, GraphErrors};

/// Largest document, in bytes.
pub(super) const DOCUMENT_BYTES_MAX: usize = 1 << 20;
/// Most nested lists and maps.
const DEPTH_MAX: usize = 128;
/// Most scalars, lists and maps of a document.
const NODES_MAX: usize = 100_000;

/// A piece of a document.
#[derive(Debug)]
pub(super) struct Node {
    /// Line, from 1.
    pub line: u32,
    /// Its bytes in the document; of use for scalars only.
    pub span: Range<usize>,
    /// What it is.
    pub value: Value,
}

/// What a piece of a document is.
#[derive(Debug)]
pub(super) enum Value {
    /// Text; `plain` where it stood without quotes and so may mean a number, a boolean or null.
    Scalar {
        /// The text.
        text: String,
        /// Whether it stood without quotes.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the document, each key once.
    Map(Vec<Entry>),
    /// Something refused, reported already: whoever meets it says nothing more.
    Broken,
}

/// An entry of a map.
#[derive(Debug)]
pub(super) struct Entry {
    /// The key.
    pub key: String,
    /// The key's line.
    pub line: u32,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Whether this is null or nothing (`where:` with nothing behind).
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    /// What this is, for messages.
    pub fn kind(&self) -> &'static str {
        match &self.value {
            _ if self.is_null() => "nothing",
            Value::Scalar { plain: true, .. } => "a value",
            Value::Scalar { plain: false, .. } => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
            Value::Broken => "something refused",
        }
    }
}

/// `path` with `key` behind it.
pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// `text`, cut where it is too long for a message.
pub(super) fn shown(text: &str) -> String {
    const LETTERS_MAX: usize = 60;
    match text.char_indices().nth(LETTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reading cannot go on; the reason is among the builder's errors.
#[derive(Debug)]
pub(super) struct Stop;

enum Frame {
    List { line: u32, start: usize, items: Vec<Node> },
    Map { line: u32, start: usize, entries: Vec<Entry>, seen: HashMap<String, u32>, key: Option<(Key, u32)> },
}

enum Key {
    Good(String),
    /// Refused; its value is dropped.
    Refused,
}

/// Makes a tree of what a reader meets.
#[derive(Default)]
pub(super) struct Builder {
    stack: Vec<Frame>,
    root: Option<Node>,
    nodes: usize,
    errors: Vec<GraphError>,
}

impl Builder {
    /// A list starts.
    pub fn open_list(&mut self, line: u32, start: usize) -> Result<(), Stop> {
        self.admit(line)?;
        self.stack.push(Frame::List { line, start, items: Vec::new() });
        Ok(())
    }

    /// A map starts.
    pub fn open_map(&mut self, line: u32, start: usize) -> Result<(), Stop> {
        self.admit(line)?;
        self.stack.push(Frame::Map { line, start, entries: Vec::new(), seen: HashMap::new(), key: None });
        Ok(())
    }

    /// The innermost list or map ends.
    pub fn close(&mut self, end: usize) {
        match self.stack.pop() {
            Some(Frame::List { line, start, items }) => {
                self.place(Node { line, span: start..end.max(start), value: Value::List(items) });
            }
            Some(Frame::Map { line, start, entries, .. }) => {
                self.place(Node { line, span: start..end.max(start), value: Value::Map(entries) });
            }
            None => {}
        }
    }

    /// A scalar: a key where the innermost map waits for one.
    pub fn scalar(&mut self, text: String, plain: bool, line: u32, span: Range<usize>) -> Result<(), Stop> {
        self.admit(line)?;
        if !self.expects_key() {
            self.place(Node { line, span, value: Value::Scalar { text, plain } });
            return Ok(());
        }
        let refused = if plain && text == "<<" {
            Some("merge keys (`<<`) are not supported; write the entries out".to_owned())
        } else {
            self.seen_at(&text).map(|first| format!("the key \"{}\" stands here twice, first in line {first}", shown(&text)))
        };
        let is_refused = refused.is_some();
        if let Some(message) = refused {
            self.error(line, message);
        }
        if let Some(Frame::Map { seen, key, .. }) = self.stack.last_mut() {
            seen.entry(text.clone()).or_insert(line);
            *key = Some((if is_refused { Key::Refused } else { Key::Good(text) }, line));
        }
        Ok(())
    }

    /// Something that is refused stands where a value or a key belongs.
    pub fn broken(&mut self, line: u32, message: impl Into<String>) -> Result<(), Stop> {
        self.error(line, message);
        self.admit(line)?;
        self.place(Node { line, span: 0..0, value: Value::Broken });
        Ok(())
    }

    /// Reports a defect of the place that is being read.
    pub fn error(&mut self, line: u32, message: impl Into<String>) {
        let error = GraphError { line, path: self.path(), message: message.into() };
        self.errors.push(error);
    }

    /// Whether the innermost map waits for a key.
    pub fn expects_key(&self) -> bool {
        matches!(self.stack.last(), Some(Frame::Map { key: None, .. }))
    }

    /// The tree, unless reading stopped, and what was refused.
    pub fn finish(self) -> (Option<Node>, GraphErrors) {
        (self.root.filter(|_| self.stack.is_empty()), GraphErrors(self.errors))
    }

    fn seen_at(&self, text: &str) -> Option<u32> {
        match self.stack.last() {
            Some(Frame::Map { seen, .. }) => seen.get(text).copied(),
            _ => None,
        }
    }

    fn admit(&mut self, line: u32) -> Result<(), Stop> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.error(line, format!("the document has more than {NODES_MAX} values"));
            return Err(Stop);
        }
        if self.stack.len() >= DEPTH_MAX {
            self.error(line, format!("lists and maps are nested more than {DEPTH_MAX} deep"));
            return Err(Stop);
        }
        Ok(())
    }

    fn place(&mut self, node: Node) {
        match self.stack.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                Some((Key::Good(name), line)) => entries.push(Entry { key: name, line, value: node }),
                Some((Key::Refused, _)) => {}
                None => {
                    *key = Some((Key::Refused, node.line));
                    if !matches!(node.value, Value::Broken) {
                        self.error(node.line, "a key is a text, not a list or a map");
                    }
                }
            },
        }
    }

    /// The keys on the way to what is being read; cut where it is absurdly long.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.stack {
            match frame {
                Frame::List { items, .. } => path.push_str(&format!("[{}]", items.len())),
                Frame::Map { key: Some((Key::Good(key), _)), .. } => path = join(&path, &shown(key)),
                Frame::Map { .. } => {}
            }
            if path.len() > super::report::PATH_BYTES_MAX {
                break;
            }
        }
        path
    }
}
