//! Proof that state comes back: a state of every kind, through every backend and storage, from every width to every other.
//!
//! What goes out is taken while rows come, and what comes back must go on as one run that nothing ever interrupted.

mod chain;
mod changes;
mod clocks;
mod damage;
mod functions;
mod heap;
mod rig;
mod run;
mod specs;
mod windows;

use levada_common::checkpoint::StateKind;
use levada_common::plan::BackendKind;
use rand::SeedableRng;
use rand::rngs::StdRng;

use functions::{EVERYTHING, LISTS};
use rig::{Place, Rig};
use run::{FEED_ROWS, Feed, States, feeds, rows_of};
use specs::specs;

const WIDTHS: [u32; 5] = [1, 2, 3, 5, 8];

/// Feeds before the snapshot, and after it.
const BEFORE: i64 = 8;
const AFTER: i64 = 5;

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_memory_at_every_width() {
    square(BackendKind::Memory, Place::Files, 0x5C0A_12E5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_files_at_every_width() {
    square(BackendKind::Fs, Place::Files, 0x5C0A_12E6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_objects_at_every_width() {
    square(BackendKind::Fs, Place::Objects, 0x5C0A_12E7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_databases_in_files_at_every_width() {
    square(BackendKind::Rocksdb, Place::Files, 0x5C0A_12E8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_comes_back_from_databases_in_objects_at_every_width() {
    square(BackendKind::Rocksdb, Place::Objects, 0x5C0A_12E9).await;
}

/// Rows of a run, and what comes out of it before and after the moment of the snapshot where nothing is interrupted.
struct Story {
    before: Vec<Feed>,
    after: Vec<Feed>,
    given_before: Vec<String>,
    given_after: Vec<String>,
}

impl Story {
    async fn new(seed: u64) -> Self {
        println!("seed {seed:#x}");
        let mut rng = StdRng::seed_from_u64(seed);
        let (before, after) = (feeds(&mut rng, 0, BEFORE), feeds(&mut rng, BEFORE, AFTER));
        let mut twin = Rig::new(BackendKind::Memory, Place::Files).await.start(1, None).await.unwrap();
        before.iter().for_each(|feed| twin.feed(feed));
        let given_before = twin.take();
        after.iter().for_each(|feed| twin.feed(feed));
        twin.finish();
        let given_after = twin.take();
        for spec in specs() {
            let says = |lines: &[String]| lines.iter().filter(|line| line.starts_with(&format!("{}: ", spec.uid))).count();
            assert!(says(&given_after) > 20, "{} says {} times something after the snapshot", spec.uid, says(&given_after));
        }
        Self { before, after, given_before, given_after }
    }
}

/// The lines that are not in both.
fn difference(found: &[String], expected: &[String]) -> String {
    let only = |these: &[String], others: &[String]| {
        let lines = these.iter().filter(|line| others.binary_search(line).is_err()).take(3).cloned();
        lines.collect::<Vec<_>>().join("\n  ")
    };
    let (found_only, expected_only) = (only(found, expected), only(expected, found));
    format!("{} lines, expected {}; only found:\n  {found_only}\nonly expected:\n  {expected_only}", found.len(), expected.len())
}

/// From each width to every one: what comes out after a restore is what comes out where nothing is interrupted.
async fn square(backend: BackendKind, place: Place, seed: u64) {
    let story = Story::new(seed).await;
    for from in WIDTHS {
        let mut rig = Rig::new(backend, place).await;
        let mut run = rig.start(from, None).await.unwrap();
        story.before.iter().for_each(|feed| run.feed(feed));
        let given = run.take();
        assert!(given == story.given_before, "{from} wide: {}", difference(&given, &story.given_before));
        let snapshot = rig.snapshot(&mut run, &story.after).await;
        run.finish();
        let given = run.take();
        assert!(given == story.given_after, "{from} wide, going on: {}", difference(&given, &story.given_after));
        drop(run);
        let same = rig.start(from, Some(&snapshot)).await.unwrap().restored;
        for to in WIDTHS {
            let what = format!("{from} to {to}");
            let mut next = rig.start(to, Some(&snapshot)).await.unwrap();
            assert_operator_states(&same, &next.restored, &what);
            story.after.iter().for_each(|feed| next.feed(feed));
            next.finish();
            let given = next.take();
            assert!(given == story.given_after, "{what}: {}", difference(&given, &story.given_after));
        }
    }
}

/// Split lists come back once, in order; a union comes back whole to everyone; what is broadcast is the same everywhere.
fn assert_operator_states(before: &[States], after: &[States], what: &str) {
    for name in ["split", "variables"] {
        let all = |states| rows_of(states, LISTS, name, StateKind::OperatorList).concat();
        assert_eq!(all(after), all(before), "{what}: {name}");
    }
    let union = rows_of(before, LISTS, "union", StateKind::OperatorUnion);
    assert_eq!(union[0].len() as i64, FEED_ROWS * BEFORE, "{what}");
    assert!(rows_of(after, LISTS, "union", StateKind::OperatorUnion).iter().all(|of_task| *of_task == union[0]), "{what}: union");
    let rates = rows_of(before, EVERYTHING, "rates", StateKind::OperatorBroadcast);
    assert!(!rates[0].is_empty(), "{what}: nothing was broadcast");
    let broadcast = rows_of(after, EVERYTHING, "rates", StateKind::OperatorBroadcast);
    assert!(broadcast.iter().all(|of_task| *of_task == rates[0]), "{what}: broadcast");
}
