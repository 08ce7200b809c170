//! Windows of processing time against a naive model: rows are in the window that the clock is in when they come.

use std::collections::BTreeMap;

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{AggregateFunction, AggregatePhase, AggregateSpec, SessionGap, WindowSpec, WindowTime};
use proptest::prelude::*;

use super::rig::{MAX_PARALLELISM, Rig, Row, call, in_range, spec, store, tumbling};
use super::sessions::session;
use super::slices::{cumulate, naive, naive_calls, sliding, windows_of};
use super::store::{Databases, before, everything, memory, split_parts};
use super::windows::{Step, sorted};
use crate::operator::RestoredState;

/// Rows, and by how much the clock goes on before them. Their own times are older than anything.
pub(super) type Timed = (i64, Vec<Row>);

pub(super) fn timed() -> impl Strategy<Value = Vec<Timed>> {
    let row = (0i64..12, -9i64..9).prop_map(|(key, value)| (key, -1_000_000, value));
    prop::collection::vec((0i64..12, prop::collection::vec(row, 1..30)), 1..25)
}

pub(super) fn by_clock(window: WindowSpec) -> AggregateSpec {
    AggregateSpec { time: WindowTime::processing(), ..spec(&["k"], window, naive_calls()) }
}

pub(super) fn windows() -> impl Strategy<Value = WindowSpec> {
    prop::sample::select(vec![tumbling(15), tumbling(1), sliding(15, 6, 2), cumulate(24, 6, 3), session(500), session(40)])
}

/// The steps of event time that would give the same: rows carry the time at which they come, and it is told in between.
fn as_event_time(timed: &[(i64, Vec<Row>)]) -> Vec<Step> {
    let at = |(now, rows): &(i64, Vec<Row>)| {
        let rows = rows.iter().map(|(key, _, value)| (*key, *now, *value)).collect();
        [Step::Advance(now - 1), Step::Rows(rows)]
    };
    timed.iter().flat_map(at).collect()
}

/// The sessions of each key, as rows that come in order make them.
fn naive_sessions(timed: &[(i64, Vec<Row>)], gap: i64) -> Vec<String> {
    let mut sessions = BTreeMap::<i64, Vec<(i64, i64, Vec<i64>)>>::new();
    for (now, rows) in timed {
        for (key, _, value) in rows {
            let of_key = sessions.entry(*key).or_default();
            match of_key.last_mut().filter(|(_, end, _)| now <= end) {
                Some((_, end, values)) => {
                    *end = now + gap;
                    values.push(*value);
                }
                None => of_key.push((*now, now + gap, vec![*value])),
            }
        }
    }
    let text = |key: i64, (start, end, values): (i64, i64, Vec<i64>)| {
        let (sum, most) = (values.iter().sum::<i64>(), values.iter().max().expect("a session has a row"));
        format!("{key},{start},{end},{},{},{sum},{most}", end - 1, values.len())
    };
    sessions.into_iter().flat_map(|(key, all)| all.into_iter().map(move |session| text(key, session))).collect()
}

/// What comes of rows at these moments, which are in order of each key.
pub(super) fn expected(timed: &[(i64, Vec<Row>)], window: &WindowSpec) -> Vec<String> {
    match window {
        WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } } => naive_sessions(timed, *gap_ms),
        _ => {
            let steps: Vec<Step> = as_event_time(timed).into_iter().filter(|step| matches!(step, Step::Rows(_))).collect();
            naive(&steps, |time| windows_of_any(window, time), true).0
        }
    }
}

/// The windows that a time is in, of windows that overlap or do not.
fn windows_of_any(window: &WindowSpec, time: i64) -> Vec<(i64, i64)> {
    match window {
        WindowSpec::Tumbling { size_ms, .. } => {
            let start = time.div_euclid(*size_ms) * size_ms;
            vec![(start, start + size_ms)]
        }
        _ => windows_of(window, time),
    }
}

/// When rows come by a clock that begins at `clock`, and by one that windows see ahead of it where they were restored at `ahead`.
pub(super) fn moments(steps: &[Timed], mut clock: i64, ahead: Option<i64>) -> Vec<(i64, i64)> {
    let begun = clock + steps.first().map_or(0, |(on, _)| *on);
    let moment = |(on, _): &Timed| {
        clock += on;
        (clock, ahead.map_or(clock, |ahead| clock.max(ahead + (clock - begun) / 2)))
    };
    steps.iter().map(moment).collect()
}

pub(super) fn timeline(steps: &[Timed], moments: &[(i64, i64)]) -> Vec<(i64, Vec<Row>)> {
    moments.iter().zip(steps).map(|((_, seen), (_, rows))| (*seen, rows.clone())).collect()
}

/// Tells the clock and gives the rows of `range`; a rig that asked to be told in between is.
pub(super) fn run(rig: &mut Rig, steps: &[Timed], moments: &[(i64, i64)], range: KeyGroupRange) {
    let mut next: Option<i64> = None;
    for ((clock, _), (_, rows)) in moments.iter().zip(steps) {
        while let Some(asked) = next.filter(|asked| asked < clock) {
            next = rig.tick(asked);
            assert!(next.is_none_or(|next| next > asked), "it asks for {next:?} at {asked}");
        }
        rig.tick(*clock);
        let mine = in_range(rows, range);
        if !mine.is_empty() {
            rig.process(&mine);
        }
        next = rig.tick(*clock);
    }
}

