//! Values that are told apart in every kind of window, against models of sets: late rows, early results, processing time, sessions
//! that become one, windows of rows, restores in other widths.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::keys::KeyGroupRange;
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregateSpec, DistinctSpec, FiringSpec, SessionGap, WindowSpec, WindowTime,
};
use levada_common::types::LogicalType;
use proptest::prelude::*;

use super::firing_sessions::{Home, homes};
use super::firings::{Deed, Subtasks, deeds, firings, in_full, trigger};
use super::processing::{moments, run, timed, timeline};
use super::rig::{MAX_PARALLELISM, Rig, Row, call, in_range, spec, store, tumbling};
use super::sessions::session;
use super::slices::{cumulate, sliding, windows_of};
use super::standing::Standing;
use super::store::{Databases, as_part, before, everything, memory, split_parts};
use super::windows::sorted;
use crate::operator::RestoredState;

/// The rows, the distinct values and their sum.
pub(super) fn distinct(keys: &[&str], window: WindowSpec) -> AggregateSpec {
    let over = |name: &str, function| AggregateCall {
        argument: Some(DistinctSpec::output_name("v")),
        argument_type: Some(LogicalType::Int64),
        argument_nullable: true,
        ..call(name, function)
    };
    let calls =
        vec![over("sum", AggregateFunction::Sum), call("n", AggregateFunction::Count), over("values", AggregateFunction::Count)];
    AggregateSpec { distinct: vec!["v".into()], ..spec(keys, window, calls) }
}

/// What is known of a group: its values and the number of its rows.
type Group = (BTreeSet<i64>, i64);

fn results((values, n): &Group) -> String {
    format!("{},{n},{}", values.iter().sum::<i64>(), values.len())
}

/// Key, start, end.
type Session = (i64, i64, i64, Group);

fn place(key: i64, start: i64, keyed: bool) -> String {
    if keyed { format!("{key},{start}") } else { start.to_string() }
}

/// Closes sessions; answers whether one began where another one that is closed did.
fn close(open: &mut Vec<Session>, until: i64, closed: &mut BTreeMap<String, String>, keyed: bool) -> bool {
    let mut collides = false;
    for (key, start, end, group) in open.extract_if(.., |session| session.2 <= until) {
        let row = format!("{end},{},{}", end - 1, results(&group));
        collides |= closed.insert(place(key, start, keyed), row).is_some();
    }
    collides
}

fn windows_at(window: &WindowSpec, time: i64) -> Vec<(i64, i64)> {
    match window {
        WindowSpec::Tumbling { size_ms, .. } => {
            let start = time.div_euclid(*size_ms) * size_ms;
            vec![(start, start + size_ms)]
        }
        window => windows_of(window, time),
    }
}

fn windows() -> impl Strategy<Value = WindowSpec> {
    prop_oneof![
        (1i64..30).prop_map(tumbling),
        (1i64..12, 0i64..20).prop_map(|(slide, more)| sliding(slide + more, slide, slide / 2)),
        (1i64..12, 1i64..4).prop_map(|(step, steps)| cumulate(step * steps, step, 0)),
    ]
}

