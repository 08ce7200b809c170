//! Prometheus metrics of a TaskManager: their names, in one table, and the text.
//!
//! Read from the tasks' own counters when someone asks; nothing is counted twice, and no registry is global.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use levada_common::prometheus::{self, head};
use levada_engine::metrics::NodeMetrics;
use levada_state::cold::ColdMetrics;

use crate::databases::Databases;
use crate::task::TaskHandle;

/// A metric of a task, labelled `job`, `task`, `subtask`.
struct TaskMetric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&TaskHandle) -> Option<f64>,
}

/// A metric of a node, labelled `job`, `node`, `subtask`.
struct NodeMetric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&NodeMetrics) -> u64,
}

fn seconds(ns: u64) -> Option<f64> {
    Some(ns as f64 / 1e9)
}

/// A metric of a node's store, labelled as the node's.
struct StoreMetric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&ColdMetrics) -> u64,
}

/// Every metric of a task.
const TASK_METRICS: [TaskMetric; 10] = [
    TaskMetric {
        name: "levada_task_busy_seconds_total",
        kind: "counter",
        help: "Time spent working.",
        value: |task| seconds(task.metrics.busy_ns.load(Relaxed)),
    },
    TaskMetric {
        name: "levada_task_blocked_seconds_total",
        kind: "counter",
        help: "Time spent waiting for room in the output, or for a store.",
        value: |task| seconds(task.metrics.blocked_ns.load(Relaxed)),
    },
    TaskMetric {
        name: "levada_task_store_blocked_seconds_total",
        kind: "counter",
        help: "Time of this spent waiting for a store that has too much to write.",
        value: |task| seconds(task.metrics.writing_ns.load(Relaxed)),
    },
    TaskMetric {
        name: "levada_task_idle_seconds_total",
        kind: "counter",
        help: "Time spent waiting for input.",
        value: |task| seconds(task.metrics.idle_ns.load(Relaxed)),
    },
    TaskMetric {
        name: "levada_task_snapshot_sync_seconds",
        kind: "gauge",
        help: "Duration of the newest snapshot's synchronous part.",
        value: |task| seconds(task.metrics.snapshot_sync_ns.load(Relaxed)),
    },
    TaskMetric {
        name: "levada_task_watermark_milliseconds",
        kind: "gauge",
        help: "Watermark at the task's input or source, milliseconds since 1970; absent before the first.",
        value: |task| watermark_ms(task).map(|watermark| watermark as f64),
    },
    TaskMetric {
        name: "levada_task_watermark_lag_seconds",
        kind: "gauge",
        help: "Processing time less the watermark; absent before the first and after the end.",
        value: |task| {
            let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let watermark = watermark_ms(task).filter(|watermark| *watermark != i64::MAX)?;
            Some(since_1970.as_secs_f64() - watermark as f64 / 1e3)
        },
    },
    TaskMetric {
        name: "levada_task_source_idle",
        kind: "gauge",
        help: "1 where a source has had nothing to read for its idleness, and holds no time back.",
        value: |task| flag(&task.metrics.idle),
    },
    TaskMetric {
        name: "levada_task_source_paused",
        kind: "gauge",
        help: "1 where a source waits for others of its group (watermark.align).",
        value: |task| flag(&task.metrics.paused),
    },
    TaskMetric {
        name: "levada_task_waits_for_table",
        kind: "gauge",
        help: "1 where the rows of a lookup join wait until its table has been read.",
        value: |task| flag(&task.metrics.waiting),
    },
];

fn watermark_ms(task: &TaskHandle) -> Option<i64> {
    Some(task.metrics.watermark_ms.load(Relaxed)).filter(|watermark| *watermark != i64::MIN)
}

fn flag(flag: &AtomicBool) -> Option<f64> {
    Some(f64::from(u8::from(flag.load(Relaxed))))
}

