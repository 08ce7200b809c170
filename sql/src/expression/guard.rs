//! `and` and `or` whose left side guards the right one: what the left side decides need not be computed on the right.
//!
//! DataFusion computes the right side of all rows unless the left one leaves few to it, so that one guarded row fails with its
//! batch, which is then halved down to single rows. Here the right side is tried so, too, since that is fastest; where it fails it
//! is computed again, of the rows that the left side leaves open. Only operands that may fail are guarded; others stay as they are.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray};
use arrow::compute::{and_kleene, or_kleene};
use arrow::datatypes::{DataType, Schema};
use arrow::record_batch::RecordBatch;
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Result, ScalarValue, internal_err};
use datafusion_expr::{ColumnarValue, Operator};
use datafusion_physical_expr::expressions::{
    BinaryExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr, Literal, NotExpr,
};
use datafusion_physical_expr::{PhysicalExpr, ScalarFunctionExpr};

use super::coerce::is_comparison;
use super::division::is_by_constant;

/// Where no more than one row in so many is left open the right side is computed of those alone at once, as DataFusion does.
const FEW: usize = 5;

/// Lets the left sides of `expr` guard right sides that may fail.
pub(super) fn guard(expr: Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let rewritten = expr.transform_up(|expr| {
        let Some(binary) = expr.downcast_ref::<BinaryExpr>() else { return Ok(Transformed::no(expr)) };
        let is_and = match binary.op() {
            Operator::And => true,
            Operator::Or => false,
            _ => return Ok(Transformed::no(expr)),
        };
        if !may_fail(binary.right()) {
            return Ok(Transformed::no(expr));
        }
        let (left, right) = (Arc::clone(binary.left()), Arc::clone(binary.right()));
        let guarded: Arc<dyn PhysicalExpr> = Arc::new(Guard { left, right, is_and });
        Ok(Transformed::yes(guarded))
    })?;
    Ok(rewritten.data)
}

/// Whether there may be rows of which this cannot be computed: of all that is more than comparing columns.
fn may_fail(expr: &Arc<dyn PhysicalExpr>) -> bool {
    let never_fails_itself = match expr.downcast_ref::<BinaryExpr>() {
        Some(binary) => is_comparison(*binary.op()) || matches!(binary.op(), Operator::And | Operator::Or),
        None => {
            expr.is::<Column>()
                || expr.is::<Literal>()
                || expr.is::<NotExpr>()
                || expr.is::<IsNullExpr>()
                || expr.is::<IsNotNullExpr>()
                || expr.is::<InListExpr>()
                || expr.is::<LikeExpr>()
                || expr.downcast_ref::<ScalarFunctionExpr>().is_some_and(|function| is_by_constant(function.fun()))
        }
    };
    !never_fails_itself || expr.children().into_iter().any(may_fail)
}

/// `left and right`, or `left or right`.
#[derive(Debug)]
struct Guard {
    left: Arc<dyn PhysicalExpr>,
    right: Arc<dyn PhysicalExpr>,
    is_and: bool,
}

impl PhysicalExpr for Guard {
    fn data_type(&self, _: &Schema) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn nullable(&self, input_schema: &Schema) -> Result<bool> {
        Ok(self.left.nullable(input_schema)? || self.right.nullable(input_schema)?)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        let decides = !self.is_and;
        let left = match self.left.evaluate(batch)? {
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(left))) if left == decides => {
                return Ok(ColumnarValue::Scalar(ScalarValue::Boolean(Some(left))));
            }
            ColumnarValue::Scalar(ScalarValue::Boolean(Some(_))) => return self.right.evaluate(batch),
            left => left.into_array(batch.num_rows())?,
        };
        let flags = left.as_boolean();
        // A null leaves its row open.
        let decided = if decides { flags.values().clone() } else { !flags.values() };
        let decided = match flags.nulls() {
            Some(nulls) => &decided & nulls.inner(),
            None => decided,
        };
        let open = BooleanArray::new(!&decided, None);
        let (rows, open_rows) = (batch.num_rows(), open.true_count());
        if open_rows == 0 {
            return Ok(ColumnarValue::Array(left));
        }
        if open_rows == rows && flags.null_count() == 0 {
            return self.right.evaluate(batch);
        }
        let whole = (open_rows > rows / FEW).then(|| self.right.evaluate(batch)).and_then(Result::ok);
        // Of other rows the left side has decided: what stands there on the right makes no difference.
        let right = whole.map_or_else(|| self.right.evaluate_selection(batch, &open), Ok)?.into_array(rows)?;
        let combine = if self.is_and { and_kleene } else { or_kleene };
        Ok(ColumnarValue::Array(Arc::new(combine(flags, right.as_boolean())?)))
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.left, &self.right]
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Arc<dyn PhysicalExpr>>) -> Result<Arc<dyn PhysicalExpr>> {
        match <[_; 2]>::try_from(children) {
            Ok([left, right]) => Ok(Arc::new(Self { left, right, is_and: self.is_and })),
            Err(children) => internal_err!("a guard with {} operands", children.len()),
        }
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.left, if self.is_and { "AND" } else { "OR" }, self.right)
    }
}

impl PartialEq for Guard {
    fn eq(&self, other: &Self) -> bool {
        self.is_and == other.is_and && self.left.eq(&other.left) && self.right.eq(&other.right)
    }
}

impl Eq for Guard {}

impl Hash for Guard {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.left.hash(state);
        self.right.hash(state);
        self.is_and.hash(state);
    }
}
