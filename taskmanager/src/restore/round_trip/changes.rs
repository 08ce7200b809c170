//! What of the round trip counts values one by one: distinct ones, and aggregates over a changelog.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int8Array, UInt32Array};
use arrow::compute::{concat_batches, take_record_batch};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{AggregateCall, AggregateFunction, DistinctSpec, OperatorKind, OperatorSpec, WindowSpec, WindowTime};
use levada_common::types::{LogicalType, RowKind, StreamSchema};

use super::specs::{aggregate, input, spec};

/// Later than any row.
const FAR_MS: i64 = 1_000_000_000;

/// The columns of `input`, as changes.
pub fn changelog() -> StreamSchema {
    StreamSchema { changelog: true, event_time: None, ..input() }
}

/// Each row comes, and every third row of those before goes.
pub fn changes(rows: &RecordBatch, before: &RecordBatch) -> RecordBatch {
    let gone = UInt32Array::from_iter_values((0..before.num_rows() as u32).filter(|row| row % 3 == 0));
    let gone = take_record_batch(before, &gone).unwrap();
    let ops = |kind: RowKind, rows: usize| std::iter::repeat_n(kind as i8, rows);
    let kinds = ops(RowKind::Insert, rows.num_rows()).chain(ops(RowKind::Delete, gone.num_rows()));
    let kinds: ArrayRef = Arc::new(Int8Array::from_iter_values(kinds));
    let all = concat_batches(&rows.schema(), [rows, &gone]).unwrap();
    let columns = std::iter::once(kinds).chain(all.columns().iter().cloned()).collect();
    RecordBatch::try_new(changelog().to_arrow(), columns).unwrap()
}

/// The operators.
pub fn specs() -> Vec<OperatorSpec> {
    let distinct = |uid: &str, window| {
        let (time, values) = (WindowTime::default(), vec!["v".into()]);
        let distinct = DistinctSpec { keys: vec!["k".into()], window, time, lateness_ms: 0, values };
        let output = distinct.output(&input());
        spec(uid, OperatorKind::Distinct(distinct), output)
    };
    vec![
        distinct("distinct", WindowSpec::Running),
        // Which rows are late is for who adds the marks up: here all of them are in one window, which is never over.
        distinct("distinct_of_windows", WindowSpec::Tumbling { size_ms: 2 * FAR_MS, offset_ms: FAR_MS }),
        over_changes(),
    ]
}

fn over_changes() -> OperatorSpec {
    let mut spec = aggregate("over_changes", WindowSpec::Running);
    let OperatorKind::Aggregate(aggregate) = &mut spec.kind else { unreachable!("it is one") };
    aggregate.takes_changes = true;
    let max = AggregateCall {
        argument: Some("v".into()),
        argument_type: Some(LogicalType::Int64),
        function: AggregateFunction::Max,
        ..AggregateCall::count("when")
    };
    // Which row came first is nothing to be known of rows that go.
    let is_first = |call: &AggregateCall| call.function == AggregateFunction::First;
    for call in aggregate.calls.iter_mut().filter(|call| is_first(call)) {
        *call = max.clone();
    }
    spec.input = changelog();
    spec
}