/// Every metric of a node.
const NODE_METRICS: [NodeMetric; 8] = [
    NodeMetric {
        name: "levada_node_rows_in_total",
        kind: "counter",
        help: "Rows that came in; for a source, rows read.",
        value: |node| node.rows_in.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_rows_out_total",
        kind: "counter",
        help: "Rows that went out.",
        value: |node| node.rows_out.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_late_rows_total",
        kind: "counter",
        help: "Rows dropped because their window had fired.",
        value: |node| node.late_rows.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_future_rows_total",
        kind: "counter",
        help: "Rows too far ahead of processing time (max_future) to move event time.",
        value: |node| node.future_rows.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_lookup_misses_total",
        kind: "counter",
        help: "Rows for which the table of a lookup join had none.",
        value: |node| node.lookup_misses.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_bad_records_total",
        kind: "counter",
        help: "Rows dropped by the bad-record policy.",
        value: |node| node.bad_records.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_state_keys",
        kind: "gauge",
        help: "Keys, or (window, key) pairs, in the state, as far as it is in memory.",
        value: |node| node.state_keys.load(Relaxed),
    },
    NodeMetric {
        name: "levada_node_state_bytes",
        kind: "gauge",
        help: "Bytes of working state, as far as they are counted.",
        value: |node| node.state_bytes.load(Relaxed),
    },
];

/// Every metric of a node's store.
const STORE_METRICS: [StoreMetric; 6] = [
    StoreMetric {
        name: "levada_node_store_reads_total",
        kind: "counter",
        help: "Entries that were looked up in the node's database, because memory did not have them.",
        value: |store| store.reads,
    },
    StoreMetric {
        name: "levada_node_store_hits_total",
        kind: "counter",
        help: "Entries of these that the database had.",
        value: |store| store.hits,
    },
    StoreMetric {
        name: "levada_node_store_writes_total",
        kind: "counter",
        help: "Entries that were written into the node's database, or deleted in it.",
        value: |store| store.writes,
    },
    StoreMetric {
        name: "levada_node_store_disk_bytes",
        kind: "gauge",
        help: "Bytes of the node's database on disk when it was written last.",
        value: |store| store.disk_bytes,
    },
    StoreMetric {
        name: "levada_node_store_entries",
        kind: "gauge",
        help: "Entries in the node's database when it was written last, estimated.",
        value: |store| store.entries,
    },
    StoreMetric {
        name: "levada_node_store_pending_bytes",
        kind: "gauge",
        help: "Bytes on their way into the node's database.",
        value: |store| store.pending_bytes,
    },
];

/// Figures of the whole process.
#[derive(Debug, Clone, Copy)]
pub struct ProcessFigures {
    /// Slots.
    pub slots: u32,
    /// Whether the TaskManager is registered.
    pub registered: bool,
    /// Memory for channels, in bytes.
    pub network_memory_bytes: u64,
    /// Memory for state on the heap, in bytes.
    pub heap_state_bytes: u64,
    /// Memory for databases, in bytes.
    pub rocksdb_bytes: u64,
}

/// A metric of all databases together.
struct DatabaseMetric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Databases) -> u64,
}

/// Every metric of the databases.
const DATABASE_METRICS: [DatabaseMetric; 7] = [
    DatabaseMetric {
        name: "levada_rocksdb_cache_bytes",
        kind: "gauge",
        help: "Blocks, indexes, filters and memtables of all databases.",
        value: |databases| databases.memory().cache_bytes,
    },
    DatabaseMetric {
        name: "levada_rocksdb_cache_max_bytes",
        kind: "gauge",
        help: "Most bytes of that cache.",
        value: |databases| databases.memory().cache_max_bytes,
    },
    DatabaseMetric {
        name: "levada_rocksdb_overlay_max_bytes",
        kind: "gauge",
        help: "Most bytes of the changes before all databases.",
        value: |databases| databases.memory().overlay_max_bytes,
    },
    DatabaseMetric {
        name: "levada_rocksdb_written_bytes_total",
        kind: "counter",
        help: "Bytes of databases' files that snapshots wrote.",
        value: |databases| databases.traffic().written_bytes.load(Relaxed),
    },
    DatabaseMetric {
        name: "levada_rocksdb_reused_bytes_total",
        kind: "counter",
        help: "Bytes of databases' files that snapshots referred to, since an earlier one has them.",
        value: |databases| databases.traffic().reused_bytes.load(Relaxed),
    },
    DatabaseMetric {
        name: "levada_rocksdb_fetched_bytes_total",
        kind: "counter",
        help: "Bytes of databases' files that restores fetched.",
        value: |databases| databases.traffic().fetched_bytes.load(Relaxed),
    },
    DatabaseMetric {
        name: "levada_rocksdb_compactions",
        kind: "gauge",
        help: "Compactions that run or are due in all databases.",
        value: Databases::compactions,
    },
];

