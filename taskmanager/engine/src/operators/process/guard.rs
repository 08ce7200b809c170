//! Around every call of a function: a panic in it fails the task by its name.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::function::FunctionError;

/// Runs `call`; a panic becomes an error. Contract: after one the task fails, so that nothing half changed is seen.
pub(super) fn guarded<T>(call: impl FnOnce() -> Result<T, FunctionError>) -> Result<T, FunctionError> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| Err(FunctionError::Panicked { message: message(&*panic) }))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").into()
}
