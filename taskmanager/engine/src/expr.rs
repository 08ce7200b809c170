//! Expressions, as the engine sees them: something that gives a column for a batch.
//!
//! The engine has no SQL: `levada-sql` compiles the text of a plan, the shell hands the compiler in.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::plan::AggregateCall;
use levada_common::types::{LogicalType, StreamSchema};

use crate::aggregate::LibraryAggregate;

/// A compiled expression.
///
/// Shape: takes batches of the schema that it was compiled for, gives a column with as many rows, of exactly the Arrow type
/// of its `LogicalType` (no views, dictionaries or large arrays). Contract: pure; no state between calls.
pub trait Expression: Send + Sync {
    /// Evaluates over every row.
    ///
    /// Errors: the reason as text, where any row of the batch cannot be computed (an overflow, a cast, a division by zero), perhaps
    /// only beside the others; never over no rows.
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String>;
}

/// Compiles the expressions of a plan.
pub trait ExpressionCompiler: Send + Sync {
    /// Compiles `sql` over `input`, its result cast to `result`.
    ///
    /// Errors: the reason as text. Cannot happen for a plan that was checked by the same version.
    fn compile(&self, sql: &str, input: &StreamSchema, result: &LogicalType) -> Result<Arc<dyn Expression>, String>;

    /// Makes the aggregate of a call that the engine leaves to a library.
    ///
    /// Errors: the reason as text, as for `compile`; here, that there is no library.
    fn aggregate(&self, call: &AggregateCall) -> Result<Arc<dyn LibraryAggregate>, String> {
        Err(format!("there is no library that has \"{}\"", call.function_name()))
    }
}
