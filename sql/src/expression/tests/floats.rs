//! Floats beside other numbers.

use arrow::array::Float32Array;
use arrow::datatypes::Float64Type;

use super::*;

const HUGE: f64 = 1e300;

/// Columns `f` (FLOAT64) and `g` (FLOAT32) of these values.
fn floats(values: &[f64]) -> (StreamSchema, RecordBatch) {
    let columns = [("f", LogicalType::Float64), ("g", LogicalType::Float32), ("d", LogicalType::Decimal(10, 2))];
    let schema = StreamSchema::append(columns.map(|(name, ty)| Column::new(name, ty, false)).to_vec());
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from(values.to_vec())),
        Arc::new(values.iter().map(|value| Some(*value as f32)).collect::<Float32Array>()),
        Arc::new(Decimal128Array::from(vec![50; values.len()]).with_precision_and_scale(10, 2).unwrap()),
    ];
    let batch = RecordBatch::try_new(schema.to_arrow(), columns).unwrap();
    (schema, batch)
}

/// What `sql` comes to of these values.
fn of(sql: &str, values: &[f64]) -> ArrayRef {
    let (schema, batch) = floats(values);
    let ty = Compiler::new().type_of(sql, &schema).unwrap_or_else(|reason| panic!("{sql}: {reason}")).ty;
    let compiled = Compiler::new().compile(sql, &schema, &ty).unwrap();
    compiled.evaluate(&batch).unwrap_or_else(|reason| panic!("{sql}: {reason}"))
}

fn flags(sql: &str, values: &[f64]) -> Vec<bool> {
    of(sql, values).as_boolean().iter().map(|flag| flag.expect("there are no nulls")).collect()
}

#[test]
fn floats_stay_floats_beside_decimals() {
    let values = [f64::NEG_INFINITY, -HUGE, -1.0, 1e-16, 0.5, 2e7, 1e15, HUGE, f64::INFINITY, f64::NAN];
    let above = |limit: f64| values.map(|value| value > limit || value.is_nan()).to_vec();
    assert_eq!(flags("f > 0.5", &values), above(0.5));
    assert_eq!(flags("0.5 < g", &values), above(0.5));
    assert_eq!(flags("f > 0.0", &values), above(0.0));
    assert_eq!(flags("f > d", &values), above(0.5));
    assert_eq!(flags("f > 12345678901234567890.0", &values), above(12_345_678_901_234_567_890.0));
    assert_eq!(flags("f between 0.0 and 0.5", &values), values.map(|value| (0.0..=0.5).contains(&value)));
    assert_eq!(flags("f in (0.5, 1e15, d)", &values), values.map(|value| value == 0.5 || value == 1e15));
    assert_eq!(flags("f not in (0.5)", &values), values.map(|value| value != 0.5));
    assert_eq!(flags("f is distinct from 0.5", &values), values.map(|value| value != 0.5));
    assert_eq!(flags("case f when 0.5 then true else false end", &values), values.map(|value| value == 0.5));
    assert_eq!(flags("1 in (0.5, f)", &[1.0, HUGE]), [true, false]);
    assert_eq!(flags("array_has(make_array(f, 0.5), 0.25)", &[0.25, HUGE, 0.5]), [true, false, false]);
}

#[test]
fn what_is_chosen_of_floats_and_decimals_is_a_float() {
    let values = [f64::NAN, HUGE, 0.1 + 0.2];
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let texts = [
        "coalesce(f, 0.0)",
        "nvl(f, 0.0)",
        "ifnull(f, d)",
        "nvl2(d, f, 0.0)",
        "nullif(f, 0.5)",
        "case when d > 0.4 then f else 0.0 end",
        "case when d > 0.6 then 0.0 when d > 0.4 then f end",
        "greatest(f, 0.25)",
        "array_element(make_array(f, 0.5), 1)",
    ];
    for sql in texts {
        let given = of(sql, &values);
        assert_eq!(given.data_type(), &arrow::datatypes::DataType::Float64, "{sql}");
        assert_eq!(bits(given.as_primitive::<Float64Type>().values()), bits(&values), "{sql}");
    }
    assert_eq!(of("least(f, 0.25)", &values).as_primitive::<Float64Type>().values(), &[0.25; 3]);
    // A FLOAT32 is compared as the FLOAT64 that it is, which is none that is written with a point but by chance.
    assert_eq!(flags("g = 0.5", &[0.5, 0.1]), [true, false]);
    assert_eq!(flags("g = 0.1", &[0.1]), [false]);
    assert_eq!(of("coalesce(g, 0.5)", &[0.25]).as_primitive::<Float64Type>().values(), &[0.25]);
}

