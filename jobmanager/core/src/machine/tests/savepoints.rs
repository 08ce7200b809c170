//! Savepoints: whose they are, what they commit, and what a job is restored from after one.

use super::*;
use crate::restore::RestoreBase;
use crate::savepoints::{SavepointMode, SavepointPhase};

fn request(id: &str, mode: SavepointMode) -> Event {
    Event::Savepoint(SavepointRequest { id: id.into(), directory: "file:///sp/".into(), mode })
}

fn phase(rig: &Rig, id: &str) -> SavepointPhase {
    rig.machine.savepoint(id).expect("it was requested").phase.clone()
}

/// The folder of the savepoint that was just triggered, and whether it stops the job.
fn triggered(rig: &mut Rig, id: u64) -> (String, bool) {
    let effects = rig.effects();
    let [Effect::TriggerCheckpoint { checkpoint, kind: CheckpointKind::Savepoint { directory, stops }, inline: false, .. }] =
        effects.as_slice()
    else {
        panic!("{effects:?}")
    };
    assert_eq!(checkpoint.0, id);
    (directory.to_string(), *stops)
}

fn notified(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::NotifyCheckpoint { completed: true, .. }))
}

#[test]
fn a_savepoint_commits_nothing_and_nothing_is_restored_from_it() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.effects.clear();
    rig.event(request("a", SavepointMode::Continue));
    let (folder, stops) = triggered(&mut rig, 2);
    assert!(folder.starts_with("file:///sp/savepoint-") && folder.ends_with("-2") && !stops, "{folder}");
    rig.acknowledge_all(2);
    let effects = rig.effects();
    let written = |effect: &Effect| matches!(effect, Effect::WriteMetadata { metadata, kind: CheckpointKind::Savepoint { .. }, .. } if metadata.savepoint);
    assert!(effects.iter().any(written), "{effects:?}");
    rig.written(2);
    assert!(rig.effects().is_empty(), "no one is told, and checkpoint 1 stays");
    assert_eq!(phase(&rig, "a"), SavepointPhase::Completed);
    assert_eq!(rig.status().checkpoints.last_completed.map(|record| record.id), Some(CheckpointId(1)));
    rig.task(task(0, 0), boom());
    rig.all(TaskState::Canceled);
    rig.wait(1_000);
    assert_eq!(rig.deployed(), Some((2, Some(1))), "the newest checkpoint, whatever became of the savepoint");
}

#[test]
fn a_request_comes_after_the_checkpoint_under_way_and_before_the_next() {
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.effects.clear();
    rig.event(request("a", SavepointMode::Continue));
    rig.event(request("a", SavepointMode::Stop));
    assert!(rig.effects().is_empty());
    assert_eq!(phase(&rig, "a"), SavepointPhase::Waiting);
    rig.acknowledge_all(1);
    rig.written(1);
    let last = rig.effects().pop();
    let stops = |effect: &Effect| {
        matches!(effect, Effect::TriggerCheckpoint { kind: CheckpointKind::Savepoint { stops: false, .. }, .. })
    };
    assert!(last.as_ref().is_some_and(stops), "{last:?}");
}

#[test]
fn a_savepoint_that_fails_costs_its_user_only() {
    let mut rig = Rig::running(exchange(2));
    for round in 0..20 {
        let id = format!("{round}");
        rig.event(request(&id, SavepointMode::Continue));
        rig.decline(round + 1, task(0, 0), DeclineReason::Declined("disk full".into()));
        let SavepointPhase::Failed(why) = phase(&rig, &id) else { panic!("it failed") };
        assert!(why.contains("disk full"), "{why}");
    }
    assert_eq!(rig.status().state, JobState::Running);
    assert_eq!(rig.status().checkpoints.consecutive_failures, 0);
    let gone = |effect: &Effect| matches!(effect, Effect::DiscardCheckpoint { kind: CheckpointKind::Savepoint { .. }, .. });
    assert_eq!(rig.effects().iter().filter(|effect| gone(effect)).count(), 20);
}

#[test]
fn only_a_running_job_has_savepoints() {
    let mut rig = Rig::new(exchange(2));
    rig.event(request("a", SavepointMode::Stop));
    let SavepointPhase::Failed(why) = phase(&rig, "a") else { panic!("it is refused") };
    assert!(why.contains("SCHEDULED"), "{why}");
    let mut rig = Rig::running(exchange(2));
    rig.wait(1_000);
    rig.event(request("b", SavepointMode::Continue));
    rig.task(task(0, 0), boom());
    let SavepointPhase::Failed(why) = phase(&rig, "b") else { panic!("its attempt is over") };
    assert!(why.contains("boom"), "{why}");
}

