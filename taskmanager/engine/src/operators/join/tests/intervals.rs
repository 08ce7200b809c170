//! Interval joins.

use levada_common::plan::{JoinKind, JoinScope, JoinSide};
use proptest::prelude::*;

use super::rig::{Rig, Row, Step, in_time, kinds, nested_loops, spec, steps};

/// What an interval join of these steps gives, and the ids of the rows that are late.
pub(super) fn expected(kind: JoinKind, steps: &[Step], from_ms: i64, to_ms: i64) -> (Vec<String>, [Vec<i64>; 2]) {
    let (rows, late) = in_time(steps, |time, watermark| time <= watermark);
    let meet = |one: &Row, other: &Row| (from_ms..=to_ms).contains(&(other.time - one.time));
    (nested_loops(kind, &rows, meet, |_| String::new()), late)
}

/// Intervals before, after and around a row, some without width.
pub(super) fn intervals() -> impl Strategy<Value = (i64, i64)> {
    (-3_000i64..3_000, prop_oneof![Just(0), 0i64..5_000]).prop_map(|(from, span)| (from, from + span))
}

proptest! {
    #[test]
    fn intervals_join_as_nested_loops_do(steps in steps(), kind in kinds(), bounds in intervals(), composite: bool) {
        let (from_ms, to_ms) = bounds;
        let mut rig = Rig::new(&spec(kind, JoinScope::Within { from_ms, to_ms }, composite));
        rig.run(&steps);
        rig.finish();
        let (rows, late) = expected(kind, &steps, from_ms, to_ms);
        prop_assert_eq!(rig.take_rows(), rows);
        prop_assert_eq!(rig.late_rows() as usize, late[0].len() + late[1].len());
        prop_assert_eq!(rig.take_late(), late);
        prop_assert_eq!(rig.state_bytes(), 0, "nothing is kept when time is over");
    }
}

fn row(time: i64, id: i64) -> Row {
    Row { key: Some(1), time, id }
}

#[test]
fn rows_meet_as_soon_as_both_are_there_and_are_dropped_when_time_has_passed() {
    let mut rig = Rig::new(&spec(JoinKind::Inner, JoinScope::Within { from_ms: -1_000, to_ms: 2_000 }, false));
    rig.process(JoinSide::Left, &[row(5_000, 1)]).unwrap();
    rig.process(JoinSide::Right, &[row(3_999, 2), row(4_000, 3), row(7_000, 4), row(7_001, 5)]).unwrap();
    assert_eq!(rig.take_rows(), ["1,5000,1,3,4000", "1,5000,1,4,7000"]);
    let before = rig.state_bytes();
    // The left row could still meet one at 7000; the right ones before 4500 are in a pane that time has passed.
    rig.advance(6_999);
    assert!((1..before).contains(&rig.state_bytes()));
    rig.process(JoinSide::Right, &[row(7_000, 6)]).unwrap();
    assert_eq!(rig.take_rows(), ["1,5000,1,6,7000"]);
    rig.advance(20_000);
    assert_eq!(rig.state_bytes(), 0);
}

#[test]
fn a_product_goes_out_piece_by_piece() {
    let mut rig = Rig::new(&spec(JoinKind::Inner, JoinScope::Within { from_ms: 0, to_ms: 0 }, false));
    let rows: Vec<Row> = (0..60).map(|id| row(7, id)).collect();
    rig.process(JoinSide::Left, &rows).unwrap();
    rig.process(JoinSide::Right, &rows).unwrap();
    assert_eq!(rig.take_rows().len(), 3_600);
}

#[test]
fn rows_that_met_none_go_out_once_time_has_passed_their_pane() {
    let mut rig = Rig::new(&spec(JoinKind::Full, JoinScope::Within { from_ms: 0, to_ms: 500 }, false));
    rig.process(JoinSide::Left, &[row(100, 1), Row { key: None, time: 100, id: 2 }]).unwrap();
    rig.process(JoinSide::Right, &[row(700, 3), row(600, 4)]).unwrap();
    assert_eq!(rig.take_rows(), ["1,100,1,4,600"]);
    rig.advance(998);
    assert!(rig.take_rows().is_empty());
    // Right rows can meet none that come later than they; the left pane waits for right rows up to 1499.
    rig.advance(999);
    assert_eq!(rig.take_rows(), ["null,null,1,3,700"]);
    rig.advance(1_499);
    assert_eq!(rig.take_rows(), ["2,100,null,null,null"]);
}
