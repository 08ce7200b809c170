//! Window joins.

use std::collections::BTreeMap;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide, WindowSpec, WindowTime};
use levada_state::keyed::HeapBudget;
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, SAME_MS, Step, kinds, nested_loops, spec, steps, tumbling};

/// From when to when a window is.
pub(super) type Bounds = (i64, i64);

/// The windows of a time.
pub(super) fn windows_of(scope: &JoinScope, time: i64) -> Vec<Bounds> {
    let floor = |period: i64, offset: i64| (time - offset).div_euclid(period) * period + offset;
    match scope.windows().expect("rows meet in windows") {
        WindowSpec::Tumbling { size_ms, offset_ms } => vec![(floor(size_ms, offset_ms), floor(size_ms, offset_ms) + size_ms)],
        WindowSpec::Sliding { size_ms, slide_ms, offset_ms } => {
            let starts = std::iter::successors(Some(floor(slide_ms, offset_ms)), |start| Some(start - slide_ms));
            starts.take_while(|start| start + size_ms > time).map(|start| (start, start + size_ms)).collect()
        }
        WindowSpec::Cumulate { size_ms, step_ms, offset_ms } => {
            let start = floor(size_ms, offset_ms);
            let ends = (1..=size_ms / step_ms).map(|steps| start + steps * step_ms);
            ends.filter(|end| *end > time).map(|end| (start, end)).collect()
        }
        WindowSpec::Same => vec![(floor(SAME_MS, 0), floor(SAME_MS, 0) + SAME_MS)],
        other => panic!("no rows meet in {other:?}"),
    }
}

/// The join by nested loops of rows that are in these windows.
pub(super) fn joined(kind: JoinKind, placed: impl IntoIterator<Item = (JoinSide, Row, Vec<Bounds>)>) -> Vec<String> {
    let mut windows: BTreeMap<Bounds, [Vec<Row>; 2]> = BTreeMap::new();
    for (side, row, bounds) in placed {
        bounds.into_iter().for_each(|bounds| windows.entry(bounds).or_default()[side as usize].push(row));
    }
    let of_window = |((start, end), rows): (Bounds, [Vec<Row>; 2])| {
        nested_loops(kind, &rows, |_, _| true, |_| format!(",{start},{end},{}", end - 1))
    };
    let mut rows: Vec<String> = windows.into_iter().flat_map(of_window).collect();
    rows.sort();
    rows
}

/// What a window join of these steps gives, and the ids of the rows that are late: for all of their windows.
pub(super) fn expected(kind: JoinKind, steps: &[Step], scope: &JoinScope) -> (Vec<String>, [Vec<i64>; 2]) {
    let (mut placed, mut late, mut watermark) = (Vec::new(), [Vec::new(), Vec::new()], i64::MIN);
    for step in steps {
        match step {
            Step::Advance(to) => watermark = watermark.max(*to),
            Step::Rows(side, rows) => {
                for row in rows {
                    let open = windows_of(scope, row.time).into_iter().filter(|(_, end)| end - 1 > watermark);
                    let open: Vec<Bounds> = open.collect();
                    if open.is_empty() {
                        late[*side as usize].push(row.id);
                    }
                    placed.push((*side, *row, open));
                }
            }
        }
    }
    late.iter_mut().for_each(|late| late.sort_unstable());
    (joined(kind, placed), late)
}

/// Sliding and cumulating windows of this time, up to so long a slide or step.
pub(super) fn overlapping(most_ms: i64, time: &WindowTime) -> impl Strategy<Value = JoinScope> + use<> {
    let sliding = (1..most_ms, 0..4 * most_ms, 0..most_ms).prop_map(|(slide_ms, more, offset)| WindowSpec::Sliding {
        size_ms: slide_ms + more % (3 * slide_ms),
        slide_ms,
        offset_ms: offset % slide_ms,
    });
    let cumulate = (1..most_ms, 1i64..5, 0..4 * most_ms).prop_map(|(step_ms, steps, offset)| WindowSpec::Cumulate {
        size_ms: step_ms * steps,
        step_ms,
        offset_ms: offset % (step_ms * steps),
    });
    let time = time.clone();
    prop_oneof![sliding, cumulate].prop_map(move |windows| JoinScope::Overlapping { windows, time: time.clone() })
}

