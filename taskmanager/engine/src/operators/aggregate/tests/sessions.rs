//! Session windows against a naive model, and the cases that others got wrong.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateCall, AggregateFunction, AggregateSpec, OrderSpec, SessionGap, WindowSpec};
use levada_common::types::LogicalType;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::rig::{MAX_PARALLELISM, Rig, Row, batch, call, spec, store};
use super::windows::{Step, run, sorted, steps};
use crate::error::EngineError;

pub(super) fn session(gap_ms: i64) -> WindowSpec {
    WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } }
}

pub(super) fn per_row() -> WindowSpec {
    WindowSpec::Session { gap: SessionGap::Column { name: "v".into() } }
}

/// Start, end, count and sum.
type Session = (i64, i64, u64, i64);

fn naive(steps: &[Step], gap: impl Fn(&Row) -> i64, keyed: bool) -> (Vec<String>, Vec<(i64, i64)>) {
    let mut open = BTreeMap::<i64, Vec<Session>>::new();
    let (mut out, mut late, mut watermark) = (Vec::new(), Vec::new(), i64::MIN);
    for step in steps.iter().chain([&Step::Advance(i64::MAX)]) {
        match step {
            Step::Rows(rows) => {
                for row in rows {
                    let sessions = open.entry(if keyed { row.0 } else { 0 }).or_default();
                    let mut merged: Session = (row.1, row.1 + gap(row), 1, row.2);
                    let touches = |one: &Session, other: &Session| one.0 <= other.1 && other.0 <= one.1;
                    let touched: Vec<Session> = sessions.iter().copied().filter(|session| touches(session, &merged)).collect();
                    if touched.is_empty() && merged.1 <= watermark {
                        late.push((row.1, row.0));
                        continue;
                    }
                    sessions.retain(|session| !touched.contains(session));
                    for (start, end, n, sum) in touched {
                        merged = (merged.0.min(start), merged.1.max(end), merged.2 + n, merged.3 + sum);
                    }
                    sessions.push(merged);
                }
            }
            Step::Advance(to) => {
                watermark = watermark.max(*to);
                for (key, sessions) in &mut open {
                    sessions.retain(|(start, end, n, sum)| {
                        if *end <= watermark {
                            let key = if keyed { format!("{key},") } else { String::new() };
                            out.push(format!("{key}{start},{end},{},{n},{sum}", end - 1));
                        }
                        *end > watermark
                    });
                }
            }
        }
    }
    (out, late)
}

fn counting(keys: &[&str], window: WindowSpec) -> AggregateSpec {
    spec(keys, window, vec![call("n", AggregateFunction::Count), call("total", AggregateFunction::Sum)])
}

fn count_and_sum(keys: &[&str], window: WindowSpec) -> Rig {
    Rig::new(&counting(keys, window))
}

/// The rows with a value that can be a gap.
pub(super) fn with_gaps(steps: &[Step]) -> Vec<Step> {
    let with_gap = |rows: &Vec<Row>| rows.iter().map(|(key, time, value)| (*key, *time, value.abs() * 3 + 1)).collect();
    let step = |step: &Step| match step {
        Step::Rows(rows) => Step::Rows(with_gap(rows)),
        Step::Advance(to) => Step::Advance(*to),
    };
    steps.iter().map(step).collect()
}

/// The same, each row a batch of its own.
fn one_by_one(steps: &[Step]) -> Vec<Step> {
    let step = |step: &Step| match step {
        Step::Rows(rows) => rows.iter().map(|row| Step::Rows(vec![*row])).collect(),
        Step::Advance(to) => vec![Step::Advance(*to)],
    };
    steps.iter().flat_map(step).collect()
}

