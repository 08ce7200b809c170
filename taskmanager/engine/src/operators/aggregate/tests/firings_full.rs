//! Results that go out with those that they replace: these are what was given last, whatever has come meanwhile, in every kind of
//! window, over restores, in front of stores, and where it begins or ceases.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::plan::{AggregateSpec, FiringSpec, WindowSpec};
use proptest::prelude::*;

use super::firings::{Deed, Subtasks, counts, deeds, firings, in_full, trigger, windows};
use super::rig::{Rig, Row, calls, spec, store, tumbling};
use super::sessions::session;
use super::standing::Standing;
use super::store::{before, everything, memory};
use super::told_apart::distinct;
use super::windows::sorted;
use crate::testing::collect;

fn early(every_ms: Option<i64>, rows: Option<u32>) -> FiringSpec {
    FiringSpec { early: Some(trigger(every_ms, rows)), lateness_ms: 0, late: None, accumulate: true }
}

fn full(keys: &[&str], window: WindowSpec, firing: FiringSpec) -> AggregateSpec {
    in_full(true, counts(keys, window, firing))
}

/// The rows that stand, each with how often it does: all that someone has who knows no keys.
#[derive(Debug, Default, PartialEq, Eq)]
struct Multiset(BTreeMap<String, usize>);

impl Multiset {
    /// Panics where a row goes that does not stand, or is replaced by nothing.
    fn apply(&mut self, changes: Vec<String>) {
        let ops: Vec<&str> = changes.iter().map(|change| &change[..1]).collect();
        for (at, change) in changes.iter().enumerate() {
            let row = change[2..].to_string();
            assert_eq!(ops[at] == "2", at > 0 && ops[at - 1] == "1", "{change} in {changes:?}");
            if ["0", "2"].contains(&ops[at]) {
                *self.0.entry(row).or_default() += 1;
                continue;
            }
            let stood = self.0.get_mut(&row).unwrap_or_else(|| panic!("{change} where it does not stand"));
            *stood -= 1;
            if *stood == 0 {
                self.0.remove(&row);
            }
        }
        assert_ne!(ops.last(), Some(&"1"), "{changes:?}");
    }
}

/// No two rows have one value: which of them is chosen where windows overlap depends on what these are made of.
fn without_ties(deeds: Vec<Deed>) -> Vec<Deed> {
    let mut next = 0;
    let mut untied = |(key, time, value): Row| {
        next += 1;
        (key, time, value * 10_000 + next)
    };
    let untied = |deed| match deed {
        Deed::Rows(rows) => Deed::Rows(rows.into_iter().map(&mut untied).collect()),
        other => other,
    };
    deeds.into_iter().map(untied).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Of every kind of call: those that choose rows, keep texts, tell values apart, and those of a library.
    #[test]
    fn changes_add_up_to_what_comes_once(
        deeds in deeds(),
        window in prop_oneof![3 => windows(), 2 => (1i64..25).prop_map(session)],
        every in prop::option::of(1i64..30),
        rows in 1u32..6,
        memory in prop::option::of(memory()),
        kind in 0..3,
    ) {
        let (rows, deeds) = (every.is_none().then_some(rows), if kind == 0 { without_ties(deeds) } else { deeds });
        let of = match kind {
            0 => spec(&["k"], window.clone(), calls()),
            1 if window != WindowSpec::Global => distinct(&["k"], window.clone()),
            _ => spec(&["k"], window.clone(), vec![collect("all")]),
        };
        // What is told apart before the aggregation is on the heap here.
        let memory = memory.filter(|_| matches!(window, WindowSpec::Session { .. }) || kind != 1);
        let aggregate = AggregateSpec { firing: Some(early(every, rows)), changelog_full: true, ..of.clone() };
        let mut subtasks = Subtasks::new(&aggregate, memory, true);
        let (mut once, mut watermark, mut rows) = (Rig::new(&of), i64::MIN, Multiset::default());
        for deed in &deeds {
            rows.apply(subtasks.act(deed));
            match deed {
                Deed::Rows(rows) => once.process(rows),
                Deed::Advance(to) => {
                    watermark = watermark.max(*to);
                    once.advance(watermark);
                }
                Deed::Wait(_) | Deed::Restore(_) => {}
            }
        }
        let (given, late, keys) = subtasks.finish();
        rows.apply(given);
        once.finish();
        let mut expected = Multiset::default();
        once.take_rows().into_iter().for_each(|row| *expected.0.entry(row).or_default() += 1);
        prop_assert_eq!(rows, expected);
        prop_assert_eq!((late, keys), (once.late_rows(), 0));
    }

    /// What was given before it was kept is not known: what replaces it comes alone, once.
    #[test]
    fn it_may_begin_and_cease_with_a_restore(
        before_it in deeds(),
        after in deeds(),
        window in windows(),
        firing in firings(),
        begins in any::<bool>(),
    ) {
        let mut firing = FiringSpec { accumulate: true, ..firing };
        if window == WindowSpec::Global {
            (firing.lateness_ms, firing.late) = (0, None);
        }
        let (with, without) = (full(&["k"], window.clone(), firing), counts(&["k"], window.clone(), firing));
        let (old, new) = if begins { (&without, &with) } else { (&with, &without) };
        let key_columns = if window == WindowSpec::Global { 1 } else { 3 };
        let mut undisturbed = Subtasks::new(&without, None, false);
        let (mut expected, mut standing) = (Standing::default(), Standing::default());
        let mut subtasks = Subtasks::new(old, None, false);
        let mut unknown = BTreeSet::new();
        let mut restored = false;
        let restore = Deed::Restore(2);
        for deed in before_it.iter().chain([&restore]).chain(&after) {
            if std::ptr::eq(deed, &restore) {
                subtasks.change_to(new);
                restored = true;
                if begins {
                    unknown = standing.rows.keys().cloned().collect();
                }
            }
            let is_full = restored == begins;
            let given = subtasks.act(deed);
            standing.apply_changes(given, key_columns, is_full, &mut unknown);
            if !matches!(deed, Deed::Restore(_)) {
                expected.apply(undisturbed.act(deed), key_columns);
            }
        }
        standing.apply_changes(subtasks.finish().0, key_columns, new.changelog_full, &mut unknown);
        expected.apply(undisturbed.finish().0, key_columns);
        prop_assert_eq!(standing, expected);
    }
}

