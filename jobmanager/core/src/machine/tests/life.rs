//! Start, failure, restart.

use super::*;

#[test]
fn a_job_waits_for_its_slots_and_says_so() {
    let mut rig = Rig::new(exchange(4));
    rig.event(Event::Resources(vec![task_manager(1, 2)]));
    assert_eq!(rig.deployed(), None, "before the start");
    rig.event(Event::Start { splits: BTreeMap::new() });
    assert_eq!(rig.status().waiting_for.as_deref(), Some("needs 4 slots, 2 are free (1 TaskManager)"));
    assert_eq!(rig.status().state, JobState::Scheduled);
    rig.event(Event::Resources(vec![task_manager(1, 2), task_manager(2, 3)]));
    assert_eq!(rig.deployed(), Some((1, None)));
    assert_eq!(rig.status().state, JobState::Deploying);
    assert_eq!(rig.status().waiting_for, None);
    rig.all(TaskState::Running);
    assert_eq!(rig.status().state, JobState::Running);
}

#[test]
fn channels_that_do_not_fit_end_the_job() {
    let mut rig = Rig::new(exchange(2));
    rig.event(Event::Start { splits: BTreeMap::new() });
    let mut infos = vec![task_manager(1, 1), task_manager(2, 1)];
    infos[0].network_memory_bytes = 1;
    rig.event(Event::Resources(infos));
    assert_eq!(rig.status().state, JobState::Failed);
    let failure = rig.status().failure.expect("a cause");
    assert!(failure.contains("host-1:6121, which has 1 bytes"), "{failure}");
}

#[test]
fn a_failure_restarts_the_whole_job_from_the_newest_checkpoint() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.effects.clear();
    rig.task(task(1, 0), boom());
    let both = vec![TaskManagerId::from_u128(1), TaskManagerId::from_u128(2)];
    assert_eq!(rig.effects(), [Effect::CancelAttempt { attempt: attempt(1), task_managers: both }]);
    let status = rig.status();
    assert_eq!(status.state, JobState::Restarting);
    assert_eq!(status.failure.as_deref(), Some("task \"out\" subtask 0 on TaskManager host-1:6121: boom"));

    for (vertex, subtask) in [(0, 0), (0, 1), (1, 1)] {
        rig.task(task(vertex, subtask), TaskState::Canceled);
    }
    rig.wait(999);
    assert_eq!(rig.deployed(), None, "before the delay");
    assert_eq!(rig.machine.deadline(), Some(Instant(rig.now + 1)));
    rig.wait(1);
    assert_eq!(rig.deployed(), Some((2, Some(1))));
    assert_eq!(rig.status().restarts, 1);
}

#[test]
fn a_new_attempt_waits_for_the_end_of_the_old_one_but_not_for_ever() {
    let mut rig = Rig::running(exchange(2));
    rig.task(task(1, 0), boom());
    rig.wait(3_999);
    assert_eq!(rig.deployed(), None, "tasks of the old attempt may run yet");
    assert_eq!(rig.machine.deadline(), Some(Instant(rig.now + 1)));
    rig.wait(1);
    assert_eq!(rig.deployed(), Some((2, None)));
}

#[test]
fn the_first_failure_of_an_attempt_is_its_cause() {
    let mut rig = Rig::running(exchange(2));
    rig.lose(2);
    rig.task(task(0, 0), TaskState::Failed(Failure::user("connection to host-2:6121 broke")));
    let failure = rig.status().failure.expect("a cause");
    assert_eq!(failure, "TaskManager host-2:6121 is lost, and with it task \"numbers\" subtask 1: its stream broke");
    assert_eq!(rig.status().state, JobState::Restarting);
}

#[test]
fn messages_of_an_old_attempt_change_nothing() {
    let mut rig = Rig::running(exchange(2));
    let old = rig.machine.attempt();
    rig.complete(1);
    rig.wait(1_000);
    rig.all(boom());
    rig.wait(1_000);
    rig.all(TaskState::Running);
    rig.wait(1_000);
    rig.effects.clear();
    let before = rig.status();
    rig.event(Event::Task { attempt: old, task: task(0, 0), state: boom() });
    let reason = DeclineReason::Declined("late".into());
    for checkpoint in [2, 3] {
        let (task, reason) = (task(0, 0), reason.clone());
        rig.event(Event::SnapshotDeclined { attempt: old, checkpoint: CheckpointId(checkpoint), task, reason });
    }
    assert_eq!(rig.effects(), []);
    let late = file(2, task(0, 0));
    rig.event(Event::SnapshotTaken { attempt: old, checkpoint: CheckpointId(2), snapshot: late.clone() });
    assert_eq!(
        rig.effects(),
        [Effect::DiscardSnapshot { checkpoint: CheckpointId(2), kind: CheckpointKind::Checkpoint, snapshot: late }]
    );
    let repeated = file(1, task(0, 0));
    rig.event(Event::SnapshotTaken { attempt: old, checkpoint: CheckpointId(1), snapshot: repeated });
    assert_eq!(rig.effects(), [], "its files belong to the retained checkpoint");
    assert_eq!(rig.status(), before);
}

