//! `generate`: the numbers from a to b, or without end, and columns that are SQL of them.

pub mod declaration;
pub mod source;
