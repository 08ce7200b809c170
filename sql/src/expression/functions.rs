//! The functions that an expression may call, and DataFusion's view of a stream while it plans one.
//!
//! Invariant: every function is a pure function of its arguments; what depends on time, chance or place is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::datatype::DataTypeExt;
use datafusion_common::{Result, TableReference, plan_err};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, TypePlanner};
use datafusion_expr::{AggregateUDF, HigherOrderUDF, ScalarUDF, TableSource, Volatility, WindowUDF};
use datafusion_functions::core::planner::CoreFunctionPlanner;
use datafusion_functions::datetime::planner::DatetimeFunctionPlanner;
use datafusion_functions::unicode::planner::UnicodeFunctionPlanner;
use datafusion_functions_nested::planner::{FieldAccessPlanner, NestedFunctionPlanner};
use datafusion_sql::sqlparser::ast;
use levada_common::types::LogicalType;

use crate::library::is_aggregate;
use levada_common::nearest::did_you_mean;

/// Window functions.
const WINDOWS: [&str; 9] = ["row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value"];
/// Functions without brackets that say who or where.
const AMBIENT: [&str; 5] = ["user", "current_user", "session_user", "current_catalog", "version"];

/// The functions of expressions.
pub(super) struct Functions {
    scalars: BTreeMap<String, Arc<ScalarUDF>>,
    planners: Vec<Arc<dyn ExprPlanner>>,
    options: ConfigOptions,
}

/// What a function's name is.
pub(super) enum Lookup {
    /// A function that may be called.
    Scalar,
    /// Another one, and why it cannot.
    Refused(String),
}

impl Functions {
    /// DataFusion's scalar functions.
    pub(super) fn new() -> Self {
        let all = datafusion_functions::all_default_functions();
        let all = all.into_iter().chain(datafusion_functions_nested::all_default_nested_functions());
        let mut scalars = BTreeMap::new();
        for function in all {
            for alias in function.aliases() {
                scalars.insert(alias.to_lowercase(), Arc::clone(&function));
            }
            scalars.insert(function.name().to_lowercase(), function);
        }
        let planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(CoreFunctionPlanner {}),
            Arc::new(NestedFunctionPlanner),
            Arc::new(FieldAccessPlanner),
            Arc::new(DatetimeFunctionPlanner),
            Arc::new(UnicodeFunctionPlanner),
        ];
        Self { scalars, planners, options: ConfigOptions::default() }
    }

    /// The name under which the function called `name` knows itself.
    pub(super) fn own_name(&self, name: &str) -> Option<&str> {
        self.scalars.get(&name.to_lowercase()).map(|function| function.name())
    }

    /// What `name` is, compared without case.
    pub(super) fn look_up(&self, name: &str) -> Lookup {
        let lower = name.to_lowercase();
        let refused = |reason: String| Lookup::Refused(reason);
        if lower == "unnest" || lower == "unnest_outer" {
            return refused("unnest can only be a whole column of a `select`, `unnest(list)`, and once per select".into());
        }
        if AMBIENT.contains(&lower.as_str()) {
            return refused(format!("function \"{name}\" depends on where it runs and cannot stand in an expression"));
        }
        match self.scalars.get(&lower) {
            Some(function) if function.signature().volatility == Volatility::Immutable => Lookup::Scalar,
            Some(_) => refused(format!(
                "function \"{name}\" gives another value each time, so a job restarted after a failure would give other rows; \
                 use a column of the input"
            )),
            None if is_aggregate(&lower) => {
                refused(format!("aggregate function \"{name}\" cannot stand in an expression; it belongs under `aggregate`"))
            }
            None if WINDOWS.contains(&lower.as_str()) => {
                refused(format!("window function \"{name}\" cannot stand in an expression; use `window` and `aggregate`"))
            }
            None => {
                let near = did_you_mean(&lower, self.scalars.keys().map(String::as_str));
                refused(format!("unknown function \"{name}\"{near}"))
            }
        }
    }
}

impl ContextProvider for Functions {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        plan_err!("an expression cannot read table \"{name}\"")
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.planners
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        Some(Arc::new(GraphTypes))
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.scalars.get(&name.to_lowercase()).cloned()
    }

    fn get_higher_order_meta(&self, _: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, _: &str) -> Option<Arc<AggregateUDF>> {
        None
    }

    fn get_window_meta(&self, _: &str) -> Option<Arc<WindowUDF>> {
        None
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.options
    }

    fn udf_names(&self) -> Vec<String> {
        self.scalars.keys().cloned().collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Types in `CAST` mean what they mean under `columns:` (INT8 has 8 bits, TIMESTAMP milliseconds).
#[derive(Debug)]
struct GraphTypes;

impl TypePlanner for GraphTypes {
    fn plan_type_field(&self, sql_type: &ast::DataType) -> Result<Option<FieldRef>> {
        match sql_type.to_string().parse::<LogicalType>() {
            Ok(ty) => Ok(Some(ty.to_arrow().into_nullable_field_ref())),
            Err(error) => plan_err!("{error}"),
        }
    }
}