/// What comes of these steps at this parallelism, to their end, from what was restored; and how many rows were late.
fn finished(
    aggregate: &AggregateSpec,
    restored: &[RestoredState],
    (steps, moments): (&[Timed], &[(i64, i64)]),
    parallelism: u32,
) -> (Vec<String>, u64) {
    let (mut rows, mut late) = (Vec::new(), 0);
    for subtask in 0..parallelism {
        let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
        let mut part = Rig::restored(aggregate, restored.to_vec(), range);
        run(&mut part, steps, moments, range);
        part.finish();
        late += part.late_rows();
        rows.extend(part.take_rows());
    }
    (rows, late)
}

/// What a run over a restore has given, and which rows came when.
pub(super) type Given = (Vec<String>, Vec<(i64, Vec<Row>)>);

/// Runs one subtask of the first aggregation, and from its snapshot so many of the second one; their clock may be ahead or behind.
pub(super) fn over_a_restore(
    (old, new): (&AggregateSpec, &AggregateSpec),
    (before, after): (&[Timed], &[Timed]),
    (clock, skew): (i64, i64),
    parallelism: u32,
) -> Given {
    let mut rig = Rig::new(old);
    let first = moments(before, clock, None);
    run(&mut rig, before, &first, everything());
    let reached = first.last().expect("there is a step").0;
    let mut rows = rig.take_rows();
    let parts = rig.barrier(1);
    let restored = store(parts, || rig.background());
    let second = moments(after, reached + skew, Some(reached));
    let (given, late) = finished(new, &restored, (after, &second), parallelism);
    assert_eq!(late, 0);
    rows.extend(given);
    (rows, timeline(before, &first).into_iter().chain(timeline(after, &second)).collect())
}

/// A barrier comes to each subtask at a moment of its own, so that one may have given a window that another one has not: runs a subtask
/// for each of these moments, and from their snapshot so many.
pub(super) fn over_barriers_apart(
    aggregate: &AggregateSpec,
    (before, after): (&[Timed], &[Timed]),
    (apart, skew): (&[i64], i64),
    parallelism: u32,
) -> Given {
    let (mut rows, mut restored, mut all, mut reached) = (Vec::new(), Vec::new(), Vec::new(), i64::MIN);
    for (subtask, late) in apart.iter().enumerate() {
        let range = KeyGroupRange::of_subtask(subtask as u32, apart.len() as u32, MAX_PARALLELISM);
        let moments = moments(before, *late, None);
        reached = reached.max(moments.last().expect("there is a step").0);
        let mut part = Rig::restored(aggregate, Vec::new(), range);
        run(&mut part, before, &moments, range);
        rows.extend(part.take_rows());
        let parts = part.barrier(1);
        restored.extend(store(parts, || part.background()));
        all.extend(timeline(before, &moments).into_iter().map(|(now, rows)| (now, in_range(&rows, range))));
    }
    let second = moments(after, reached + skew, Some(reached));
    rows.extend(finished(aggregate, &restored, (after, &second), parallelism).0);
    all.extend(timeline(after, &second));
    (rows, all)
}

/// What comes of it on the heap, and with a store behind it, over a restore.
pub(super) fn without_and_with_a_store(
    aggregate: &AggregateSpec,
    (earlier, later): (&[Timed], &[Timed]),
    memory: ((usize, u32), (usize, u32)),
    skew: i64,
) -> [Vec<String>; 2] {
    let first = moments(earlier, 0, None);
    let reached = first.last().expect("there is a step").0;
    let second = moments(later, reached + skew, Some(reached));
    [None, Some(memory)].map(|memory| {
        let rig = |memory: Option<(usize, u32)>, databases: &Databases, restored| match memory {
            None => Rig::restored(aggregate, restored, everything()),
            Some(memory) => before(aggregate, memory, everything(), databases, restored),
        };
        let mut attempt = rig(memory.map(|memory| memory.0), &Vec::new(), Vec::new());
        run(&mut attempt, earlier, &first, everything());
        let (databases, others) = split_parts(attempt.barrier(1));
        let others = store(others, || attempt.background());
        while attempt.background() {}
        let mut of_both = attempt.take_rows();
        let databases: Databases = databases.into_iter().map(|(_, database)| database).collect();
        let mut attempt = rig(memory.map(|memory| memory.1), &databases, others);
        run(&mut attempt, later, &second, everything());
        attempt.finish();
        assert_eq!(attempt.late_rows(), 0);
        of_both.extend(attempt.take_rows());
        of_both
    })
}

