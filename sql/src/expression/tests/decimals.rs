//! Division of decimals.

use super::*;

fn text(sql: &str) -> Result<String, String> {
    Ok(evaluate_first(sql)?.as_primitive::<Decimal128Type>().value_as_string(0))
}

#[test]
fn quotients_are_rounded_and_have_six_digits_at_least() {
    let cases = [
        ("CAST(2 AS DECIMAL(38,0)) / 3", "0.666667"),
        ("CAST(1 AS DECIMAL(38,0)) / CAST(30000 AS DECIMAL(38,0))", "0.000033"),
        ("CAST(-1 AS DECIMAL(38,0)) / CAST(2000000 AS DECIMAL(38,0))", "-0.000001"),
        ("CAST(1 AS DECIMAL(38,0)) / -2000001", "0.000000"),
        ("CAST(99999999999999999999999999999999 AS DECIMAL(38,0)) / 1", "99999999999999999999999999999999.000000"),
        ("1.0 / 3.0", "0.333333"),
        ("amount / amount", "1.0000000000000"),
        ("amount / 0.05", "2469.000000"),
        ("1 / amount", "0.00810044552"),
    ];
    for (sql, expected) in cases {
        assert_eq!(text(sql).as_deref(), Ok(expected), "{sql}");
    }
    assert_eq!(
        evaluate("amount / 3 > 41.1 and 1 / amount < 0.0082").unwrap().as_boolean(),
        &BooleanArray::from(vec![true, false])
    );
    assert_eq!(
        evaluate("coalesce(amount / 4, 0.5)").unwrap().as_primitive::<Decimal128Type>().value_as_string(1).trim_end_matches('0'),
        "-0.0025"
    );
    let sums = [
        ("amount / 1 * 2", "246.9"),
        ("amount / 2 + amount", "185.175"),
        ("-(amount / 2)", "-61.725"),
        ("abs(amount / -2)", "61.725"),
    ];
    for (sql, expected) in sums {
        assert_eq!(text(sql).as_deref().map(|text| text.trim_end_matches('0')), Ok(expected), "{sql}");
    }
}

#[test]
fn quotients_are_typed_as_in_flink() {
    let cases = [
        ("amount / amount", "DECIMAL(23,13) NOT NULL"),
        ("CAST(price AS DECIMAL(38,0)) / price", "DECIMAL(38,6) NOT NULL"),
        ("amount / 0.5", "DECIMAL(15,6) NOT NULL"),
        ("amount / n", "DECIMAL(31,23)"),
        ("ratio / 0.5", "FLOAT64 NOT NULL"),
        ("ratio / amount", "FLOAT64 NOT NULL"),
        ("price / 3", "INT64 NOT NULL"),
        ("CAST(amount / 3 AS DECIMAL(10,2))", "DECIMAL(10,2) NOT NULL"),
    ];
    for (sql, expected) in cases {
        assert_eq!(type_of(sql).as_deref(), Ok(expected), "{sql}");
    }
}

#[test]
fn a_quotient_that_there_is_not_is_an_error() {
    for sql in ["amount / 0", "amount / 0.00", "1.5 / (amount - amount)", "amount / (n - 7)"] {
        assert_eq!(evaluate(sql).expect_err(sql), "division by zero", "{sql}");
    }
    let reason = evaluate("CAST('99999999999999999999999999999999999999' AS DECIMAL(38,0)) / amount").expect_err("39 digits");
    assert!(reason.contains("overflow") && reason.contains("digits before the point"), "{reason}");
    assert!(evaluate("amount / null").unwrap().is_null(0));
    assert_eq!(evaluate("amount / n").unwrap().null_count(), 1);
}
