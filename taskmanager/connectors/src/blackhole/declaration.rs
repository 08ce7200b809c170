//! `blackhole` has no options.

use std::sync::Arc;

use levada_common::declaration::SinkDeclaration;

/// The declaration of `blackhole`.
pub fn sink() -> SinkDeclaration {
    SinkDeclaration {
        options: Vec::new(),
        path_options: Vec::new(),
        changelog: true,
        exactly_once: true,
        read: Arc::new(|_, _| Ok(())),
    }
}
