//! What expressions mean: types, nulls, overflow, names, limits.

mod decimals;
mod floats;
mod guards;

use std::sync::Arc;

use arrow::array::{Array, TimestampMillisecondArray, UInt64Array};
use arrow::array::{ArrayRef, AsArray, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray};
use arrow::datatypes::{Decimal128Type, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_engine::expr::ExpressionCompiler;

use super::{Compiler, column_reference};

fn schema() -> StreamSchema {
    StreamSchema::append(vec![
        Column::new("price", LogicalType::Int64, false),
        Column::new("n", LogicalType::Int64, true),
        Column::new("line", LogicalType::String, false),
        Column::new("dateTime", LogicalType::Timestamp, false),
        Column::new("ratio", LogicalType::Float64, false),
        Column::new("amount", LogicalType::Decimal(10, 2), false),
        Column::new("small", LogicalType::Int32, false),
        Column::new("big", LogicalType::UInt64, false),
        Column::new("user", LogicalType::String, true),
        Column::new("place", LogicalType::Struct(vec![Column::new("city", LogicalType::String, true)]), false),
    ])
}

fn batch() -> RecordBatch {
    let cities: ArrayRef = Arc::new(StringArray::from(vec!["Rome", "Kyiv"]));
    let city = Arc::new(arrow::datatypes::Field::new("city", cities.data_type().clone(), true));
    let place = arrow::array::StructArray::from(vec![(city, cities)]);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1000, i64::MAX])),
        Arc::new(Int64Array::from(vec![Some(7), None])),
        Arc::new(StringArray::from(vec!["to be or", ""])),
        Arc::new(TimestampMillisecondArray::from(vec![1_700_000_000_000, -1])),
        Arc::new(Float64Array::from(vec![0.5, f64::NAN])),
        Arc::new(Decimal128Array::from(vec![12_345, -1]).with_precision_and_scale(10, 2).unwrap()),
        Arc::new(Int32Array::from(vec![i32::MAX, 1])),
        Arc::new(UInt64Array::from(vec![u64::MAX, 1])),
        Arc::new(StringArray::from(vec![Some("ada"), None])),
        Arc::new(place),
    ];
    RecordBatch::try_new(schema().to_arrow(), columns).unwrap()
}

fn evaluate(sql: &str) -> Result<ArrayRef, String> {
    let compiler = Compiler::new();
    let typed = compiler.type_of(sql, &schema())?;
    let compiled = compiler.compile(sql, &schema(), &typed.ty)?;
    let array = compiled.evaluate(&batch())?;
    assert_eq!(array.data_type(), &typed.ty.to_arrow(), "{sql}");
    assert!(typed.nullable || array.null_count() == 0, "{sql} gave null but is typed as not null");
    Ok(array)
}

fn evaluate_first(sql: &str) -> Result<ArrayRef, String> {
    let compiler = Compiler::new();
    let typed = compiler.type_of(sql, &schema())?;
    compiler.compile(sql, &schema(), &typed.ty)?.evaluate(&batch().slice(0, 1))
}

fn type_of(sql: &str) -> Result<String, String> {
    Compiler::new().type_of(sql, &schema()).map(|typed| format!("{}{}", typed.ty, if typed.nullable { "" } else { " NOT NULL" }))
}

fn error(sql: &str) -> String {
    match Compiler::new().type_of(sql, &schema()) {
        Ok(typed) => panic!("{sql} is {}", typed.ty),
        Err(reason) => reason,
    }
}

