//! Planning and expressions: the only package that names DataFusion.
//!
//! `plan` turns a job graph into the checked plan that TaskManagers run; `Compiler` turns the SQL texts in a plan into
//! columns. Must never know how rows are moved, kept or scheduled. Invariant: a plan that `plan` has given compiles.

mod expression;
mod library;
mod planner;

pub use expression::{Compiler, TypedExpr};
pub use planner::{PlanDefaults, PlanOverrides, explain, plan, plan_document};
