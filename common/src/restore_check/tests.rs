//! Every kind of mismatch is reported, all at once; what is fine is not.

mod windows;

use std::sync::Arc;

use bytes::Bytes;

use super::*;
use crate::checkpoint::{Handle, StateKind, TaskSnapshot, VertexOperators};
use crate::declaration::Options;
use crate::ids::{CheckpointId, Epoch, JobId, SubtaskIndex, TaskId, VertexId};
use crate::keys::KeyGroupRange;
use crate::plan::LibraryCall;
use crate::plan::{
    AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, BackendKind, BadRecordPolicy, CheckpointMode,
    CheckpointSettings, JobSettings, OperatorKind, OperatorSpec, PLAN_VERSION, RestartSettings, SinkSpec, SourceSpec, Vertex,
    WindowSpec, WindowTime,
};
use crate::planned_state::{SPLITS, TRANSACTIONS, WATERMARK};
use crate::state_schema::{Stamps, StateShape};
use crate::types::{LogicalType, StreamSchema};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/restore-report.txt");

fn settings() -> JobSettings {
    JobSettings {
        parallelism: 2,
        backend: BackendKind::Fs,
        max_state_size_bytes: 5 << 20,
        inline_threshold_bytes: 20 << 10,
        checkpoint: CheckpointSettings {
            interval_ms: Some(1_000),
            timeout_ms: 10_000,
            min_pause_ms: 0,
            tolerable_failures: 3,
            num_retained: 1,
            dir: None,
            mode: CheckpointMode::ExactlyOnce,
            retain: true,
        },
        restart: RestartSettings::None,
        batch_rows_max: 8_192,
        buffer_timeout_ms: 100,
    }
}

fn input() -> StreamSchema {
    StreamSchema::append(vec![Column::new("k", LogicalType::String, true), Column::new("v", LogicalType::Int64, true)])
}

fn sum(result: LogicalType) -> AggregateCall {
    AggregateCall {
        name: "total".into(),
        function: AggregateFunction::Sum,
        argument: Some("v".into()),
        argument_type: Some(LogicalType::Int64),
        argument_nullable: true,
        order: Vec::new(),
        result,
        library: None,
    }
}

fn aggregate(uid: &str, key: &str, window: WindowSpec, result: LogicalType) -> OperatorSpec {
    OperatorSpec {
        uid: Uid::new(uid),
        clause: "aggregate".into(),
        kind: OperatorKind::Aggregate(AggregateSpec {
            keys: vec![key.into()],
            window,
            time: WindowTime::default(),
            phase: AggregatePhase::Single,
            calls: vec![sum(result)],
            changelog_full: false,
            firing: None,
            trigger: None,
            takes_changes: false,
            distinct: Vec::new(),
        }),
        input: input(),
        output: input(),
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    }
}

/// Source `lines` → these operators → sink `out`.
fn plan(operators: Vec<OperatorSpec>) -> Plan {
    let source = SourceSpec {
        uid: Uid::new("lines"),
        connector: "file".into(),
        options: Options::default(),
        schema: input(),
        bad_records: BadRecordPolicy::Fail,
    };
    let sink = SinkSpec {
        uid: Uid::new("out"),
        connector: "file".into(),
        options: Options::default(),
        input: input(),
        bad_records: BadRecordPolicy::Fail,
    };
    let vertex =
        Vertex { id: VertexId(0), name: "all".into(), parallelism: 2, source: Some(source), operators, sink: Some(sink) };
    Plan {
        version: PLAN_VERSION,
        name: "test".into(),
        settings: settings(),
        max_parallelism: 128,
        vertices: vec![vertex],
        edges: Vec::new(),
        warnings: Vec::new(),
        changelogs: std::collections::BTreeMap::new(),
    }
}

fn decimal() -> LogicalType {
    LogicalType::Decimal(38, 0)
}

fn tumbling() -> WindowSpec {
    WindowSpec::Tumbling { size_ms: 10_000, offset_ms: 0 }
}

/// A savepoint of the plan: every state in two subtasks, three rows each.
fn snapshot(plan: &Plan) -> CheckpointMetadata {
    let task = |subtask: u32| TaskSnapshot {
        task: TaskId::new(VertexId(0), subtask),
        finished: false,
        states: plan
            .states()
            .into_iter()
            .map(|state| StateHandle {
                uid: state.uid,
                name: state.name,
                kind: state.kind,
                schema: Arc::new(state.schema),
                subtask: SubtaskIndex(subtask),
                key_groups: KeyGroupRange::all(plan.max_parallelism),
                rows: 3,
                crc32c: 0,
                handle: Handle::Inline(Bytes::from_static(b"0123456789")),
            })
            .collect(),
    };
    CheckpointMetadata {
        job: JobId::from_u128(1),
        epoch: Epoch(1),
        id: CheckpointId(17),
        triggered_at_ms: 0,
        max_parallelism: plan.max_parallelism,
        savepoint: true,
        vertices: plan.vertices.iter().map(|v| VertexOperators { parallelism: v.parallelism, uids: v.uids() }).collect(),
        tasks: vec![task(0), task(1)],
    }
}