#[test]
fn what_is_replaced_is_what_was_given_last() {
    let mut rig = Rig::new(&full(&["k"], tumbling(100), early(Some(10), None)));
    rig.tick(0);
    rig.process(&[(1, 5, 1), (1, 6, 2), (2, 7, 3)]);
    rig.tick(10);
    assert_eq!(rig.take_rows(), ["0,1,0,100,99,2,3,2", "0,2,0,100,99,1,3,3"]);
    rig.process(&[(1, 5, 1)]);
    rig.process(&[(1, 5, 7)]);
    rig.tick(20);
    assert_eq!(rig.take_rows(), ["1,1,0,100,99,2,3,2", "2,1,0,100,99,4,11,7"]);
    rig.process(&[(2, 8, 0), (3, 9, 1)]);
    rig.advance(99);
    assert_eq!(rig.take_rows(), ["1,2,0,100,99,1,3,3", "2,2,0,100,99,2,3,3", "0,3,0,100,99,1,1,1"]);
}

/// Also where a session has grown since it was given, before it is taken back.
#[test]
fn what_is_taken_back_is_what_was_given_last() {
    let aggregate = full(&["k"], session(10), early(Some(10), None));
    let mut rig = Rig::new(&aggregate);
    rig.tick(0);
    rig.process(&[(1, 0, 1), (1, 20, 2)]);
    rig.tick(10);
    assert_eq!(rig.take_rows(), ["0,1,0,10,9,1,1,1", "0,1,20,30,29,1,2,2"]);
    rig.process(&[(1, 25, 5)]);
    rig.process(&[(1, 10, 3)]);
    assert_eq!(rig.take_rows(), ["3,1,20,30,29,1,2,2"], "the session has come to 35, which was not given");
    rig.tick(20);
    assert_eq!(rig.take_rows(), ["1,1,0,10,9,1,1,1", "2,1,0,35,34,4,11,5"], "with the end that was given");
    rig.process(&[(1, 30, 1)]);
    rig.process(&[(1, -5, 1)]);
    assert_eq!(rig.take_rows(), ["3,1,0,35,34,4,11,5"]);
    rig.tick(30);
    assert_eq!(rig.take_rows(), ["0,1,-5,40,39,6,13,5"]);
}

