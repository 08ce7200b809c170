//! Plans of a few words. Streams of these plans have one column, `n INT64`, unless the test says otherwise.

use std::sync::Arc;

use levada_common::declaration::Options;
use levada_common::ids::{Uid, VertexId};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::{
    BackendKind, BadRecordPolicy, CheckpointMode, CheckpointSettings, Edge, JobSettings, OperatorKind, OperatorSpec,
    PLAN_VERSION, Partition, Plan, RestartSettings, SinkSpec, SourceSpec, Vertex,
};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_state::keyed::HeapBudget;

use crate::metrics::NodeMetrics;
use crate::operator::OperatorContext;

pub(crate) const MAX_PARALLELISM: u32 = 128;

/// A column that may be null.
pub(crate) fn column(name: &str, ty: LogicalType) -> Column {
    Column::new(name, ty, true)
}

/// `n INT64`.
pub(crate) fn schema() -> StreamSchema {
    StreamSchema::append(vec![column("n", LogicalType::Int64)])
}

/// What an only subtask's operator is opened with.
pub(crate) fn context(uid: &str, batch_rows_max: usize) -> OperatorContext {
    OperatorContext {
        subtask: 0,
        parallelism: 1,
        max_parallelism: MAX_PARALLELISM,
        key_groups: KeyGroupRange::all(MAX_PARALLELISM),
        batch_rows_max,
        metrics: Arc::new(NodeMetrics::new(Uid::new(uid))),
        cold: None,
        heap_budget: Arc::new(HeapBudget::unlimited()),
    }
}

/// A source "script".
pub(crate) fn source(uid: &str) -> SourceSpec {
    SourceSpec {
        uid: Uid::new(uid),
        connector: "script".into(),
        options: Options::default(),
        schema: schema(),
        bad_records: BadRecordPolicy::Fail,
    }
}

/// A sink "log".
pub(crate) fn sink(uid: &str) -> SinkSpec {
    SinkSpec {
        uid: Uid::new(uid),
        connector: "log".into(),
        options: Options::default(),
        input: schema(),
        bad_records: BadRecordPolicy::Fail,
    }
}

/// A filter by the closure of this name.
pub(crate) fn filter(uid: &str, predicate: &str) -> OperatorSpec {
    OperatorSpec {
        uid: Uid::new(uid),
        clause: "where".into(),
        kind: OperatorKind::Filter { predicate: predicate.into(), parts_updates: false },
        input: schema(),
        output: schema(),
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Drop,
    }
}

/// A vertex; its id is set by `plan`.
pub(crate) fn vertex(
    parallelism: u32,
    source: Option<SourceSpec>,
    operators: Vec<OperatorSpec>,
    sink: Option<SinkSpec>,
) -> Vertex {
    Vertex { id: VertexId(0), name: "vertex".into(), parallelism, source, operators, sink }
}

/// An edge.
pub(crate) fn edge(from: u32, to: u32, partition: Partition) -> Edge {
    Edge { from: VertexId(from), to: VertexId(to), input: 0, output: 0, partition, schema: schema() }
}

/// A plan of these vertices.
pub(crate) fn plan(vertices: Vec<Vertex>, edges: Vec<Edge>) -> Plan {
    let vertices: Vec<Vertex> =
        vertices.into_iter().enumerate().map(|(id, vertex)| Vertex { id: VertexId(id as u32), ..vertex }).collect();
    Plan {
        version: PLAN_VERSION,
        name: "test".into(),
        settings: JobSettings {
            parallelism: 1,
            backend: BackendKind::Memory,
            max_state_size_bytes: 5 << 20,
            inline_threshold_bytes: 20 << 10,
            checkpoint: CheckpointSettings {
                interval_ms: None,
                timeout_ms: 600_000,
                min_pause_ms: 0,
                tolerable_failures: 0,
                num_retained: 1,
                dir: None,
                mode: CheckpointMode::ExactlyOnce,
                retain: false,
            },
            restart: RestartSettings::None,
            batch_rows_max: 8,
            buffer_timeout_ms: 100,
        },
        max_parallelism: MAX_PARALLELISM,
        vertices,
        edges,
        warnings: Vec::new(),
        changelogs: std::collections::BTreeMap::new(),
    }
}
