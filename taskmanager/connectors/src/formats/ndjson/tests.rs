//! What is read, what is bad, and that what is written is read back.

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Decimal128Type, Float64Type, Int64Type, TimestampMillisecondType};
use arrow::record_batch::RecordBatch;
use levada_common::types::{Column, LogicalType, StreamSchema, parse_column_type};
use proptest::prelude::*;

use super::read::NdjsonDecoder;
use super::write::NdjsonEncoder;

fn columns(types: &[(&str, &str)]) -> Vec<Column> {
    let column = |(name, text): &(&str, &str)| {
        let (ty, nullable) = parse_column_type(text).expect("test types are types");
        Column::new(*name, ty, nullable)
    };
    types.iter().map(column).collect()
}

/// The rows of the good lines, and why the others are bad.
fn read(columns: &[Column], lines: &[&str]) -> (RecordBatch, Vec<String>) {
    let mut decoder = NdjsonDecoder::new(columns, &StreamSchema::append(columns.to_vec()), 8192);
    let bad = lines.iter().filter_map(|line| decoder.push(line.as_bytes()).err()).map(|reason| reason.to_string()).collect();
    (decoder.take().expect("a batch of the schema"), bad)
}

fn write(columns: &[Column], batch: &RecordBatch) -> String {
    let mut out = Vec::new();
    NdjsonEncoder::new(&StreamSchema::append(columns.to_vec())).encode(batch, &mut out);
    String::from_utf8(out).expect("UTF-8")
}

/// What a line is after it was read and written; `None` where it is bad.
fn echo(ty: &str, value: &str) -> Option<String> {
    let columns = columns(&[("v", ty)]);
    let (batch, bad) = read(&columns, &[&format!("{{\"v\": {value} }}")]);
    assert_eq!(batch.num_rows() + bad.len(), 1);
    let written = write(&columns, &batch);
    written.strip_prefix("{\"v\":").map(|rest| rest.strip_suffix("}\n").expect("a line").to_owned())
}

#[test]
fn large_integers_keep_their_digits_or_are_bad() {
    for value in ["9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808"] {
        assert_eq!(echo("INT64", value).as_deref(), Some(value));
    }
    for value in
        ["18446744073709551615", "123456789012345678901234567890", "9223372036854775808", "1.5", "\"1\"", "true", "[1]", "{}"]
    {
        assert_eq!(echo("INT64", value), None, "{value}");
    }
    assert_eq!(echo("UINT64", "18446744073709551615").as_deref(), Some("18446744073709551615"));
    assert_eq!(echo("UINT64", "18446744073709551616"), None);
    assert_eq!(echo("UINT64", "-1"), None);
    assert_eq!(echo("DECIMAL(38,0)", "123456789012345678901234567890").as_deref(), Some("123456789012345678901234567890"));
    assert_eq!(echo("INT8", "128"), None);
    assert_eq!(echo("INT8", "-1.28e2").as_deref(), Some("-128"));
}