fn old() -> Plan {
    plan(vec![
        aggregate("sums", "k", tumbling(), decimal()),
        aggregate("counts", "k", WindowSpec::Running, decimal()),
        aggregate("gone", "k", WindowSpec::Running, decimal()),
    ])
}

fn drops(texts: &[&str]) -> Vec<DropState> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

#[test]
fn the_same_job_fits_and_says_nothing() {
    let restorable = check(&snapshot(&old()), &old(), &[]).expect("fits");
    assert_eq!((restorable.metadata, restorable.notes), (snapshot(&old()), Vec::new()));
}

#[test]
fn operators_without_state_come_and_go() {
    let filter = OperatorSpec {
        uid: Uid::new("f1"),
        clause: "where".into(),
        kind: OperatorKind::Filter { predicate: "true".into(), parts_updates: false },
        ..aggregate("f1", "k", tumbling(), decimal())
    };
    let with = plan(vec![filter, aggregate("sums", "k", tumbling(), decimal())]);
    let without = plan(vec![aggregate("sums", "k", tumbling(), decimal())]);
    for (from, to) in [(&with, &without), (&without, &with)] {
        assert_eq!(check(&snapshot(from), to, &[]).expect("fits").notes, Vec::<String>::new());
    }
}

#[test]
fn a_new_operator_with_state_is_only_mentioned() {
    let mut operators = old().vertices[0].operators.clone();
    operators.push(aggregate("more", "k", tumbling(), decimal()));
    let notes = check(&snapshot(&old()), &plan(operators), &[]).expect("fits").notes;
    assert_eq!(notes, ["operator \"more\" is new and begins without state"]);
}

/// `LEVADA_BLESS=1` writes the file anew.
#[test]
fn every_mismatch_is_in_one_report_with_its_remedy() {
    let mut new = plan(vec![
        aggregate("sums", "v", tumbling(), LogicalType::Float64),
        aggregate("count", "k", WindowSpec::Running, decimal()),
    ]);
    new.max_parallelism = 192;
    let mut snapshot = snapshot(&old());
    let changed = |handle: &mut StateHandle| match (handle.uid.as_str(), handle.name.as_str()) {
        ("lines", SPLITS) => handle.kind = StateKind::OperatorUnion,
        ("out", TRANSACTIONS) => handle.name = "transaction".into(),
        ("sums", "panes") => {
            let schema = StateSchema { shape: StateShape::Value, windowed: false, ..(*handle.schema).clone() };
            handle.schema = Arc::new(schema);
        }
        _ => {}
    };
    snapshot.tasks.iter_mut().flat_map(|task| &mut task.states).for_each(changed);
    let report = check(&snapshot, &new, &drops(&["gon", "sums/pane"])).expect_err("nothing fits");
    let text = format!("{report}\n");
    if std::env::var_os("LEVADA_BLESS").is_some() {
        std::fs::write(GOLDEN, &text).expect("written");
    }
    assert_eq!(text, std::fs::read_to_string(GOLDEN).expect("the golden file is there"));
}

#[test]
fn what_is_dropped_is_left_out_and_named() {
    let new = plan(vec![aggregate("sums", "k", tumbling(), decimal()), aggregate("counts", "k", WindowSpec::Running, decimal())]);
    let restorable = check(&snapshot(&old()), &new, &drops(&["gone", "sums/watermark"])).expect("fits");
    assert!(restorable.metadata.states().all(|handle| handle.uid.as_str() != "gone" && handle.name != WATERMARK));
    assert_eq!(
        restorable.notes,
        [
            "state \"aggregate\" of operator \"gone\" (accumulators, 6 rows, 20 bytes) is dropped",
            "state \"watermark\" of operator \"sums\" (operator-union, 6 rows, 20 bytes) is dropped"
        ]
    );
    assert!(!restorable.metadata.vertices[0].uids.contains(&Uid::new("gone")), "it is forgotten");
    assert!(restorable.metadata.vertices[0].uids.contains(&Uid::new("sums")), "it has state left");
    for text in ["lines", "lines/splits"] {
        let restorable = check(&snapshot(&old()), &old(), &drops(&[text])).expect("fits");
        assert!(!restorable.metadata.vertices[0].uids.contains(&Uid::new("lines")), "{text}: it begins anew");
    }
}