/// With few values, so that equal ones meet.
fn few_values(deeds: Vec<Deed>) -> Vec<Deed> {
    let few = |deed| match deed {
        Deed::Rows(rows) => Deed::Rows(rows.into_iter().map(|(key, time, value)| (key % 4, time, value)).collect()),
        other => other,
    };
    deeds.into_iter().map(few).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn windows_have_their_own_values_early_late_and_restored(
        deeds in deeds(),
        window in windows(),
        firing in prop_oneof![Just(None), firings().prop_map(Some)],
        keyed in any::<bool>(),
        full in any::<bool>(),
    ) {
        let (deeds, firing) = (few_values(deeds), firing.map(|firing| FiringSpec { accumulate: true, ..firing }));
        let aggregate = in_full(full, AggregateSpec { firing, ..distinct(if keyed { &["k"] } else { &[] }, window.clone()) });
        let mut subtasks = Subtasks::new(&aggregate, None, false);
        let (mut groups, mut late, mut watermark) = (BTreeMap::<(i64, i64, i64), Group>::new(), 0, i64::MIN);
        let mut standing = Standing::default();
        let key_columns = usize::from(keyed) + 2;
        let take = |standing: &mut Standing, given: Vec<String>| match firing {
            Some(_) => standing.apply_changes(given, key_columns, full, &mut BTreeSet::new()),
            None => standing.apply(given.into_iter().map(|row| format!("0,{row}")).collect(), key_columns),
        };
        for deed in &deeds {
            take(&mut standing, subtasks.act(deed));
            match deed {
                Deed::Advance(to) => watermark = watermark.max(*to),
                Deed::Rows(rows) => for (key, time, value) in rows {
                    let closed = watermark.saturating_sub(firing.map_or(0, |firing| firing.lateness_ms));
                    let open = windows_at(&window, *time).into_iter().filter(|(_, end)| end - 1 > closed);
                    let before = late;
                    late += 1;
                    for (start, end) in open {
                        late = before;
                        let group = groups.entry((end, start, if keyed { *key } else { 0 })).or_default();
                        group.0.insert(*value);
                        group.1 += 1;
                    }
                }
                Deed::Wait(_) | Deed::Restore(_) => {}
            }
        }
        let (given, found_late, keys) = subtasks.finish();
        take(&mut standing, given);
        let row = |((end, start, key), group): (&(i64, i64, i64), &Group)| {
            let key = if keyed { format!("{key},") } else { String::new() };
            (format!("{key}{start},{end}"), format!("{},{}", end - 1, results(group)))
        };
        prop_assert_eq!(standing.rows, groups.iter().map(row).collect());
        prop_assert_eq!((found_late, keys), (late, 0));
    }

    /// The clock of the second attempt may be ahead or behind.
    #[test]
    fn windows_of_processing_time_have_their_own_values(
        before in timed(),
        after in timed(),
        window in prop_oneof![windows(), Just(session(500)), Just(session(40))],
        clock in -50i64..50,
        skew in -60i64..60,
        parallelism in 1u32..4,
    ) {
        let everything = KeyGroupRange::all(MAX_PARALLELISM);
        let time = WindowTime { processing: true, time_zone: None };
        let aggregate = AggregateSpec { time, ..distinct(&["k"], window.clone()) };
        let mut rig = Rig::new(&aggregate);
        let first = moments(&before, clock, None);
        run(&mut rig, &before, &first, everything);
        // Event time is of no concern.
        rig.advance(1_000_000);
        let reached = first.last().expect("there is a step").0;
        let mut rows = rig.take_rows();
        let parts = rig.barrier(1);
        let restored = store(parts, || rig.background());
        let second = moments(&after, reached + skew, Some(reached));
        for subtask in 0..parallelism {
            let range = KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
            let mut part = Rig::restored(&aggregate, restored.clone(), range);
            run(&mut part, &after, &second, range);
            part.finish();
            prop_assert_eq!(part.late_rows(), 0);
            rows.extend(part.take_rows());
        }
        let mut groups = BTreeMap::<(i64, i64, i64), Group>::new();
        for (now, rows) in timeline(&before, &first).into_iter().chain(timeline(&after, &second)) {
            for (key, _, value) in rows {
                let windows = match &window {
                    WindowSpec::Session { gap } => {
                        let SessionGap::Fixed { gap_ms } = gap else { panic!("{gap:?}") };
                        let open = groups.keys().filter(|(_, end, of)| *of == key && now <= *end).copied().next();
                        let start = match open {
                            Some((start, end, _)) => {
                                let group = groups.remove(&(start, end, key)).expect("it is there");
                                groups.insert((start, now + gap_ms, key), group);
                                start
                            }
                            None => now,
                        };
                        vec![(start, now + gap_ms)]
                    }
                    window => windows_at(window, now),
                };
                for (start, end) in windows {
                    let group = groups.entry((start, end, key)).or_default();
                    group.0.insert(value);
                    group.1 += 1;
                }
            }
        }
        let row = |((start, end, key), group): (&(i64, i64, i64), &Group)| format!("{key},{start},{end},{},{}", end - 1, results(group));
        prop_assert_eq!(sorted(rows), sorted(groups.iter().map(row).collect()), "{:?}", window);
    }

    #[test]
    fn values_move_with_sessions_that_become_one(
        deeds in deeds(),
        gap in 1i64..25,
        firing in prop_oneof![Just(None), firings().prop_map(Some)],
        keyed in any::<bool>(),
        full in any::<bool>(),
        home in prop_oneof![Just(Home::Heap), homes()],
    ) {
        let (deeds, firing) = (few_values(deeds), firing.map(|firing| FiringSpec { accumulate: true, ..firing }));
        let aggregate = in_full(full, AggregateSpec { firing, ..distinct(if keyed { &["k"] } else { &[] }, session(gap)) });
        let (mut subtasks, mut restores) = (home.subtasks(&aggregate), 0);
        let (mut open, mut late, mut watermark) = (Vec::<Session>::new(), 0, i64::MIN);
        let (mut standing, mut closed, mut collides) = (Standing::default(), BTreeMap::new(), false);
        let key_columns = usize::from(keyed) + 1;
        let take = |standing: &mut Standing, given: Vec<String>| match firing {
            Some(_) => standing.apply_changes(given, key_columns, full, &mut BTreeSet::new()),
            None => given.into_iter().for_each(|row| {
                let (key, rest) = row.split_at(row.match_indices(',').nth(key_columns - 1).expect("a comma").0);
                standing.rows.insert(key.into(), rest[1..].into());
            }),
        };
        let lateness = firing.map_or(0, |firing| firing.lateness_ms);
        for deed in &deeds {
            let given = home.act(&mut subtasks, deed, &mut restores);
            match deed {
                Deed::Advance(to) => {
                    watermark = watermark.max(*to);
                    collides |= close(&mut open, watermark.saturating_sub(lateness), &mut closed, keyed);
                }
                Deed::Rows(rows) => for (key, time, value) in rows {
                    let key = if keyed { *key } else { 0 };
                    let (mut start, mut end, mut group) = (*time, time + gap, (BTreeSet::from([*value]), 1));
                    let touches = |session: &mut Session| session.0 == key && session.1 <= time + gap && *time <= session.2;
                    let touched: Vec<Session> = open.extract_if(.., touches).collect();
                    if touched.is_empty() && end <= watermark.saturating_sub(lateness) {
                        late += 1;
                        continue;
                    }
                    for (_, of_start, of_end, of) in touched {
                        (start, end) = (start.min(of_start), end.max(of_end));
                        group.0.extend(of.0);
                        group.1 += of.1;
                    }
                    collides |= closed.contains_key(&place(key, start, keyed));
                    open.push((key, start, end, group));
                }
                Deed::Wait(_) | Deed::Restore(_) => {}
            }
            // Where a session begins where one that is closed began, one result replaces another's.
            prop_assume!(!collides);
            take(&mut standing, given);
        }
        let (given, found_late, keys) = subtasks.finish();
        take(&mut standing, given);
        close(&mut open, i64::MAX, &mut closed, keyed);
        prop_assert_eq!(standing.rows, closed);
        prop_assert_eq!((found_late, keys), (late, 0));
    }

    #[test]
    fn windows_of_rows_have_their_own_values(
        batches in prop::collection::vec((prop::collection::vec((0i64..6, 0i64..9, -9i64..9), 1..40), 0u32..8), 1..20),
        size in 1u32..20,
        slide in 1u32..20,
        keyed in any::<bool>(),
        memory in prop::option::of(memory()),
        keeps_databases in any::<bool>(),
    ) {
        let slide = slide.min(size);
        let aggregate = distinct(if keyed { &["k"] } else { &[] }, WindowSpec::Count { size, slide });
        let open = |databases: &Databases, restored: Vec<RestoredState>, range| match memory {
            None => (Rig::restored(&aggregate, restored, range), range),
            Some(memory) => (before(&aggregate, memory, range, databases, restored), range),
        };
        let mut rigs = vec![open(&Vec::new(), Vec::new(), everything())];
        let (mut rows, mut given) = (Vec::<Row>::new(), Vec::new());
        for (batch, parallelism) in batches {
            for (rig, range) in &mut rigs {
                let mine = if keyed { in_range(&batch, *range) } else { batch.clone() };
                if !mine.is_empty() {
                    rig.process(&mine);
                }
                given.extend(rig.take_rows());
            }
            rows.extend(batch);
            if (1..4).contains(&parallelism) {
                let (mut databases, mut restored) = (Databases::new(), Vec::new());
                for (rig, _) in &mut rigs {
                    let (of_rig, mut parts) = split_parts(rig.barrier(1));
                    // Rows after the barrier are in no snapshot.
                    rig.process(&rows[rows.len().saturating_sub(13)..]);
                    while memory.is_some() && rig.background() {}
                    match keeps_databases {
                        true => databases.extend(of_rig.into_iter().map(|(_, database)| database)),
                        false => parts.extend(of_rig.into_iter().map(|(meta, database)| as_part(meta, database))),
                    }
                    restored.extend(store(parts, || rig.background()));
                }
                let parallelism = if keyed { parallelism } else { 1 };
                let range = |subtask| KeyGroupRange::of_subtask(subtask, parallelism, MAX_PARALLELISM);
                rigs = (0..parallelism).map(|subtask| open(&databases, restored.clone(), range(subtask))).collect();
            }
        }
        let mut groups = BTreeMap::<i64, Vec<i64>>::new();
        rows.iter().for_each(|row| groups.entry(if keyed { row.0 } else { 0 }).or_default().push(row.2));
        let mut expected = Vec::new();
        for (key, values) in groups {
            let key = if keyed { format!("{key},") } else { String::new() };
            for window in values.windows(size as usize).step_by(slide as usize) {
                let group = (window.iter().copied().collect(), window.len() as i64);
                expected.push(format!("{key}{}", results(&group)));
            }
        }
        prop_assert_eq!(sorted(given), sorted(expected));
    }
}

