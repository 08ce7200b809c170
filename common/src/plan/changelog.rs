//! How the changes of a changelog are matched.

use serde::{Deserialize, Serialize};

/// What a reader of a changelog may rely on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changelog {
    /// The columns whose values an update shares with the row that it replaces.
    pub key: Vec<String>,
    /// Whether the replaced row comes too (`-U`).
    pub full: bool,
    /// Whether at most one row of a key stands at a time.
    pub unique: bool,
}