#[test]
fn a_job_that_is_stopped_commits_and_finishes() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.effects.clear();
    rig.event(request("a", SavepointMode::Stop));
    assert!(triggered(&mut rig, 2).1);
    rig.event(request("b", SavepointMode::Stop));
    let SavepointPhase::Failed(why) = phase(&rig, "b") else { panic!("one is enough") };
    assert!(why.contains("request a"), "{why}");
    rig.acknowledge_all(2);
    rig.effects.clear();
    rig.written(2);
    let effects = rig.effects();
    assert!(matches!(effects[..], [Effect::NotifyCheckpoint { completed: true, last: true, .. }]), "{effects:?}");
    rig.all(TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Finished);
    assert_eq!(rig.machine.ending_savepoint().map(|ending| ending.request.id.clone()), Some("a".into()));
    let effects = rig.effects();
    let of_savepoint =
        |effect: &&Effect| matches!(effect, Effect::DiscardCheckpoint { kind, .. } if *kind != CheckpointKind::Checkpoint);
    assert_eq!(effects.iter().find(of_savepoint), None, "the savepoint is its user's");
}

#[test]
fn after_a_stop_a_failed_attempt_only_commits_and_ends() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.event(request("a", SavepointMode::Stop));
    rig.acknowledge_all(2);
    rig.written(2);
    rig.effects.clear();
    rig.task(task(1, 0), boom());
    rig.all(TaskState::Canceled);
    rig.wait(1_000);
    let effects = rig.effects();
    let Some(Effect::Deploy { restored, directory, tasks, .. }) = effects.last() else { panic!("{effects:?}") };
    assert_eq!(*restored, Some(CheckpointId(2)));
    assert!(directory.as_ref().is_some_and(|directory| directory.ends_with("-2")), "{directory:?}");
    assert!(tasks.iter().all(|task| task.finished && !task.states.is_empty() && task.splits.is_empty()));
    rig.all(TaskState::Finishing);
    rig.acknowledge_all(3);
    rig.effects.clear();
    rig.written(3);
    assert!(notified(&rig.effects()));
    rig.all(TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Finished);
}

#[test]
fn a_stop_that_fails_lets_the_job_go_on() {
    let mut rig = Rig::running(exchange(2));
    rig.event(request("a", SavepointMode::Stop));
    rig.effects.clear();
    rig.decline(1, task(0, 0), DeclineReason::Declined("no".into()));
    let effects = rig.effects();
    assert!(matches!(effects[0], Effect::NotifyCheckpoint { completed: false, last: false, .. }), "{effects:?}");
    assert_eq!(rig.status().state, JobState::Running);
    rig.event(request("b", SavepointMode::Stop));
    assert_eq!(phase(&rig, "b"), SavepointPhase::InProgress);
}

#[test]
fn a_drain_ends_the_sources_first() {
    let mut rig = Rig::running(exchange(2));
    rig.event(request("a", SavepointMode::Drain));
    let effects = rig.effects();
    let [Effect::EndSources { tasks, .. }] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(tasks.iter().map(|(_, task)| *task).collect::<Vec<_>>(), [task(0, 0), task(0, 1)]);
    rig.wait(5_000);
    assert!(rig.effects().is_empty(), "no checkpoint of ended sources");
    assert_eq!(phase(&rig, "a"), SavepointPhase::Waiting);
    rig.all(TaskState::Finishing);
    assert!(triggered(&mut rig, 1).1);
    rig.acknowledge_all(1);
    rig.written(1);
    rig.all(TaskState::Finished);
    assert_eq!(rig.status().state, JobState::Finished);
    assert_eq!(phase(&rig, "a"), SavepointPhase::Completed);
}

#[test]
fn a_drain_that_fails_goes_back_to_where_the_sources_had_not_ended() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    rig.event(request("a", SavepointMode::Drain));
    rig.all(TaskState::Finishing);
    rig.decline(2, task(0, 0), DeclineReason::Declined("disk full".into()));
    assert_eq!(rig.status().state, JobState::Restarting);
    assert!(rig.status().failure.is_some_and(|failure| failure.contains("disk full")));
    rig.all(TaskState::Canceled);
    rig.wait(1_000);
    assert_eq!(rig.deployed(), Some((2, Some(1))));
    rig.all(TaskState::Running);
    rig.complete(3);
}

