//! Operator states against plain ones that are cloned at each barrier, and through files.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::descriptor::{
    BroadcastState, BroadcastStateDescriptor, ListStateDescriptor, OperatorListDescriptor, OperatorListState, Recorder,
};
use crate::format::{SizeLimit, decode, encode};
use crate::types::{Decimal, Serde, Timestamp};

type Rule = (String, Option<i32>);

/// An operator with a list and a map.
struct Fixture {
    states: OperatorStates,
    list: OperatorListState<Rule>,
    map: BroadcastState<u32, String>,
}

impl Fixture {
    fn new() -> Self {
        let mut states = OperatorStates::new(Uid::new("rules"));
        let list = OperatorListDescriptor::split("seen").bind(&mut states).expect("bound");
        let map = BroadcastStateDescriptor::new("names").bind(&mut states).expect("bound");
        Self { states, list, map }
    }

    fn content(&self) -> Content {
        let map = self.map.iter(&self.states).map(|(key, value)| (*key, value.clone())).collect();
        Content { list: self.list.get(&self.states).to_vec(), map }
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Content {
    list: Vec<Rule>,
    map: BTreeMap<u32, String>,
}

fn rows(part: StatePart) -> (StateMeta, Vec<RecordBatch>) {
    let (meta, reader) = part.into_pieces().expect("pieces");
    (meta, reader.map(|piece| piece.expect("it was finished")).collect())
}

/// Reads the parts into a new operator.
fn restored(parts: Vec<StatePart>) -> Content {
    let mut fixture = Fixture::new();
    for part in parts {
        let (meta, batches) = rows(part);
        fixture.states.restore(&meta.name, &batches).expect("it is taken");
    }
    fixture.content()
}

#[derive(Debug, Clone)]
enum Step {
    Add(Rule),
    AddMany(usize),
    Update(Vec<Rule>),
    ClearList,
    Put(u32, String),
    PutMany(usize),
    Remove(u32),
    ClearMap,
    Background,
    Barrier,
    GiveUp,
}

fn rule() -> impl Strategy<Value = Rule> {
    ("[a-d]{0,3}", any::<Option<i32>>())
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => rule().prop_map(Step::Add),
        1 => (0..3000usize).prop_map(Step::AddMany),
        1 => prop::collection::vec(rule(), 0..4).prop_map(Step::Update),
        1 => Just(Step::ClearList),
        6 => (0..3000u32, "[a-d]{0,3}").prop_map(|(key, value)| Step::Put(key, value)),
        1 => (0..3000usize).prop_map(Step::PutMany),
        5 => (0..3000u32).prop_map(Step::Remove),
        1 => Just(Step::ClearMap),
        3 => Just(Step::Background),
        3 => Just(Step::Barrier),
        1 => Just(Step::GiveUp),
    ];
    prop::collection::vec(step, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn a_snapshot_is_the_state_at_its_barrier(steps in steps()) {
        let (mut fixture, mut model) = (Fixture::new(), Content::default());
        let mut snapshots: Vec<(Vec<StatePart>, Content)> = Vec::new();
        let mut running = false;
        for (at, step) in steps.into_iter().enumerate() {
            let Fixture { states, list, map } = &mut fixture;
            match step {
                Step::Add(rule) => {
                    list.add(states, rule.clone());
                    model.list.push(rule);
                }
                Step::AddMany(count) => {
                    let rules = || (0..count).map(|n| (n.to_string(), Some(at as i32)));
                    list.add_all(states, rules());
                    model.list.extend(rules());
                }
                Step::Update(rules) => {
                    list.update(states, rules.clone());
                    model.list = rules;
                }
                Step::ClearList => {
                    list.clear(states);
                    model.list.clear();
                }
                Step::Put(key, value) => {
                    map.put(states, key, value.clone());
                    model.map.insert(key, value);
                }
                Step::PutMany(count) => {
                    for key in 0..count as u32 {
                        map.put(states, key, at.to_string());
                        model.map.insert(key, at.to_string());
                    }
                }
                Step::Remove(key) => {
                    map.remove(states, &key);
                    model.map.remove(&key);
                }
                Step::ClearMap => {
                    map.clear(states);
                    model.map.clear();
                }
                Step::Background => running = states.background().expect("saved"),
                Step::Barrier => {
                    let parts = states.snapshot(CheckpointId(at as u64)).expect("frozen");
                    snapshots.push((parts, model.clone()));
                    running = true;
                }
                Step::GiveUp => {
                    let last = states.checkpoint;
                    if let Some(checkpoint) = last.filter(|_| running) {
                        states.notify(checkpoint, false);
                        snapshots.pop();
                        running = false;
                    }
                }
            }
            prop_assert_eq!(fixture.content(), model.clone());
        }
        while fixture.states.background().expect("saved") {}
        for (parts, expected) in snapshots {
            prop_assert_eq!(restored(parts), expected);
        }
        fixture.list.clear(&mut fixture.states);
        fixture.map.clear(&mut fixture.states);
        prop_assert!(fixture.states.memory_bytes() < 200_000, "{} bytes", fixture.states.memory_bytes());
    }
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Encodes each part, compares it with its golden file, decodes that, and gives the rows by the state's name.
fn through_golden_files(parts: Vec<StatePart>) -> Vec<(StateMeta, Vec<RecordBatch>)> {
    let through = |part: StatePart| {
        let mut bytes = Vec::new();
        let (meta, pieces) = part.into_pieces().expect("pieces");
        encode(&meta, 128, pieces, SizeLimit { bytes_max: None }, &mut bytes).expect("encoded");
        let path = golden(&format!("{}-{}-v1.arrow", meta.kind.name(), meta.name));
        if std::env::var_os("LEVADA_WRITE_GOLDEN").is_some() && !path.exists() {
            std::fs::write(&path, &bytes).expect("a file");
        }
        let golden = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(golden == bytes, "{}: the format has changed; raise FORMAT_VERSION and keep reading the old one", path.display());
        let back = decode(Bytes::from(golden)).expect("it is read");
        assert_eq!(back.meta, meta);
        (back.meta, back.batches)
    };
    parts.into_iter().map(through).collect()
}

#[test]
fn golden_files_of_lists_and_maps_are_read_and_written_alike() {
    let bind = |states: &mut OperatorStates| {
        let split = OperatorListDescriptor::<(String, Option<f64>)>::split("weights").bind(states).expect("bound");
        let union = OperatorListDescriptor::<(Timestamp, Vec<i8>)>::union("offsets").bind(states).expect("bound");
        let map = BroadcastStateDescriptor::<(String, u32), Decimal<10, 2>>::new("prices").bind(states).expect("bound");
        (split, union, map)
    };
    let mut states = OperatorStates::new(Uid::new("rules"));
    let (split, union, map) = bind(&mut states);
    split.add_all(&mut states, [("b".into(), Some(0.5)), ("ä".into(), None), (String::new(), Some(f64::NAN))]);
    union.add(&mut states, (Timestamp(1_767_225_600_000), vec![1, -1]));
    for (place, name) in ["tea", "cup"].into_iter().enumerate() {
        map.put(&mut states, (name.into(), place as u32), Decimal::new(150 * place as i128 + 25).expect("few digits"));
    }
    let parts = states.snapshot(CheckpointId(1)).expect("frozen");

    let mut back = OperatorStates::new(Uid::new("rules"));
    let (split, union, map) = bind(&mut back);
    for (meta, batches) in through_golden_files(parts) {
        back.restore(&meta.name, &batches).expect("it is taken");
    }
    assert_eq!(split.get(&back)[..2], [("b".to_owned(), Some(0.5)), ("ä".into(), None)]);
    assert!(split.get(&back)[2].1.is_some_and(f64::is_nan));
    assert_eq!(union.get(&back), [(Timestamp(1_767_225_600_000), vec![1, -1])]);
    let prices: Vec<_> = map.iter(&back).map(|((name, place), price)| (name.as_str(), *place, price.unscaled())).collect();
    assert_eq!(prices, [("cup", 1, 175), ("tea", 0, 25)]);
}

#[test]
fn a_state_that_is_not_bound_is_named() {
    let mut fixture = Fixture::new();
    let text = fixture.states.restore("old", &[]).expect_err("refused").to_string();
    assert!(text.contains("operator \"rules\" has no state \"old\"") && text.contains("--drop-state rules/old"), "{text}");
}

#[test]
fn another_type_is_refused_with_both() {
    let mut old = OperatorStates::new(Uid::new("rules"));
    let list = OperatorListDescriptor::<(String, i64)>::split("seen").bind(&mut old).expect("bound");
    list.add(&mut old, ("a".into(), 1));
    let parts = old.snapshot(CheckpointId(1)).expect("frozen");
    let batches = rows(parts.into_iter().next().expect("one part")).1;
    let error = Fixture::new().states.restore("seen", &batches).expect_err("refused");
    let text = levada_common::fault::Faulty::to_failure(&error).message;
    assert!(text.starts_with("state \"seen\" of operator \"rules\": column \"value.1\" is INT64, but"), "{text}");
    assert!(text.ends_with("is stored as INT32"), "{text}");
    let text = Fixture::new().states.restore("names", &batches).expect_err("refused").to_string();
    assert!(text.ends_with("is stored in columns map_key, value; the snapshot has value.0, value.1"), "{text}");
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct Old {
    kept: i64,
    removed: i64,
}

#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
struct New {
    kept: i64,
}

#[test]
fn a_removed_field_is_refused_and_not_lost() {
    let mut old = OperatorStates::new(Uid::new("rules"));
    let list = OperatorListDescriptor::<Serde<Old>>::split("seen").bind(&mut old).expect("bound");
    list.add(&mut old, Serde(Old { kept: 1, removed: 2 }));
    let batches = rows(old.snapshot(CheckpointId(1)).expect("frozen").remove(0)).1;
    let mut new = OperatorStates::new(Uid::new("rules"));
    let list = OperatorListDescriptor::<Serde<New>>::split("seen").bind(&mut new).expect("bound");
    let text = new.restore("seen", &batches).expect_err("refused").to_string();
    assert!(text.ends_with("is stored in columns value.kept; the snapshot has value.kept, value.removed"), "{text}");
    assert!(list.get(&new).is_empty());
}

#[test]
fn keyed_state_needs_keys() {
    let text = ListStateDescriptor::<i64>::new("s").bind(&mut Fixture::new().states).expect_err("refused").to_string();
    assert!(text.starts_with("state \"s\" is keyed state, which this function does not have; use it in"), "{text}");
}

/// A function that counts.
#[derive(Debug, Default, PartialEq)]
struct Counter {
    count: u64,
}

impl Checkpointed for Counter {
    type State = u64;

    fn snapshot_state(&self) -> u64 {
        self.count
    }

    fn restore_state(&mut self, state: u64) {
        self.count += state;
    }
}

/// The counters that `parallelism` new subtasks begin with, from the lists of `old` subtasks cut in even pieces.
fn rescaled(counts: &[u64], parallelism: usize) -> Vec<u64> {
    let element = |count: &u64| {
        let mut states = OperatorStates::new(Uid::new("counter"));
        let variables = Variables::<Counter>::bind("variables", &mut states).expect("bound");
        variables.save(&Counter { count: *count }, &mut states);
        variables.save(&Counter { count: *count }, &mut states);
        let parts = states.snapshot(CheckpointId(1)).expect("frozen");
        rows(parts.into_iter().next().expect("one part")).1
    };
    let elements: Vec<RecordBatch> = counts.iter().flat_map(element).collect();
    assert_eq!(elements.len(), counts.len(), "a list of one element each");
    let begin = |subtask: usize| {
        let piece = elements.len() * subtask / parallelism..elements.len() * (subtask + 1) / parallelism;
        let mut states = OperatorStates::new(Uid::new("counter"));
        let variables = Variables::<Counter>::bind("variables", &mut states).expect("bound");
        states.restore("variables", &elements[piece.clone()]).expect("taken");
        let mut counter = Counter::default();
        assert_eq!(variables.load(&mut counter, &mut states), piece.len());
        assert_eq!(variables.load(&mut counter, &mut states), 0, "what was given is not given again");
        counter.count
    };
    (0..parallelism).map(begin).collect()
}

#[test]
fn variables_come_back_once_at_every_parallelism() {
    let all = [1, 2, 3, 5, 8];
    for old in all {
        let counts: Vec<u64> = (1..=old as u64).map(|n| n * n).collect();
        for new in all {
            let back = rescaled(&counts, new);
            assert_eq!(back.iter().sum::<u64>(), counts.iter().sum::<u64>(), "{old} to {new}");
            if new == old {
                assert_eq!(back, counts);
            }
            if new > old {
                assert_eq!(back.iter().filter(|count| **count == 0).count(), new - old);
            }
        }
    }
}

#[test]
fn a_recorder_notes_variables() {
    let mut recorder = Recorder::new();
    Variables::<Counter>::bind("variables", &mut recorder).expect("bound");
    let states = recorder.into_declarations();
    assert_eq!((states[0].name.as_str(), states[0].kind.name()), ("variables", "operator-list"));
}