/// All metrics in Prometheus' text format.
pub fn render(figures: ProcessFigures, databases: &Databases, tasks: &[Arc<TaskHandle>]) -> String {
    let mut text = String::new();
    let process = [
        ("levada_taskmanager_slots", "Slots of this TaskManager.", figures.slots as f64),
        ("levada_taskmanager_registered", "1 while registered at the JobManager.", f64::from(u8::from(figures.registered))),
        ("levada_taskmanager_tasks", "Tasks that run here.", tasks.len() as f64),
        ("levada_taskmanager_network_memory_bytes", "Memory for channels.", figures.network_memory_bytes as f64),
        ("levada_taskmanager_heap_state_bytes", "Memory for state on the heap.", figures.heap_state_bytes as f64),
        ("levada_taskmanager_rocksdb_bytes", "Memory for databases.", figures.rocksdb_bytes as f64),
    ];
    for (name, help, value) in process {
        head(&mut text, name, "gauge", help);
        prometheus::sample::<&str>(&mut text, name, &[], value);
    }
    for metric in &DATABASE_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        prometheus::sample::<&str>(&mut text, metric.name, &[], (metric.value)(databases) as f64);
    }
    for metric in &TASK_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for task in tasks {
            if let Some(value) = (metric.value)(task) {
                sample(&mut text, metric.name, task, &[("task", &task.vertex_name)], value);
            }
        }
    }
    let name = "levada_task_watermark_held_back";
    head(&mut text, name, "gauge", "1 for the task (vertex.subtask) whose channel holds this one's time back.");
    for task in tasks {
        if let Some(holder) = task.held_back_by() {
            sample(&mut text, name, task, &[("task", &task.vertex_name), ("by", &holder.to_string())], 1.0);
        }
    }
    for metric in &NODE_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for (task, node) in tasks.iter().flat_map(|task| task.nodes.iter().map(move |node| (task, node))) {
            sample(&mut text, metric.name, task, &[("node", node.uid.as_str())], (metric.value)(node) as f64);
        }
    }
    for metric in &STORE_METRICS {
        head(&mut text, metric.name, metric.kind, metric.help);
        for (task, node) in tasks.iter().flat_map(|task| task.nodes.iter().map(move |node| (task, node))) {
            if let Some(store) = node.store() {
                sample(&mut text, metric.name, task, &[("node", node.uid.as_str())], (metric.value)(&store) as f64);
            }
        }
    }
    head(&mut text, "levada_function_counter_total", "counter", "A counter of a user's function.");
    for (task, node) in tasks.iter().flat_map(|task| task.nodes.iter().map(move |node| (task, node))) {
        for (name, value) in node.counters() {
            let labels = [("node", node.uid.as_str()), ("counter", &name)];
            sample(&mut text, "levada_function_counter_total", task, &labels, value as f64);
        }
    }
    text
}

fn sample(text: &mut String, name: &str, task: &TaskHandle, labels: &[(&str, &str)], value: f64) {
    let (id, subtask) = (task.attempt.job.to_string(), task.task.subtask.to_string());
    let mut all = vec![("job", task.job_name.as_str()), ("job_id", &id)];
    all.extend(labels);
    all.push(("subtask", &subtask));
    prometheus::sample(text, name, &all, value);
}