/// A session that was given before it was kept what: the next result comes alone, and it is taken back as it was last, which comes
/// before, since who needs it has not heard of it.
#[test]
fn a_session_that_was_given_before_goes_on() {
    let without = counts(&["k"], session(10), early(Some(10), None));
    let mut rig = Rig::new(&without);
    rig.tick(0);
    rig.process(&[(1, 0, 1), (1, 20, 2), (2, 0, 3)]);
    rig.tick(10);
    assert_eq!(sorted(rig.take_rows()), ["0,1,0,10,9,1,1,1", "0,1,20,30,29,1,2,2", "0,2,0,10,9,1,3,3"]);
    let restored = store(rig.barrier(1), || rig.background());
    let mut rig = Rig::restored(&in_full(true, without), restored, everything());
    rig.tick(20);
    rig.process(&[(1, 25, 5)]);
    rig.process(&[(1, 10, 3), (2, 1, 4)]);
    assert_eq!(rig.take_rows(), ["2,1,20,35,34,2,7,5", "3,1,20,35,34,2,7,5"]);
    rig.tick(30);
    assert_eq!(sorted(rig.take_rows()), ["2,1,0,35,34,4,11,5", "2,2,0,11,10,2,7,4"]);
    rig.process(&[(1, -5, 1)]);
    assert_eq!(rig.take_rows(), ["3,1,0,35,34,4,11,5"], "by now it is known");
}

/// Also where they have left memory, and are given early, late and when they are closed.
#[test]
fn sessions_beyond_memory_give_what_they_replace() {
    let firing = FiringSpec { lateness_ms: 1000, ..early(Some(10), None) };
    let aggregate = full(&["k"], session(100), firing);
    let rows = |from: i64, to: i64, time: i64, value: i64| -> Vec<Row> { (from..to).map(|key| (key, time, value)).collect() };
    let (share, mut heap) = (256 << 10, Rig::new(&aggregate));
    let mut rig = before(&aggregate, (share, 1), everything(), &Vec::new(), Vec::new());
    let mut given = 0;
    let mut both = |act: &dyn Fn(&mut Rig)| {
        let [expected, found] = [&mut heap, &mut rig].map(|rig| {
            act(rig);
            sorted(rig.take_rows())
        });
        assert_eq!(found, expected);
        given += found.len();
    };
    both(&|rig| {
        rig.tick(0);
    });
    for (round, (time, over)) in [(0, 10), (50, 40), (80, 190), (170, 300), (150, 1100), (1500, 2000)].into_iter().enumerate() {
        let round = round as i64;
        for rows in rows(round * 1000, 6000 + round * 1000, time, round + 1).chunks(1000) {
            both(&|rig| rig.process(rows));
        }
        both(&|rig| {
            rig.tick(10 * (round + 1));
        });
        both(&|rig| rig.advance(over));
    }
    both(&Rig::finish);
    assert!(given > 50_000, "{given}");
    assert_eq!(rig.metrics.state_keys.load(std::sync::atomic::Ordering::Relaxed), 0);
    assert!(rig.metrics.store().expect("it has a store").hits > 10_000, "sessions have left memory");
}

#[test]
fn a_window_larger_than_memory_gives_what_it_replaces() {
    let aggregate = full(&["k"], tumbling(1000), early(Some(10), None));
    let rows = |from: i64, to: i64, value: i64| -> Vec<Row> { (from..to).map(|key| (key, key % 1000, value)).collect() };
    let mut rig = before(&aggregate, (256 << 10, 1), everything(), &Vec::new(), Vec::new());
    rig.tick(0);
    rows(0, 20_000, 1).chunks(1000).for_each(|rows| rig.process(rows));
    rig.tick(10);
    assert_eq!(rig.take_rows().len(), 20_000);
    rows(0, 20_000, 2).chunks(1000).for_each(|rows| rig.process(rows));
    rig.tick(20);
    let given = rig.take_rows();
    assert_eq!(given.len(), 40_000);
    for pair in given.chunks(2) {
        let key = pair[0].split(',').nth(1).expect("a key");
        assert_eq!(pair, [format!("1,{key},0,1000,999,1,1,1"), format!("2,{key},0,1000,999,2,3,2")]);
    }
    rig.finish();
    assert!(rig.take_rows().is_empty(), "nothing has changed since");
}
