//! Integer and decimal arithmetic that is an error where it would wrap.
//!
//! DataFusion's `+`, `-`, `*` and unary minus wrap, also while it folds constants. Before it simplifies, those over integers
//! and decimals are replaced by functions over Arrow's checked kernels, so that nothing can wrap anywhere.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, Datum, Scalar};
use arrow::compute::kernels::numeric;
use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion_expr::binary::BinaryTypeCoercer;
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

static ADD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Checked::function("checked_add", Operation::Binary(Operator::Plus)));
static SUBTRACT: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Checked::function("checked_subtract", Operation::Binary(Operator::Minus)));
static MULTIPLY: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Checked::function("checked_multiply", Operation::Binary(Operator::Multiply)));
static NEGATE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| Checked::function("checked_negate", Operation::Negate));

/// Replaces the arithmetic of `expr` that could wrap.
///
/// Contract: types were coerced before; they are not coerced again after.
pub(super) fn check_arithmetic(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    rewrite(expr, schema).map(|(expr, _)| expr)
}

/// The rewritten expression, with its type where that was found on the way: asking each node of a long sum anew would take
/// time that grows with the cube of its length.
fn rewrite(expr: Expr, schema: &DFSchema) -> Result<(Expr, Option<DataType>)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if checked_function(op).is_some() => {
            let ((left, left_type), (right, right_type)) = (rewrite(*left, schema)?, rewrite(*right, schema)?);
            let left_type = left_type.map_or_else(|| left.get_type(schema), Ok)?;
            let right_type = right_type.map_or_else(|| right.get_type(schema), Ok)?;
            let result = BinaryTypeCoercer::new(&left_type, &op, &right_type).get_result_type()?;
            let expr = match checked_function(op) {
                Some(function) if can_wrap(&left_type) && can_wrap(&right_type) => call(function, vec![left, right]),
                _ => Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right))),
            };
            Ok((expr, Some(result)))
        }
        Expr::Negative(inner) => {
            let (inner, ty) = rewrite(*inner, schema)?;
            let ty = ty.map_or_else(|| inner.get_type(schema), Ok)?;
            let expr = if can_wrap(&ty) { call(&NEGATE, vec![inner]) } else { Expr::Negative(Box::new(inner)) };
            Ok((expr, Some(ty)))
        }
        other => {
            let rewritten = other.map_children(|child| Ok(Transformed::yes(rewrite(child, schema)?.0)))?;
            Ok((rewritten.data, None))
        }
    }
}

fn checked_function(op: Operator) -> Option<&'static Arc<ScalarUDF>> {
    match op {
        Operator::Plus => Some(&ADD),
        Operator::Minus => Some(&SUBTRACT),
        Operator::Multiply => Some(&MULTIPLY),
        _ => None,
    }
}

/// Whether this is one of the functions that `check_arithmetic` puts in: null only where an argument is.
pub(super) fn is_checked(function: &ScalarUDF) -> bool {
    [&*ADD, &*SUBTRACT, &*MULTIPLY, &*NEGATE].iter().any(|checked| checked.name() == function.name())
}

fn can_wrap(data_type: &DataType) -> bool {
    data_type.is_integer() || matches!(data_type, DataType::Decimal32(..) | DataType::Decimal64(..) | DataType::Decimal128(..))
}

fn call(function: &Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), arguments))
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Operation {
    Binary(Operator),
    Negate,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Checked {
    name: &'static str,
    operation: Operation,
    signature: Signature,
}

impl Checked {
    fn function(name: &'static str, operation: Operation) -> Arc<ScalarUDF> {
        let arguments = if operation == Operation::Negate { 1 } else { 2 };
        let signature = Signature::any(arguments, Volatility::Immutable);
        Arc::new(ScalarUDF::new_from_impl(Self { name, operation, signature }))
    }
}

impl ScalarUDFImpl for Checked {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match (&self.operation, arguments) {
            (Operation::Negate, [argument]) => Ok(argument.clone()),
            (Operation::Binary(op), [left, right]) => BinaryTypeCoercer::new(left, op, right).get_result_type(),
            _ => internal_err!("{} over {} arguments", self.name, arguments.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let result = match (&self.operation, args.args.as_slice()) {
            (Operation::Negate, [argument]) => {
                let array = argument.to_array(1)?;
                numeric::neg(&array)?
            }
            (Operation::Binary(op), [left, right]) => {
                let (left, right) = (operand(left)?, operand(right)?);
                match op {
                    Operator::Plus => numeric::add(left.as_ref(), right.as_ref())?,
                    Operator::Minus => numeric::sub(left.as_ref(), right.as_ref())?,
                    _ => numeric::mul(left.as_ref(), right.as_ref())?,
                }
            }
            (_, arguments) => return internal_err!("{} over {} arguments", self.name, arguments.len()),
        };
        if args.args.iter().all(|argument| matches!(argument, ColumnarValue::Scalar(_))) {
            Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?))
        } else {
            Ok(ColumnarValue::Array(result))
        }
    }
}

fn operand(value: &ColumnarValue) -> Result<Box<dyn Datum + '_>> {
    Ok(match value {
        ColumnarValue::Array(array) => Box::new(array),
        ColumnarValue::Scalar(scalar) => Box::new(Scalar::new(scalar.to_array()?) as Scalar<Arc<dyn Array>>),
    })
}