/// All windows of event time that come from the times of rows.
pub(super) fn scopes() -> impl Strategy<Value = JoinScope> {
    prop_oneof![(1i64..3_000).prop_map(tumbling), overlapping(800, &WindowTime::default())]
}

proptest! {
    #[test]
    fn windows_join_as_nested_loops_do(steps in steps(), kind in kinds(), scope in scopes(), composite: bool) {
        let mut rig = Rig::new(&spec(kind, scope.clone(), composite));
        rig.run(&steps);
        rig.finish();
        let (rows, late) = expected(kind, &steps, &scope);
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
        prop_assert_eq!(rig.take_rows(), expected(kind, &steps, &JoinScope::Same).0);
    }
}

/// Windows of this size and slide, of event time.
pub(super) fn sliding(size_ms: i64, slide_ms: i64) -> JoinScope {
    let windows = WindowSpec::Sliding { size_ms, slide_ms, offset_ms: 0 };
    JoinScope::Overlapping { windows, time: WindowTime::default() }
}

/// A row that met none goes out of each window in which that was so, and one that comes late meets in the windows that are left.
#[test]
fn rows_meet_once_in_each_window_that_has_both() {
    let mut rig = Rig::new(&spec(JoinKind::Full, sliding(20, 10), false));
    let row = |key, time, id| Row { key: Some(key), time, id };
    rig.process(JoinSide::Left, &[row(1, 5, 1), row(2, 5, 2)]).unwrap();
    rig.process(JoinSide::Right, &[row(1, 12, 3)]).unwrap();
    rig.advance(8);
    assert!(rig.take_rows().is_empty());
    rig.advance(9);
    assert_eq!(rig.take_rows(), ["1,5,1,null,null,-10,10,9", "2,5,2,null,null,-10,10,9"]);
    rig.process(JoinSide::Right, &[row(2, 3, 4)]).unwrap();
    rig.advance(19);
    assert_eq!(rig.take_rows(), ["1,5,1,3,12,0,20,19", "2,5,2,4,3,0,20,19"]);
    rig.process(JoinSide::Left, &[row(1, 9, 5), row(1, 10, 6)]).unwrap();
    rig.finish();
    assert_eq!(rig.take_rows(), ["6,10,1,3,12,10,30,29"]);
    assert_eq!((rig.late_rows(), rig.take_late()), (1, [vec![5], vec![]]));
    assert_eq!(rig.state_bytes(), 0);
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

/// The last two days at each midnight, of which one is of 25 hours; and that day as it grows.
#[test]
fn windows_that_overlap_begin_by_the_clocks_of_their_zone() {
    let (midnight, hour) = (1_792_879_200_000, 3_600_000);
    let windows = |windows: WindowSpec| {
        let time = WindowTime { time_zone: Some("Europe/Berlin".into()), ..WindowTime::default() };
        let mut rig = Rig::new(&spec(JoinKind::Inner, JoinScope::Overlapping { windows, time }, false));
        let row = |time, id| Row { key: Some(1), time, id };
        rig.process(JoinSide::Left, &[row(midnight, 1)]).unwrap();
        rig.process(JoinSide::Right, &[row(midnight + 13 * hour - 1, 2), row(midnight + 25 * hour - 1, 3)]).unwrap();
        rig.finish();
        let hours = |bound: &str| (bound.parse::<i64>().unwrap() - midnight) / hour;
        let row = |row: String| {
            let cells: Vec<&str> = row.split(',').collect();
            (cells[3].to_owned(), hours(cells[5]), hours(cells[6]))
        };
        rig.take_rows().into_iter().map(row).collect::<Vec<_>>()
    };
    let pair = |right: &str, start, end| (right.to_owned(), start, end);
    let (day, size_ms) = (86_400_000, 172_800_000);
    let found = windows(WindowSpec::Sliding { size_ms, slide_ms: day, offset_ms: 0 });
    assert_eq!(found, [pair("2", -24, 25), pair("2", 0, 49), pair("3", -24, 25), pair("3", 0, 49)]);
    let found = windows(WindowSpec::Cumulate { size_ms: day, step_ms: day / 2, offset_ms: 0 });
    assert_eq!(found, [pair("2", 0, 13), pair("2", 0, 25), pair("3", 0, 25)]);
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
