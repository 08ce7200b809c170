//! The compiler: SQL text over a stream's columns to a typed, evaluable expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::DataType;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, ScalarValue};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::simplify::SimplifyContext;
use datafusion_expr::{BinaryExpr, Case, Expr, ExprSchemable, Operator, ScalarUDF};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr, expressions};
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast;
use levada_common::plan::AggregateCall;
use levada_common::types::{LogicalType, StreamSchema};
use levada_engine::aggregate::LibraryAggregate;
use levada_engine::expr::{Expression, ExpressionCompiler};

use super::checked::{check_arithmetic, is_checked};
use super::coerce::coerce;
use super::division::divide_by_constants;
use super::evaluate::{ColumnReference, Computed};
use super::functions::Functions;
use super::guard::guard;
use super::normal::is_normalisation;
use super::parse::{check_names, columns_in, parse, use_own_names};
use super::quotient::is_division;
use super::stack::on_deep_stack;
use crate::library::LibraryRequest;

/// Deepest tree that is planned: the time that DataFusion takes grows with its cube.
const DEPTH_PLANNED_MAX: usize = 512;
/// Deepest tree that a task evaluates, on its own stack.
const DEPTH_EVALUATED_MAX: usize = 256;

/// Compiles the SQL of plans. Cheap to clone.
#[derive(Clone)]
pub struct Compiler {
    functions: Arc<Functions>,
}

/// What an expression turns out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedExpr {
    /// The type of its values.
    pub ty: LogicalType,
    /// Whether a value may be null.
    pub nullable: bool,
    /// The columns that its text names, sorted.
    pub columns: Vec<String>,
    /// The column that it is, where it is nothing but that.
    pub column: Option<String>,
}

impl Default for Compiler {
    fn default() -> Self {
        Self::new()
    }
}

impl Compiler {
    /// A compiler with the functions of this release.
    pub fn new() -> Self {
        Self { functions: Arc::new(Functions::new()) }
    }

    /// Types `sql` over the columns of `input`.
    ///
    /// Errors: the reason as text: not SQL, an unknown name, a type that does not fit, something that is refused.
    pub fn type_of(&self, sql: &str, input: &StreamSchema) -> Result<TypedExpr, String> {
        on_deep_stack(|| {
            let tree = self.parse(sql, input)?;
            if let Some(column) = bare_column(&tree, input) {
                let found = input.column(&column).expect("the names were checked");
                let (ty, nullable) = (found.ty.clone(), found.nullable);
                return Ok(TypedExpr { ty, nullable, columns: vec![column.clone()], column: Some(column) });
            }
            let planned = self.plan(tree, input)?;
            Ok(TypedExpr { ty: planned.ty, nullable: planned.nullable, columns: planned.columns, column: None })
        })
    }

    /// The columns that `sql` names, its types unchecked.
    pub(crate) fn columns_of(&self, sql: &str, input: &StreamSchema) -> Result<Vec<String>, String> {
        on_deep_stack(|| {
            let tree = self.parse(sql, input)?;
            Ok(columns_in(&tree, input))
        })
    }

    fn parse(&self, sql: &str, input: &StreamSchema) -> Result<ast::Expr, String> {
        let mut tree = parse(sql, |name| input.column(name).is_some())?;
        check_names(&tree, input, &self.functions)?;
        use_own_names(&mut tree, &self.functions);
        Ok(tree)
    }

    /// The value of `sql`, which names no column; `None` where it names one.
    ///
    /// Errors: as for `type_of`, and where it cannot be computed.
    pub(crate) fn constant(&self, sql: &str, input: &StreamSchema) -> Result<Option<ScalarValue>, String> {
        if !self.columns_of(sql, input)?.is_empty() {
            return Ok(None);
        }
        on_deep_stack(|| {
            let nothing = StreamSchema::append(Vec::new());
            let planned = self.plan(self.parse(sql, &nothing)?, &nothing)?;
            let options = RecordBatchOptions::new().with_row_count(Some(1));
            let row =
                RecordBatch::try_new_with_options(nothing.to_arrow(), Vec::new(), &options).map_err(|error| error.to_string())?;
            let value = planned.physical.evaluate(&row).and_then(|value| value.into_array(1));
            value.and_then(|value| ScalarValue::try_from_array(&value, 0)).map(Some).map_err(reason)
        })
    }

