//! Sources that run ahead of each other, against what the limits promise.

use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorKind, OperatorSpec, TimeFormat, Vertex, WatermarkRule, WatermarkSpec};
use levada_common::types::StreamSchema;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::exchange;

/// One source a vertex, of these groups and drifts; `None`: without a group.
fn plan(sources: &[Option<(&str, u64)>], parallelism: u32) -> Plan {
    let mut plan = exchange(parallelism);
    let source = plan.vertices[0].clone();
    let vertex = |(id, align): (usize, &Option<(&str, u64)>)| {
        let align = align.map(|(group, max_drift_ms)| AlignSpec { group: group.into(), max_drift_ms });
        let watermark = WatermarkSpec {
            column: "t".into(),
            format: TimeFormat::Time,
            rule: WatermarkRule::Disorder { ms: 0 },
            step_ms: 0,
            idleness_ms: None,
            future: None,
            align,
        };
        let schema = StreamSchema::append(Vec::new());
        let operator = OperatorSpec {
            uid: Uid::new("s"),
            clause: "watermark".into(),
            kind: OperatorKind::Watermark(watermark),
            input: schema.clone(),
            output: schema,
            sides: Vec::new(),
            bad_records: BadRecordPolicy::Fail,
        };
        Vertex { id: VertexId(id as u32), operators: vec![operator], ..source.clone() }
    };
    plan.vertices = sources.iter().enumerate().map(vertex).collect();
    plan.edges.clear();
    plan
}

fn task(vertex: u32, subtask: u32) -> TaskId {
    TaskId::new(VertexId(vertex), subtask)
}

fn at(ms: i64) -> SourceTime {
    SourceTime { watermark: Watermark(ms), idle: false }
}

fn limits(alignment: &mut SourceAlignment) -> Vec<(u32, i64)> {
    alignment.limits().into_iter().map(|(task, limit)| (task.vertex.0, limit.0)).collect()
}

#[test]
fn each_goes_as_far_as_the_least_far_and_its_own_drift() {
    let mut alignment = SourceAlignment::new(&plan(&[Some(("a", 100)), Some(("a", 800)), Some(("b", 5)), None], 1));
    let unknown = |drift: i64| i64::MIN + drift;
    assert_eq!(limits(&mut alignment), [(0, unknown(100)), (1, unknown(800)), (2, unknown(5))]);
    assert!(limits(&mut alignment).is_empty(), "what was told is not told again");
    alignment.heard(task(0, 0), at(1_000));
    assert!(limits(&mut alignment).is_empty(), "one that has said nothing holds the others");
    alignment.heard(task(1, 0), at(2_000));
    assert_eq!(limits(&mut alignment), [(0, 1_100), (1, 1_800)]);
    alignment.heard(task(0, 0), at(1_012));
    assert!(limits(&mut alignment).is_empty(), "a small step is not worth a message");
    alignment.heard(task(0, 0), at(1_013));
    assert_eq!(limits(&mut alignment), [(0, 1_113)]);
    alignment.heard(task(3, 0), at(-9));
    assert!(limits(&mut alignment).is_empty());
}

#[test]
fn whoever_is_idle_or_has_ended_holds_nobody() {
    let mut alignment = SourceAlignment::new(&plan(&[Some(("a", 100)), Some(("a", 100))], 1));
    alignment.heard(task(0, 0), at(1_000));
    alignment.heard(task(1, 0), SourceTime { watermark: Watermark::MIN, idle: true });
    assert_eq!(limits(&mut alignment), [(0, 1_100), (1, 1_100)]);
    alignment.heard(task(1, 0), at(500));
    assert!(limits(&mut alignment).is_empty(), "a limit never falls");
    alignment.heard(task(1, 0), SourceTime { watermark: Watermark::MAX, idle: false });
    alignment.heard(task(0, 0), at(2_000));
    assert_eq!(limits(&mut alignment), [(0, 2_100), (1, 2_100)]);
    alignment.heard(task(0, 0), SourceTime { watermark: Watermark(2_050), idle: true });
    assert!(limits(&mut alignment).is_empty());
    alignment.heard(task(0, 0), at(9_000));
    assert_eq!(limits(&mut alignment), [(0, 9_100), (1, 9_100)], "the only one that is left");
}