/// Rows are taken in anew without it; a database has them as they are.
#[test]
fn what_a_window_notes_of_its_results_may_begin_and_cease_but_for_databases() {
    let job = |fires: bool, changelog_full: bool| {
        let mut job = plan(vec![aggregate("sums", "k", tumbling(), decimal())]);
        let OperatorKind::Aggregate(spec) = &mut job.vertices[0].operators[0].kind else { unreachable!("it is one") };
        spec.firing = fires.then_some(FiringSpec { early: None, lateness_ms: 5, late: None, accumulate: true });
        spec.changelog_full = changelog_full;
        job
    };
    let jobs = [job(false, false), job(true, false), job(true, true)];
    for (at, from) in jobs.iter().enumerate() {
        for (other, to) in jobs.iter().enumerate() {
            let mut snapshot = snapshot(from);
            assert!(check(&snapshot, to, &[]).is_ok(), "{at} to {other}");
            let database = Handle::Database { files: Arc::new([]), family: "panes".into() };
            let panes = snapshot.tasks.iter_mut().flat_map(|task| &mut task.states).filter(|state| state.name == "panes");
            panes.for_each(|state| state.handle = database.clone());
            match check(&snapshot, to, &[]) {
                Ok(_) => assert_eq!(at, other),
                Err(report) => assert!(at != other && report.to_string().contains("firing."), "{at} to {other}: {report}"),
            }
        }
    }
    let mut renamed = job(true, true);
    let OperatorKind::Aggregate(spec) = &mut renamed.vertices[0].operators[0].kind else { unreachable!("it is one") };
    spec.calls[0].name += "s";
    let report =
        check(&snapshot(&jobs[2]), &renamed, &[]).expect_err("the results that were given have other columns").to_string();
    assert!(report.contains("firing.result"), "{report}");
}

#[test]
fn a_state_that_another_version_of_a_library_made_is_refused_by_that() {
    let made_by = |library: &str| {
        let mut job = old();
        for operator in &mut job.vertices[0].operators {
            if let OperatorKind::Aggregate(spec) = &mut operator.kind {
                let state = vec![Column::new(LibraryCall::state_name("total", library, 0), LogicalType::Float64, true)];
                let call = LibraryCall { function: "stddev".into(), arguments: Vec::new(), distinct: false, filter: None, state };
                spec.calls[0] =
                    AggregateCall { function: AggregateFunction::Library, library: Some(Box::new(call)), ..sum(decimal()) };
            }
        }
        job
    };
    assert!(check(&snapshot(&made_by("library7")), &made_by("library7"), &[]).is_ok());
    let report = check(&snapshot(&made_by("library7")), &made_by("library8"), &[]).expect_err("another layout").to_string();
    assert!(report.contains("library that made it") && report.contains("library7") && report.contains("library8"), "{report}");
}

/// Case G46.
#[test]
fn a_time_to_live_may_come_and_go() {
    let expiring = |ttl: Stamps| {
        let mut snapshot = snapshot(&old());
        for handle in snapshot.tasks.iter_mut().flat_map(|task| &mut task.states).filter(|handle| handle.name == "panes") {
            handle.schema = Arc::new(StateSchema { ttl, ..(*handle.schema).clone() });
        }
        snapshot
    };
    let restorable = check(&expiring(Stamps::Event), &old(), &[]).expect("fits");
    assert_eq!(restorable.notes, ["state \"panes\" of operator \"sums\" ceases to expire: what it has stays"]);
    assert_eq!(check(&expiring(Stamps::None), &old(), &[]).expect("fits").notes, Vec::<String>::new());
}

#[test]
fn max_parallelism_is_inherited_multiplied_or_refused() {
    let snapshot = CheckpointMetadata { max_parallelism: 4, ..snapshot(&plan(Vec::new())) };
    let with = |written: Option<u32>, parallelism: u32| {
        let mut plan = plan(Vec::new());
        plan.max_parallelism = written.unwrap_or(128);
        plan.vertices[0].parallelism = parallelism;
        inherit_max_parallelism(&mut plan, written, &snapshot);
        check(&snapshot, &plan, &[]).map(|_| plan.max_parallelism).map_err(|report| report.to_string())
    };
    assert_eq!(with(None, 2), Ok(4));
    assert_eq!(with(Some(4), 4), Ok(4));
    assert_eq!(with(Some(8), 8), Ok(8));
    let six = with(Some(6), 2).expect_err("does not nest");
    assert!(six.contains("4 in the snapshot") && six.contains("6 in the job"), "{six}");
    let two = with(Some(2), 2).expect_err("is less");
    assert!(two.contains("2 in the job"), "{two}");
    let eight = with(None, 8).expect_err("too wide");
    assert!(eight.contains("parallelism 8") && eight.contains("max parallelism 4"), "{eight}");
}

#[test]
fn a_state_to_drop_is_an_operator_or_one_state_of_it() {
    assert_eq!(
        drops(&["a b", "a/b/c"]),
        [DropState { uid: Uid::new("a b"), state: None }, DropState { uid: Uid::new("a"), state: Some("b/c".into()) }]
    );
    for bad in ["", "/", "/x", "x/", "\n"] {
        assert!(bad.parse::<DropState>().is_err(), "{bad:?}");
    }
}