    /// Contract: on a deep stack.
    fn plan(&self, tree: ast::Expr, input: &StreamSchema) -> Result<Planned, String> {
        let arrow_schema = input.to_arrow();
        let schema = Arc::new(DFSchema::try_from(Arc::clone(&arrow_schema)).map_err(reason)?);
        let options = ParserOptions::new()
            .with_parse_float_as_decimal(true)
            .with_enable_ident_normalization(false)
            .with_map_string_types_to_utf8view(false);
        let expr = SqlToRel::new_with_options(&*self.functions, options)
            .sql_to_expr(tree, &schema, &mut PlannerContext::new())
            .map_err(reason)?;
        check_depth(&expr, DEPTH_PLANNED_MAX)?;
        let expr = exact_literals(expr)?;
        let columns: BTreeSet<String> = expr.column_refs().into_iter().map(|column| column.name.clone()).collect();

        let config = Arc::new(ConfigOptions::default());
        let context = SimplifyContext::builder().with_schema(Arc::clone(&schema)).with_config_options(config).build();
        let simplifier = ExprSimplifier::new(context);
        let expr = coerce(expr, &schema).map_err(reason)?;
        let nullable = may_be_null(&expr, &schema);
        let expr = check_arithmetic(expr, &schema).map_err(reason)?;
        let expr = simplifier.simplify(expr).map_err(reason)?;
        check_depth(&expr, DEPTH_EVALUATED_MAX)?;
        let expr = divide_by_constants(expr, &schema).map_err(reason)?;
        let physical = create_physical_expr(&expr, &schema, &ExecutionProps::new(), &PhysicalPlanningContext::default());
        let physical = fail_on_overflow(physical.map_err(reason)?).and_then(guard).map_err(reason)?;
        let data_type = physical.data_type(&arrow_schema).map_err(reason)?;
        let ty = column_type(&data_type)?;
        Ok(Planned { physical, data_type, ty, nullable, columns: columns.into_iter().collect() })
    }
}

impl ExpressionCompiler for Compiler {
    fn compile(&self, sql: &str, input: &StreamSchema, result: &LogicalType) -> Result<Arc<dyn Expression>, String> {
        on_deep_stack(|| {
            let tree = self.parse(sql, input)?;
            if let Some(column) = bare_column(&tree, input) {
                let index = input.batch_index(&column).expect("the names were checked");
                let same = input.column(&column).is_some_and(|column| column.ty == *result);
                let cast = (!same).then(|| result.to_arrow());
                return Ok(Arc::new(ColumnReference { index, cast }) as Arc<dyn Expression>);
            }
            let planned = self.plan(tree, input)?;
            Ok(Arc::new(Computed::new(planned.physical, &planned.data_type, result.to_arrow())) as Arc<dyn Expression>)
        })
    }

    fn aggregate(&self, call: &AggregateCall) -> Result<Arc<dyn LibraryAggregate>, String> {
        let nothing = StreamSchema::append(Vec::new());
        let constant = |sql: &str| self.constant(sql, &nothing)?.ok_or_else(|| format!("\"{sql}\" is no constant"));
        Ok(Arc::new(LibraryRequest::compile(call, constant)?))
    }
}

struct Planned {
    physical: Arc<dyn PhysicalExpr>,
    data_type: DataType,
    ty: LogicalType,
    nullable: bool,
    columns: Vec<String>,
}

fn bare_column(tree: &ast::Expr, input: &StreamSchema) -> Option<String> {
    match tree {
        ast::Expr::Identifier(ident) => input.column(&ident.value).map(|column| column.name.clone()),
        ast::Expr::Nested(inner) => bare_column(inner, input),
        _ => None,
    }
}

/// Gives number literals a type that a column can have: no negative scale (`1e5` is 100000), no more than 38 digits.
fn exact_literals(expr: Expr) -> Result<Expr, String> {
    let too_wide = |text: String| {
        DataFusionError::Plan(format!("the number {text} has more than 38 digits; write CAST('...' AS DOUBLE) for a FLOAT64"))
    };
    let rewritten = expr.transform_up(|expr| match expr {
        Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale), metadata) if scale < 0 => {
            let zeros = u32::from(scale.unsigned_abs());
            let fits = u32::from(precision) + zeros <= 38;
            if !fits {
                return Err(too_wide(format!("{value}e{zeros}")));
            }
            let literal = ScalarValue::Decimal128(Some(value * 10i128.pow(zeros)), precision + zeros as u8, 0);
            Ok(Transformed::yes(Expr::Literal(literal, metadata)))
        }
        Expr::Literal(ScalarValue::Decimal256(Some(value), _, scale), _) => {
            Err(too_wide(format!("{value}e{}", -i32::from(scale))))
        }
        other => Ok(Transformed::no(other)),
    });
    Ok(rewritten.map_err(reason)?.data)
}

