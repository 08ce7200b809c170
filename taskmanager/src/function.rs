//! What users' functions are written with, in one place: traits, contexts, declarations.

pub use levada_common::function::{FunctionDeclaration, FunctionKind};
pub use levada_engine::function::*;
pub use levada_engine::metrics::Counter;