#[test]
fn values_of_every_type_are_written_as_the_rules_say() {
    for (ty, value, written) in [
        ("BOOLEAN", "false", "false"),
        ("FLOAT64", "1", "1.0"),
        ("FLOAT64", "0.1", "0.1"),
        ("FLOAT64", "-0", "-0.0"),
        ("FLOAT64", "1e-400", "0.0"),
        ("FLOAT64", "1e300", "1e300"),
        ("FLOAT64", "\"NaN\"", "\"NaN\""),
        ("FLOAT32", "\"-Infinity\"", "\"-Infinity\""),
        ("FLOAT32", "0.1", "0.1"),
        ("DECIMAL(10,2)", "-0.5", "-0.50"),
        ("DECIMAL(10,2)", "12", "12.00"),
        ("DECIMAL(38,38)", "0.00000000000000000000000000000000000001", "0.00000000000000000000000000000000000001"),
        ("DECIMAL(38,2)", "123456789012345678900000000000000001.07", "123456789012345678900000000000000001.07"),
        ("STRING", r#""ä\u00e4\n\"\\\u0001\/""#, r#""ää\n\"\\\u0001/""#),
        ("BINARY", "\"AP8Q\"", "\"AP8Q\""),
        ("DATE", "\"2026-01-31\"", "\"2026-01-31\""),
        ("TIMESTAMP", "\"2026-01-31T13:00:00+01:00\"", "\"2026-01-31T12:00:00.000Z\""),
        ("TIMESTAMP", "-5001", "\"1969-12-31T23:59:54.999Z\""),
        ("LIST(INT64)", "[1, null ,2]", "[1,null,2]"),
        ("LIST(INT64)", "[]", "[]"),
        (
            "STRUCT(a INT64 NOT NULL, b LIST(STRUCT(c STRING)))",
            r#"{"b":[{"c":"x","d":[{}]},{}],"a":1}"#,
            r#"{"a":1,"b":[{"c":"x"},{"c":null}]}"#,
        ),
        ("STRUCT(a INT64 NOT NULL)", "null", "null"),
        ("STRING", "null", "null"),
    ] {
        assert_eq!(echo(ty, value).as_deref(), Some(written), "{ty} {value}");
    }
    for (ty, value) in [
        ("BOOLEAN", "0"),
        ("BOOLEAN", "\"true\""),
        ("FLOAT64", "1e400"),
        ("FLOAT64", "\"nan\""),
        ("FLOAT32", "1e39"),
        ("DECIMAL(4,2)", "0.125"),
        ("DECIMAL(4,2)", "100"),
        ("STRING", "1"),
        ("STRING", "{}"),
        ("BINARY", "\"AP8\""),
        ("BINARY", "\"ä\""),
        ("DATE", "\"2026-02-30\""),
        ("DATE", "7"),
        ("TIMESTAMP", "\"25:61:61\""),
        ("TIMESTAMP", "1.5"),
        ("LIST(INT64)", "1"),
        ("LIST(INT64)", "[\"1\"]"),
        ("LIST(INT64)", "[1"),
        ("STRUCT(a INT64 NOT NULL)", "{}"),
        ("STRUCT(a INT64 NOT NULL)", "{\"a\":null}"),
        ("STRUCT(a INT64)", "[]"),
        ("STRING NOT NULL", "null"),
    ] {
        assert_eq!(echo(ty, value), None, "{ty} {value}");
    }
}

#[test]
fn one_bad_record_leaves_nothing_behind() {
    let columns = columns(&[
        ("k", "STRING"),
        ("l", "LIST(STRUCT(a INT64, b STRING))"),
        ("s", "STRUCT(x INT64, y BOOLEAN)"),
        ("n", "INT64"),
    ]);
    let good = r#"{"k":"good","l":[{"a":1,"b":"c"}],"s":{"x":7,"y":true},"n":5}"#;
    let bad = [
        r#"{"k":"#,
        "",
        " ",
        "[]",
        "7",
        r#"{"k":"x","l":[{"a":1,"b":"q"},{"a":2,"b":3}]}"#,
        r#"{"l":[{"a":1}],"s":{"x":8,"y":0},"n":1}"#,
        r#"{"k":"x","l":[],"s":{"x":1},"n":"5"}"#,
        r#"{"k":"x"} x"#,
        r#"{"k":"x","z":[}}"#,
        r#"{"k":"x","k":1}"#,
    ];
    let mut lines = vec![good];
    for line in bad {
        lines.extend([line, good]);
    }
    let (batch, reasons) = read(&columns, &lines);
    assert_eq!(reasons.len(), bad.len(), "{reasons:#?}");
    assert_eq!(write(&columns, &batch), format!("{good}\n").repeat(bad.len() + 1));
    assert!(
        reasons[5].contains("field \"l\": field \"b\": expected a string") && reasons[5].contains("found a number"),
        "{}",
        reasons[5]
    );
}

#[test]
fn absent_and_extra_fields() {
    let nullable = columns(&[("k", "STRING"), ("n", "INT64")]);
    let (batch, bad) = read(
        &nullable,
        &["{}", r#"{"k":"null","extra":{"deep":[1,{"k":2}]},"n":null}"#, r#"{"n":2,"k":"a","n":3}"#, r#"{"\u006b":""}"#],
    );
    assert_eq!(bad, Vec::<String>::new());
    let keys: Vec<Option<&str>> = batch.column(0).as_string::<i32>().iter().collect();
    assert_eq!(keys, [None, Some("null"), Some("a"), Some("")]);
    let numbers: Vec<Option<i64>> = batch.column(1).as_primitive::<Int64Type>().iter().collect();
    assert_eq!(numbers, [None, None, Some(3), None], "of two fields of a name the last counts");
    let strict = columns(&[("k", "STRING NOT NULL")]);
    let (batch, bad) = read(&strict, &["{}", r#"{"k":null}"#, r#"{"K":"x"}"#, r#"{"k":"x"}"#]);
    assert_eq!((batch.num_rows(), bad.len()), (1, 3));
    assert!(bad[0].contains("\"k\" is absent") && bad[1].contains("NOT NULL"), "{bad:?}");
}

#[test]
fn depth_is_counted_with_the_record_itself() {
    let columns = columns(&[("k", "INT64")]);
    for (open, close) in [("[", "]"), ("{\"k\":", "}")] {
        for depth in [10usize, 127, 128, 129, 1_000, 100_000] {
            let inner = if open == "[" { "" } else { "0" };
            // One level is the record's own braces.
            let closed = format!("{{\"k\":1,\"deep\":{}{inner}{}}}", open.repeat(depth - 1), close.repeat(depth - 1));
            let unclosed = format!("{{\"k\":1,\"deep\":{}", open.repeat(depth));
            let (batch, bad) = read(&columns, &[&closed, &unclosed]);
            assert_eq!((batch.num_rows(), bad.len()), if depth <= 128 { (1, 1) } else { (0, 2) }, "{depth}");
            // The same where a column is expected, or the record is no object at all.
            assert_eq!(read(&columns, &[&format!("{{\"k\":{closed}}}"), &open.repeat(depth)]).1.len(), 2);
        }
    }
}

#[test]
fn invalid_utf8_is_bad_wherever_it_stands() {
    let columns = columns(&[("k", "STRING")]);
    let mut decoder = NdjsonDecoder::new(&columns, &StreamSchema::append(columns.clone()), 10);
    assert!(decoder.push(b"{\"k\":\"\xFF\"}").is_err());
    assert!(decoder.push(b"{\"other\":\"\xFF\"}").is_err());
    assert_eq!(decoder.rows(), 0);
}

#[test]
fn a_column_that_is_not_used_is_checked_all_the_same() {
    let declared = columns(&[("a", "INT64"), ("b", "INT64")]);
    let used = StreamSchema::append(vec![declared[1].clone()]);
    let mut decoder = NdjsonDecoder::new(&declared, &used, 10);
    decoder.push(br#"{"a":1,"b":2}"#).expect("good");
    assert!(decoder.push(br#"{"a":"x","b":2}"#).is_err());
    let batch = decoder.take().expect("batch");
    assert_eq!((batch.num_columns(), batch.num_rows()), (1, 1));
    let none = NdjsonDecoder::new(&declared, &StreamSchema::append(Vec::new()), 10);
    let mut none = none;
    none.push(b"{}").expect("good");
    assert_eq!(none.take().expect("batch").num_rows(), 1);
}

/// JSON of a value of a type, in the form in which it is written.
fn value_of(ty: &LogicalType) -> BoxedStrategy<String> {
    let value = match ty {
        LogicalType::Boolean => any::<bool>().prop_map(|v| v.to_string()).boxed(),
        LogicalType::Int8 => any::<i8>().prop_map(|v| v.to_string()).boxed(),
        LogicalType::Int64 => any::<i64>().prop_map(|v| v.to_string()).boxed(),
        LogicalType::UInt64 => any::<u64>().prop_map(|v| v.to_string()).boxed(),
        LogicalType::Float64 => any::<f64>().prop_filter("finite", |v| v.is_finite()).prop_map(|v| format!("{v:?}")).boxed(),
        LogicalType::Decimal(_, _) => {
            "-?(0|[1-9][0-9]{0,31})\\.[0-9]{6}".prop_filter("no negative zero", |v| !v.starts_with("-0.000000")).boxed()
        }
        LogicalType::String => any::<String>().prop_map(|v| serde_json::to_string(&v).expect("JSON")).boxed(),
        LogicalType::Timestamp => "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|2[0-8])T(0[0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]\\.[0-9]{3}Z"
            .prop_map(|v| format!("\"{v}\""))
            .boxed(),
        LogicalType::List(item) => {
            proptest::collection::vec(value_of(item), 0..4).prop_map(|v| format!("[{}]", v.join(","))).boxed()
        }
        LogicalType::Struct(columns) => {
            let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
            let values: Vec<_> = columns.iter().map(|column| value_of(&column.ty)).collect();
            values
                .prop_map(move |values| {
                    let fields: Vec<String> =
                        names.iter().zip(values).map(|(name, value)| format!("\"{name}\":{value}")).collect();
                    format!("{{{}}}", fields.join(","))
                })
                .boxed()
        }
        other => panic!("no values of {other}"),
    };
    prop_oneof![1 => Just("null".to_owned()), 4 => value].boxed()
}

fn all_types() -> Vec<Column> {
    columns(&[
        ("b", "BOOLEAN"),
        ("i", "INT8"),
        ("l", "INT64"),
        ("u", "UINT64"),
        ("f", "FLOAT64"),
        ("d", "DECIMAL(38,6)"),
        ("s", "STRING"),
        ("t", "TIMESTAMP"),
        ("list", "LIST(LIST(STRING))"),
        ("struct", "STRUCT(x DECIMAL(38,6), y LIST(STRUCT(z INT64)))"),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_written_is_read_back(
        rows in proptest::collection::vec(value_of(&LogicalType::Struct(all_types())).prop_filter("a record", |v| v != "null"), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let columns = all_types();
        // Strings are escaped as we do it, which serde_json does too but for \b, \f and DEL.
        let lines: Vec<String> = rows.iter().map(|row| row.replace("\\b", "\\u0008").replace("\\f", "\\u000c")).collect();
        let mut input: Vec<&str> = lines.iter().map(String::as_str).collect();
        let half = lines.first().map(|line| &line[..(0..=cut.index(line.len())).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0)]);
        input.extend(half);
        let (batch, bad) = read(&columns, &input);
        prop_assert_eq!(bad.len(), usize::from(half.is_some()), "half a record is bad: {:?}", bad);
        prop_assert_eq!(batch.num_rows(), lines.len());
        let written = write(&columns, &batch);
        let expected: String = lines.iter().map(|line| format!("{line}\n")).collect();
        prop_assert_eq!(written, expected);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'"'), Just(b'{'), Just(b'}'), Just(b'['), Just(b':'), Just(b','), Just(b'\\'), Just(b'k'), Just(b'1')], 0..40)) {
        let columns = columns(&[("k", "LIST(STRING)"), ("1", "FLOAT64")]);
        let mut decoder = NdjsonDecoder::new(&columns, &StreamSchema::append(columns.clone()), 10);
        let ours = decoder.push(&bytes).is_ok();
        if ours {
            prop_assert!(serde_json::from_slice::<serde_json::Value>(&bytes).is_ok());
        }
        prop_assert_eq!(decoder.take().expect("batch").num_rows(), usize::from(ours));
    }
}

#[test]
fn digits_of_decimals_and_times_are_the_values() {
    let columns = columns(&[("d", "DECIMAL(10,2)"), ("t", "TIMESTAMP"), ("f", "FLOAT64")]);
    let (batch, _) = read(&columns, &[r#"{"d":1.5,"t":"1970-01-01T00:00:00.007Z","f":"NaN"}"#]);
    assert_eq!(batch.column(0).as_primitive::<Decimal128Type>().value(0), 150);
    assert_eq!(batch.column(1).as_primitive::<TimestampMillisecondType>().value(0), 7);
    assert!(batch.column(2).as_primitive::<Float64Type>().value(0).is_nan());
    assert_eq!(batch.column(0).null_count(), 0);
}