/// Whether a value may be null, on the safe side: functions other than the few known ones may always give null.
fn may_be_null(expr: &Expr, schema: &DFSchema) -> bool {
    let any = |exprs: Vec<&Expr>| exprs.into_iter().any(|expr| may_be_null(expr, schema));
    match expr {
        Expr::Column(_) => expr.nullable(schema).unwrap_or(true),
        Expr::Literal(value, _) => value.is_null(),
        Expr::Alias(alias) => may_be_null(&alias.expr, schema),
        Expr::Cast(cast) => may_be_null(&cast.expr, schema),
        Expr::Not(inner) | Expr::Negative(inner) => may_be_null(inner, schema),
        Expr::IsNull(_) | Expr::IsNotNull(_) | Expr::IsTrue(_) | Expr::IsNotTrue(_) => false,
        Expr::IsFalse(_) | Expr::IsNotFalse(_) | Expr::IsUnknown(_) | Expr::IsNotUnknown(_) => false,
        Expr::BinaryExpr(BinaryExpr { op: Operator::IsDistinctFrom | Operator::IsNotDistinctFrom, .. }) => false,
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => may_be_null(left, schema) || may_be_null(right, schema),
        Expr::Between(between) => any(vec![&between.expr, &between.low, &between.high]),
        Expr::InList(list) => may_be_null(&list.expr, schema) || any(list.list.iter().collect()),
        Expr::Like(like) => may_be_null(&like.expr, schema) || may_be_null(&like.pattern, schema),
        Expr::Case(Case { when_then_expr, else_expr: Some(otherwise), .. }) => {
            may_be_null(otherwise, schema) || any(when_then_expr.iter().map(|(_, then)| &**then).collect())
        }
        Expr::ScalarFunction(function) if gives_null_of_null(&function.func) => any(function.args.iter().collect()),
        Expr::ScalarFunction(function) if function.name() == "coalesce" => {
            function.args.iter().all(|argument| may_be_null(argument, schema))
        }
        _ => true,
    }
}

/// Whether the function is one of ours, which give null only where an argument is.
fn gives_null_of_null(function: &ScalarUDF) -> bool {
    is_checked(function) || is_normalisation(function) || is_division(function)
}

fn check_depth(expr: &Expr, limit: usize) -> Result<(), String> {
    match depth(expr) {
        depth if depth > limit => Err(format!(
            "the expression is {depth} steps deep; the limit is {limit}; for `a = 1 or a = 2 ...` write `a in (1, 2 ...)`"
        )),
        _ => Ok(()),
    }
}

fn depth(expr: &Expr) -> usize {
    let mut deepest = 0;
    expr.apply_children(|child| {
        deepest = deepest.max(depth(child));
        Ok(datafusion_common::tree_node::TreeNodeRecursion::Continue)
    })
    .expect("the closure never fails");
    deepest + 1
}

/// What `check_arithmetic` left (times and intervals) is checked by DataFusion's own switch.
fn fail_on_overflow(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, DataFusionError> {
    let rewritten = expr.transform_up(|expr| {
        let Some(binary) = expr.downcast_ref::<expressions::BinaryExpr>() else {
            return Ok(Transformed::no(expr));
        };
        let checked: Arc<dyn PhysicalExpr> = Arc::new(binary.clone().with_fail_on_overflow(true));
        Ok(Transformed::yes(checked))
    })?;
    Ok(rewritten.data)
}

/// The column type that holds values of `data_type`.
fn column_type(data_type: &DataType) -> Result<LogicalType, String> {
    match data_type {
        DataType::Null => Err("the expression is always NULL and has no type; write CAST(NULL AS type)".into()),
        DataType::Interval(_) | DataType::Duration(_) => {
            Err("the result is an interval, which no column can hold; cast it, CAST(... AS BIGINT)".into())
        }
        DataType::Decimal256(precision, _) => {
            Err(format!("the result needs {precision} digits; DECIMAL has at most 38; cast it"))
        }
        DataType::Decimal128(precision, scale) if *scale < 0 => {
            let digits = i32::from(*precision) - i32::from(*scale);
            let fits = u8::try_from(digits).ok().filter(|digits| *digits <= 38);
            fits.map(|digits| LogicalType::Decimal(digits, 0))
                .ok_or_else(|| format!("the result needs {digits} digits; DECIMAL has at most 38"))
        }
        other => {
            LogicalType::from_arrow(other).ok_or_else(|| format!("the result is {other}, which no column can hold; cast it"))
        }
    }
}

/// An error's reason without DataFusion's framing.
pub(crate) fn reason(error: DataFusionError) -> String {
    let text = match error.find_root() {
        DataFusionError::Plan(text) | DataFusionError::Execution(text) | DataFusionError::NotImplemented(text) => text.clone(),
        DataFusionError::ArrowError(error, _) => super::evaluate::arrow_reason(error),
        DataFusionError::SchemaError(error, _) => error.to_string(),
        other => other.strip_backtrace(),
    };
    plain(&text)
}

/// Lower case at the start, no full stop at the end, one line.
pub(super) fn plain(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default().trim().trim_end_matches('.');
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if first.is_uppercase() && second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_string(),
    }
}