#[test]
fn a_job_begins_with_a_snapshot_until_it_has_its_own() {
    let mut first = Rig::running(exchange(2));
    first.event(request("a", SavepointMode::Continue));
    first.acknowledge_all(1);
    let metadata = first.effects().into_iter().find_map(|effect| match effect {
        Effect::WriteMetadata { metadata, .. } => Some(metadata),
        _ => None,
    });
    let metadata = CheckpointMetadata { id: CheckpointId(41), ..metadata.expect("it is written") };
    let base = RestoreBase { metadata, directory: "file:///moved".into() };
    let AttemptId { job, epoch, .. } = attempt(0);
    let machine = Machine::new(job, epoch, Arc::new(exchange(3)), Options::default(), Some(base));
    let mut rig = Rig { machine, now: 0, effects: Vec::new() };
    rig.event(Event::Start { splits: BTreeMap::from([(0, vec!["new".into()])]) });
    rig.event(Event::Resources(vec![task_manager(1, 3)]));
    let restored = |rig: &mut Rig| {
        let effects = rig.effects();
        let deploy = effects.into_iter().find_map(|effect| match effect {
            Effect::Deploy { restored, directory, tasks, .. } => Some((restored, directory, tasks)),
            _ => None,
        });
        deploy.expect("it is deployed")
    };
    let (id, directory, tasks) = restored(&mut rig);
    assert_eq!((id, directory.as_deref()), (Some(CheckpointId(41)), Some("file:///moved")));
    assert!(tasks.iter().all(|task| task.splits.is_empty()), "the source was there");
    rig.all(TaskState::Running);
    rig.task(task(0, 0), boom());
    rig.all(TaskState::Canceled);
    rig.wait(1_000);
    assert_eq!(restored(&mut rig).1.as_deref(), Some("file:///moved"), "it is remembered until there is a checkpoint");
    rig.all(TaskState::Running);
    rig.wait(1_000);
    rig.acknowledge_all(42);
    rig.written(42);
    assert!(rig.effects.contains(&Effect::ForgetBase { checkpoint: CheckpointId(41) }));
    rig.task(task(0, 0), boom());
    rig.all(TaskState::Canceled);
    rig.effects.clear();
    rig.wait(1_000);
    let (id, directory, _) = restored(&mut rig);
    assert_eq!((id, directory), (Some(CheckpointId(42)), None));
    assert_eq!(rig.status().started_from.map(|from| from.checkpoint), Some(CheckpointId(41)));
}

#[test]
fn no_attempt_waits_for_a_savepoint_that_is_being_written() {
    let mut rig = Rig::running(exchange(2));
    rig.complete(1);
    for (id, is_written) in [(2, true), (3, false)] {
        let name = id.to_string();
        rig.event(request(&name, SavepointMode::Continue));
        rig.acknowledge_all(id);
        rig.task(task(0, 0), boom());
        rig.all(TaskState::Canceled);
        rig.effects.clear();
        rig.wait(1_000);
        assert_eq!(rig.deployed(), Some((id as u32, Some(1))), "while it is being written");
        assert_eq!(phase(&rig, &name), SavepointPhase::InProgress);
        assert_eq!(rig.status().checkpoints.in_progress, 1);
        rig.acknowledge(id, file(id, task(0, 0)));
        assert_eq!(rig.effects().iter().filter(|effect| is_discard(effect)).count(), 0, "its files are held");
        if is_written {
            rig.written(id);
            assert_eq!((phase(&rig, &name), rig.effects()), (SavepointPhase::Completed, Vec::new()));
        } else {
            assert_eq!(rig.machine.deadline(), rig.machine.coordinator.left_deadline());
            rig.wait(10_000);
            let SavepointPhase::Failed(why) = phase(&rig, &name) else { panic!("it is too late") };
            assert!(why.contains("the metadata to be written"), "{why}");
            assert!(!rig.effects().iter().any(is_discard), "it may be written yet");
            rig.written(id);
            assert!(rig.effects().iter().any(is_discard));
        }
        rig.all(TaskState::Running);
        rig.effects.clear();
    }
}
