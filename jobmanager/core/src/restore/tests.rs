//! Every entry and every key group of a checkpoint comes to exactly the tasks that should have it, for all p → p′.

use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::Handle;
use levada_common::ids::{CheckpointId, SubtaskIndex};

use super::*;
use crate::testing::{attempt, exchange};

fn state(uid: &str, kind: StateKind, subtask: u32, key_groups: KeyGroupRange, rows: u64) -> StateHandle {
    StateHandle {
        uid: Uid::new(uid),
        name: "state".into(),
        kind,
        schema: Arc::default(),
        subtask: SubtaskIndex(subtask),
        key_groups,
        rows,
        crc32c: 0,
        handle: Handle::Inline(Bytes::new()),
    }
}

/// A checkpoint of `exchange(parallelism)`: the source has a list, the counting vertex keyed state and a list.
fn checkpoint(parallelism: u32, rows: impl Fn(u32) -> u64, finished: impl Fn(u32) -> bool) -> CheckpointMetadata {
    let plan = exchange(parallelism);
    let all = KeyGroupRange::all(plan.max_parallelism);
    let mut tasks = Vec::new();
    for subtask in 0..parallelism {
        let list = state("numbers", StateKind::OperatorList, subtask, all, rows(subtask));
        tasks.push(TaskSnapshot { task: TaskId::new(VertexId(0), subtask), finished: finished(subtask), states: vec![list] });
        let groups = KeyGroupRange::of_subtask(subtask, parallelism, plan.max_parallelism);
        let states = vec![state("out", StateKind::Keyed, subtask, groups, 7)];
        tasks.push(TaskSnapshot { task: TaskId::new(VertexId(1), subtask), finished: false, states });
    }
    CheckpointMetadata {
        job: attempt(1).job,
        epoch: attempt(1).epoch,
        id: CheckpointId(4),
        triggered_at_ms: 0,
        max_parallelism: plan.max_parallelism,
        tasks,
    }
}

#[test]
fn every_entry_goes_to_one_task_in_order_and_evenly() {
    for old in 1..=7 {
        for new in 1..=7 {
            let rows = |subtask: u32| u64::from(subtask * 3 % 5);
            let restored = assign(&exchange(new), &checkpoint(old, rows, |_| false)).expect("fits");
            let all: Vec<(u32, u64)> = (0..old).flat_map(|subtask| (0..rows(subtask)).map(move |row| (subtask, row))).collect();
            let mut given = Vec::new();
            for subtask in 0..new {
                let mine = &restored[&TaskId::new(VertexId(0), subtask)].states;
                let entries: Vec<(u32, u64)> =
                    mine.iter().flat_map(|piece| piece.entries.clone().map(|row| (piece.state.subtask.0, row))).collect();
                let even = (all.len() / new as usize)..=all.len().div_ceil(new as usize);
                assert!(old == new || even.contains(&entries.len()), "{old} → {new}: {} of {}", entries.len(), all.len());
                given.extend(entries);
            }
            assert_eq!(given, all, "{old} → {new}");
        }
    }
}

#[test]
fn every_key_group_goes_to_its_owner() {
    for old in 1..=9 {
        for new in 1..=9 {
            let plan = exchange(new);
            let restored = assign(&plan, &checkpoint(old, |_| 1, |_| false)).expect("fits");
            for subtask in 0..new {
                let mine = &restored[&TaskId::new(VertexId(1), subtask)].states;
                let groups = KeyGroupRange::of_subtask(subtask, new, plan.max_parallelism);
                for group in groups.groups() {
                    let holders = mine.iter().filter(|piece| piece.state.key_groups.contains(group)).count();
                    assert_eq!(holders, 1, "{old} → {new}, group {group}");
                }
                assert!(mine.iter().all(|piece| piece.state.key_groups.intersects(groups)), "{old} → {new}: too much");
            }
        }
    }
}

#[test]
fn finished_stays_with_its_task_and_with_all_otherwise() {
    let first = checkpoint(2, |_| 1, |subtask| subtask == 0);
    let same = assign(&exchange(2), &first).expect("fits");
    assert!(same[&TaskId::new(VertexId(0), 0)].finished);
    assert!(!same[&TaskId::new(VertexId(0), 1)].finished);
    let wider = assign(&exchange(3), &first).expect("fits");
    assert!(wider.values().all(|restored| !restored.finished));
    let all = assign(&exchange(3), &checkpoint(2, |_| 1, |_| true)).expect("fits");
    assert!((0..3).all(|subtask| all[&TaskId::new(VertexId(0), subtask)].finished));
}

#[test]
fn state_of_nobody_is_an_error() {
    let mut unknown = checkpoint(1, |_| 1, |_| false);
    unknown.tasks[0].states[0].uid = Uid::new("gone");
    let error = assign(&exchange(1), &unknown).expect_err("no such operator");
    assert_eq!(error.to_string(), "checkpoint 4 has state \"state\" of operator \"gone\", which the job does not have");
    let mut other = checkpoint(1, |_| 1, |_| false);
    other.max_parallelism *= 2;
    assert!(matches!(assign(&exchange(1), &other), Err(RestoreError::MaxParallelism { .. })));
}
