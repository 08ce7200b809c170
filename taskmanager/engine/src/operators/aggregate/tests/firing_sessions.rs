//! Sessions that give results more than once, against a naive model that takes row by row.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use levada_common::plan::{AggregateFunction, AggregateSpec, FiringSpec, WindowTime};
use proptest::prelude::*;

use super::firings::{Deed, Subtasks, counts, deeds, firings, in_full, trigger};
use super::rig::{Rig, Row, call};
use super::sessions::session;
use super::standing::Standing;
use super::store::{before, everything, memory, split_parts};
use super::told_apart::distinct;
use super::windows::sorted;

/// Start, end, count, sum, maximum.
type Session = (i64, i64, i64, i64, i64);

#[derive(Default)]
struct Model {
    open: BTreeMap<i64, Vec<Session>>,
    closed: Standing,
    late: u64,
    /// Whether a session begins where one that is closed began, so that one result replaces another's.
    collides: bool,
}

impl Model {
    fn take(&mut self, (key, time, value): Row, gap: i64, closed: i64) {
        let sessions = self.open.entry(key).or_default();
        let mut merged: Session = (time, time + gap, 1, value, value);
        let touched: Vec<Session> = sessions.extract_if(.., |session| session.0 <= merged.1 && merged.0 <= session.1).collect();
        if touched.is_empty() && merged.1 <= closed {
            self.late += 1;
            return;
        }
        for (start, end, n, sum, most) in touched {
            merged = (merged.0.min(start), merged.1.max(end), merged.2 + n, merged.3 + sum, merged.4.max(most));
        }
        sessions.push(merged);
        self.collides |= self.closed.rows.contains_key(&text(key, merged).0);
    }

    fn close(&mut self, closed: i64) {
        for (key, sessions) in &mut self.open {
            for session in sessions.extract_if(.., |session| session.1 <= closed) {
                let (key, row) = text(*key, session);
                self.closed.rows.insert(key, row);
            }
        }
    }

    fn standing(&self, over: i64) -> Standing {
        let mut standing = self.closed.clone();
        let open = self.open.iter().flat_map(|(key, sessions)| sessions.iter().map(|session| (*key, *session)));
        standing.rows.extend(open.filter(|(_, session)| session.1 <= over).map(|(key, session)| text(key, session)));
        standing
    }
}

fn text(key: i64, (start, end, n, sum, most): Session) -> (String, String) {
    (format!("{key},{start}"), format!("{end},{},{n},{sum},{most}", end - 1))
}

/// Where the operator is, from each restore to the next: on the heap, or in front of a store with so little memory.
#[derive(Debug, Clone)]
pub(super) enum Home {
    Heap,
    /// In front of stores that take over what those before had.
    Databases(Vec<(usize, u32)>),
    /// Now there and now here.
    Both(Vec<Option<(usize, u32)>>),
}

impl Home {
    fn memory(&self, restores: usize) -> Option<(usize, u32)> {
        match self {
            Self::Heap => None,
            Self::Databases(memory) => Some(memory[restores % memory.len()]),
            Self::Both(memory) => memory[restores % memory.len()],
        }
    }

    pub(super) fn subtasks<'a>(&self, aggregate: &'a AggregateSpec) -> Subtasks<'a> {
        Subtasks::new(aggregate, self.memory(0), matches!(self, Self::Databases(_)))
    }

    /// Does it, in the next home if it is a restore.
    pub(super) fn act(&self, subtasks: &mut Subtasks<'_>, deed: &Deed, restores: &mut usize) -> Vec<String> {
        if matches!(deed, Deed::Restore(_)) {
            *restores += 1;
            subtasks.move_to(self.memory(*restores));
        }
        subtasks.act(deed)
    }
}

pub(super) fn homes() -> impl Strategy<Value = Home> {
    prop_oneof![
        prop::collection::vec(memory(), 1..4).prop_map(Home::Databases),
        prop::collection::vec(prop::option::of(memory()), 1..4).prop_map(Home::Both),
    ]
}

