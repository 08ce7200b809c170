//! Sessions that give results more than once, against a naive model that takes row by row.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::plan::{AggregateFunction, AggregateSpec, FiringSpec};
use proptest::prelude::*;

use super::firings::{Deed, Subtasks, counts, deeds, firings, in_full, trigger};
use super::rig::{Rig, Row, call};
use super::sessions::session;
use super::standing::Standing;

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

proptest! {
    #[test]
    fn what_stands_is_what_the_model_gives(deeds in deeds(), gap in 1i64..25, firing in firings(), full in any::<bool>()) {
        let firing = FiringSpec { accumulate: true, ..firing };
        let aggregate = in_full(full, counts(&["k"], session(gap), firing));
        let mut subtasks = Subtasks::new(&aggregate, None, false);
        let (mut model, mut watermark, mut standing) = (Model::default(), i64::MIN, Standing::default());
        for (at, deed) in deeds.iter().enumerate() {
            let given = subtasks.act(deed);
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