proptest! {
    #[test]
    fn sessions_are_those_of_the_model(steps in steps(), gap in 1i64..25, keyed in any::<bool>()) {
        let mut rig = count_and_sum(if keyed { &["k"] } else { &[] }, session(gap));
        run(&mut rig, &steps);
        rig.finish();
        let (expected, late) = naive(&steps, |_| gap, keyed);
        prop_assert_eq!(sorted(rig.take_rows()), sorted(expected));
        prop_assert_eq!(rig.late_rows(), late.len() as u64);
        prop_assert_eq!(sorted(rig.take_late()), sorted(late));
        prop_assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_row_may_have_its_own_gap(steps in steps(), keyed in any::<bool>()) {
        let steps = with_gaps(&steps);
        let mut rig = count_and_sum(if keyed { &["k"] } else { &[] }, per_row());
        run(&mut rig, &steps);
        rig.finish();
        let (expected, late) = naive(&steps, |row| row.2, keyed);
        prop_assert_eq!(sorted(rig.take_rows()), sorted(expected));
        prop_assert_eq!(rig.late_rows(), late.len() as u64);
        prop_assert_eq!(sorted(rig.take_late()), sorted(late));
    }

    /// Rows of sessions that were apart are never equal in it.
    #[test]
    fn an_order_that_ends_with_the_time_chooses_the_same_however_rows_are_batched(steps in steps(), gap in 1i64..25) {
        let by = |column: &str, descending| OrderSpec { column: column.into(), ty: LogicalType::Int64, nullable: false, descending };
        let chosen = |name, function| AggregateCall {
            order: vec![by("v", true), by("t", false)],
            argument: Some("t".into()),
            ..call(name, function)
        };
        let calls = vec![chosen("first", AggregateFunction::First), chosen("last", AggregateFunction::Last)];
        let aggregate = spec(&["k"], session(gap), calls);
        let given = [steps.clone(), one_by_one(&steps)].map(|steps| {
            let mut rig = Rig::new(&aggregate);
            run(&mut rig, &steps);
            rig.finish();
            sorted(rig.take_rows())
        });
        prop_assert_eq!(&given[0], &given[1]);
    }

    #[test]
    fn the_size_of_batches_changes_nothing(steps in steps(), gap in 1i64..25) {
        let one_by_one = one_by_one(&steps);
        let (mut rig, mut slow) = (count_and_sum(&["s"], session(gap)), count_and_sum(&["s"], session(gap)));
        run(&mut rig, &steps);
        run(&mut slow, &one_by_one);
        prop_assert_eq!(sorted(rig.take_rows()), sorted(slow.take_rows()));
        prop_assert_eq!(rig.late_rows(), slow.late_rows());
    }
}

/// The first of the rows of least value and the last of those of greatest in each session, and how many rows made one of several. None
/// where two sessions became one whose best rows are equal: which of them came first is not kept.
fn chosen(rows: &[Row], gap: i64) -> Option<(Vec<String>, usize)> {
    let mut sessions: Vec<Vec<(usize, Row)>> = Vec::new();
    let mut bridges = 0;
    let start = |rows: &[(usize, Row)]| rows.iter().map(|(_, row)| row.1).min().expect("a session has rows");
    let end = |rows: &[(usize, Row)]| rows.iter().map(|(_, row)| row.1 + gap).max().expect("a session has rows");
    let least = |rows: &[(usize, Row)]| *rows.iter().min_by_key(|(came, row)| (row.2, *came)).expect("a session has rows");
    let greatest = |rows: &[(usize, Row)]| *rows.iter().max_by_key(|(came, row)| (row.2, *came)).expect("a session has rows");
    for (came, row) in rows.iter().enumerate() {
        let touches = |session: &Vec<(usize, Row)>| start(session) <= row.1 + gap && row.1 <= end(session);
        let (touched, others): (Vec<_>, Vec<_>) = sessions.into_iter().partition(touches);
        let least_of = touched.iter().map(|session| least(session).1.2).collect();
        let greatest_of = touched.iter().map(|session| greatest(session).1.2).collect();
        let mut values: [Vec<i64>; 2] = [least_of, greatest_of];
        values.iter_mut().for_each(|values| values.sort_unstable());
        if values.iter().flat_map(|values| values.windows(2)).any(|pair| pair[0] == pair[1]) {
            return None;
        }
        bridges += usize::from(touched.len() > 1);
        sessions = others;
        sessions.push(touched.into_iter().flatten().chain([(came, *row)]).collect());
    }
    let text = |rows: &Vec<(usize, Row)>| {
        let end = end(rows);
        format!("0,{},{end},{},{},{}", start(rows), end - 1, least(rows).1.1, greatest(rows).1.1)
    };
    Some((sessions.iter().map(text).collect(), bridges))
}

fn first_and_last(gap: i64) -> AggregateSpec {
    let order = vec![OrderSpec { column: "v".into(), ty: LogicalType::Int64, nullable: false, descending: false }];
    let chosen = |name, function| AggregateCall { order: order.clone(), argument: Some("t".into()), ..call(name, function) };
    let calls = vec![chosen("first", AggregateFunction::First), chosen("last", AggregateFunction::Last)];
    spec(&["k"], session(gap), calls)
}

#[test]
fn of_equal_rows_those_that_came_first_and_last_are_chosen_however_they_are_batched() {
    let (mut bridges, mut ties) = (0, 0);
    for seed in 0..800 {
        let mut rng = StdRng::seed_from_u64(seed);
        let row = |rng: &mut StdRng| (0, rng.random_range(0..80), rng.random_range(0..6));
        let rows: Vec<Row> = (0..rng.random_range(2..16)).map(|_| row(&mut rng)).collect();
        let Some((expected, bridged)) = chosen(&rows, 5) else {
            ties += 1;
            continue;
        };
        bridges += bridged;
        let mut rig = Rig::new(&first_and_last(5));
        let mut rest = rows.as_slice();
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(rng.random_range(1..=rest.len().min(8)));
            rig.process(batch);
            rest = others;
        }
        rig.finish();
        assert_eq!(sorted(rig.take_rows()), sorted(expected), "seed {seed}: {rows:?}");
    }
    assert!(bridges > 100 && ties < 200, "{bridges} times sessions became one, {ties} of 800 are not compared");
}

