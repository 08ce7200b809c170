//! Expressions that are closures: the "SQL" is a name under which the test put one, or the name of a column.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::plan::AggregateCall;
use levada_common::types::{LogicalType, StreamSchema};

use super::library::Collect;
use crate::aggregate::LibraryAggregate;
use crate::expr::{Expression, ExpressionCompiler};

type Evaluate = Arc<dyn Fn(&RecordBatch) -> Result<ArrayRef, String> + Send + Sync>;

/// Closures by name.
#[derive(Clone, Default)]
pub(crate) struct Closures(BTreeMap<String, Evaluate>);

struct Closure(Evaluate);

impl Closures {
    pub(crate) fn with(
        mut self,
        sql: &str,
        evaluate: impl Fn(&RecordBatch) -> Result<ArrayRef, String> + Send + Sync + 'static,
    ) -> Self {
        self.0.insert(sql.into(), Arc::new(evaluate));
        self
    }
}

impl ExpressionCompiler for Closures {
    fn compile(&self, sql: &str, input: &StreamSchema, _result: &LogicalType) -> Result<Arc<dyn Expression>, String> {
        if let Some(evaluate) = self.0.get(sql) {
            return Ok(Arc::new(Closure(Arc::clone(evaluate))));
        }
        let place = input.batch_index(sql).ok_or_else(|| format!("column \"{sql}\" not found"))?;
        Ok(Arc::new(Closure(Arc::new(move |batch| Ok(batch.column(place).clone())))))
    }

    fn aggregate(&self, call: &AggregateCall) -> Result<Arc<dyn LibraryAggregate>, String> {
        match call.function_name() {
            "collect" => Ok(Arc::new(Collect)),
            other => Err(format!("the tests have no aggregate \"{other}\"")),
        }
    }
}

impl Expression for Closure {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        (self.0)(batch)
    }
}
