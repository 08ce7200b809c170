//! Conditions that guard what would fail: each row by itself comes to what SQL says.

use super::*;

/// What `sql` comes to of a row whose price is `price` and whose n is `n`.
fn of_row(sql: &str, price: i64, n: Option<i64>) -> Result<Option<bool>, String> {
    let mut columns = batch().slice(0, 1).columns().to_vec();
    columns[0] = Arc::new(Int64Array::from(vec![price]));
    columns[1] = Arc::new(Int64Array::from(vec![n]));
    let row = RecordBatch::try_new(schema().to_arrow(), columns).unwrap();
    let flags = Compiler::new().compile(sql, &schema(), &LogicalType::Boolean)?.evaluate(&row)?;
    Ok(flags.as_boolean().iter().next().flatten())
}

#[test]
fn a_row_is_bad_only_where_nothing_guards_it() {
    let guarded = [
        "price <> 0 and 10 / price > 1",
        "not (price = 0 or 10 / price <= 1)",
        "case when price = 0 then false else 10 / price > 1 end",
        "case price when 0 then false else 10 / price > 1 end",
        "case when price <> 0 then 10 / price > 1 else false end",
        "price <> 0 and price % price = 0 and 10 / price > 1",
        "coalesce(nullif(price, 0) is not null and 10 / price > 1, false)",
    ];
    for sql in guarded {
        for (price, expected) in [(0, false), (1, true), (4, true), (20, false)] {
            assert_eq!(of_row(sql, price, Some(1)), Ok(Some(expected)), "{sql} of {price}");
        }
    }
    assert_eq!(of_row("n <> 0 and 10 / n > 1", 1, None), Ok(None));
    assert_eq!(of_row("n <> 0 and 10 / n > 1", 1, Some(0)), Ok(Some(false)));
    // What may still be false must be known.
    assert_eq!(of_row("n <> 0 and 10 / price > 1", 0, None), Err("division by zero".into()));
    assert_eq!(of_row("10 / price > 1 and price <> 0", 0, Some(1)), Err("division by zero".into()));
}

/// Of whole columns, where it is guarded in some rows only; else each such row costs several evaluations of a part of its batch.
#[test]
fn guarded_rows_do_not_fail_their_batch() {
    let of = |sql: &str, prices: &[i64]| {
        let columns = vec![Column::new("price", LogicalType::Int64, true)];
        let schema = StreamSchema::append(columns);
        let prices: ArrayRef = Arc::new(prices.iter().map(|price| (*price >= 0).then_some(*price)).collect::<Int64Array>());
        let batch = RecordBatch::try_new(schema.to_arrow(), vec![prices]).unwrap();
        let flags = Compiler::new().compile(sql, &schema, &LogicalType::Boolean)?.evaluate(&batch)?;
        Ok::<_, String>(flags.as_boolean().iter().collect::<Vec<_>>())
    };
    let (yes, no) = (Some(true), Some(false));
    for sql in ["price <> 0 and 10 / price > 1", "case when price = 0 then false else 10 / price > 1 end"] {
        assert_eq!(of(sql, &[0, 1, 2, 3]), Ok(vec![no, yes, yes, yes]), "{sql}");
        assert_eq!(of(sql, &[0, 0, 0, 0, 0, 1]), Ok(vec![no, no, no, no, no, yes]), "{sql}");
        assert_eq!(of(sql, &[0, 0]), Ok(vec![no, no]), "{sql}");
        assert_eq!(of(sql, &[1, 20]), Ok(vec![yes, no]), "{sql}");
    }
    assert_eq!(of("price <> 0 and 10 / price > 1", &[0, -1, 1]), Ok(vec![no, None, yes]));
    assert_eq!(of("price = 0 or 10 / price > 1", &[0, 20, 1, -1]), Ok(vec![yes, no, yes, None]));
    assert_eq!(of("price = 0 or price = 1 or 10 / (price - 1) > 5", &[0, 1, 2, 20]), Ok(vec![yes, yes, yes, no]));
    assert_eq!(of("price <> 0 and (price = 1 or 10 / (price - 1) / price > 1)", &[0, 1, 2, 20]), Ok(vec![no, yes, yes, no]));
    assert_eq!(of("price < 5 and 10 / price > 1", &[0, 1, 9]), Err("division by zero".into()));
}

/// Where every row is bad nothing is left, and of that there are columns.
#[test]
fn no_expression_fails_over_no_rows() {
    for sql in ["1 / 0", "1 / 0 > price", "CAST(line AS BIGINT)", "price + 9223372036854775807 + 1", "line", "amount / 0"] {
        let ty = Compiler::new().type_of(sql, &schema()).unwrap().ty;
        let compiled = Compiler::new().compile(sql, &schema(), &ty).unwrap();
        let nothing = compiled.evaluate(&batch().slice(0, 0)).expect(sql);
        assert_eq!((nothing.len(), nothing.data_type()), (0, &ty.to_arrow()), "{sql}");
    }
}
