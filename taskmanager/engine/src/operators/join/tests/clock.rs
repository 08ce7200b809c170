//! Joins in windows of processing time: rows meet where they come in one window of the clock's, whatever their own times are.

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{JoinKind, JoinScope, JoinSide, OperatorSpec, WindowTime};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, in_range, kinds, spec, stored};
use super::stored_panes::{Databases, before, everything, memory, split};
use super::windows::{joined, overlapping, windows_of};

/// How far a row's own time is from when it comes in.
const APART: i64 = 1_000_003;

/// By how much the clock goes on, and the keys of the rows of a side that come then.
type Step = (i64, bool, Vec<Option<i64>>);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = prop_oneof![1 => Just(None), 9 => (0i64..5).prop_map(Some)];
    prop::collection::vec((0i64..12, any::<bool>(), prop::collection::vec(key, 1..20)), 1..25)
}

/// What the clock shows, and the rows that come in then.
#[derive(Debug, Clone)]
struct Arrival {
    shown: i64,
    side: JoinSide,
    rows: Vec<Row>,
}

/// Rows with ids from `id` on, by a clock that begins at `clock`; one that was restored at `ahead` sees them at that time or later.
fn arrivals(steps: &[Step], mut clock: i64, ahead: Option<i64>, mut id: i64) -> Vec<Arrival> {
    let begun = clock + steps.first().map_or(0, |(on, ..)| *on);
    let arrival = |(on, is_left, keys): &Step| {
        clock += on;
        let seen = ahead.map_or(clock, |ahead| clock.max(ahead + (clock - begun) / 2));
        let row = |key: &Option<i64>| {
            id += 1;
            Row { key: *key, time: seen + APART, id }
        };
        let side = if *is_left { JoinSide::Left } else { JoinSide::Right };
        Arrival { shown: clock, side, rows: keys.iter().map(row).collect() }
    };
    steps.iter().map(arrival).collect()
}

fn expected(kind: JoinKind, arrivals: &[Arrival], scope: &JoinScope) -> Vec<String> {
    let of_arrival = |Arrival { side, rows, .. }: &Arrival| {
        let side = *side;
        rows.clone().into_iter().map(move |row| (side, row, windows_of(scope, row.time - APART)))
    };
    joined(kind, arrivals.iter().flat_map(of_arrival))
}

fn tumbling(size_ms: i64) -> JoinScope {
    JoinScope::Tumbling { size_ms, offset_ms: 0, time: WindowTime::processing() }
}

fn scopes() -> impl Strategy<Value = JoinScope> {
    prop_oneof![(1i64..40).prop_map(tumbling), overlapping(15, &WindowTime::processing())]
}

fn by_clock(kind: JoinKind, scope: &JoinScope) -> OperatorSpec {
    spec(kind, scope.clone(), false)
}

/// Tells the clock and gives the rows of `range`; a rig that asked to be told in between is.
fn run(rig: &mut Rig, arrivals: &[Arrival], range: KeyGroupRange) {
    let mut next: Option<i64> = None;
    for Arrival { shown, side, rows } in arrivals {
        while let Some(asked) = next.filter(|asked| asked < shown) {
            next = rig.tick(asked).filter(|next| *next > asked);
        }
        rig.tick(*shown);
        let mine = in_range(rows, range, false);
        if !mine.is_empty() {
            rig.process(*side, &mine).expect("rows are taken in");
        }
        next = rig.tick(*shown);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The clock of the second attempt may be ahead or behind.
    #[test]
    fn rows_meet_where_they_come_in_one_window(
        steps in (steps(), steps()),
        kind in kinds(),
        scope in scopes(),
        clock in -50i64..50,
        skew in -60i64..60,
        parallelism in 1u32..4,
    ) {
        let spec = by_clock(kind, &scope);
        let first = arrivals(&steps.0, clock, None, 0);
        let reached = first.last().expect("there is a step").shown;
        let second = arrivals(&steps.1, reached + skew, Some(reached), 10_000);
        let mut rig = Rig::new(&spec);
        run(&mut rig, &first, everything());
        let restored = rig.snapshot();
        let mut rows = rig.take_rows();
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(&spec, restored.clone(), range);
            run(&mut part, &second, range);
            part.end();
            prop_assert_eq!((part.late_rows(), part.state_bytes()), (0, 0));
            rows.extend(part.take_rows());
        }
        rows.sort();
        prop_assert_eq!(rows, expected(kind, &[first, second].concat(), &scope));
    }

    #[test]
    fn a_store_behind_changes_nothing(
        steps in (steps(), steps()),
        kind in kinds(),
        scope in scopes(),
        memory in (memory(), memory()),
        skew in -60i64..60,
    ) {
        let spec = by_clock(kind, &scope);
        let first = arrivals(&steps.0, 0, None, 0);
        let reached = first.last().expect("there is a step").shown;
        let second = arrivals(&steps.1, reached + skew, Some(reached), 10_000);
        let mut rig = before(&spec, Some(memory.0), everything(), &Databases::new(), Vec::new());
        run(&mut rig, &first, everything());
        let (databases, others) = split(rig.barrier(1));
        while rig.background() {}
        let mut rows = rig.take_rows();
        let others = others.into_iter().map(stored).collect();
        let mut rig = before(&spec, Some(memory.1), everything(), &databases, others);
        run(&mut rig, &second, everything());
        rig.end();
        rows.extend(rig.take_rows());
        rows.sort();
        prop_assert_eq!(rows, expected(kind, &[first, second].concat(), &scope));
    }
}

#[test]
fn a_window_fires_when_its_end_has_come_and_says_when_that_is() {
    let mut rig = Rig::new(&by_clock(JoinKind::Inner, &tumbling(10)));
    let row = |time, id| Row { key: Some(1), time, id };
    assert_eq!(rig.tick(3), None, "there is nothing to wait for");
    rig.process(JoinSide::Left, &[row(99, 1)]).unwrap();
    assert_eq!(rig.tick(4), Some(10));
    rig.process(JoinSide::Right, &[row(-5, 2)]).unwrap();
    rig.advance(1_000);
    assert!(rig.take_rows().is_empty(), "event time is nothing to it");
    assert_eq!(rig.tick(10), Some(10), "it has output");
    assert_eq!(rig.take_rows(), ["1,99,1,2,-5,0,10,9"]);
    assert_eq!(rig.tick(11), None);
}