/// What comes of it in one phase, and in two.
pub(super) fn in_one_phase_and_two(aggregate: &AggregateSpec, steps: &[Timed]) -> [Vec<String>; 2] {
    let moments = moments(steps, 0, None);
    let mut single = Rig::new(aggregate);
    run(&mut single, steps, &moments, everything());
    single.finish();

    let mut partial = Rig::new(&AggregateSpec { phase: AggregatePhase::Partial, ..aggregate.clone() });
    let mut last = Rig::new(&AggregateSpec { phase: AggregatePhase::Final, ..aggregate.clone() });
    for ((clock, _), (_, rows)) in moments.iter().zip(steps) {
        partial.process(rows);
        last.tick(*clock);
        assert!(!partial.out.is_empty(), "a partial keeps nothing back: its rows would come into a later window");
        partial.out.drain(..).for_each(|states| last.process_batch(states));
    }
    last.finish();
    [single.take_rows(), last.take_rows()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn windows_are_those_of_the_model(
        before in timed(),
        after in timed(),
        window in windows(),
        clock in -50i64..50,
        skew in -60i64..60,
        parallelism in 1u32..4,
    ) {
        let aggregate = by_clock(window.clone());
        let (rows, all) = over_a_restore((&aggregate, &aggregate), (&before, &after), (clock, skew), parallelism);
        prop_assert_eq!(sorted(rows), sorted(expected(&all, &window)), "{:?}", window);
    }

    #[test]
    fn subtasks_whose_barriers_are_apart_lose_nothing_and_repeat_nothing(
        before in timed(),
        after in timed(),
        window in windows(),
        apart in prop::collection::vec(0i64..20, 1..4),
        skew in 0i64..60,
        parallelism in 1u32..4,
    ) {
        let (rows, all) = over_barriers_apart(&by_clock(window.clone()), (&before, &after), (&apart, skew), parallelism);
        prop_assert_eq!(sorted(rows), sorted(expected(&all, &window)), "{:?}", window);
    }

    #[test]
    fn a_store_behind_changes_nothing(
        earlier in timed(),
        later in timed(),
        window in windows(),
        memory in (memory(), memory()),
        skew in -60i64..60,
    ) {
        let [heap, stored] = without_and_with_a_store(&by_clock(window), (&earlier, &later), memory, skew);
        prop_assert_eq!(sorted(heap), sorted(stored));
    }

    #[test]
    fn two_phases_give_what_one_gives(steps in timed(), window in windows()) {
        let [one, two] = in_one_phase_and_two(&by_clock(window), &steps);
        prop_assert_eq!(sorted(one), sorted(two));
    }
}

fn counts(window: WindowSpec) -> AggregateSpec {
    let time = WindowTime { processing: true, time_zone: None };
    AggregateSpec { time, ..spec(&["k"], window, vec![call("n", AggregateFunction::Count)]) }
}

#[test]
fn a_window_fires_when_its_end_has_come_and_says_when_that_is() {
    let mut rig = Rig::new(&counts(tumbling(10)));
    assert_eq!(rig.tick(3), None, "there is nothing to wait for");
    rig.process(&[(1, 99, 0)]);
    assert_eq!(rig.tick(4), Some(10));
    assert_eq!(rig.tick(9), Some(10));
    rig.process(&[(1, -5, 0)]);
    assert!(rig.take_rows().is_empty());
    assert_eq!(rig.tick(10), None);
    assert_eq!(rig.take_rows(), ["1,0,10,9,2"]);
}

#[test]
fn event_time_does_not_fire_it_and_the_end_of_data_does() {
    let mut rig = Rig::new(&counts(tumbling(10)));
    rig.tick(3);
    rig.process(&[(1, 99, 0)]);
    rig.advance(1_000);
    assert!(rig.take_rows().is_empty());
    rig.finish();
    assert_eq!(rig.take_rows(), ["1,0,10,9,1"]);
}

#[test]
fn windows_that_are_over_fire_at_once_after_a_restore() {
    for window in [tumbling(10), sliding(10, 5, 0), cumulate(10, 5, 0), session(10)] {
        let aggregate = counts(window.clone());
        let mut rig = Rig::new(&aggregate);
        rig.tick(3);
        rig.process(&[(1, 0, 0)]);
        let parts = rig.barrier(1);
        let restored = store(parts, || rig.background());
        let mut rig = Rig::restored(&aggregate, restored, KeyGroupRange::all(MAX_PARALLELISM));
        rig.tick(10_000);
        assert!(!rig.take_rows().is_empty(), "{window:?}");
    }
}

#[test]
fn sessions_have_gaps_of_their_own_by_the_clock_too() {
    let gap = WindowSpec::Session { gap: SessionGap::Column { name: "v".into() } };
    let mut rig = Rig::new(&counts(gap));
    rig.tick(0);
    rig.process(&[(1, 0, 150), (2, 0, 20)]);
    assert_eq!(rig.tick(0), Some(100), "the tenth of a second in which the first one ends");
    rig.tick(120);
    assert_eq!(rig.take_rows(), ["2,0,20,19,1"]);
    rig.process(&[(1, 0, 10)]);
    assert_eq!(rig.tick(120), Some(200));
    rig.tick(200);
    assert_eq!(rig.take_rows(), ["1,0,150,149,2"]);
}
