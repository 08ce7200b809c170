//! Periodic checkpoints: timing, completion, refusal, and answers that come late.

use levada_common::ids::{SubtaskIndex, Uid};

use super::*;
use crate::testing::inline_snapshot;

fn triggered(effects: &[Effect]) -> Vec<(u64, Vec<String>)> {
    let of = |effect: &Effect| match effect {
        Effect::TriggerCheckpoint { checkpoint, tasks, .. } => {
            Some((checkpoint.0, tasks.iter().map(|(_, task)| task.to_string()).collect()))
        }
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

fn too_large() -> DeclineReason {
    let (uid, state) = (Uid::new("out"), "groups".to_string());
    DeclineReason::StateTooLarge { uid, state, subtask: SubtaskIndex(1), size_bytes: 6, limit_bytes: 5 }
}

#[test]
fn a_checkpoint_is_complete_once_its_metadata_is_written() {
    let mut rig = Rig::running(exchange(2));
    assert_eq!(rig.machine.deadline(), Some(Instant(1_000)));
    rig.wait(1_000);
    assert_eq!(triggered(&rig.effects()), [(1, vec!["0.0".to_string(), "0.1".to_string()])]);
    for (vertex, subtask) in [(1, 0), (0, 0), (1, 1)] {
        rig.acknowledge(1, file(1, task(vertex, subtask)));
    }
    assert_eq!(rig.effects(), []);
    rig.now += 100;
    rig.acknowledge(1, file(1, task(0, 1)));
    let effects = rig.effects();
    let [Effect::WriteMetadata { metadata, within_ms: 9_900, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(metadata.tasks.len(), 4);
    assert_eq!(rig.status().checkpoints.completed, 0);
    rig.written(1);
    let both = vec![TaskManagerId::from_u128(1), TaskManagerId::from_u128(2)];
    let notified = Effect::NotifyCheckpoint {
        attempt: attempt(1),
        checkpoint: CheckpointId(1),
        completed: true,
        last: false,
        task_managers: both,
    };
    assert_eq!(rig.effects(), [notified]);
    let status = rig.status().checkpoints;
    assert_eq!((status.triggered, status.completed, status.in_progress), (1, 1, 0));
    assert_eq!(status.last_completed.map(|record| (record.bytes, record.duration_ms)), Some((4, 100)));
}

#[test]
fn only_as_many_as_wanted_are_kept() {
    let mut plan = exchange(2);
    plan.settings.checkpoint.num_retained = 2;
    let mut rig = Rig::running(plan);
    rig.complete(1);
    rig.complete(2);
    assert!(!rig.effects().iter().any(is_discard));
    rig.complete(3);
    let discarded: Vec<Effect> = rig.effects().into_iter().filter(is_discard).collect();
    let tasks = tasks(&exchange(2)).map(|task| file(1, task)).collect::<Vec<_>>();
    let [Effect::DiscardCheckpoint { checkpoint: CheckpointId(1), tasks: gone, .. }] = discarded.as_slice() else {
        panic!("{discarded:?}")
    };
    assert_eq!(*gone, tasks);
}

#[test]
fn an_expired_checkpoint_leaves_nothing_and_names_who_was_late() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.acknowledge(1, file(1, task(0, 0)));
    rig.effects.clear();
    rig.wait(10_000);
    let effects = rig.effects();
    assert!(matches!(effects[0], Effect::NotifyCheckpoint { completed: false, .. }), "{effects:?}");
    let discarded = Effect::DiscardCheckpoint {
        checkpoint: CheckpointId(1),
        kind: CheckpointKind::Checkpoint,
        tasks: vec![file(1, task(0, 0))],
    };
    assert_eq!(effects[1], discarded);
    assert_eq!(triggered(&effects)[0].0, 2, "the next was due long ago");
    let text = rig.status().checkpoints.last_failed.and_then(|record| record.failure).expect("a reason");
    assert!(text.contains("\"numbers\" subtask 1, \"out\" subtask 0, \"out\" subtask 1"), "{text}");
    rig.acknowledge(1, file(1, task(0, 1)));
    assert!(matches!(rig.effects()[..], [Effect::DiscardSnapshot { .. }]), "late");
}

#[test]
fn the_pause_is_counted_from_the_end() {
    let mut plan = exchange(2);
    plan.settings.checkpoint.min_pause_ms = 700;
    let mut rig = Rig::running(plan);
    rig.wait(1_000);
    rig.now += 600;
    rig.acknowledge_all(1);
    rig.written(1);
    assert_eq!(rig.machine.deadline(), Some(Instant(2_300)));
}

#[test]
fn too_many_failures_in_a_row_restart_the_job() {
    let mut rig = Rig::running(exchange(2));
    for id in 1..=4 {
        assert_eq!(rig.status().state, JobState::Running);
        rig.wait(1_000);
        rig.decline(id, task(0, 0), DeclineReason::StorageWrite { path: "x".into(), cause: "no space".into() });
    }
    let status = rig.status();
    assert_eq!(status.state, JobState::Restarting);
    assert!(status.failure.as_deref().is_some_and(|text| text.contains("checkpoint 4: writing \"x\" failed: no space")));
}

#[test]
fn a_state_that_is_too_large_degrades_the_job_and_no_more() {
    let mut rig = Rig::running(exchange(2));
    for id in 1..=9 {
        rig.wait(1_000);
        rig.decline(id, task(1, 1), too_large());
    }
    let status = rig.status();
    assert_eq!(status.state, JobState::Running);
    assert_eq!((status.checkpoints.failed, status.checkpoints.consecutive_failures), (9, 0));
    assert!(status.degraded.is_some_and(|text| text.contains("checkpoint 9") && text.contains("maxSize=5")));
    rig.complete(10);
    assert_eq!(rig.status().degraded, None);
}

#[test]
fn a_task_that_sees_its_end_is_told_of_the_checkpoint_under_way() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.acknowledge(1, file(1, task(1, 1)));
    rig.effects.clear();
    rig.task(task(1, 1), TaskState::Finishing);
    assert_eq!(triggered(&rig.effects()), [], "it has answered");
    rig.task(task(1, 0), TaskState::Finishing);
    assert_eq!(triggered(&rig.effects()), [(1, vec!["1.0".to_string()])]);
}

#[test]
fn a_repeated_acknowledgement_deletes_nothing() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.acknowledge(1, file(1, task(0, 0)));
    rig.effects.clear();
    rig.acknowledge(1, file(1, task(0, 0)));
    assert_eq!(rig.effects(), [], "under way");
    rig.acknowledge_all(1);
    rig.effects.clear();
    rig.acknowledge(1, file(1, task(0, 0)));
    assert_eq!(rig.effects(), [], "being written");
    rig.written(1);
    rig.effects.clear();
    rig.acknowledge(1, file(1, task(0, 0)));
    assert_eq!(rig.effects(), [], "retained");
    assert!(rig.machine.holds(CheckpointId(1), &file(1, task(0, 0))));
    let other = snapshot(task(0, 0), "chk-1/another");
    assert!(!rig.machine.holds(CheckpointId(1), &other));
    rig.acknowledge(1, other.clone());
    assert_eq!(
        rig.effects(),
        [Effect::DiscardSnapshot { checkpoint: CheckpointId(1), kind: CheckpointKind::Checkpoint, snapshot: other }]
    );
}

#[test]
fn a_checkpoint_written_after_the_failure_is_restored_from() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.wait(1_000);
    rig.acknowledge_all(2);
    rig.all(boom());
    rig.effects.clear();
    rig.wait(5_000);
    assert_eq!(rig.deployed(), None, "checkpoint 2 may be durable");
    assert_eq!(rig.status().checkpoints.in_progress, 1);
    rig.written(2);
    let effects = rig.effects.clone();
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::NotifyCheckpoint { .. })), "no one to tell");
    assert_eq!(rig.deployed(), Some((2, Some(2))));
}

