//! One zero and one NaN where floats are compared, as among keys.
//!
//! Arrow compares by its total order, in which −0.0 is less than 0.0 and a NaN with its sign set the least of all (`0.0 / 0.0` is
//! such a one on x86). Operands that are floats are made normal before; of others nothing is changed.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, ListArray, StructArray};
use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result, ScalarValue, internal_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use levada_common::keys::normalise_key_column;

use super::coerce::has_float;

static NORMAL: LazyLock<Arc<ScalarUDF>> =
    LazyLock::new(|| Arc::new(ScalarUDF::new_from_impl(Normal { signature: Signature::any(1, Volatility::Immutable) })));

/// Functions that compare their arguments, or the elements of them.
const COMPARING: [&str; 21] = [
    "array_distinct",
    "array_except",
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_intersect",
    "array_max",
    "array_min",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_sort",
    "array_union",
    "greatest",
    "least",
    "nullif",
];

/// Whether the function of this name compares what it is given.
pub(super) fn compares(name: &str) -> bool {
    COMPARING.contains(&name)
}

/// Makes this normal, which is compared, where it is a float or has floats in it.
///
/// Contract: types were coerced before; they are not coerced again after.
pub(super) fn make_normal(expr: &mut Expr, schema: &DFSchema) -> Result<()> {
    if has_float(&expr.get_type(schema)?) && !is_normal(expr, schema)? {
        let operand = std::mem::take(expr);
        *expr = Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(&NORMAL), vec![operand]));
    }
    Ok(())
}

/// Whether this can be seen to be normal: numbers of other types are, as floats.
fn is_normal(expr: &Expr, schema: &DFSchema) -> Result<bool> {
    Ok(match expr {
        Expr::Literal(ScalarValue::Float64(Some(value)), _) => value.to_bits() == (value + 0.0).to_bits() && !value.is_nan(),
        Expr::Cast(Cast { expr, .. }) => {
            let from = expr.get_type(schema)?;
            from.is_integer() || from.is_decimal()
        }
        Expr::ScalarFunction(function) => is_normalisation(&function.func),
        _ => false,
    })
}

/// Whether this is the function that `make_normal` puts in: null only where its argument is.
pub(super) fn is_normalisation(function: &ScalarUDF) -> bool {
    function.name() == NORMAL.name()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Normal {
    signature: Signature,
}

impl ScalarUDFImpl for Normal {
    fn name(&self) -> &str {
        "normal_floats"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> Result<DataType> {
        match arguments {
            [argument] => Ok(argument.clone()),
            _ => internal_err!("{} over {} arguments", self.name(), arguments.len()),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [ColumnarValue::Array(array)] => Ok(ColumnarValue::Array(normal(array))),
            [ColumnarValue::Scalar(scalar)] => {
                let array = normal(&scalar.to_array()?);
                Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&array, 0)?))
            }
            arguments => internal_err!("{} over {} arguments", self.name(), arguments.len()),
        }
    }
}

/// The column with normal floats.
fn normal(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::List(item) if has_float(item.data_type()) => {
            let list = column.as_list::<i32>();
            let (offsets, items) = (list.offsets().clone(), normal(list.values()));
            Arc::new(ListArray::new(Arc::clone(item), offsets, items, list.nulls().cloned()))
        }
        DataType::Struct(fields) if has_float(column.data_type()) => {
            let structs = column.as_struct();
            let columns = structs.columns().iter().map(normal).collect();
            Arc::new(StructArray::new(fields.clone(), columns, structs.nulls().cloned()))
        }
        _ => normalise_key_column(Arc::clone(column)),
    }
}