/// Two sessions of many values become one: what counts is their union, and it goes on as one.
#[test]
fn the_smaller_of_two_sessions_goes_into_the_larger() {
    let every_batch = Some(trigger(None, Some(1)));
    let firing = FiringSpec { early: every_batch, lateness_ms: 0, late: None, accumulate: true };
    let mut rig = Rig::new(&AggregateSpec { firing: Some(firing), ..distinct(&["k"], session(10)) });
    rig.process(&[(1, 0, 1), (1, 0, 2)]);
    rig.process(&(0..100).map(|value| (1, 20, value)).collect::<Vec<Row>>());
    rig.take_rows();
    let parts = rig.barrier(1);
    rig.process(&[(1, 10, 100)]);
    assert_eq!(rig.take_rows(), ["3,1,20,30,29,4950,100,100", "2,1,0,30,29,5050,103,101"]);
    let restored = store(parts, || rig.background());
    let values: usize = restored
        .iter()
        .filter(|state| state.name == "distinct(v)")
        .flat_map(|state| &state.batches)
        .map(|rows| rows.num_rows())
        .sum();
    assert_eq!(values, 102, "the snapshot has what both had");
    rig.finish();
    while rig.background() {}
    assert_eq!(rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed), 0);
}

/// The values of one window may be more than memory: the keys of the others are beyond it.
#[test]
fn windows_of_rows_beyond_memory_have_their_values() {
    let aggregate = distinct(&["k"], WindowSpec::Count { size: 20, slide: 10 });
    let share = 256 << 10;
    let (mut heap, mut rig) = (Rig::new(&aggregate), before(&aggregate, (share, 1), everything(), &Vec::new(), Vec::new()));
    for round in 0..40 {
        for keys in 0..10 {
            let rows: Vec<Row> = (keys * 200..keys * 200 + 200).map(|key| (key, 0, (round * 7 + key) % 12)).collect();
            heap.process(&rows);
            rig.process(&rows);
            let bytes = rig.metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed);
            assert!(bytes <= 4 * share as u64, "{bytes} in round {round}");
        }
        assert_eq!(sorted(rig.take_rows()), sorted(heap.take_rows()), "round {round}");
    }
    let metrics = rig.metrics.store().expect("it has a store");
    assert!(metrics.hits > 100_000, "{metrics:?}");
}

