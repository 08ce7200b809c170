//! Operators: one file or folder each.

pub mod aggregate;