proptest! {
    #[test]
    fn what_stands_is_what_the_model_gives(
        deeds in deeds(),
        gap in 1i64..25,
        firing in firings(),
        full in any::<bool>(),
        home in prop_oneof![Just(Home::Heap), homes()],
    ) {
        let firing = FiringSpec { accumulate: true, ..firing };
        let aggregate = in_full(full, counts(&["k"], session(gap), firing));
        let mut subtasks = home.subtasks(&aggregate);
        let (mut model, mut watermark, mut standing, mut restores) = (Model::default(), i64::MIN, Standing::default(), 0);
        for (at, deed) in deeds.iter().enumerate() {
            let given = home.act(&mut subtasks, deed, &mut restores);
            match deed {
                Deed::Rows(rows) => {
                    rows.iter().for_each(|row| model.take(*row, gap, watermark.saturating_sub(firing.lateness_ms)));
                }
                Deed::Advance(to) => {
                    watermark = watermark.max(*to);
                    model.close(watermark.saturating_sub(firing.lateness_ms));
                }
                Deed::Wait(_) | Deed::Restore(_) => {}
            }
            prop_assume!(!model.collides);
            standing.apply_changes(given, 2, full, &mut BTreeSet::new());
            if firing.late.is_none() {
                let expected = model.standing(watermark);
                let over = standing.only(|key| expected.rows.contains_key(key));
                prop_assert_eq!(over, expected, "sessions that are over, after deed {}", at);
            }
        }
        let (given, late, keys) = subtasks.finish();
        model.close(i64::MAX);
        standing.apply_changes(given, 2, full, &mut BTreeSet::new());
        prop_assert_eq!(standing, model.closed);
        prop_assert_eq!((late, keys), (model.late, 0));
    }

    /// Each result at its moment, also early ones: of sessions in memory and beyond.
    #[test]
    fn a_store_behind_changes_nothing(
        deeds in deeds(),
        gap in 1i64..25,
        firing in firings(),
        (keyed, full, by_clock, tells_apart) in any::<(bool, bool, bool, bool)>(),
        home in homes(),
    ) {
        let firing = FiringSpec { accumulate: true, ..firing };
        let firing = if by_clock { FiringSpec { lateness_ms: 0, late: None, ..firing } } else { firing };
        let keys: &[&str] = if keyed { &["k"] } else { &[] };
        let aggregate = match tells_apart {
            true => AggregateSpec { firing: Some(firing), ..distinct(keys, session(gap)) },
            false => counts(keys, session(gap), firing),
        };
        let aggregate = in_full(full, aggregate);
        let aggregate = AggregateSpec { time: WindowTime { processing: by_clock, time_zone: None }, ..aggregate };
        let (mut heap, mut stored, mut restores) = (Home::Heap.subtasks(&aggregate), home.subtasks(&aggregate), 0);
        for (at, deed) in deeds.iter().enumerate() {
            let (expected, given) = (heap.act(deed), home.act(&mut stored, deed, &mut restores));
            prop_assert_eq!(sorted(given), sorted(expected), "deed {}: {:?}", at, deed);
        }
        let ((expected, late, _), (given, late_of_stored, keys)) = (heap.finish(), stored.finish());
        prop_assert_eq!(sorted(given), sorted(expected));
        prop_assert_eq!((late_of_stored, keys), (late, 0));
    }
}

fn count(gap_ms: i64, firing: FiringSpec) -> Rig {
    Rig::new(&AggregateSpec { calls: vec![call("n", AggregateFunction::Count)], ..counts(&["s"], session(gap_ms), firing) })
}

/// Case G30: key 1 is a, key 2 is b.
#[test]
fn a_late_row_gives_a_session_that_is_over_once_more() {
    let mut rig = count(10_000, FiringSpec { early: None, lateness_ms: 60_000, late: None, accumulate: true });
    rig.process(&[(1, 0, 0)]);
    rig.process(&[(2, 20_001, 0)]);
    rig.advance(20_000);
    assert_eq!(rig.take_rows(), ["0,key 1,0,10000,9999,1"]);
    rig.process(&[(1, 5000, 0)]);
    assert_eq!(rig.take_rows(), ["2,key 1,0,15000,14999,2"]);
    rig.finish();
    assert_eq!(rig.take_rows(), ["0,key 2,20001,30001,30000,1"]);
}

/// Case G31.
#[test]
fn early_results_of_a_session_grow() {
    let every_batch = Some(trigger(None, Some(1)));
    let mut rig = count(600_000, FiringSpec { early: every_batch, lateness_ms: 0, late: None, accumulate: true });
    (0..4).for_each(|n| rig.process(&[(4, n * 1000, 1)]));
    rig.finish();
    let expected =
        ["0,key 4,0,600000,599999,1", "2,key 4,0,601000,600999,2", "2,key 4,0,602000,601999,3", "2,key 4,0,603000,602999,4"];
    assert_eq!(rig.take_rows(), expected);
}

