//! Window joins.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide, WindowTime};
use levada_state::keyed::HeapBudget;
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, SAME_MS, Step, in_time, kinds, nested_loops, spec, steps, tumbling};

/// The start of the window of a time.
pub(super) fn start(time: i64, size: i64) -> i64 {
    time.div_euclid(size) * size
}

/// What a window join of these steps gives, and the ids of the rows that are late.
pub(super) fn expected(kind: JoinKind, steps: &[Step], size: i64) -> (Vec<String>, [Vec<i64>; 2]) {
    let (rows, late) = in_time(steps, |time, watermark| start(time, size) + size - 1 <= watermark);
    let meet = |one: &Row, other: &Row| start(one.time, size) == start(other.time, size);
    let window = |time: i64| format!(",{0},{1},{2}", start(time, size), start(time, size) + size, start(time, size) + size - 1);
    (nested_loops(kind, &rows, meet, window), late)
}

proptest! {
    #[test]
    fn windows_join_as_nested_loops_do(steps in steps(), kind in kinds(), size in 1i64..3_000, composite: bool) {
        let mut rig = Rig::new(&spec(kind, tumbling(size), composite));
        rig.run(&steps);
        rig.finish();
        let (rows, late) = expected(kind, &steps, size);
        prop_assert_eq!(rig.take_rows(), rows);
        prop_assert_eq!(rig.late_rows() as usize, late[0].len() + late[1].len());
        prop_assert_eq!(rig.take_late(), late);
        prop_assert_eq!(rig.state_bytes(), 0, "nothing is kept of windows that have fired");
    }

    #[test]
    fn windows_of_the_inputs_are_joined_by_their_bounds(steps in steps(), kind in kinds()) {
        let mut rig = Rig::new(&spec(kind, JoinScope::Same, false));
        rig.run(&steps);
        rig.finish();
        prop_assert_eq!(rig.take_rows(), expected(kind, &steps, SAME_MS).0);
    }
}

#[test]
fn nothing_goes_out_before_the_window_fires() {
    let mut rig = Rig::new(&spec(JoinKind::Inner, tumbling(10), false));
    let row = |time, id| Row { key: Some(1), time, id };
    rig.process(JoinSide::Left, &[row(0, 1), row(10, 2)]).unwrap();
    rig.process(JoinSide::Right, &[row(9, 3), row(10, 4)]).unwrap();
    rig.advance(8);
    assert!(rig.take_rows().is_empty());
    rig.advance(9);
    assert_eq!(rig.take_rows(), ["1,0,1,3,9,0,10,9"]);
    rig.process(JoinSide::Right, &[row(5, 5)]).unwrap();
    rig.finish();
    assert_eq!((rig.take_rows(), rig.late_rows()), (vec!["2,10,1,4,10,10,20,19".to_string()], 1));
}

/// A day of 25 hours, from its first to its last millisecond, and the one after it.
#[test]
fn rows_of_one_day_of_a_time_zone_meet() {
    let time = WindowTime { time_zone: Some("Europe/Berlin".into()), ..WindowTime::default() };
    let scope = JoinScope::Tumbling { size_ms: 86_400_000, offset_ms: 0, time };
    let mut rig = Rig::new(&spec(JoinKind::Inner, scope, false));
    let (midnight, hour) = (1_792_879_200_000, 3_600_000);
    let row = |time, id| Row { key: Some(1), time, id };
    rig.process(JoinSide::Left, &[row(midnight, 1), row(midnight + 25 * hour, 2)]).unwrap();
    rig.process(JoinSide::Right, &[row(midnight + 25 * hour - 1, 3), row(midnight + 25 * hour, 4)]).unwrap();
    rig.finish();
    let windows = rig.take_rows().into_iter().map(|row| row.split(',').skip(5).collect::<Vec<_>>().join(","));
    let window = |start: i64, end: i64| format!("{start},{end},{}", end - 1);
    let expected = [window(midnight, midnight + 25 * hour), window(midnight + 25 * hour, midnight + 49 * hour)];
    assert_eq!(windows.collect::<Vec<_>>(), expected);
}

#[test]
fn a_side_that_only_filters_keeps_a_row_for_each_key() {
    let bytes = |kind, copies: i64| {
        let mut rig = Rig::new(&spec(kind, tumbling(10), false));
        for copy in 0..copies {
            let rows: Vec<Row> = (0..100).map(|key| Row { key: Some(key), time: 3, id: copy }).collect();
            rig.process(JoinSide::Right, &rows).unwrap();
        }
        rig.state_bytes()
    };
    assert_eq!(bytes(JoinKind::Semi, 1), bytes(JoinKind::Semi, 50));
    assert!(bytes(JoinKind::Inner, 50) > 20 * bytes(JoinKind::Semi, 50));
}

#[test]
fn a_join_over_the_memory_names_its_state_and_the_remedy() {
    let spec = spec(JoinKind::Inner, tumbling(1_000_000), false);
    let mut rig = Rig::try_open(&spec, Vec::new(), KeyGroupRange::all(MAX_PARALLELISM), HeapBudget::new(200_000)).unwrap();
    let rows: Vec<Row> = (0..1_000).map(|id| Row { key: Some(id), time: 5, id }).collect();
    let failed = (0..100).find_map(|_| rig.process(JoinSide::Right, &rows).err()).expect("it is over the limit");
    let text = failed.to_string();
    assert!(text.starts_with("node \"pairs\": state \"right\" holds "), "{text}");
    assert!(text.contains("of 200000 bytes; make the join's window or interval shorter"), "{text}");
}
