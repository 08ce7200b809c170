//! Running aggregates: the changelog.

use levada_common::plan::{AggregateFunction, WindowSpec};
use levada_common::types::RowKind;

use super::rig::{Rig, Row, call, spec};
use crate::error::EngineError;

fn counts() -> Vec<levada_common::plan::AggregateCall> {
    vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum)]
}

/// Rows as `_op` sign and the rest.
fn signed(rows: Vec<String>) -> Vec<String> {
    rows.into_iter()
        .map(|row| {
            let (op, rest) = row.split_once(',').expect("an operation");
            let kind = RowKind::from_code(op.parse().expect("a code")).expect("a kind");
            format!("{} {rest}", kind.sign())
        })
        .collect()
}

#[test]
fn one_change_per_key_and_batch_in_order_of_appearance() {
    let mut rig = Rig::new(&spec(&["k"], WindowSpec::Running, counts()));
    rig.process(&[(3, 0, 1), (1, 0, 2), (3, 0, 10)]);
    assert_eq!(signed(rig.take_rows()), ["+I 3,2,11", "+I 1,1,2"]);
    rig.process(&[(2, 0, 5), (1, 0, -2), (2, 0, 5), (3, 0, 0)]);
    assert_eq!(signed(rig.take_rows()), ["+I 2,2,10", "+U 1,2,0", "+U 3,3,11"]);
}

#[test]
fn a_full_changelog_has_the_replaced_row_before() {
    let mut aggregate = spec(&["s"], WindowSpec::Running, counts());
    aggregate.changelog_full = true;
    let mut rig = Rig::new(&aggregate);
    rig.process(&[(1, 0, 1), (2, 0, 2)]);
    assert_eq!(signed(rig.take_rows()), ["+I key 1,1,1", "+I key 2,1,2"]);
    rig.process(&[(2, 0, 3), (9, 0, 9), (1, 0, 1), (2, 0, 1)]);
    assert_eq!(signed(rig.take_rows()), ["-U key 2,1,2", "+U key 2,3,6", "+I key 9,1,9", "-U key 1,1,1", "+U key 1,2,2"]);
}

#[test]
fn without_key_there_is_one_row() {
    let mut rig = Rig::new(&spec(&[], WindowSpec::Running, counts()));
    rig.process(&[(1, 0, 1), (2, 0, 2)]);
    rig.process(&[(2, 0, 4)]);
    rig.finish();
    assert_eq!(signed(rig.take_rows()), ["+I 2,3", "+U 3,7"]);
    let mut empty = Rig::new(&spec(&[], WindowSpec::Running, counts()));
    empty.finish();
    assert!(empty.take_rows().is_empty());
}

#[test]
fn changes_are_cut_to_the_size_of_a_batch() {
    let mut rig = Rig::new(&spec(&["k", "s"], WindowSpec::Running, counts()));
    let rows: Vec<Row> = (0..100).map(|n| (n, 0, n)).collect();
    rig.process(&rows);
    let expected: Vec<String> = (0..100).map(|n| format!("+I {n},key {n},1,{n}")).collect();
    assert_eq!(signed(rig.take_rows()), expected);
}

#[test]
fn an_overflow_names_key_and_column() {
    let most = levada_common::types::LogicalType::Decimal(38, 0);
    let mut total = call("total", AggregateFunction::Sum);
    total.argument_type = Some(most);
    let aggregate = spec(&["s"], WindowSpec::Running, vec![total]);
    // The state of one key as a partial would send it, nearly full.
    let mut aggregate = aggregate;
    aggregate.phase = levada_common::plan::AggregatePhase::Final;
    let mut rig = Rig::new(&aggregate);
    let rows = || {
        let key = std::sync::Arc::new(arrow::array::StringArray::from(vec!["a", "b"]));
        let sums = arrow::array::Decimal128Array::from(vec![1, 10i128.pow(38) - 1]);
        let sums = std::sync::Arc::new(sums.with_data_type(arrow::datatypes::DataType::Decimal128(38, 0)));
        arrow::record_batch::RecordBatch::try_from_iter_with_nullable([
            ("s", key as arrow::array::ArrayRef, false),
            ("total", sums as arrow::array::ArrayRef, true),
        ])
        .expect("columns match")
    };
    rig.process_batch(rows());
    match rig.try_process(rows()) {
        Err(error @ EngineError::AggregateOverflow { .. }) => {
            assert_eq!(error.to_string(), "node \"counts\": sum \"total\" overflows DECIMAL(38,0) for key s = b");
        }
        other => panic!("{other:?}"),
    }
}
