//! The freezer against a table that is cloned at each barrier.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{AsArray, Int64Array, UInt32Array};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, UInt32Type};
use proptest::prelude::*;

use super::*;
use crate::snapshot::{PieceReader, pieces};

/// What a test does to a table.
#[derive(Debug, Clone)]
enum Step {
    /// Writes these rows, those beyond the end as new ones.
    Write(Vec<u32>),
    Background(usize),
    Barrier,
    Abandon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(0u32..300, 1..40).prop_map(Step::Write),
        6 => (1usize..60).prop_map(Step::Background),
        2 => Just(Step::Barrier),
        1 => Just(Step::Abandon),
    ];
    prop::collection::vec(step, 1..80)
}

fn gather(values: &[i64]) -> impl Fn(&[u32]) -> RecordBatch {
    |ids| {
        let fields = vec![Field::new("id", DataType::UInt32, false), Field::new("value", DataType::Int64, false)];
        let rows = ids.iter().map(|id| values[*id as usize]);
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(UInt32Array::from(ids.to_vec())), Arc::new(Int64Array::from_iter_values(rows))];
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("columns match the schema")
    }
}

/// The rows of a snapshot; each must come once.
fn read(reader: PieceReader) -> BTreeMap<u32, i64> {
    let mut rows = BTreeMap::new();
    for piece in reader {
        let piece = piece.expect("the snapshot was finished");
        let (ids, values) = (piece.column(0).as_primitive::<UInt32Type>(), piece.column(1).as_primitive::<Int64Type>());
        for row in 0..piece.num_rows() {
            assert_eq!(rows.insert(ids.value(row), values.value(row)), None, "row {} came twice", ids.value(row));
        }
    }
    rows
}

fn as_map(values: &[i64]) -> BTreeMap<u32, i64> {
    values.iter().enumerate().map(|(id, value)| (id as u32, *value)).collect()
}

proptest! {
    #[test]
    fn a_snapshot_is_the_table_at_its_barrier(steps in steps()) {
        let (mut values, mut freezer) = (Vec::<i64>::new(), Freezer::new());
        let mut snapshots: Vec<(PieceReader, BTreeMap<u32, i64>)> = Vec::new();
        for (at, step) in steps.iter().enumerate() {
            match step {
                Step::Write(ids) => {
                    let ids: Vec<u32> = ids.iter().map(|id| (*id).min(values.len() as u32)).collect();
                    freezer.before_change(&ids, gather(&values));
                    for id in ids {
                        if id as usize == values.len() {
                            values.push(0);
                        }
                        values[id as usize] = at as i64;
                    }
                    freezer.resize(values.len());
                }
                Step::Background(rows) => {
                    freezer.advance(*rows, gather(&values));
                }
                Step::Barrier => {
                    let (sender, reader) = pieces();
                    freezer.freeze(values.len(), sender, gather(&values));
                    snapshots.push((reader, as_map(&values)));
                }
                Step::Abandon => {
                    if freezer.is_running() {
                        let (reader, _) = snapshots.pop().expect("one is running");
                        freezer.abandon();
                        prop_assert!(reader.last().is_some_and(|piece| piece.is_err()), "an abandoned snapshot says so");
                    }
                }
            }
        }
        while freezer.advance(16, gather(&values)) {
            if freezer.sender.as_ref().is_some_and(PieceSender::is_full) {
                freezer.save_next(usize::MAX / 2, &gather(&values));
            }
        }
        for (reader, expected) in snapshots {
            prop_assert_eq!(read(reader), expected);
        }
    }
}

#[test]
fn the_cursor_waits_for_the_background_and_stops_without_one() {
    let values: Vec<i64> = (0..1000).collect();
    let mut freezer = Freezer::new();
    let (sender, mut reader) = pieces();
    freezer.freeze(values.len(), sender, gather(&values));
    for _ in 0..PieceSender::IN_FLIGHT_MAX {
        assert!(freezer.advance(1, gather(&values)));
    }
    assert!(freezer.advance(1000, gather(&values)), "nothing more is sent while the background is behind");
    assert!(freezer.is_running());
    for _ in 0..PieceSender::IN_FLIGHT_MAX {
        assert_eq!(reader.next().expect("a piece").expect("it goes on").num_rows(), 1);
    }
    drop(reader);
    assert!(!freezer.advance(1000, gather(&values)), "no one reads any more");
    assert!(!freezer.is_running());
}

#[test]
fn an_empty_table_is_frozen_and_finished() {
    let mut freezer = Freezer::new();
    let (sender, reader) = pieces();
    freezer.freeze(0, sender, gather(&[]));
    assert!(!freezer.advance(10, gather(&[])));
    assert!(read(reader).is_empty());
}

#[test]
fn what_is_left_of_a_snapshot_is_handed_over() {
    let (mut rows, mut saved, mut rest) = (FrozenRows::new(), Vec::new(), vec![1]);
    rows.resize(200);
    rows.freeze();
    rows.take_next(70, &mut saved);
    assert!(rows.take(150));
    rows.resize(230);
    rows.take_rest(&mut rest);
    let left: Vec<usize> = (0..rest.len() * 64).filter(|row| rest[row / 64] >> (row % 64) & 1 == 1).collect();
    let expected: Vec<usize> = std::iter::once(0).chain(70..150).chain(151..200).collect();
    assert_eq!(left, expected);
    assert!(!rows.is_running() && !rows.is_unsaved(199));
}