#[test]
fn what_the_user_did_wrong_is_not_tried_again() {
    let mut rig = Rig::running(exchange(2));
    rig.task(task(0, 1), TaskState::Failed(Failure::user("row 7: not a number")));
    assert_eq!(rig.status().state, JobState::Failing);
    rig.all(TaskState::Canceled);
    let status = rig.status();
    assert_eq!(status.state, JobState::Failed);
    assert!(status.failure.as_deref().is_some_and(|text| text.contains("host-2:6121: row 7")), "{:?}", status.failure);
    assert_eq!(rig.effects().last(), Some(&Effect::ReleaseSlots));
    assert_eq!(rig.machine.deadline(), None);
}

#[test]
fn restarts_are_limited() {
    let mut plan = exchange(2);
    plan.settings.restart = RestartSettings::FixedDelay { attempts: 2, delay_ms: 0 };
    let mut rig = Rig::running(plan);
    for number in 2..=3 {
        rig.all(boom());
        assert_eq!(rig.deployed(), Some((number, None)));
    }
    rig.all(boom());
    assert_eq!(rig.status().state, JobState::Failed);
    assert_eq!(rig.status().restarts, 2);
}

#[test]
fn a_job_that_waits_for_more_slots_gives_its_own_back() {
    let mut rig = Rig::running(exchange(2));
    rig.lose(2);
    rig.event(Event::Resources(vec![task_manager(1, 1)]));
    rig.all(TaskState::Canceled);
    rig.effects.clear();
    rig.wait(1_000);
    assert_eq!(rig.effects(), [Effect::ReleaseSlots]);
    assert_eq!(rig.status().state, JobState::Scheduled);
    rig.wait(1_000);
    assert_eq!(rig.effects(), [], "once");
    rig.event(Event::Resources(vec![task_manager(1, 2)]));
    assert_eq!(rig.deployed(), Some((2, None)));
}

#[test]
fn a_task_manager_that_comes_back_is_told_to_end_what_it_runs() {
    let mut rig = Rig::running(exchange(2));
    rig.lose(2);
    rig.effects.clear();
    rig.event(Event::Resources(vec![task_manager(1, 1), task_manager(2, 1)]));
    let back = vec![TaskManagerId::from_u128(2)];
    assert_eq!(rig.effects(), [Effect::CancelAttempt { attempt: attempt(1), task_managers: back }]);
    rig.event(Event::Resources(vec![task_manager(1, 1), task_manager(2, 1)]));
    assert_eq!(rig.effects(), [], "once");
}

/// What is there instead is said right behind a loss: without it, slots that the job has just got would be given back.
#[test]
fn a_loss_alone_decides_nothing() {
    let mut rig = Rig::running(exchange(2));
    rig.task(task(1, 0), boom());
    for (vertex, subtask) in [(0, 0), (1, 0)] {
        rig.task(task(vertex, subtask), TaskState::Canceled);
    }
    rig.wait(1_000);
    rig.effects.clear();
    rig.lose(2);
    assert_eq!(rig.effects(), [], "nothing of the attempt is left, and the next is due");
    assert_eq!(rig.machine.deadline(), None);
    rig.event(Event::Resources(vec![task_manager(1, 1), task_manager(3, 1)]));
    assert!(!rig.effects.contains(&Effect::ReleaseSlots));
    assert_eq!(rig.deployed(), Some((2, None)));
}

#[test]
fn a_job_that_cannot_begin_keeps_no_slots() {
    let mut rig = Rig::new(exchange(4));
    rig.event(Event::Start { splits: BTreeMap::new() });
    for slots in [2, 3] {
        rig.event(Event::Resources(vec![task_manager(1, slots)]));
        assert_eq!(rig.effects(), [Effect::ReleaseSlots], "some may have been granted");
        rig.wait(1_000);
        assert_eq!(rig.effects(), [], "once");
    }
}
