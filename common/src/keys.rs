//! Keys: their bytes, their hash, their group. Fixed for ever: snapshots depend on it.

use serde::{Deserialize, Serialize};

/// A range of key groups, from `start` up to and including `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    /// First group.
    pub start: u16,
    /// Last group.
    pub end: u16,
}