/// A literal is the float nearest to it, also where it has more digits than a float.
#[test]
fn a_decimal_literal_beside_a_float_is_the_nearest_one() {
    for text in
        ["0.1", "0.3", "123456789.123456789012345678901234", "0.000000000000000000000000000000000001", "9007199254740993.0"]
    {
        let nearest: f64 = text.parse().unwrap();
        assert_eq!(flags(&format!("f = {text}"), &[nearest]), [true], "{text}");
    }
}

#[test]
fn what_has_no_float_is_typed_as_ever() {
    let cases = [
        ("coalesce(amount, 0.5)", "DECIMAL(10,2) NOT NULL"),
        ("coalesce(price, 0.5)", "DECIMAL(21,1) NOT NULL"),
        ("case when price > 0.5 then amount else 0.125 end", "DECIMAL(11,3) NOT NULL"),
        ("concat(ratio, 0.50)", "STRING"),
        ("ratio * 0.5", "FLOAT64 NOT NULL"),
        ("round(ratio, 2)", "FLOAT64"),
        ("power(ratio, 0.5)", "FLOAT64"),
    ];
    for (sql, expected) in cases {
        assert_eq!(type_of(sql).as_deref(), Ok(expected), "{sql}");
    }
    assert_eq!(evaluate_first("concat(ratio, 0.50)").unwrap().as_string::<i32>().value(0), "0.50.50");
}

/// As among keys: -0.0 is 0.0, and every NaN is the one that is greater than all else.
#[test]
fn there_is_one_zero_and_one_nan() {
    let values = [-f64::NAN, f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN];
    let at = |places: &[usize]| (0..values.len()).map(|at| places.contains(&at)).collect::<Vec<_>>();
    for column in ["f", "g"] {
        let flags = |sql: &str| flags(&sql.replace('?', column), &values);
        assert_eq!(flags("? >= 0"), at(&[0, 3, 4, 5, 6, 7]));
        assert_eq!(flags("? < 0"), at(&[1, 2]));
        assert_eq!(flags("0.0 = ?"), at(&[3, 4]));
        assert_eq!(flags("-0.0 = ?"), at(&[3, 4]));
        assert_eq!(flags("? <> 0"), at(&[0, 1, 2, 5, 6, 7]));
        assert_eq!(flags("? = CAST('NaN' AS DOUBLE)"), at(&[0, 7]));
        assert_eq!(flags("? < CAST('NaN' AS DOUBLE)"), at(&[1, 2, 3, 4, 5, 6]));
        assert_eq!(flags("? is not distinct from CAST('-0.0' AS DOUBLE)"), at(&[3, 4]));
        assert_eq!(flags("? in (0, 1)"), at(&[3, 4, 5]));
        assert_eq!(flags("? in (7, 8, 9, 10, CAST('-0.0' AS DOUBLE))"), at(&[3, 4]));
        assert_eq!(flags("0 in (5, ?)"), at(&[3, 4]));
        assert_eq!(flags("? between 0 and 1"), at(&[3, 4, 5]));
        assert_eq!(flags("? between CAST('-0.0' AS DOUBLE) and CAST('-0.0' AS DOUBLE)"), at(&[3, 4]));
        assert_eq!(flags("case ? when 0 then true else false end"), at(&[3, 4]));
        assert_eq!(flags("? * -1 = 0"), at(&[3, 4]));
        assert_eq!(flags("nullif(?, 0) is null"), at(&[3, 4]));
        assert_eq!(flags("array_has(make_array(5, ?), 0)"), at(&[3, 4]));
        assert_eq!(flags("make_array(?) = make_array(CAST('-0.0' AS DOUBLE))"), at(&[3, 4]));
    }
    let least = of("least(f, 5)", &values);
    let expected = [5.0, f64::NEG_INFINITY, -1.0, 0.0, 0.0, 1.0, 5.0, 5.0].map(f64::to_bits);
    assert_eq!(least.as_primitive::<Float64Type>().values().iter().map(|value| value.to_bits()).collect::<Vec<_>>(), expected);
}
