//! Operators that stand on the heap by now, though they had a database, or whose database is laid out otherwise: they take what was in
//! it as they take it from files. And rows in files whose places in a database only their operator knows.

use levada_common::ids::Uid;
use levada_common::plan::{BackendKind, FiringSpec, OperatorKind, OperatorSpec, ProcessWindow, WindowSpec};
use levada_state::cold::ColdStores;

use super::rig::{Place, Rig};
use super::run::Feed;
use super::specs::windowed;
use super::windows::{WHOLE, session, tumbling, with};

/// What comes out of `after`, which goes on from where `before` was with a few rows in windows that are open.
async fn goes_on(backends: [BackendKind; 2], before: &OperatorSpec, after: &OperatorSpec) -> Vec<String> {
    let mut rig = Rig::new(backends[0], Place::Files).await;
    rig.operators = vec![before.clone()];
    let mut run = rig.start(2, None).await.unwrap();
    run.feed(&Feed::of(&[("a", 1, 10), ("b", 2, 11), ("c", 3, 12), ("a", 4, 13), ("c", 5, 14)], 20, 0));
    assert!(run.take().is_empty());
    let snapshot = rig.snapshot(&mut run, &[]).await;
    drop(run);
    (rig.backend, rig.operators) = (backends[1], vec![after.clone()]);
    let mut run = rig.start(3, Some(&snapshot)).await.unwrap();
    run.feed(&Feed::of(&[("a", 6, 21), ("a", 7, 22), ("b", 8, 23), ("c", 9, 24), ("c", 10, 25)], 30, 100));
    run.feed(&Feed::of(&[("a", 11, 31), ("a", 12, 32), ("b", 13, 33), ("b", 14, 34)], 40, 200));
    run.finish();
    run.take()
}

async fn assert_as_from_files(before: OperatorSpec, after: OperatorSpec, lines: usize) {
    use BackendKind::{Fs, Rocksdb};
    let expected = goes_on([Fs, Fs], &before, &after).await;
    assert_eq!(expected.len(), lines, "{expected:?}");
    for backends in [[Fs, Rocksdb], [Rocksdb, Fs], [Rocksdb, Rocksdb]] {
        assert_eq!(goes_on(backends, &before, &after).await, expected, "{backends:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_rows_that_begin_to_overlap() {
    let counts = |slide| with("counts", WindowSpec::Count { size: 4, slide }, |_| ());
    assert_as_from_files(counts(4), counts(2), 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_rows_that_cease_to_overlap() {
    let counts = |slide| with("counts", WindowSpec::Count { size: 4, slide }, |_| ());
    assert_as_from_files(counts(2), counts(4), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_function_that_begin_to_take_late_rows() {
    let before = windowed("rows", WHOLE, ProcessWindow::once(tumbling(), None));
    let mut after = before.clone();
    let OperatorKind::Process(process) = &mut after.kind else { unreachable!("it is a function") };
    let window = process.window.as_mut().expect("it has windows");
    window.firing = Some(FiringSpec { early: None, lateness_ms: 300, late: None, accumulate: true });
    assert_as_from_files(before, after, 3).await;
}

/// Rows of windows whose keys give theirs each by itself are in them by key and window, and the windows are others now.
#[tokio::test(flavor = "multi_thread")]
async fn windows_of_a_function_that_take_late_rows_and_become_longer() {
    let firing = FiringSpec { early: None, lateness_ms: 300, late: None, accumulate: true };
    let of_size = |size_ms| {
        let window = ProcessWindow::once(WindowSpec::Tumbling { size_ms, offset_ms: 0 }, None);
        windowed("rows", WHOLE, ProcessWindow { firing: Some(firing), ..window })
    };
    assert_as_from_files(of_size(50), of_size(400), 3).await;
}

/// What is noted of results is in no file of a job whose windows gave one result each, or without those that are replaced.
#[tokio::test(flavor = "multi_thread")]
async fn windows_that_note_more_of_their_results_or_less() {
    use BackendKind::{Fs, Rocksdb};
    let firing = Some(FiringSpec { early: None, lateness_ms: 300, late: None, accumulate: true });
    for window in [tumbling(), session()] {
        let once = || with("counts", window.clone(), |_| ());
        let late = || with("counts", window.clone(), |spec| spec.firing = firing);
        let full = || with("counts", window.clone(), |spec| (spec.firing, spec.changelog_full) = (firing, true));
        for (before, after) in
            [(once(), late()), (late(), once()), (late(), full()), (full(), late()), (once(), full()), (full(), once())]
        {
            let expected = goes_on([Fs, Fs], &before, &after).await;
            assert!(expected.len() >= 3, "{expected:?}");
            assert_eq!(goes_on([Fs, Rocksdb], &before, &after).await, expected);
        }
    }
}

/// Nothing is written for them before the operator opens, which puts each row into its pane.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_wait_are_written_once() {
    let mut rig = Rig::new(BackendKind::Fs, Place::Files).await;
    rig.operators = vec![windowed("rows", WHOLE, ProcessWindow::once(tumbling(), None))];
    let state = rig.operators[0].state_names().swap_remove(0);
    let mut run = rig.start(2, None).await.unwrap();
    run.feed(&Feed::of(&[("a", 1, 10), ("b", 2, 11), ("c", 3, 12), ("a", 4, 13), ("c", 5, 14)], 20, 0));
    let snapshot = rig.snapshot(&mut run, &[]).await;
    drop(run);
    rig.backend = BackendKind::Rocksdb;
    let restored = rig.restored(1, &snapshot).await;
    assert!(restored.states.values().flatten().all(|known| known.name != state), "rows came into memory");
    let databases = restored.databases.unwrap();
    assert_eq!(databases.unopened(), Some(Uid::new("rows")));
    let fetched = databases.take_fetched(&Uid::new("rows"), &state);
    assert_eq!(fetched.into_iter().flatten().map(|batch| batch.unwrap().num_rows()).sum::<usize>(), 5);
    assert_eq!(databases.unopened(), None, "a database was made for them");
}
