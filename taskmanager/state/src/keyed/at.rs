//! Where an access goes: the current key, namespace and time.

use super::clock::Clock;

/// The window that a value belongs to. Order is that of firing: by end, then by start.
pub use crate::row_codec::Window as Namespace;

/// No current key.
pub(super) const NO_KEY: u32 = u32::MAX;

/// The current key, namespace and time.
#[derive(Debug, Clone, Copy)]
pub struct At {
    pub(super) key: u32,
    pub(super) namespace: Option<Namespace>,
    pub(super) clock: Clock,
}
