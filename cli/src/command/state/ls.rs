//! `levada state ls`: what a snapshot has, from its metadata alone.

use std::fmt::Write;

use levada_common::checkpoint::{Handle, StateHandle, TaskSnapshot};
use levada_common::state_schema::{Stamps, StateSchema};
use levada_common::types::Column;
use levada_connectors::formats::ndjson::timestamp_text;
use serde_json::{Value, json};

use crate::progress::count;
use crate::snapshot::{OperatorState, Snapshot};
use crate::table::Table;

/// A snapshot as text.
pub fn text(snapshot: &Snapshot) -> String {
    let metadata = &snapshot.metadata;
    let finished = metadata.tasks.iter().filter(|task| task.finished).count();
    let mut text = format!(
        "snapshot     {}\njob          {}\ncheckpoint   {} of epoch {}, triggered {}\nkey groups   {}\ntasks        {}, {finished} of them at the end of their data\n\n",
        snapshot.uri,
        metadata.job,
        metadata.id,
        metadata.epoch,
        timestamp_text(metadata.triggered_at_ms as i64),
        metadata.max_parallelism,
        metadata.tasks.len(),
    );
    let header = ["OPERATOR", "STATE", "KIND", "TYPE", "SUBTASKS", "ROWS", "BYTES", "KEY GROUPS", "WHERE"];
    let mut table = Table::new(header, [false, false, false, false, true, true, true, false, false]);
    for state in &snapshot.states {
        table.row([
            state.uid.to_string(),
            state.name.clone(),
            state.kind.name().into(),
            state.schema.shape.name().into(),
            state.handles.len().to_string(),
            count(state.rows()),
            own_bytes(state).map_or("-".into(), count),
            key_groups(state),
            Snapshot::place_of(state).into(),
        ]);
    }
    let (rows, bytes) = totals(snapshot);
    let handles: usize = snapshot.states.iter().map(|state| state.handles.len()).sum();
    table.row(["total".into(), String::new(), String::new(), String::new(), handles.to_string(), count(rows), count(bytes)]);
    text += &table.text();
    let described: Vec<&OperatorState> = snapshot.states.iter().filter(|state| has_columns(&state.schema)).collect();
    if !described.is_empty() {
        text.push('\n');
    }
    for state in described {
        let _ = writeln!(text, "{}: {}", state.path(), schema_text(&state.schema));
    }
    text
}

/// Rows and bytes of all states; a database counts once for all states in it.
fn totals(snapshot: &Snapshot) -> (u64, u64) {
    let rows = snapshot.states.iter().map(OperatorState::rows).sum();
    (rows, snapshot.metadata.tasks.iter().map(TaskSnapshot::bytes).sum())
}

/// Bytes that are this state's alone; `None` where a database holds it beside others.
fn own_bytes(state: &OperatorState) -> Option<u64> {
    let bytes = |handle: &StateHandle| match &handle.handle {
        Handle::Database { .. } => None,
        handle => Some(handle.length()),
    };
    state.handles.iter().map(bytes).sum()
}

fn key_groups(state: &OperatorState) -> String {
    if !state.kind.is_keyed() {
        return "-".into();
    }
    let start = state.handles.iter().map(|handle| handle.key_groups.start).min().unwrap_or(0);
    let end = state.handles.iter().map(|handle| handle.key_groups.end).max().unwrap_or(0);
    format!("{start}..={end}")
}

fn has_columns(schema: &StateSchema) -> bool {
    !(schema.keys.is_empty() && schema.map_key.is_empty() && schema.values.is_empty())
}

/// What a state holds, in a line.
pub fn schema_text(schema: &StateSchema) -> String {
    let columns = |columns: &[Column]| {
        let column = |column: &Column| format!("{} {}{}", column.name, column.ty, if column.nullable { "" } else { " NOT NULL" });
        columns.iter().map(column).collect::<Vec<_>>().join(", ")
    };
    let mut parts = vec![if schema.keys.is_empty() { "no key".into() } else { format!("key {}", columns(&schema.keys)) }];
    if schema.windowed {
        parts.push("a window".into());
    }
    if !schema.map_key.is_empty() {
        parts.push(format!("map key {}", columns(&schema.map_key)));
    }
    if !schema.values.is_empty() {
        parts.push(format!("holds {}", columns(&schema.values)));
    }
    match schema.ttl {
        Stamps::None => {}
        Stamps::Unnoted => parts.push("expires".into()),
        Stamps::Processing => parts.push("expires by processing time".into()),
        Stamps::Event => parts.push("expires by event time".into()),
    }
    parts.join("; ")
}

/// A snapshot as JSON.
pub fn json(snapshot: &Snapshot) -> String {
    let metadata = &snapshot.metadata;
    let (rows, bytes) = totals(snapshot);
    let value = json!({
        "snapshot": snapshot.uri, "job": metadata.job.to_string(), "checkpoint": metadata.id.0, "epoch": metadata.epoch.0,
        "triggered_at_ms": metadata.triggered_at_ms, "max_parallelism": metadata.max_parallelism, "rows": rows, "bytes": bytes,
        "tasks": metadata.tasks.len(), "finished_tasks": metadata.tasks.iter().filter(|task| task.finished).count(),
        "states": snapshot.states.iter().map(state_json).collect::<Vec<_>>(),
    });
    format!("{value:#}\n")
}

fn state_json(state: &OperatorState) -> Value {
    json!({
        "operator": state.uid.as_str(), "state": state.name, "kind": state.kind.name(), "type": state.schema.shape.name(),
        "schema": &*state.schema, "rows": state.rows(), "bytes": own_bytes(state),
        "subtasks": state.handles.iter().map(handle_json).collect::<Vec<_>>(),
    })
}

fn handle_json(handle: &StateHandle) -> Value {
    let place = match &handle.handle {
        Handle::Inline(bytes) => json!({ "inline": true, "bytes": bytes.len() }),
        Handle::File { path, offset, length } => json!({ "file": path, "offset": offset, "bytes": length }),
        Handle::Database { files, family } => json!({
            "family": family,
            "files": files.iter().map(|file| json!({ "name": file.name, "file": file.path, "bytes": file.length })).collect::<Vec<_>>(),
        }),
    };
    json!({
        "subtask": handle.subtask.0, "rows": handle.rows, "key_groups": [handle.key_groups.start, handle.key_groups.end],
        "crc32c": handle.crc32c, "place": place,
    })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Written, golden};
    use crate::snapshot::Snapshot;

    #[tokio::test]
    async fn a_listing_is_what_it_always_was() {
        let written = Written::new(&Written::counts());
        let snapshot = Snapshot::open(&written.path()).await.expect("it is found");
        golden("ls.txt", &written.masked(&super::text(&snapshot)));
        golden("ls.json", &written.masked(&super::json(&snapshot)));
    }
}