/// Sessions and their values beyond memory grow, become one and fire.
#[test]
fn sessions_beyond_memory_have_their_values() {
    for firing in [None, Some(FiringSpec { early: None, lateness_ms: 100, late: None, accumulate: true })] {
        let aggregate = AggregateSpec { firing, ..distinct(&["k"], session(100)) };
        let share = 256 << 10;
        let (mut heap, mut rig) = (Rig::new(&aggregate), before(&aggregate, (share, 1), everything(), &Vec::new(), Vec::new()));
        // The time of rows, and the time that is over then.
        for (round, (time, over)) in (0..).zip([(0, 10), (150, 60), (75, 80), (160, 100), (10, 120), (200, 280), (500, 420)]) {
            for keys in 0..20 {
                let rows: Vec<Row> =
                    (keys * 200..keys * 200 + 200).map(|key| (key, time + key % 7, (round * 7 + key) % 5)).collect();
                heap.process(&rows);
                rig.process(&rows);
                let bytes = rig.metrics.state_bytes.load(std::sync::atomic::Ordering::Relaxed);
                assert!(bytes <= 4 * share as u64, "{bytes} in round {round}");
            }
            heap.advance(over);
            rig.advance(over);
            assert_eq!(sorted(rig.take_rows()), sorted(heap.take_rows()), "round {round}");
        }
        assert!(rig.metrics.store().expect("it has a store").hits > 10_000);
        heap.finish();
        rig.finish();
        assert_eq!(sorted(rig.take_rows()), sorted(heap.take_rows()));
        assert_eq!(rig.late_rows(), heap.late_rows());
        let (databases, _) = split_parts(rig.barrier(1));
        while rig.background() {}
        for state in ["sessions", "session_bounds", "distinct(v)"] {
            let found = databases[0].1.rows(state, &mut |rows| panic!("{} rows are left in {state}", rows.num_rows()));
            found.expect("it was completed");
        }
    }
}
