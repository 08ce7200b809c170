//! `print` has no options.

use std::sync::Arc;

use levada_common::declaration::SinkDeclaration;

/// The declaration of `print`.
pub fn sink() -> SinkDeclaration {
    SinkDeclaration {
        options: Vec::new(),
        path_options: Vec::new(),
        changelog: true,
        exactly_once: false,
        read: Arc::new(|_, _| Ok(())),
    }
}
