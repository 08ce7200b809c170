//! What an account has spent so far.

use levada_taskmanager::function::{FunctionDeclaration, FunctionKind, ReduceFunction};
use levada_taskmanager::types::LogicalType;

/// Adds up amounts.
pub struct Spent;

/// Takes `amount`; gives the key and the sum so far, a row for each payment.
pub fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("spent", FunctionKind::Reduce)
        .input("amount", LogicalType::Int64)
        .output("spent", LogicalType::Int64)
}

impl ReduceFunction for Spent {
    type Value = i64;

    fn reduce(so_far: &mut i64, next: i64) {
        *so_far = so_far.saturating_add(next);
    }
}