/// Of which of them a row came first is not kept where two sessions become one: unless all came in one batch the earlier session's is
/// taken as the earlier one.
#[test]
fn equal_rows_of_sessions_that_become_one_are_taken_in_the_order_of_the_sessions() {
    let rows: [Row; 3] = [(1, 20, 7), (1, 0, 7), (1, 10, 7)];
    for (batches, expected) in [(vec![3], "1,0,30,29,20,10"), (vec![1, 1, 1], "1,0,30,29,0,10"), (vec![2, 1], "1,0,30,29,0,10")] {
        let (mut rig, mut rest) = (Rig::new(&first_and_last(10)), rows.as_slice());
        for len in &batches {
            rig.process(&rest[..*len]);
            rest = &rest[*len..];
        }
        rig.finish();
        assert_eq!(rig.take_rows(), [expected], "{batches:?}");
    }
}

/// Also where parts of one batch that do not touch bridge them two by two.
#[test]
fn sessions_that_become_one_by_two_parts_of_a_batch_come_in_their_order() {
    let mut rig = Rig::new(&first_and_last(10));
    [0, 15, 30].into_iter().for_each(|at| rig.process(&[(1, at, 7)]));
    rig.process(&[(1, 8, 3), (1, 22, 4)]);
    rig.finish();
    assert_eq!(rig.take_rows(), ["1,0,40,39,8,30"]);
}

