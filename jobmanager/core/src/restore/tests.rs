//! Every entry and every key group of a checkpoint comes to exactly the tasks that should have it, for all p → p′.

use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::Handle;
use levada_common::ids::{CheckpointId, SubtaskIndex};

use super::*;
use crate::pending::vertices;
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
        savepoint: false,
        vertices: vertices(&plan),
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
fn where_a_source_begins_anew_nothing_has_finished() {
    let mut ended = checkpoint(2, |_| 1, |_| true);
    ended.tasks.iter_mut().for_each(|task| task.finished = true);
    let finished = |checkpoint: &CheckpointMetadata| {
        let restored = assign(&exchange(2), checkpoint).expect("fits");
        restored.values().filter(|task| task.finished).count()
    };
    assert_eq!(finished(&ended), 4);
    // As `--drop-state numbers` leaves it.
    ended.tasks.iter_mut().for_each(|task| task.states.retain(|state| state.uid.as_str() != "numbers"));
    ended.vertices.iter_mut().for_each(|vertex| vertex.uids.retain(|uid| uid.as_str() != "numbers"));
    assert_eq!(finished(&ended), 0);
}

#[test]
fn state_of_nobody_is_an_error() {
    let mut unknown = checkpoint(1, |_| 1, |_| false);
    unknown.tasks[0].states[0].uid = Uid::new("gone");
    let error = assign(&exchange(1), &unknown).expect_err("no such operator");
    assert_eq!(error.to_string(), "checkpoint 4 has state \"state\" of operator \"gone\", which the job does not have");
    let mut other = checkpoint(1, |_| 1, |_| false);
    other.max_parallelism = 96;
    assert!(matches!(assign(&exchange(1), &other), Err(RestoreError::MaxParallelism { .. })));
}

/// `union`, broadcast and list state of the sink's vertex, `rows` rows each.
fn operator_states(parallelism: u32, rows: u64) -> CheckpointMetadata {
    let mut checkpoint = checkpoint(parallelism, |_| 1, |_| false);
    for task in checkpoint.tasks.iter_mut().filter(|task| task.task.vertex == VertexId(1)) {
        for (name, kind) in [("union", StateKind::OperatorUnion), ("broadcast", StateKind::OperatorBroadcast)] {
            let all = KeyGroupRange::all(128);
            task.states.push(StateHandle { name: name.into(), ..state("out", kind, task.task.subtask.0, all, rows) });
        }
    }
    checkpoint
}

#[test]
fn a_union_goes_to_all_and_of_broadcast_state_each_takes_one() {
    for old in 1..=8 {
        for new in 1..=8 {
            let restored = assign(&exchange(new), &operator_states(old, 2)).expect("fits");
            for subtask in 0..new {
                let states = &restored[&TaskId::new(VertexId(1), subtask)].states;
                let of = |name: &str| -> Vec<(u32, Range<u64>)> {
                    let found = states.iter().filter(|piece| piece.state.name == name);
                    found.map(|piece| (piece.state.subtask.0, piece.entries.clone())).collect()
                };
                assert_eq!(of("union"), (0..old).map(|from| (from, 0..2)).collect::<Vec<_>>(), "{old} → {new}");
                assert_eq!(of("broadcast").len(), 1, "{old} → {new}");
            }
        }
    }
}

/// The test plan with this max parallelism.
fn wide(parallelism: u32, max_parallelism: u32) -> Plan {
    Plan { max_parallelism, ..exchange(parallelism) }
}

#[test]
fn groups_nest_when_the_max_parallelism_is_multiplied() {
    for (old, max, new, factor) in [(2, 4, 2, 2), (2, 4, 8, 2), (4, 4, 1, 3), (3, 7, 5, 4), (1, 1, 8, 8), (8, 8, 32, 4)] {
        let written = |subtask: u32| {
            let groups = KeyGroupRange::of_subtask(subtask, old, max);
            let states = vec![state("out", StateKind::Keyed, subtask, groups, 1)];
            TaskSnapshot { task: TaskId::new(VertexId(1), subtask), finished: false, states }
        };
        let checkpoint = CheckpointMetadata {
            max_parallelism: max,
            vertices: vertices(&exchange(old)),
            tasks: (0..old).map(written).collect(),
            ..checkpoint(1, |_| 1, |_| false)
        };
        let plan = wide(new, max * factor);
        let restored = assign(&plan, &checkpoint).expect("it is a multiple");
        for subtask in 0..new {
            let mine = &restored[&TaskId::new(VertexId(1), subtask)].states;
            for group in KeyGroupRange::of_subtask(subtask, new, max * factor).groups() {
                let holders = mine.iter().filter(|piece| piece.state.key_groups.contains(group / factor as u16)).count();
                assert_eq!(holders, 1, "{old} of {max} → {new} of {}: group {group}", max * factor);
            }
            assert!(mine.iter().all(|piece| piece.max_parallelism == max));
        }
    }
}

#[test]
fn state_follows_its_operator_into_another_vertex() {
    let old = checkpoint(2, |_| 3, |subtask| subtask == 1);
    let mut plan = exchange(2);
    // The sink is chained behind the source now, as one vertex, behind a new one.
    let sink = plan.vertices[1].sink.take();
    plan.vertices.swap(0, 1);
    for (id, vertex) in plan.vertices.iter_mut().enumerate() {
        vertex.id = VertexId(id as u32);
    }
    plan.vertices[1].sink = sink;
    let restored = assign(&plan, &old).expect("fits");
    let states = |subtask: u32| -> Vec<(String, u32)> {
        let states = &restored[&TaskId::new(VertexId(1), subtask)].states;
        states.iter().map(|piece| (piece.state.uid.to_string(), piece.state.subtask.0)).collect()
    };
    for subtask in 0..2 {
        assert_eq!(states(subtask), [("numbers".to_string(), subtask), ("out".to_string(), subtask)]);
    }
    assert!(restored.values().all(|restored| !restored.finished), "only one of the old tasks had finished");
}