#[test]
fn sources_that_were_all_idle_are_kept_together_afterwards() {
    let mut alignment = SourceAlignment::new(&plan(&[Some(("a", 100)), Some(("a", 100))], 1));
    alignment.heard(task(0, 0), at(1_000));
    alignment.heard(task(1, 0), at(900));
    assert_eq!(limits(&mut alignment), [(0, 1_000), (1, 1_000)]);
    alignment.heard(task(0, 0), SourceTime { watermark: Watermark(1_000), idle: true });
    alignment.heard(task(1, 0), SourceTime { watermark: Watermark(900), idle: true });
    assert!(limits(&mut alignment).is_empty(), "nobody has come further");
    alignment.heard(task(0, 0), at(5_000));
    assert_eq!(limits(&mut alignment), [(0, 5_100), (1, 5_100)], "the other one is idle yet");
    alignment.heard(task(1, 0), at(1_000));
    alignment.heard(task(0, 0), at(5_100));
    assert!(limits(&mut alignment).is_empty(), "the one ahead waits");
}

#[test]
fn a_new_attempt_begins_from_nothing() {
    let mut alignment = SourceAlignment::new(&plan(&[Some(("a", 100))], 2));
    (0..2).for_each(|subtask| alignment.heard(task(0, subtask), at(1_000)));
    assert_eq!(limits(&mut alignment), [(0, 1_100), (0, 1_100)]);
    alignment.restart();
    assert_eq!(limits(&mut alignment), [(0, i64::MIN + 100), (0, i64::MIN + 100)]);
}

const SOURCES: usize = 4;
const STEP_MS: i64 = 40;

/// However messages are delayed: nobody is further ahead than the drift and one step, and somebody always reads on.
#[test]
fn sources_stay_together_and_never_all_wait() {
    let mut waits = 0;
    for seed in 0..2_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let drift = rng.random_range(1..200);
        let mut alignment = SourceAlignment::new(&plan(&[Some(("g", drift)); SOURCES], 1));
        let mut reached = [i64::MIN; SOURCES];
        let mut limit = [i64::MIN; SOURCES];
        let tell = |alignment: &mut SourceAlignment, limit: &mut [i64; SOURCES]| {
            for (task, told) in alignment.limits() {
                limit[task.vertex.0 as usize] = told.0;
            }
        };
        for _ in 0..400 {
            let source = rng.random_range(0..SOURCES);
            match rng.random_range(0..100) {
                0..50 if reached[source] > limit[source] => waits += 1,
                0..50 => {
                    reached[source] = reached[source].max(0).saturating_add(rng.random_range(1..=STEP_MS));
                    let least = reached.iter().min().copied().unwrap_or_default().max(0);
                    let allowed = least.saturating_add(drift as i64).saturating_add(STEP_MS);
                    assert!(reached[source] <= allowed, "seed {seed}: {reached:?}, drift {drift}");
                }
                50..75 => alignment.heard(task(source as u32, 0), at(reached[source])),
                75..99 => tell(&mut alignment, &mut limit),
                _ => reached[source] = i64::MAX,
            }
        }
        (0..SOURCES).for_each(|source| alignment.heard(task(source as u32, 0), at(reached[source])));
        tell(&mut alignment, &mut limit);
        let least = (0..SOURCES).min_by_key(|source| reached[*source]).expect("there are sources");
        let has_ended = reached[least] == i64::MAX;
        assert!(has_ended || reached[least] <= limit[least], "seed {seed}: the least far waits: {reached:?}, {limit:?}");
    }
    assert!(waits > 10_000, "the run is empty: {waits} waits");
}
