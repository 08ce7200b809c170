//! What a node names where it reads: another node, or one of the outputs that this has beside its main one.
//!
//! Must never know which outputs there are: a function's are known when it is planned.

use std::fmt;

use crate::ids::Uid;

/// An output of a node, written `node` or `node/output`: a node's name has no `/`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputRef {
    /// The node.
    pub node: Uid,
    /// The name of the output; `None` = the main one.
    pub output: Option<String>,
}

impl InputRef {
    /// Reads what stands in a document; any text is a reference, whether there is such a node or not.
    pub fn new(text: &str) -> Self {
        match text.split_once('/') {
            None => Self { node: Uid::new(text), output: None },
            Some((node, output)) => Self { node: Uid::new(node), output: Some(output.to_owned()) },
        }
    }
}

impl fmt::Display for InputRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.output {
            None => self.node.fmt(f),
            Some(output) => write!(f, "{}/{output}", self.node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_written_as_it_is_read() {
        for text in ["node", "node/late", "node/a/b", "node/", "ä b/c"] {
            assert_eq!(InputRef::new(text).to_string(), text);
        }
        assert_eq!(InputRef::new("node/a/b").output.as_deref(), Some("a/b"));
    }
}