#[test]
fn a_write_without_an_answer_is_abandoned() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.wait(1_000);
    rig.acknowledge_all(2);
    rig.all(boom());
    rig.effects.clear();
    rig.wait(10_000);
    assert!(!rig.effects.iter().any(is_discard), "its files are in use while it may be written");
    assert_eq!(rig.deployed(), Some((2, Some(1))));
    rig.written(2);
    assert!(matches!(rig.effects()[..], [Effect::DiscardCheckpoint { checkpoint: CheckpointId(2), .. }]));
    let status = rig.status().checkpoints;
    assert_eq!((status.triggered, status.completed, status.failed, status.in_progress), (2, 1, 1, 0));
}

#[test]
fn ids_rise_over_attempts() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.all(boom());
    rig.wait(1_000);
    rig.all(TaskState::Running);
    rig.effects.clear();
    rig.wait(1_000);
    assert_eq!(triggered(&rig.effects())[0].0, 2);
}

#[test]
fn a_repeated_acknowledgement_without_files_is_one_too() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.acknowledge(1, inline_snapshot(task(0, 0), b"a"));
    rig.effects.clear();
    rig.acknowledge(1, inline_snapshot(task(0, 0), b"a"));
    assert_eq!(rig.effects(), []);
    rig.acknowledge(1, inline_snapshot(task(0, 0), b"b"));
    assert!(matches!(rig.effects()[..], [Effect::DiscardSnapshot { .. }]), "another one");
}

#[test]
fn a_checkpoint_that_is_wanted_begins_once_none_is_under_way() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    assert_eq!(triggered(&rig.effects()).len(), 1);
    assert_eq!(rig.machine.next_checkpoint(), Ok(CheckpointId(2)));
    rig.event(Event::Checkpoint);
    rig.event(Event::Checkpoint);
    assert_eq!(rig.effects(), [], "one is under way");
    rig.acknowledge_all(1);
    rig.written(1);
    assert_eq!(triggered(&rig.effects()).iter().map(|(id, _)| *id).collect::<Vec<_>>(), [2]);
    rig.now += 100;
    rig.acknowledge_all(2);
    rig.written(2);
    assert_eq!(triggered(&rig.effects()), [], "both wishes are one");
    assert_eq!(rig.machine.deadline(), Some(Instant(2_000)), "the interval counts from the newest");
    rig.event(Event::Checkpoint);
    assert_eq!(triggered(&rig.effects()).len(), 1);
}

#[test]
fn a_checkpoint_is_refused_where_there_can_be_none() {
    let mut off = exchange(2);
    off.settings.checkpoint.interval_ms = None;
    let mut rig = Rig::running(off);
    assert!(rig.machine.next_checkpoint().is_err_and(|why| why.contains("settings.checkpoint.interval")));
    rig.event(Event::Checkpoint);
    assert_eq!(rig.effects(), []);
    let mut rig = Rig::new(exchange(2));
    assert!(rig.machine.next_checkpoint().is_err_and(|why| why.contains("RUNNING")));
    rig.event(Event::Checkpoint);
    rig.event(Event::Start { splits: BTreeMap::new() });
    rig.event(Event::Resources(vec![task_manager(1, 1), task_manager(2, 1)]));
    rig.all(TaskState::Running);
    rig.effects.clear();
    rig.wait(1);
    assert_eq!(rig.effects(), [], "nothing is kept of a wish that was refused");
}
