//! One aggregate call: its text, and the type of what it gives.

use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, OrderByExpr,
};
use levada_common::plan::AggregateFunction;
use levada_common::types::LogicalType;

use crate::expression::{on_deep_stack, parse};
use levada_common::nearest::did_you_mean;

/// An aggregate call as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The function.
    pub(super) function: AggregateFunction,
    /// SQL of the argument; `None` for `count(*)`.
    pub(super) argument: Option<String>,
    /// SQL to order by, most significant first, and whether greater values come first.
    pub(super) order: Vec<(String, bool)>,
}

/// Reads `sum(price)`, `first(auction order by price desc, dateTime)`.
pub(super) fn read_call(sql: &str, is_column: impl Fn(&str) -> bool + Send) -> Result<Call, String> {
    on_deep_stack(|| match parse(sql, is_column)? {
        Expr::Function(function) => call_of(&function),
        _ => Err("an aggregate is one call, as in sum(price); compute with its result in `select`".into()),
    })
}

fn call_of(call: &Function) -> Result<Call, String> {
    let function = function_of(&call.name.to_string())?;
    let name = function.name();
    let refuse = |what: &str| Err(format!("{name} with {what} is not supported"));
    if call.filter.is_some() {
        return refuse("FILTER (use `where`, or CASE in the argument)");
    }
    if call.over.is_some() {
        return refuse("OVER (use `window`)");
    }
    if !call.within_group.is_empty() {
        return refuse("WITHIN GROUP");
    }
    if call.null_treatment.is_some() {
        return refuse("IGNORE or RESPECT NULLS");
    }
    let FunctionArguments::List(list) = &call.args else {
        return Err(format!("{name} needs an argument in brackets"));
    };
    if list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        return refuse("DISTINCT");
    }
    let mut order = Vec::new();
    for clause in &list.clauses {
        match clause {
            FunctionArgumentClause::OrderBy(terms) if matches!(function, AggregateFunction::First | AggregateFunction::Last) => {
                order = terms.iter().map(order_of).collect::<Result<_, _>>()?;
            }
            FunctionArgumentClause::OrderBy(_) => return refuse("ORDER BY (only first and last have an order)"),
            other => return refuse(&other.to_string()),
        }
    }
    let argument = match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if function == AggregateFunction::Count => None,
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument.to_string()),
        arguments => {
            let star = if function == AggregateFunction::Count { " or *" } else { "" };
            return Err(format!("{name} takes one argument{star}, not {}", describe(arguments)));
        }
    };
    Ok(Call { function, argument, order })
}

fn describe(arguments: &[FunctionArg]) -> String {
    match arguments {
        [one] => one.to_string(),
        many => many.len().to_string(),
    }
}

fn function_of(name: &str) -> Result<AggregateFunction, String> {
    let lower = name.to_lowercase();
    let known = || AggregateFunction::ALL.iter().map(|function| function.name());
    AggregateFunction::ALL.iter().copied().find(|function| function.name() == lower).ok_or_else(|| {
        let list = known().collect::<Vec<_>>().join(", ");
        format!("unknown aggregate \"{name}\"{}; aggregates: {list}", did_you_mean(&lower, known()))
    })
}

fn order_of(term: &OrderByExpr) -> Result<(String, bool), String> {
    if term.options.nulls_first.is_some() || term.with_fill.is_some() {
        return Err("NULLS FIRST, NULLS LAST and WITH FILL are not supported in an order".into());
    }
    Ok((term.expr.to_string(), term.options.asc == Some(false)))
}

/// The type of what `function` gives for an argument of type `argument`.
pub(super) fn result_type(function: AggregateFunction, argument: Option<&LogicalType>) -> Result<LogicalType, String> {
    let name = function.name();
    let Some(argument) = argument else {
        return Ok(LogicalType::Int64);
    };
    let nested = matches!(argument, LogicalType::List(_) | LogicalType::Struct(_));
    match (function, argument) {
        (AggregateFunction::Count, _) => Ok(LogicalType::Int64),
        (AggregateFunction::Sum, LogicalType::Decimal(_, scale)) => Ok(LogicalType::Decimal(38, *scale)),
        (AggregateFunction::Sum, ty) if ty.is_integer() => Ok(LogicalType::Decimal(38, 0)),
        (AggregateFunction::Sum | AggregateFunction::Avg, ty) if ty.is_float() => Ok(LogicalType::Float64),
        (AggregateFunction::Avg, ty) if ty.is_integer() || matches!(ty, LogicalType::Decimal(..)) => Ok(LogicalType::Float64),
        (AggregateFunction::Sum | AggregateFunction::Avg, ty) => Err(format!("{name} needs a number, and its argument is {ty}")),
        (_, ty) if nested => Err(format!("{name} of {ty} is not supported")),
        (_, ty) => Ok(ty.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Result<Call, String> {
        read_call(sql, |_| false)
    }

    #[test]
    fn calls_are_read() {
        let call = |function, argument: Option<&str>, order: &[(&str, bool)]| Call {
            function,
            argument: argument.map(Into::into),
            order: order.iter().map(|(sql, descending)| (sql.to_string(), *descending)).collect(),
        };
        assert_eq!(read("count(*)"), Ok(call(AggregateFunction::Count, None, &[])));
        assert_eq!(read("COUNT(a)"), Ok(call(AggregateFunction::Count, Some("a"), &[])));
        assert_eq!(read("sum(price * 2)"), Ok(call(AggregateFunction::Sum, Some("price * 2"), &[])));
        let first = call(AggregateFunction::First, Some("auction"), &[("price", true), ("dateTime", false), ("a + 1", false)]);
        assert_eq!(read("first(auction order by price desc, dateTime, a + 1 asc)"), Ok(first));
        assert_eq!(read("last(x)"), Ok(call(AggregateFunction::Last, Some("x"), &[])));
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let cases = [
            ("count(distinct a)", "count with DISTINCT is not supported"),
            ("sum(a) filter (where a > 1)", "sum with FILTER"),
            ("sum(a) over ()", "sum with OVER"),
            ("sum(a order by b)", "sum with ORDER BY"),
            ("first(a order by b nulls last)", "NULLS FIRST"),
            ("cont(*)", "unknown aggregate \"cont\"; did you mean \"count\"?; aggregates: count, sum"),
            ("sum(*)", "sum takes one argument, not *"),
            ("count()", "count takes one argument or *, not 0"),
            ("max(a, b)", "max takes one argument, not 2"),
            ("sum(a) / count(*)", "an aggregate is one call"),
            ("sum(", "not SQL"),
        ];
        for (sql, part) in cases {
            let reason = read(sql).expect_err(sql);
            assert!(reason.contains(part), "{sql}: {reason}");
        }
    }
}