/// Case G29 in every order of arrival, with and without a restore in the middle.
#[test]
fn a_row_that_bridges_joins_two_sessions() {
    let rows: [Row; 4] = [(1, 0, 1), (1, 15_000, 2), (1, 8_000, 4), (1, 3_000, 8)];
    for (order, restores) in (0..24).flat_map(|order| [(order, false), (order, true)]) {
        let mut left: Vec<Row> = rows.to_vec();
        let mut rig = count_and_sum(&["k"], session(10_000));
        let mut order = order;
        for choices in (1..=4).rev() {
            rig.process(&[left.remove(order % choices)]);
            order /= choices;
            if restores && choices == 3 {
                let parts = rig.barrier(1);
                let restored = store(parts, || rig.background());
                rig = Rig::restored(&counting(&["k"], session(10_000)), restored, KeyGroupRange::all(MAX_PARALLELISM));
            }
        }
        assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed), 1);
        rig.finish();
        assert_eq!(rig.take_rows(), ["1,0,25000,24999,4,15"]);
    }
}

/// Case G31.
#[test]
fn a_session_grows() {
    let mut rig = count_and_sum(&["k"], session(600_000));
    (0..4).for_each(|n| rig.process(&[(4, n * 1000, 1)]));
    rig.finish();
    assert_eq!(rig.take_rows(), ["4,0,603000,602999,4,4"]);
}

#[test]
fn a_row_at_the_end_of_a_session_is_in_it_until_time_has_passed_it() {
    let mut rig = count_and_sum(&["k"], session(10));
    rig.process(&[(1, 0, 1), (2, 0, 1)]);
    rig.advance(9);
    assert!(rig.take_rows().is_empty(), "a row at 10 may still come");
    rig.process(&[(1, 10, 1)]);
    rig.advance(10);
    assert_eq!(rig.take_rows(), ["2,0,10,9,1,1"]);
    rig.finish();
    assert_eq!(rig.take_rows(), ["1,0,20,19,2,2"]);
}

#[test]
fn a_late_row_is_taken_by_a_session_that_is_open() {
    let mut rig = count_and_sum(&["k"], session(10));
    rig.process(&[(1, 20, 1)]);
    rig.advance(25);
    // The row at 5 would be over at 15; it is late before the one at 12 has come, which reaches the open session, and not after it.
    rig.process(&[(1, 5, 1), (1, 12, 1), (1, 5, 1), (2, 5, 1)]);
    assert_eq!(rig.late_rows(), 2);
    rig.finish();
    assert_eq!(rig.take_rows(), ["1,5,30,29,3,3"]);
}

#[test]
fn a_row_without_a_gap_is_a_bad_record() {
    let mut rig = count_and_sum(&["k"], per_row());
    match rig.try_process(batch(&[(1, 0, 5), (1, 3, 0)])) {
        Err(error @ EngineError::BadRecord { .. }) => {
            let text = error.to_string();
            assert!(text.contains("the session gap is null or not between 1 ms and"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn many_sessions_of_one_key_are_kept_apart() {
    let mut rig = count_and_sum(&["k"], session(2));
    let rows: Vec<Row> = (0..3000).map(|n| (n % 3, (n * 7919 % 3000) * 5, 1)).collect();
    rows.chunks(500).for_each(|rows| rig.process(rows));
    let (expected, _) = naive(&[Step::Rows(rows)], |_| 2, true);
    assert_eq!(rig.metrics.state_keys.load(Ordering::Relaxed) as usize, expected.len());
    rig.finish();
    assert_eq!(sorted(rig.take_rows()), sorted(expected));
}

#[test]
fn numbers_of_sessions_are_used_again() {
    let mut rig = count_and_sum(&["k"], session(5));
    let mut bytes = 0;
    for round in 0..50 {
        rig.process(&(0..500).map(|n| (round * 500 + n, round * 100, n)).collect::<Vec<_>>());
        rig.advance(round * 100 + 50);
        assert_eq!(rig.take_rows().len(), 500);
        if round == 5 {
            bytes = rig.metrics.state_bytes.load(Ordering::Relaxed);
        }
    }
    assert!(rig.metrics.state_bytes.load(Ordering::Relaxed) <= bytes * 2);
}
