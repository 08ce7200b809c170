//! Expressions: SQL text over a stream's columns, typed at submission and evaluated batch by batch.
//!
//! The way of a text: `parse` (limits, names, what is refused) -> `compiler` (DataFusion's planning and simplification) with
//! `functions` (what may be called), `coerce` (types of operands) and `checked` (arithmetic that never wraps) -> `evaluate`.

mod checked;
mod coerce;
mod compiler;
mod division;
mod evaluate;
mod functions;
mod guard;
mod normal;
mod parse;
mod quotient;
mod stack;
#[cfg(test)]
mod tests;

pub(crate) use compiler::reason;
pub use compiler::{Compiler, TypedExpr};
pub(crate) use parse::{column_reference, parse, unknown_column};
pub(crate) use stack::on_deep_stack;
