//! The end of data, and the user's cancel in every state.

use levada_common::checkpoint::Handle;
use levada_common::ids::{SubtaskIndex, Uid};

use super::*;
use crate::testing::inline_snapshot;

fn last_notified(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::NotifyCheckpoint { completed: true, last: true, .. }))
}

#[test]
fn a_bounded_job_ends_with_a_final_checkpoint_even_with_checkpointing_off() {
    let mut plan = exchange(2);
    plan.settings.checkpoint.interval_ms = None;
    plan.settings.restart = RestartSettings::None;
    let mut rig = Rig::running(plan.clone());
    rig.wait(100_000);
    assert_eq!(rig.effects(), []);
    assert_eq!(rig.status().degraded, None);
    rig.all(TaskState::Finishing);
    let effects = rig.effects();
    let [Effect::TriggerCheckpoint { tasks: all, inline: true, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(all.len(), 4);
    for task in tasks(&plan) {
        rig.acknowledge(1, inline_snapshot(task, b"ab"));
    }
    rig.written(1);
    assert!(last_notified(&rig.effects()));
    assert_eq!(rig.status().checkpoints.last_completed.map(|record| record.inline_bytes), Some(8));
    rig.wait(100_000);
    assert_eq!(rig.effects(), [], "no checkpoint after the final one");
    rig.all(TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Finished);
    let effects = rig.effects();
    let [Effect::DiscardCheckpoint { tasks, .. }, Effect::ReleaseSlots] = effects.as_slice() else { panic!("{effects:?}") };
    assert!(tasks.iter().all(|task| matches!(task.states[0].handle, Handle::Inline(_))));
}

#[test]
fn a_checkpoint_that_began_before_the_end_is_not_the_final_one() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.all(TaskState::Finishing);
    rig.acknowledge_all(1);
    rig.effects.clear();
    rig.written(1);
    let effects = rig.effects();
    assert!(!last_notified(&effects));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::TriggerCheckpoint { checkpoint: CheckpointId(2), .. })));
    rig.acknowledge_all(2);
    rig.written(2);
    assert!(last_notified(&rig.effects()));
}

#[test]
fn a_final_checkpoint_is_tried_again_and_then_fails_the_job() {
    let mut rig = Rig::running(exchange(2));
    rig.all(TaskState::Finishing);
    let refuse = |rig: &mut Rig, id| {
        let (uid, state) = (Uid::new("out"), "prepared".to_string());
        let reason = DeclineReason::StateTooLarge { uid, state, subtask: SubtaskIndex(0), size_bytes: 6, limit_bytes: 5 };
        rig.decline(id, task(1, 0), reason);
    };
    for id in 1..=3 {
        refuse(&mut rig, id);
        assert_eq!(rig.status().state, JobState::Running);
        rig.effects.clear();
        rig.wait(999);
        assert_eq!(rig.effects(), [], "not at once");
        rig.wait(1);
    }
    refuse(&mut rig, 4);
    assert_eq!(rig.status().state, JobState::Failing);
    rig.all(TaskState::Canceled);
    assert_eq!(rig.status().state, JobState::Failed);
    assert!(rig.status().failure.is_some_and(|text| text.contains("the final checkpoint 4")));
}

#[test]
fn a_task_lost_before_it_published_is_restored_and_finishes_again() {
    let mut rig = Rig::running(exchange(2));
    rig.all(TaskState::Finishing);
    rig.acknowledge_all(1);
    rig.written(1);
    rig.task(task(0, 0), TaskState::Finished);
    rig.task(task(1, 0), TaskState::Finished);
    rig.lose(2);
    assert_eq!(rig.status().state, JobState::Restarting);
    rig.event(Event::Resources(vec![task_manager(1, 2)]));
    rig.wait(1_000);
    assert_eq!(rig.deployed(), Some((2, Some(1))));
    rig.all(TaskState::Finishing);
    rig.acknowledge_all(2);
    rig.written(2);
    rig.all(TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Finished);
}

#[test]
fn a_task_cannot_finish_unpublished() {
    let mut rig = Rig::running(exchange(2));
    rig.all(TaskState::Finishing);
    rig.task(task(1, 0), TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Restarting);
}

#[test]
fn cancel_ends_a_running_job_once_its_tasks_have_ended() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.acknowledge(1, file(1, task(0, 0)));
    rig.effects.clear();
    rig.event(Event::Cancel);
    rig.event(Event::Cancel);
    let effects = rig.effects();
    assert!(matches!(effects[..], [Effect::CancelAttempt { .. }, Effect::DiscardCheckpoint { .. }]), "{effects:?}");
    assert_eq!(rig.status().state, JobState::Cancelling);
    rig.all(TaskState::Canceled);
    assert_eq!(rig.status().state, JobState::Canceled);
    assert_eq!(rig.effects(), [Effect::ReleaseSlots]);
    rig.event(Event::Cancel);
    assert_eq!(rig.effects(), []);
    assert_eq!(rig.status().ended_at_ms, Some(1_001_000));
}

#[test]
fn cancel_does_not_wait_for_a_task_that_does_not_listen() {
    let mut rig = Rig::running(exchange(2));
    rig.event(Event::Cancel);
    rig.wait(4_000);
    assert_eq!(rig.status().state, JobState::Canceled);
}

#[test]
fn cancel_ends_a_job_that_waits_to_restart() {
    let mut plan = exchange(2);
    plan.settings.restart = RestartSettings::FixedDelay { attempts: 10, delay_ms: 100_000 };
    let mut rig = Rig::running(plan);
    rig.all(boom());
    rig.wait(1_000);
    rig.event(Event::Cancel);
    assert_eq!(rig.status().state, JobState::Canceled);
    rig.wait(1_000_000);
    assert_eq!(rig.deployed(), None, "never again");
}

#[test]
fn cancel_ends_a_job_that_waits_for_slots_or_for_its_tasks() {
    let mut rig = Rig::new(exchange(2));
    rig.event(Event::Start { splits: BTreeMap::new() });
    rig.event(Event::Cancel);
    assert_eq!(rig.status().state, JobState::Canceled);
    rig.event(Event::Resources(vec![task_manager(1, 2)]));
    assert_eq!(rig.deployed(), None);

    let mut rig = Rig::new(exchange(2));
    rig.event(Event::Start { splits: BTreeMap::new() });
    rig.event(Event::Resources(vec![task_manager(1, 2)]));
    rig.event(Event::Cancel);
    assert_eq!(rig.status().state, JobState::Cancelling);
    rig.lose(1);
    assert_eq!(rig.status().state, JobState::Canceled);
}

#[test]
fn a_metadata_answer_after_the_end_is_counted_and_cleaned_up() {
    let mut plan = exchange(2);
    plan.settings.checkpoint.retain = false;
    let mut rig = Rig::running(plan);
    rig.wait(1_000);
    rig.acknowledge_all(1);
    rig.event(Event::Cancel);
    rig.all(TaskState::Canceled);
    assert_eq!(rig.status().state, JobState::Canceled);
    rig.effects.clear();
    rig.written(1);
    assert!(matches!(rig.effects()[..], [Effect::DiscardCheckpoint { .. }]));
    let status = rig.status().checkpoints;
    assert_eq!((status.completed, status.failed, status.in_progress), (1, 0, 0));
}
