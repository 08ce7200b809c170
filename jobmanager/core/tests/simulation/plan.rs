//! The jobs that are simulated: two sources, a middle vertex reached by hash, a sink behind a forward edge.

use levada_common::declaration::Options;
use levada_common::ids::{Uid, VertexId};
use levada_common::plan::{
    BackendKind, BadRecordPolicy, CheckpointMode, CheckpointSettings, Edge, JobSettings, PLAN_VERSION, Partition, Plan,
    RestartSettings, SinkSpec, SourceSpec, Vertex,
};
use levada_common::types::StreamSchema;

use crate::faults::Faults;

/// The job that is run under these faults.
pub fn plan(faults: &Faults) -> Plan {
    let parallelism = faults.parallelism;
    Plan {
        version: PLAN_VERSION,
        name: "simulated".into(),
        settings: JobSettings {
            parallelism,
            backend: BackendKind::Rocksdb,
            max_state_size_bytes: 5 << 20,
            inline_threshold_bytes: 0,
            checkpoint: checkpoints(faults),
            restart: faults.restart.clone(),
            batch_rows_max: 8_192,
            buffer_timeout_ms: 100,
        },
        max_parallelism: 128,
        warnings: Vec::new(),
        changelogs: std::collections::BTreeMap::new(),
        vertices: vec![
            vertex(0, "left", parallelism, true, false),
            vertex(1, "right", 1, true, false),
            vertex(2, "middle", parallelism, false, false),
            vertex(3, "out", parallelism, false, true),
        ],
        edges: vec![
            edge(0, 2, 0, Partition::Hash { columns: Vec::new() }),
            edge(1, 2, 1, Partition::Rebalance),
            edge(2, 3, 0, Partition::Forward),
        ],
    }
}

fn checkpoints(faults: &Faults) -> CheckpointSettings {
    CheckpointSettings {
        interval_ms: faults.interval_ms,
        timeout_ms: faults.timeout_ms,
        min_pause_ms: faults.min_pause_ms,
        tolerable_failures: 3,
        num_retained: faults.num_retained,
        dir: Some("file:///checkpoints".into()),
        mode: CheckpointMode::ExactlyOnce,
        retain: faults.retain,
    }
}

/// Restarts without end, as far as a simulation goes.
pub fn restarts() -> RestartSettings {
    RestartSettings::FixedDelay { attempts: 1_000_000, delay_ms: 100 }
}

fn vertex(id: u32, name: &str, parallelism: u32, source: bool, sink: bool) -> Vertex {
    let schema = StreamSchema::append(Vec::new());
    let source = source.then(|| SourceSpec {
        uid: Uid::new(name),
        connector: "generate".into(),
        options: Options::default(),
        schema: schema.clone(),
        bad_records: BadRecordPolicy::Fail,
    });
    // The middle vertex would hold operators; a sink's name does as well, since only names matter to the core.
    let sink = (sink || source.is_none()).then(|| SinkSpec {
        uid: Uid::new(name),
        connector: "blackhole".into(),
        options: Options::default(),
        input: schema,
        bad_records: BadRecordPolicy::Fail,
    });
    Vertex { id: VertexId(id), name: name.into(), parallelism, source, operators: Vec::new(), sink }
}

fn edge(from: u32, to: u32, input: u32, partition: Partition) -> Edge {
    Edge { from: VertexId(from), to: VertexId(to), input, output: 0, partition, schema: StreamSchema::append(Vec::new()) }
}
