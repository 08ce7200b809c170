//! Rows that are ordered by floats: one zero and one NaN, as among keys.

use arrow::array::Float64Array;

use super::*;

/// Which of the rows with these values are the best `limit`, by their numbers, best first.
fn best(values: &[f64], descending: bool, limit: u32) -> Vec<i64> {
    let by_value = OrderSpec { column: "f".into(), ty: LogicalType::Float64, nullable: false, descending };
    let top = TopSpec {
        keys: Vec::new(),
        order: vec![by_value],
        newest_wins: false,
        limit,
        place: Some("place".into()),
        changelog_full: false,
        ttl_ms: None,
        window: None,
        with_ties: false,
        local: false,
    };
    let input = vec![Column::new("f", LogicalType::Float64, false), Column::new("id", LogicalType::Int64, false)];
    let place = Column::new("place", LogicalType::Int64, false);
    let output = StreamSchema { changelog: true, ..StreamSchema::append(input.iter().cloned().chain([place]).collect()) };
    let spec = OperatorSpec { input: StreamSchema::append(input), output, ..spec(&top) };
    let mut operator = build(&spec, &top).expect("the plan is good");
    let context =
        OperatorContext { key_groups: everything(), max_parallelism: MAX_PARALLELISM, ..crate::testing::context("best", 100) };
    operator.open(&context, Vec::new()).expect("it opens");
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Float64Array::from(values.to_vec())), Arc::new(Int64Array::from_iter_values(0..values.len() as i64))];
    operator.process(0, RecordBatch::try_new(spec.input.to_arrow(), columns).expect("columns match")).expect("rows are taken in");
    let mut rows = Vec::new();
    while let Some(batch) = operator.poll().expect("output is polled") {
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values().to_vec();
        rows.extend(column(3).into_iter().zip(column(2)));
    }
    rows.sort_unstable();
    rows.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn equal_floats_keep_the_order_of_arrival() {
    let values = [0.0, -0.0, -f64::NAN, 1.0, f64::NAN, f64::NEG_INFINITY];
    assert_eq!(best(&values, false, 6), [5, 0, 1, 3, 2, 4]);
    assert_eq!(best(&values, true, 6), [2, 4, 3, 0, 1, 5]);
    assert_eq!(best(&values, false, 2), [5, 0]);
}
