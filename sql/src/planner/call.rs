//! One aggregate call: its text, and the type of what it gives.

use datafusion_sql::sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, OrderByExpr,
};
use levada_common::plan::AggregateFunction;
use levada_common::types::LogicalType;

use crate::expression::{on_deep_stack, parse};
use crate::library;
use levada_common::nearest::did_you_mean;

/// An aggregate call as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    /// The function.
    pub(super) function: AggregateFunction,
    /// Of a library's aggregate: its name, and SQL of its arguments.
    pub(super) library: Option<(String, Vec<String>)>,
    /// SQL of the argument; `None` for `count(*)`. Where there is a filter, null where it is not true.
    pub(super) argument: Option<String>,
    /// Whether equal values count once.
    pub(super) distinct: bool,
    /// SQL of the condition under which a row counts.
    pub(super) filter: Option<String>,
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
    let (function, name) = function_of(&call.name.to_string())?;
    let refuse = |what: &str| Err(format!("{name} with {what} is not supported"));
    if call.over.is_some() {
        return refuse("OVER (use `window`)");
    }
    if !call.within_group.is_empty() {
        return refuse("WITHIN GROUP (write what is ordered as the first argument)");
    }
    if call.null_treatment.is_some() {
        return refuse("IGNORE or RESPECT NULLS");
    }
    let FunctionArguments::List(list) = &call.args else {
        return Err(format!("{name} needs an argument in brackets"));
    };
    let is_library = function == AggregateFunction::Library;
    let chooses_row = matches!(function, AggregateFunction::First | AggregateFunction::Last);
    let mut distinct = list.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    if distinct && chooses_row {
        return refuse("DISTINCT");
    }
    if call.filter.is_some() && chooses_row {
        return refuse("FILTER (give it a transform of its own, with `where`)");
    }
    // Equal values change nothing in an extreme.
    distinct &= !matches!(function, AggregateFunction::Min | AggregateFunction::Max);
    let mut order = Vec::new();
    for clause in &list.clauses {
        match clause {
            FunctionArgumentClause::OrderBy(terms) if chooses_row || is_library => {
                order = terms.iter().map(order_of).collect::<Result<_, _>>()?;
            }
            FunctionArgumentClause::OrderBy(_) => return refuse("ORDER BY (its result has no order)"),
            other => return refuse(&other.to_string()),
        }
    }
    let filter = call.filter.as_ref().map(|filter| filter.to_string());
    if is_library {
        let argument = |argument: &FunctionArg| match argument {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) => Ok(argument.to_string()),
            other => Err(format!("{name} takes values, not {other}")),
        };
        let arguments = list.args.iter().map(argument).collect::<Result<_, _>>()?;
        return Ok(Call { function, library: Some((name, arguments)), argument: None, distinct, filter, order });
    }
    let argument = match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] if function == AggregateFunction::Count && !distinct => None,
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] => Some(argument.to_string()),
        arguments => {
            let star = if function == AggregateFunction::Count { " or *" } else { "" };
            return Err(format!("{name} takes one argument{star}, not {}", describe(arguments)));
        }
    };
    let argument = match &filter {
        Some(filter) => Some(format!("CASE WHEN {filter} THEN {} END", argument.as_deref().unwrap_or("TRUE"))),
        None => argument,
    };
    Ok(Call { function, library: None, argument, distinct, filter, order })
}

fn describe(arguments: &[FunctionArg]) -> String {
    match arguments {
        [one] => one.to_string(),
        many => many.len().to_string(),
    }
}

/// The function called `name`, and its name as it is known.
fn function_of(name: &str) -> Result<(AggregateFunction, String), String> {
    let lower = name.to_lowercase();
    if let Some(function) = AggregateFunction::ALL.into_iter().find(|function| function.name() == lower) {
        return Ok((function, lower));
    }
    if library::names().any(|known| known == lower) {
        return Ok((AggregateFunction::Library, lower));
    }
    let known = || AggregateFunction::ALL.iter().map(|function| function.name()).chain(library::names());
    let near = match lower.as_str() {
        "mean" => "; it is called \"avg\"".into(),
        "first_value" => "; it is called \"first\"".into(),
        "last_value" => "; it is called \"last\"".into(),
        _ => did_you_mean(&lower, known()),
    };
    if !near.is_empty() {
        return Err(format!("unknown aggregate \"{name}\"{near}"));
    }
    let list = known().collect::<Vec<_>>().join(", ");
    Err(format!("unknown aggregate \"{name}\"; aggregates: {list}"))
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
            library: None,
            argument: argument.map(Into::into),
            distinct: false,
            filter: None,
            order: order.iter().map(|(sql, descending)| (sql.to_string(), *descending)).collect(),
        };
        assert_eq!(read("count(*)"), Ok(call(AggregateFunction::Count, None, &[])));
        assert_eq!(read("COUNT(a)"), Ok(call(AggregateFunction::Count, Some("a"), &[])));
        assert_eq!(read("sum(price * 2)"), Ok(call(AggregateFunction::Sum, Some("price * 2"), &[])));
        let first = call(AggregateFunction::First, Some("auction"), &[("price", true), ("dateTime", false), ("a + 1", false)]);
        assert_eq!(read("first(auction order by price desc, dateTime, a + 1 asc)"), Ok(first));
        let distinct = Call { distinct: true, ..call(AggregateFunction::Count, Some("a"), &[]) };
        assert_eq!(read("count(distinct a)"), Ok(distinct));
        assert_eq!(read("max(distinct a)"), Ok(call(AggregateFunction::Max, Some("a"), &[])));
        let filtered = |function, argument| Call { filter: Some("b > 1".into()), ..call(function, Some(argument), &[]) };
        assert_eq!(read("sum(a) filter (where b > 1)"), Ok(filtered(AggregateFunction::Sum, "CASE WHEN b > 1 THEN a END")));
        assert_eq!(
            read("count(*) filter (where b > 1)"),
            Ok(filtered(AggregateFunction::Count, "CASE WHEN b > 1 THEN TRUE END"))
        );
        let library = Call {
            library: Some(("corr".into(), vec!["a + 1".into(), "b".into()])),
            filter: Some("a > 1".into()),
            ..call(AggregateFunction::Library, None, &[])
        };
        assert_eq!(read("CORR(a + 1, b) filter (where a > 1)"), Ok(library));
        assert_eq!(read("last(x)"), Ok(call(AggregateFunction::Last, Some("x"), &[])));
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let cases = [
            ("first(distinct a)", "first with DISTINCT is not supported"),
            ("last(a) filter (where a > 1)", "last with FILTER"),
            ("count(distinct *)", "count takes one argument or *, not *"),
            ("sum(a) over ()", "sum with OVER"),
            ("sum(a order by b)", "sum with ORDER BY"),
            ("first(a order by b nulls last)", "NULLS FIRST"),
            ("cont(*)", "unknown aggregate \"cont\"; did you mean \"count\"?"),
            ("zzzzzzzz(a)", "aggregates: count, sum, min, max, avg, first, last, approx_distinct"),
            ("mean(a)", "it is called \"avg\""),
            ("stdev(a)", "did you mean \"stddev\"?"),
            ("median(*)", "median takes values, not *"),
            ("percentile_cont(0.5) within group (order by a)", "with WITHIN GROUP (write what is ordered as the first argument)"),
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