#[test]
fn sessions_that_become_one_are_taken_back_but_for_the_first() {
    let every_batch = Some(trigger(None, Some(1)));
    let mut rig = count(10, FiringSpec { early: every_batch, lateness_ms: 0, late: None, accumulate: true });
    rig.process(&[(1, 0, 0), (1, 20, 0)]);
    assert_eq!(rig.take_rows(), ["0,key 1,0,10,9,1", "0,key 1,20,30,29,1"]);
    rig.process(&[(1, 10, 0)]);
    assert_eq!(rig.take_rows(), ["3,key 1,20,30,29,1", "2,key 1,0,30,29,3"]);
    rig.process(&[(1, -5, 0)]);
    assert_eq!(rig.take_rows(), ["3,key 1,0,30,29,3", "0,key 1,-5,30,29,4"]);
}

/// A row an hour late finds what the store has of its session; one that comes after that is late.
#[test]
fn sessions_that_left_memory_are_given_on_time_and_late_and_are_closed() {
    let firing = FiringSpec { early: Some(trigger(Some(10), None)), lateness_ms: 1000, late: None, accumulate: true };
    let aggregate = AggregateSpec { calls: vec![call("n", AggregateFunction::Count)], ..counts(&["k"], session(100), firing) };
    let share = 128 << 10;
    let mut rig = before(&aggregate, (share, 1), everything(), &Vec::new(), Vec::new());
    let rows = |from: i64, to: i64, time: i64| -> Vec<Row> { (from..to).map(|key| (key, time, 0)).collect() };
    let is_small = |rig: &Rig| rig.metrics.state_bytes.load(Ordering::Relaxed) <= 2 * share as u64;
    rig.tick(0);
    for rows in rows(0, 20_000, 0).chunks(500) {
        rig.process(rows);
        assert!(is_small(&rig));
    }
    assert!(rig.take_rows().is_empty());
    rig.tick(10);
    assert!(is_small(&rig));
    let given = rig.take_rows();
    assert_eq!(given.len(), 20_000);
    assert!(given.iter().all(|row| row.starts_with("0,") && row.ends_with(",0,100,99,1")));
    rig.tick(20);
    assert!(rig.take_rows().is_empty(), "nothing has changed since");
    rows(5_000, 8_000, 50).chunks(500).for_each(|rows| rig.process(rows));
    rig.advance(120);
    assert!(rig.take_rows().is_empty(), "what is over was given, and what has changed is not over");
    rig.advance(150);
    let given = rig.take_rows();
    assert_eq!(given.len(), 3_000);
    assert!(given.iter().all(|row| row.starts_with("2,") && row.ends_with(",0,150,149,2")));
    rows(0, 2_000, 10).chunks(500).for_each(|rows| rig.process(rows));
    assert_eq!(rig.take_rows().len(), 2_000, "late rows give a session once more");
    rig.advance(1_120);
    assert!(rig.take_rows().is_empty() && is_small(&rig));
    rig.process(&[(3, 20, 0), (5_000, 30, 0), (1, 5, 0)]);
    assert_eq!(rig.take_rows(), ["2,5000,0,150,149,3"], "the others are closed");
    assert_eq!(rig.late_rows(), 2);
    let (databases, _) = split_parts(rig.barrier(1));
    while rig.background() {}
    let mut left = 0;
    let visited = databases[0].1.rows("sessions", &mut |rows| {
        left += rows.num_rows();
        ControlFlow::Continue(())
    });
    visited.expect("it was completed");
    assert_eq!(left, 3_000);
    rig.finish();
    assert!(rig.take_rows().is_empty());
}

/// A key that comes in for one of them is not looked for again for the other.
#[test]
fn early_and_late_results_of_a_key_beyond_memory_are_given_at_once() {
    let every = Some(trigger(Some(10), None));
    let firing = FiringSpec { early: every, lateness_ms: 50, late: every, accumulate: true };
    let mut rig = before(&counts(&["k"], session(5), firing), (0, 0), everything(), &Vec::new(), Vec::new());
    rig.tick(0);
    rig.advance(10);
    rig.process(&[(1, 20, 0), (1, 0, 0)]);
    while rig.background() {}
    rig.process(&[(2, 20, 0)]);
    rig.tick(10);
    assert_eq!(sorted(rig.take_rows()), ["0,1,0,5,4,1,0,0", "0,1,20,25,24,1,0,0", "0,2,20,25,24,1,0,0"]);
}
