//! Where an access goes, and what it needs where a cold store stands behind the tables.

use std::ops::Deref;

use crate::key_index::KeyIndex;

use super::at::At;
use super::overlay::Overlay;

/// The current key, namespace and time, with the keys and the store to ask for what a table does not have.
pub(crate) struct Here<'a> {
    pub(super) at: &'a At,
    pub(super) keys: &'a KeyIndex,
    pub(super) overlay: Option<&'a mut Overlay>,
}

impl Deref for Here<'_> {
    type Target = At;

    #[inline]
    fn deref(&self) -> &At {
        self.at
    }
}

impl Here<'_> {
    /// Whether the rows of a batch are at work, not timers.
    pub(super) fn is_batch(&self) -> bool {
        self.overlay.as_ref().is_some_and(|overlay| overlay.asked.is_batch())
    }

    /// The same, at another place.
    pub(super) fn with<'b>(&'b mut self, at: &'b At) -> Here<'b> {
        Here { at, keys: self.keys, overlay: self.overlay.as_deref_mut() }
    }
}
