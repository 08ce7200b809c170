//! Makes the relative paths of a document absolute, in its text: line numbers stay those of the user's file.
//!
//! Done by the command line against the job file's folder; a service refuses relative paths.

use std::ops::Range;
use std::path::Path;

use super::node::{SINK, SOURCE};
use super::read::read_tree;
use super::report::Keys;
use super::tree::{Entry, Node, Value, join};
use super::{GraphError, GraphErrors};
use crate::declaration::Declarations;

/// The document with every relative path option, and a relative `checkpoint.dir`, made absolute against `base`.
///
/// Contract: `base` is absolute. Options are those that the declarations name as paths. Only the texts of those scalars change.
/// A checkpoint directory becomes a `file://` URI; one that starts with `/` stays, since it lacks a scheme.
///
/// Errors: the document is neither YAML nor JSON, or a path cannot be made absolute; the document's other defects are left to
/// `parse`.
pub fn absolute_paths(document: &str, base: &Path, declarations: &Declarations) -> Result<String, GraphErrors> {
    let body = document.strip_prefix('\u{feff}').unwrap_or(document);
    let (root, _) = read_tree(body)?;
    let Some(base_text) = base.to_str().filter(|_| base.is_absolute()) else {
        let message = format!("the folder {base:?} of the job file is not an absolute path of UTF-8");
        return Err(GraphErrors(vec![GraphError { line: 1, path: String::new(), message }]));
    };
    let mut edits = Edits { body, base: base_text, replaced: Vec::new(), errors: GraphErrors::default() };
    for entry in children(&root, "sources") {
        edits.node(entry, "sources", &SOURCE, |connector| Some(declarations.sources.get(connector)?.path_options.as_slice()));
    }
    for entry in children(&root, "sinks") {
        edits.node(entry, "sinks", &SINK, |connector| Some(declarations.sinks.get(connector)?.path_options.as_slice()));
    }
    let dir = child(&root, "settings").and_then(|settings| child(settings, "checkpoint")).and_then(|node| child(node, "dir"));
    if let Some(dir) = dir {
        edits.checkpoint_dir(dir);
    }
    edits.apply()
}

fn children<'t>(node: &'t Node, key: &str) -> &'t [Entry] {
    match child(node, key).map(|node| &node.value) {
        Some(Value::Map(entries)) => entries,
        _ => &[],
    }
}

fn child<'t>(node: &'t Node, key: &str) -> Option<&'t Node> {
    match &node.value {
        Value::Map(entries) => entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value),
        _ => None,
    }
}

struct Edits<'t> {
    body: &'t str,
    base: &'t str,
    replaced: Vec<(Range<usize>, String)>,
    errors: GraphErrors,
}

impl<'t> Edits<'t> {
    fn node(&mut self, entry: &Entry, section: &str, keys: &Keys, path_options: impl Fn(&str) -> Option<&'t [String]>) {
        let Value::Map(fields) = &entry.value.value else { return };
        for field in fields.iter().filter(|field| !keys.allowed.contains(&field.key.as_str())) {
            for option in path_options(&field.key).unwrap_or_default() {
                let Some(node) = child(&field.value, option) else { continue };
                let path = join(&join(&join(section, &entry.key), &field.key), option);
                match &node.value {
                    Value::List(items) => items.iter().for_each(|item| self.path(item, &path)),
                    _ => self.path(node, &path),
                }
            }
        }
    }

    fn path(&mut self, node: &Node, path: &str) {
        let Value::Scalar { text, .. } = &node.value else { return };
        if node.is_null() || text.trim().is_empty() || text.starts_with('/') || text.contains("://") {
            return;
        }
        // A path with a pattern makes its folder part of the pattern.
        let is_pattern = text.contains(['*', '?', '[']);
        let base = if is_pattern { escaped(self.base) } else { self.base.to_owned() };
        self.replace(node, path, joined(&base, text));
    }

    fn checkpoint_dir(&mut self, node: &Node) {
        let Value::Scalar { text, .. } = &node.value else { return };
        if node.is_null() || text.trim().is_empty() || text.starts_with('/') || text.contains("://") {
            return;
        }
        self.replace(node, "settings.checkpoint.dir", format!("file://{}", joined(self.base, text)));
    }

    fn replace(&mut self, node: &Node, path: &str, text: String) {
        let source = &self.body[node.span.clone()];
        if source.trim_end().contains('\n') {
            let message = "a relative path is written on one line".to_owned();
            self.errors.0.push(GraphError { line: node.line, path: path.to_owned(), message });
            return;
        }
        let end = node.span.start + source.trim_end().len();
        self.replaced.push((node.span.start..end, serde_json::Value::String(text).to_string()));
    }

    fn apply(mut self) -> Result<String, GraphErrors> {
        if !self.errors.0.is_empty() {
            return Err(self.errors);
        }
        self.replaced.sort_by_key(|(span, _)| span.start);
        let mut text = String::with_capacity(self.body.len());
        let mut at = 0;
        for (span, replacement) in self.replaced {
            text.push_str(&self.body[at..span.start]);
            text.push_str(&replacement);
            at = span.end;
        }
        text.push_str(&self.body[at..]);
        Ok(text)
    }
}

/// `relative` below `base`, without `./` at its front; a `/` at its end stays.
fn joined(base: &str, relative: &str) -> String {
    let mut relative = relative;
    while let Some(rest) = relative.strip_prefix("./") {
        relative = rest.trim_start_matches('/');
    }
    let relative = if relative == "." { "" } else { relative };
    format!("{}/{relative}", base.trim_end_matches('/'))
}

/// The folder as a pattern that matches only itself.
fn escaped(folder: &str) -> String {
    let mut escaped = String::with_capacity(folder.len());
    for c in folder.chars() {
        match c {
            '*' | '?' | '[' | ']' => escaped.extend(['[', c, ']']),
            c => escaped.push(c),
        }
    }
    escaped
}
