//! Small plans and values for this package's own unit tests.

use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::{Handle, StateHandle, StateKind, TaskSnapshot};
use levada_common::declaration::Options;
use levada_common::ids::{Attempt, AttemptId, Epoch, JobId, TaskId, TaskManagerId, Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{
    BackendKind, BadRecordPolicy, CheckpointMode, CheckpointSettings, Edge, JobSettings, PLAN_VERSION, Partition, Plan,
    RestartSettings, SinkSpec, SourceSpec, Vertex,
};
use levada_common::types::StreamSchema;

use crate::event::TaskManagerInfo;
use crate::execution::Execution;
use crate::placement::place;

/// Checkpoints every second, given up after ten.
pub fn settings() -> CheckpointSettings {
    CheckpointSettings {
        interval_ms: Some(1_000),
        timeout_ms: 10_000,
        min_pause_ms: 0,
        tolerable_failures: 3,
        num_retained: 1,
        dir: Some("file:///checkpoints".into()),
        mode: CheckpointMode::ExactlyOnce,
        retain: true,
    }
}

/// Source `numbers` → hash → sink `out`, both `parallelism` times.
pub fn exchange(parallelism: u32) -> Plan {
    let schema = StreamSchema::append(Vec::new());
    let source = SourceSpec {
        uid: Uid::new("numbers"),
        connector: "generate".into(),
        options: Options::default(),
        schema: schema.clone(),
        bad_records: BadRecordPolicy::Fail,
    };
    let sink = SinkSpec {
        uid: Uid::new("out"),
        connector: "blackhole".into(),
        options: Options::default(),
        input: schema.clone(),
        bad_records: BadRecordPolicy::Fail,
    };
    let vertex = |id: u32, name: &str| Vertex {
        id: VertexId(id),
        name: name.into(),
        parallelism,
        source: None,
        operators: Vec::new(),
        sink: None,
    };
    Plan {
        version: PLAN_VERSION,
        name: "test".into(),
        settings: JobSettings {
            parallelism,
            backend: BackendKind::Fs,
            max_state_size_bytes: 5 << 20,
            inline_threshold_bytes: 20 << 10,
            checkpoint: settings(),
            restart: RestartSettings::FixedDelay { attempts: 10, delay_ms: 1_000 },
            batch_rows_max: 8_192,
            buffer_timeout_ms: 100,
        },
        max_parallelism: 128,
        warnings: Vec::new(),
        changelogs: std::collections::BTreeMap::new(),
        vertices: vec![Vertex { source: Some(source), ..vertex(0, "numbers") }, Vertex { sink: Some(sink), ..vertex(1, "out") }],
        edges: vec![Edge {
            from: VertexId(0),
            to: VertexId(1),
            input: 0,
            output: 0,
            partition: Partition::Hash { columns: Vec::new() },
            schema,
        }],
    }
}

/// The attempt of this number of the one job of tests.
pub fn attempt(number: u32) -> AttemptId {
    AttemptId { job: JobId::from_u128(7), attempt: Attempt(number), epoch: Epoch(1) }
}

/// A TaskManager with plenty of network memory.
pub fn task_manager(number: u128, slots: u32) -> TaskManagerInfo {
    TaskManagerInfo {
        id: TaskManagerId::from_u128(number),
        data_address: format!("host-{number}:6121"),
        slots,
        network_memory_bytes: 1 << 30,
    }
}

/// Attempt 1 of `plan`, deployed on one TaskManager.
pub fn execution(plan: &Plan) -> Execution {
    let infos = [task_manager(1, plan.slots())];
    Execution::new(attempt(1), plan, &place(plan, &infos).expect("fits"), &infos)
}

/// A snapshot of the task with one state in the file `path`.
pub fn snapshot(task: TaskId, path: &str) -> TaskSnapshot {
    let state = StateHandle {
        uid: Uid::new(if task.vertex == VertexId(0) { "numbers" } else { "out" }),
        name: "state".into(),
        kind: StateKind::OperatorList,
        schema: Arc::default(),
        subtask: task.subtask,
        key_groups: KeyGroupRange::all(128),
        rows: 1,
        crc32c: 0,
        handle: Handle::File { path: path.into(), offset: 0, length: 1 },
    };
    TaskSnapshot { task, finished: false, states: vec![state] }
}

/// A snapshot whose state came inside the acknowledgement.
pub fn inline_snapshot(task: TaskId, bytes: &'static [u8]) -> TaskSnapshot {
    let mut snapshot = snapshot(task, "");
    snapshot.states[0].handle = Handle::Inline(Bytes::from_static(bytes));
    snapshot
}
