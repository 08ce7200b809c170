//! Types of operands: DataFusion's coercion, but that a float stays a float.
//!
//! DataFusion makes a FLOAT64 beside a DECIMAL (which a literal with a point is) a DECIMAL(30,15) wherever two values are brought
//! to one type but for arithmetic: that has no NaN, no infinity, nothing from 10¹⁵ on, and rounds what is small to 0. Here the
//! DECIMAL becomes a FLOAT64 first. Floats that are compared have one zero and one NaN (`normal.rs`); quotients of decimals have a
//! type of their own (`quotient.rs`), to which what stands around them is coerced.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRewriter};
use datafusion_common::{DFSchema, Result, ScalarValue};
use datafusion_expr::expr::{BinaryExpr, InList, ScalarFunction};
use datafusion_expr::type_coercion::functions::fields_with_udf;
use datafusion_expr::{Between, Case, Cast, Expr, ExprSchemable, Operator};
use datafusion_optimizer::analyzer::type_coercion::TypeCoercionRewriter;

use super::normal::{compares, make_normal};
use super::quotient::divide_decimals;

/// Brings the operands of `expr` to types that fit each other.
pub(super) fn coerce(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let mut coercion = Coercion { schema, library: TypeCoercionRewriter::new(schema) };
    expr.rewrite(&mut coercion).map(|rewritten| rewritten.data)
}

struct Coercion<'a> {
    schema: &'a DFSchema,
    library: TypeCoercionRewriter<'a>,
}

impl TreeNodeRewriter for Coercion<'_> {
    type Node = Expr;

    /// Contract: what is below `expr` was coerced.
    fn f_up(&mut self, mut expr: Expr) -> Result<Transformed<Expr>> {
        self.keep_floats(&mut expr)?;
        let mut expr = self.library.f_up(expr)?.data;
        for operand in compared(&mut expr) {
            make_normal(operand, self.schema)?;
        }
        divide_decimals(expr, self.schema).map(Transformed::yes)
    }
}

impl Coercion<'_> {
    /// Makes decimals that would be brought to one type with a float floats.
    fn keep_floats(&self, expr: &mut Expr) -> Result<()> {
        match expr {
            Expr::ScalarFunction(function) => match self.makes_decimals(function)? {
                true => self.unify(function.args.iter_mut().collect()),
                false => Ok(()),
            },
            other => {
                self.unify(compared(other))?;
                self.unify(chosen(other))
            }
        }
    }

    /// These are brought to one type.
    fn unify(&self, exprs: Vec<&mut Expr>) -> Result<()> {
        let types = exprs.iter().map(|expr| expr.get_type(self.schema)).collect::<Result<Vec<_>>>()?;
        if types.iter().any(has_float) && types.iter().any(has_decimal) {
            for (expr, ty) in exprs.into_iter().zip(types).filter(|(_, ty)| has_decimal(ty)) {
                *expr = to_float(std::mem::take(expr), &ty);
            }
        }
        Ok(())
    }

    /// Whether the function's own coercion makes a decimal of a float.
    fn makes_decimals(&self, function: &ScalarFunction) -> Result<bool> {
        let fields = function.args.iter().map(|argument| argument.to_field(self.schema).map(|(_, field)| field));
        let fields = fields.collect::<Result<Vec<FieldRef>>>()?;
        let any = |has: fn(&DataType) -> bool| fields.iter().any(|field| has(field.data_type()));
        if !any(has_float) || !any(has_decimal) {
            return Ok(false);
        }
        // Where decimals do not fit the function beside floats, floats may; else DataFusion says that nothing does.
        let Ok(taken) = fields_with_udf(&fields, function.func.as_ref()) else { return Ok(true) };
        Ok(fields.iter().zip(&taken).any(|(field, taken)| becomes_decimal(field.data_type(), taken.data_type())))
    }
}

/// What is compared in this, not below it.
fn compared(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if is_comparison(*op) => vec![&mut **left, &mut **right],
        Expr::Between(Between { expr, low, high, .. }) => vec![&mut **expr, &mut **low, &mut **high],
        Expr::InList(InList { expr, list, .. }) => std::iter::once(&mut **expr).chain(list).collect(),
        Expr::Case(Case { expr: Some(expr), when_then_expr, .. }) => {
            std::iter::once(&mut **expr).chain(when_then_expr.iter_mut().map(|(when, _)| &mut **when)).collect()
        }
        Expr::ScalarFunction(function) if compares(function.name()) => function.args.iter_mut().collect(),
        _ => Vec::new(),
    }
}

/// Of what a `CASE` gives one.
fn chosen(expr: &mut Expr) -> Vec<&mut Expr> {
    match expr {
        Expr::Case(Case { when_then_expr, else_expr, .. }) => {
            when_then_expr.iter_mut().map(|(_, then)| &mut **then).chain(else_expr.as_deref_mut()).collect()
        }
        _ => Vec::new(),
    }
}

/// Whether the operator compares.
pub(super) fn is_comparison(op: Operator) -> bool {
    use Operator::{Eq, Gt, GtEq, IsDistinctFrom, IsNotDistinctFrom, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq | IsDistinctFrom | IsNotDistinctFrom)
}

/// Whether this, or what it is made of, is a float.
pub(super) fn has_float(ty: &DataType) -> bool {
    ty.is_floating() || parts(ty).iter().any(|part| has_float(part.data_type()))
}

/// Whether this, or what it is made of, is a decimal.
fn has_decimal(ty: &DataType) -> bool {
    ty.is_decimal() || parts(ty).iter().any(|part| has_decimal(part.data_type()))
}

/// What values of this type are made of.
fn parts(ty: &DataType) -> &[FieldRef] {
    match ty {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => std::slice::from_ref(item),
        DataType::Struct(fields) => fields,
        _ => &[],
    }
}

fn becomes_decimal(from: &DataType, to: &DataType) -> bool {
    (from.is_floating() && to.is_decimal())
        || parts(from).iter().zip(parts(to)).any(|(from, to)| becomes_decimal(from.data_type(), to.data_type()))
}

/// The type with FLOAT64 in the place of decimals.
fn without_decimals(ty: &DataType) -> DataType {
    let part =
        |field: &FieldRef| -> FieldRef { field.as_ref().clone().with_data_type(without_decimals(field.data_type())).into() };
    match ty {
        ty if ty.is_decimal() => DataType::Float64,
        DataType::List(item) => DataType::List(part(item)),
        DataType::LargeList(item) => DataType::LargeList(part(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(part(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(part).collect()),
        other => other.clone(),
    }
}

fn to_float(expr: Expr, ty: &DataType) -> Expr {
    // The float nearest to what is written.
    if let Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), metadata) = &expr
        && let Ok(float) = format!("{value}e{}", -i32::from(*scale)).parse()
    {
        return Expr::Literal(ScalarValue::Float64(Some(float)), metadata.clone());
    }
    Expr::Cast(Cast::new(Box::new(expr), without_decimals(ty)))
}