#[test]
fn types_follow_the_design() {
    let cases = [
        ("price", "INT64 NOT NULL"),
        ("price * 908 / 1000", "INT64 NOT NULL"),
        ("0.908 * price", "DECIMAL(24,3) NOT NULL"),
        ("small + 1", "INT64 NOT NULL"),
        ("small + small", "INT32 NOT NULL"),
        ("ratio * 2", "FLOAT64 NOT NULL"),
        ("amount", "DECIMAL(10,2) NOT NULL"),
        ("n + 1", "INT64"),
        ("coalesce(n, 0)", "INT64 NOT NULL"),
        ("price > 3 and n is null", "BOOLEAN NOT NULL"),
        ("n = 3", "BOOLEAN"),
        ("lower(line)", "STRING"),
        ("string_to_array(line, ' ')", "LIST(STRING)"),
        ("case when n > 1 then 'a' else 'b' end", "STRING NOT NULL"),
        ("case when n > 1 then 'a' end", "STRING"),
        ("CAST(price AS INT8)", "INT8 NOT NULL"),
        ("CAST(line AS TIMESTAMP)", "TIMESTAMP NOT NULL"),
        ("price::varchar", "STRING NOT NULL"),
        ("1e5", "DECIMAL(6,0) NOT NULL"),
        ("0.5", "DECIMAL(1,1) NOT NULL"),
        ("18446744073709551615", "UINT64 NOT NULL"),
        ("to_timestamp_millis(price)", "TIMESTAMP"),
        ("date_trunc('hour', \"dateTime\")", "TIMESTAMP"),
        ("dateTime + interval '1 day'", "TIMESTAMP NOT NULL"),
        ("place.city", "STRING"),
        ("user", "STRING"),
        ("upper(user) = 'ADA'", "BOOLEAN"),
        ("line || '!'", "STRING NOT NULL"),
        ("line like 'to%'", "BOOLEAN NOT NULL"),
        ("price in (1, 2, 3, 4, 5)", "BOOLEAN NOT NULL"),
        ("substring(line from 1 for 2)", "STRING"),
        ("extract(year from dateTime)", "INT32"),
    ];
    for (sql, expected) in cases {
        assert_eq!(type_of(sql).as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn integers_never_wrap() {
    for sql in ["price + 1", "price * 2", "-(0 - price) + price", "small + small", "9223372036854775807 + 1", "big + big"] {
        let reason = evaluate(sql).expect_err(sql);
        assert!(reason.to_lowercase().contains("overflow"), "{sql}: {reason}");
    }
    for sql in ["-(-price - 1)", "abs(-price - 1)", "- (CAST('-9223372036854775808' AS BIGINT))"] {
        let reason = evaluate(sql).expect_err(sql);
        assert!(reason.to_lowercase().contains("overflow"), "{sql}: {reason}");
    }
    let sum = evaluate_first("price + 1").unwrap();
    assert_eq!(sum.as_primitive::<Int64Type>().value(0), 1001);
    for sql in ["-(-price - 1)", "(price * 0) + 9223372036854775807 + 1"] {
        assert_eq!(evaluate_first(sql).is_ok(), sql.starts_with('-'), "{sql}");
    }
}

#[test]
fn a_cast_that_does_not_fit_is_an_error() {
    for sql in ["CAST(price AS INT8)", "CAST(line AS BIGINT)", "CAST(price AS DECIMAL(5,0))", "CAST(ratio AS INT)"] {
        assert!(evaluate(sql).is_err(), "{sql}");
    }
    assert!(evaluate("CAST('99999999999999999999999999999999999999' AS DECIMAL(38,0)) + 1").is_err(), "39 digits");
}

#[test]
fn division_truncates_and_by_zero_is_an_error() {
    let ints = |sql: &str| evaluate(sql).unwrap().as_primitive::<Int64Type>().values().to_vec();
    assert_eq!(ints("(0 - price) / 999"), [-1, -(i64::MAX / 999)]);
    assert_eq!(ints("(0 - price) % 999"), [-1, -(i64::MAX % 999)]);
    assert_eq!(ints("price / 1000"), [1, i64::MAX / 1000]);
    assert_eq!(ints("price / -1000"), [-1, -(i64::MAX / 1000)]);
    for sql in ["price / 0", "price % 0", "1 / (price - price)", "amount / 0"] {
        assert_eq!(evaluate(sql).expect_err(sql), "division by zero", "{sql}");
    }
}

#[test]
fn decimals_are_exact() {
    let product = evaluate_first("0.908 * price").unwrap();
    assert_eq!(product.as_primitive::<Decimal128Type>().value_as_string(0), "908.000");
    let sum = evaluate("amount + 0.005").unwrap();
    assert_eq!(sum.as_primitive::<Decimal128Type>().value_as_string(1), "-0.005");
    let million = evaluate("1e6").unwrap();
    assert_eq!(million.as_primitive::<Decimal128Type>().value_as_string(0), "1000000");
}

#[test]
fn null_is_neither_true_nor_false() {
    let flags = evaluate("n > 3").unwrap();
    assert_eq!(flags.as_boolean(), &BooleanArray::from(vec![Some(true), None]));
    let filled = evaluate("coalesce(n, 0) + 1").unwrap();
    assert_eq!(filled.as_primitive::<Int64Type>().values(), &[8, 1]);
    let either = evaluate("n > 3 or price > 0").unwrap();
    assert_eq!(either.as_boolean(), &BooleanArray::from(vec![true, true]));
}

#[test]
fn strings_come_out_as_plain_utf8() {
    let upper = evaluate("upper(substr(line, 1, 2)) || coalesce(user, '?')").unwrap();
    assert_eq!(upper.as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["TOada", "?"]);
    let words = evaluate("string_to_array(line, ' ')").unwrap();
    assert_eq!(words.as_list::<i32>().value(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["to", "be", "or"]);
    assert_eq!(evaluate("place.city").unwrap().as_string::<i32>().value(1), "Kyiv");
}

#[test]
fn a_column_is_not_copied() {
    let batch = batch();
    let compiled = Compiler::new().compile("(line)", &schema(), &LogicalType::String).unwrap();
    assert!(Arc::ptr_eq(&compiled.evaluate(&batch).unwrap(), batch.column(2)));
}

#[test]
fn the_place_of_a_column_counts_the_change_kind() {
    let mut changes = schema();
    changes.changelog = true;
    let compiler = Compiler::new();
    let ops: ArrayRef = Arc::new(arrow::array::Int8Array::from(vec![0, 2]));
    let columns = std::iter::once(ops).chain(batch().columns().iter().cloned()).collect();
    let batch = RecordBatch::try_new(changes.to_arrow(), columns).unwrap();
    for sql in ["n", "n + 0"] {
        let column = compiler.compile(sql, &changes, &LogicalType::Int64).unwrap().evaluate(&batch).unwrap();
        assert_eq!(column.as_primitive::<Int64Type>().value(0), 7, "{sql}");
    }
    assert!(compiler.type_of("_op", &changes).unwrap_err().contains("cannot be used"));
}

#[test]
fn unknown_names_get_the_nearest() {
    let lines = StreamSchema::append(vec![Column::new("line", LogicalType::String, false)]);
    assert_eq!(Compiler::new().type_of("lin", &lines).unwrap_err(), "column \"lin\" not found; columns: line");
    assert!(error("datetime").ends_with("; did you mean \"dateTime\"?"), "{}", error("datetime"));
    assert_eq!(error("lowr(line)"), "unknown function \"lowr\"; did you mean \"lower\"?");
    assert_eq!(error("frobnicate(line)"), "unknown function \"frobnicate\"");
}

#[test]
fn what_cannot_stand_in_an_expression_is_refused() {
    let cases = [
        ("count(*)", "aggregate function \"count\""),
        ("sum(price) > 3", "aggregate function \"sum\""),
        ("row_number() over ()", "window function"),
        ("rank()", "window function"),
        ("(select 1)", "subquery"),
        ("price in (select 1)", "subquery"),
        ("exists (select 1)", "subquery"),
        ("random()", "another value each time"),
        ("uuid()", "another value each time"),
        ("now()", "another value each time"),
        ("current_timestamp", "another value each time"),
        ("current_date", "another value each time"),
        ("current_user", "depends on where it runs"),
        ("upper(unnest(string_to_array(line, ' ')))", "once per select"),
        ("", "empty"),
        ("price +", "not SQL"),
        ("price price", "follows a whole expression"),
        ("price; drop table x", "follows a whole expression"),
        ("'abc", "not SQL"),
        ("null", "always NULL"),
        ("1e400", ""),
        ("1e40", "38 digits"),
        ("123456789012345678901234567890123456789", "38 digits"),
        ("line + 1 > line", ""),
        ("not line", ""),
        ("price and line", ""),
        ("dateTime - dateTime", "interval"),
        ("$1", ""),
        ("@x", ""),
        ("CAST(line AS FOO)", "\"FOO\" is not a type"),
        ("CAST('x' AS BIGINT)", "'x'"),
        ("lower(line, line)", ""),
        ("price.x", ""),
    ];
    for (sql, part) in cases {
        let reason = error(sql);
        assert!(reason.contains(part), "{sql}: {reason}");
        assert!(!reason.is_empty() && !reason.contains('\n') && !reason.contains("DataFusion"), "{sql}: {reason}");
    }
}

#[test]
fn texts_are_limited() {
    let chain = |term: &str, operator: &str, n: usize| vec![term; n].join(operator);
    assert!(error(&format!("'{}'", "x".repeat(65_536))).contains("the limit is 65536"));
    assert!(error(&chain("price", " + ", 3000)).contains("the limit is 2048"));
    for (term, operator) in [("price", " + "), ("ratio", " * "), ("line", " || ")] {
        assert!(error(&chain(term, operator, 500)).contains("deep; the limit is"), "{operator}");
        assert!(type_of(&chain(term, operator, 150)).is_ok(), "{operator}");
    }
    let any = (0..400).map(|n| format!("price = {n}")).collect::<Vec<_>>().join(" or ");
    assert_eq!(type_of(&any).as_deref(), Ok("BOOLEAN NOT NULL"));
    for (open, close) in [("(", ")"), ("not (", ")"), ("case when n > 1 then ", " end"), ("abs(", ")")] {
        let nested = |depth: usize| format!("{}true{}", open.repeat(depth), close.repeat(depth)).replace("abs(true", "abs(n");
        assert!(error(&nested(250)).contains("nested"), "{open}");
        assert!(type_of(&nested(10)).is_ok(), "{open}");
    }
}

/// Nested calls by another name (`list_sort` is `array_sort`) once took time that doubled with each.
#[test]
fn typing_nested_calls_takes_no_long_time() {
    let nested = format!("{}string_to_array(line, ' '){}", "list_sort(list_reverse(".repeat(20), "))".repeat(20));
    assert_eq!(type_of(&nested).as_deref(), Ok("LIST(STRING)"));
}

/// What the parser reads in several ways it reads again where it fails, at each depth; this test once took hours.
#[test]
fn refusing_nested_texts_takes_no_long_time() {
    let forms = [
        ("position(", " in 'x')"),
        ("abs(1 + ", ")"),
        ("abs((", "))"),
        ("abs(case when 1 then ", " end)"),
        ("case ", " when 1 then 1 end"),
        ("(price, ", ")"),
        ("array[", "]"),
        ("{a: ", "}"),
        ("cast(", " as bigint)"),
        ("substring(", " from 1)"),
        ("line like (", ")"),
        ("1 in (", ")"),
        ("not exists (", ")"),
        ("interval ", ""),
        ("date ", ""),
        ("not ", ""),
        ("- ", ""),
        ("x -> ", ""),
    ];
    for depth in [8, 12, 60, 127, 200] {
        for (open, close) in forms {
            error(&format!("{}1 +{}", open.repeat(depth), close.repeat(depth)));
            assert!(Compiler::new().type_of(&format!("{}1 +", open.repeat(depth)), &schema()).is_err());
        }
    }
}

#[test]
fn columns_are_those_of_the_text() {
    let typed = Compiler::new().type_of("coalesce(n, price * 0) + 1", &schema()).unwrap();
    assert_eq!(typed.columns, ["n", "price"]);
    assert_eq!(Compiler::new().type_of("(line)", &schema()).unwrap().column.as_deref(), Some("line"));
}

#[test]
fn any_name_can_be_referred_to() {
    for name in ["a", "dateTime", "order", "a b", "x\"y", "user", "1a", "select", "é", "end", "case", "null", "true", "interval"]
    {
        let columns = vec![Column::new(name, LogicalType::Int64, false), Column::new("other", LogicalType::Int64, false)];
        let typed = Compiler::new().type_of(&column_reference(name), &StreamSchema::append(columns));
        assert_eq!(typed.unwrap().column.as_deref(), Some(name), "{}", column_reference(name));
    }
    assert_eq!(column_reference("dateTime"), "dateTime");
}
