//! Writes a job graph as a document: what `parse` reads, it gives back.

use serde_json::{Map, Value, json};

use super::{
    GRAPH_VERSION, GraphCheckpoint, GraphDeduplicate, GraphEvict, GraphGap, GraphInterval, GraphJoin, GraphProcess,
    GraphSettings, GraphWindow, InputRef, JobGraph, TransformNode, WatermarkSetting,
};
use crate::human::{ByteSize, HumanDuration};
use crate::plan::{AlignSpec, BadRecordPolicy, CheckpointMode, Evict, JoinKind, RestartSettings, Trigger};

impl JobGraph {
    /// The graph as a JSON document.
    pub fn to_json(&self) -> String {
        format!("{:#}\n", self.to_value())
    }

    /// The graph as a YAML document.
    pub fn to_yaml(&self) -> String {
        let mut text = String::new();
        write_yaml(&self.to_value(), 0, &mut text);
        text
    }

    fn to_value(&self) -> Value {
        let mut document = Map::new();
        document.insert("version".into(), GRAPH_VERSION.into());
        document.insert("name".into(), self.name.clone().into());
        let settings = settings(&self.settings);
        if !settings.is_empty() {
            document.insert("settings".into(), settings.into());
        }
        let sources = self.sources.iter().map(|source| {
            let mut node = Map::new();
            node.insert(source.connector.clone(), source.options.clone().into());
            if let Some(setting) = watermark(&source.watermark) {
                node.insert("watermark".into(), setting);
            }
            common(&mut node, source.bad_records, source.parallelism);
            (source.uid.to_string(), Value::Object(node))
        });
        document.insert("sources".into(), sources.collect::<Map<_, _>>().into());
        if !self.transforms.is_empty() {
            let transforms = self.transforms.iter().map(|node| (node.uid.to_string(), transform(node)));
            document.insert("transforms".into(), transforms.collect::<Map<_, _>>().into());
        }
        let sinks = self.sinks.iter().map(|sink| {
            let mut node = Map::new();
            node.insert("inputs".into(), names(&sink.inputs));
            node.insert(sink.connector.clone(), sink.options.clone().into());
            common(&mut node, sink.bad_records, sink.parallelism);
            (sink.uid.to_string(), Value::Object(node))
        });
        document.insert("sinks".into(), sinks.collect::<Map<_, _>>().into());
        document.into()
    }
}

fn duration(ms: u64) -> Value {
    HumanDuration::from_ms(ms).to_string().into()
}

fn duration_or_off(ms: Option<u64>) -> Value {
    ms.map_or("off".into(), duration)
}

fn size(bytes: u64) -> Value {
    ByteSize::from_bytes(bytes).to_string().into()
}

fn names(inputs: &[InputRef]) -> Value {
    inputs.iter().map(InputRef::to_string).collect()
}

fn put(map: &mut Map<String, Value>, key: &str, value: Option<Value>) {
    if let Some(value) = value {
        map.insert(key.into(), value);
    }
}

fn common(node: &mut Map<String, Value>, bad_records: BadRecordPolicy, parallelism: Option<u32>) {
    put(node, "bad_records", (bad_records == BadRecordPolicy::Drop).then(|| "drop".into()));
    put(node, "parallelism", parallelism.map(Value::from));
}

fn settings(settings: &GraphSettings) -> Map<String, Value> {
    let mut map = Map::new();
    put(&mut map, "parallelism", settings.parallelism.map(Value::from));
    put(&mut map, "max_parallelism", settings.max_parallelism.map(Value::from));
    let mut state = Map::new();
    put(&mut state, "backend", settings.backend.map(|backend| backend.name().into()));
    put(&mut state, "max_state_size", settings.max_state_size_bytes.map(size));
    put(&mut state, "inline_threshold", settings.inline_threshold_bytes.map(size));
    put(&mut map, "state", (!state.is_empty()).then(|| state.into()));
    put(&mut map, "checkpoint", settings.checkpoint.as_ref().map(checkpoint));
    put(&mut map, "restart", settings.restart.as_ref().map(restart));
    let mut batch = Map::new();
    put(&mut batch, "rows", settings.batch_rows_max.map(Value::from));
    put(&mut batch, "timeout", settings.buffer_timeout_ms.map(duration));
    put(&mut map, "batch", (!batch.is_empty()).then(|| batch.into()));
    map
}

fn checkpoint(checkpoint: &GraphCheckpoint) -> Value {
    let mut map = Map::new();
    put(&mut map, "interval", checkpoint.interval_ms.map(duration_or_off));
    put(&mut map, "timeout", checkpoint.timeout_ms.map(duration));
    put(&mut map, "min_pause", checkpoint.min_pause_ms.map(duration));
    put(&mut map, "tolerable_failures", checkpoint.tolerable_failures.map(Value::from));
    put(&mut map, "num_retained", checkpoint.num_retained.map(Value::from));
    put(&mut map, "dir", checkpoint.dir.clone().map(Value::from));
    let mode = |mode| match mode {
        CheckpointMode::ExactlyOnce => "exactly-once".into(),
        CheckpointMode::AtLeastOnce => "at-least-once".into(),
    };
    put(&mut map, "mode", checkpoint.mode.map(mode));
    put(&mut map, "retention", checkpoint.retain.map(|retain| if retain { "retain" } else { "delete" }.into()));
    map.into()
}

fn restart(restart: &RestartSettings) -> Value {
    match restart {
        RestartSettings::None => "none".into(),
        RestartSettings::FixedDelay { attempts, delay_ms } => {
            json!({ "strategy": "fixed-delay", "attempts": attempts, "delay": duration(*delay_ms) })
        }
    }
}

fn watermark(setting: &WatermarkSetting) -> Option<Value> {
    let watermark = match setting {
        WatermarkSetting::Default => return None,
        WatermarkSetting::None => return Some("none".into()),
        WatermarkSetting::Event(watermark) => watermark,
    };
    let ms = |ms: i64| duration(ms.max(0) as u64);
    let align = |align: &AlignSpec| json!({ "group": align.group, "max_drift": duration(align.max_drift_ms) });
    let mut map = Map::new();
    put(&mut map, "column", watermark.column.clone().map(Value::from));
    put(&mut map, "unit", watermark.unit.map(|unit| unit.name().into()));
    put(&mut map, "time_zone", watermark.time_zone.clone().map(Value::from));
    put(&mut map, "disorder", watermark.disorder_ms.map(ms));
    put(&mut map, "expression", watermark.expression.clone().map(Value::from));
    put(&mut map, "step", watermark.step_ms.map(ms));
    put(&mut map, "idleness", watermark.idleness_ms.map(duration_or_off));
    put(&mut map, "max_future", watermark.max_future_ms.map(duration_or_off));
    put(&mut map, "future_rows", watermark.future_rows.map(|rows| rows.name().into()));
    put(&mut map, "align", watermark.align.as_ref().map(align));
    Some(map.into())
}

fn transform(node: &TransformNode) -> Value {
    let mut map = Map::new();
    map.insert("inputs".into(), names(&node.inputs));
    let columns = |columns: &Vec<(String, String)>| {
        columns.iter().map(|(name, sql)| (name.clone(), sql.clone().into())).collect::<Map<_, _>>()
    };
    put(&mut map, "where", node.filter.clone().map(Value::from));
    put(&mut map, "join", node.join.as_ref().map(join));
    let evict = |evict: &GraphEvict| match evict {
        GraphEvict::Last(Evict::Rows { rows }) => json!({ "rows": rows }),
        GraphEvict::Last(Evict::Time { ms }) => json!({ "time": duration(*ms as u64) }),
        GraphEvict::Function(evictor) => process(evictor),
    };
    put(&mut map, "evict", node.evict.as_ref().map(evict));
    put(&mut map, "with", (!node.with.is_empty()).then(|| names(&node.with)));
    let pairs = |(keys, others): (&Vec<String>, &Vec<String>)| -> Value {
        keys.iter().zip(others).map(|(key, other)| (key.clone(), other.clone().into())).collect::<Map<_, _>>().into()
    };
    let key_by = node.key_by.as_ref().zip(node.with_key.as_ref()).map(pairs);
    put(&mut map, "key_by", key_by.or(node.key_by.clone().map(Value::from)));
    put(&mut map, "window", node.window.as_ref().map(|kind| window(kind, node)));
    put(&mut map, "aggregate", node.aggregate.as_ref().map(|aggregate| columns(aggregate).into()));
    put(&mut map, "having", node.having.clone().map(Value::from));
    put(&mut map, "process", node.process.as_ref().map(process));
    put(&mut map, "broadcast", (!node.broadcast.is_empty()).then(|| names(&node.broadcast)));
    let order = |(column, descending): &(String, bool)| if *descending { format!("{column} desc") } else { column.clone() };
    if let Some(top) = &node.top {
        map.insert("order_by".into(), top.order.iter().map(order).collect());
        map.insert("limit".into(), top.limit.into());
        put(&mut map, "rank", top.rank.clone().map(Value::from));
        put(&mut map, "with_ties", top.with_ties.then(|| true.into()));
    }
    let deduplicate = |GraphDeduplicate { last, by_event_time }: GraphDeduplicate| {
        let (keep, by) = (if last { "last" } else { "first" }, if by_event_time { "event_time" } else { "arrival" });
        json!({ "keep": keep, "by": by })
    };
    put(&mut map, "deduplicate", node.deduplicate.map(deduplicate));
    put(&mut map, "ttl", node.ttl_ms.map(duration));
    put(&mut map, "select", node.select.as_ref().map(|select| columns(select).into()));
    let branch = |(output, sql): &(String, Option<String>)| (output.clone(), sql.clone().unwrap_or("else".into()).into());
    put(&mut map, "split", node.split.as_ref().map(|split| split.iter().map(branch).collect::<Map<_, _>>().into()));
    put(&mut map, "changelog", node.changelog_full.then(|| "full".into()));
    common(&mut map, node.bad_records, node.parallelism);
    map.into()
}

fn join(join: &GraphJoin) -> Value {
    let pairs = |pairs: &Vec<(String, String)>| -> Value {
        pairs.iter().map(|(name, column)| (name.clone(), column.clone().into())).collect::<Map<_, _>>().into()
    };
    let signed = |ms: i64| -> Value {
        let length = HumanDuration::from_ms(ms.unsigned_abs());
        if ms < 0 { format!("-{length}").into() } else { length.to_string().into() }
    };
    let mut map = Map::new();
    map.insert("with".into(), names(&join.with));
    put(&mut map, "kind", (join.kind != JoinKind::default()).then(|| join.kind.name().into()));
    map.insert("on".into(), pairs(&join.on));
    let within = join.within.map(|GraphInterval { from_ms, to_ms }| json!({ "from": signed(from_ms), "to": signed(to_ms) }));
    put(&mut map, "within", within);
    put(&mut map, "lookup", join.lookup.then(|| true.into()));
    put(&mut map, "take", join.take.as_ref().map(pairs));
    map.into()
}

/// The window; as a map with what time it goes by and when it gives results, where it says so.
/// A function, trigger or evictor.
fn process(process: &GraphProcess) -> Value {
    let mut map = Map::new();
    map.insert("function".into(), process.function.clone().into());
    put(&mut map, "options", (!process.options.is_empty()).then(|| process.options.clone().into()));
    map.into()
}

fn window(kind: &GraphWindow, node: &TransformNode) -> Value {
    let (time, firing) = (&node.window_time, node.firing.as_ref());
    if firing.is_none() && time.is_default() && node.trigger.is_none() {
        return window_kind(kind);
    }
    let trigger = |Trigger { every_ms, rows }: Trigger| {
        let mut map = Map::new();
        put(&mut map, "every", every_ms.map(|ms| duration(ms as u64)));
        put(&mut map, "rows", rows.map(Value::from));
        map.into()
    };
    let mut map = match window_kind(kind) {
        Value::Object(map) => map,
        name => [(name.as_str().unwrap_or_default().to_owned(), json!({}))].into_iter().collect(),
    };
    put(&mut map, "time", time.processing.then(|| "processing".into()));
    put(&mut map, "time_zone", time.time_zone.clone().map(Value::from));
    put(&mut map, "trigger", node.trigger.as_ref().map(process));
    let Some(firing) = firing else { return map.into() };
    put(&mut map, "early", firing.early.map(trigger));
    put(&mut map, "allowed_lateness", (firing.lateness_ms > 0).then(|| duration(firing.lateness_ms as u64)));
    put(&mut map, "late", firing.late.map(trigger));
    put(&mut map, "accumulate", (!firing.accumulate).then_some(Value::Bool(false)));
    map.into()
}

fn window_kind(window: &GraphWindow) -> Value {
    let lengths = |kind: &str, lengths: &[(&str, i64)], offset_ms: i64| -> Value {
        let offset = (offset_ms > 0).then_some(("offset", offset_ms));
        let lengths = lengths.iter().copied().chain(offset);
        json!({ kind: lengths.map(|(key, ms)| (key.to_owned(), duration(ms as u64))).collect::<Map<_, _>>() })
    };
    match window {
        GraphWindow::Same => "same".into(),
        GraphWindow::Global => "global".into(),
        GraphWindow::Tumbling { size_ms, offset_ms } => lengths("tumbling", &[("size", *size_ms)], *offset_ms),
        GraphWindow::Sliding { size_ms, slide_ms, offset_ms } => {
            lengths("sliding", &[("size", *size_ms), ("slide", *slide_ms)], *offset_ms)
        }
        GraphWindow::Cumulate { size_ms, step_ms, offset_ms } => {
            lengths("cumulate", &[("size", *size_ms), ("step", *step_ms)], *offset_ms)
        }
        GraphWindow::Count { size, slide } => {
            let slide = (slide != size).then_some(("slide", slide));
            let counts = [("size", size)].into_iter().chain(slide);
            json!({ "count": counts.map(|(key, rows)| (key.to_owned(), Value::from(*rows))).collect::<Map<_, _>>() })
        }
        GraphWindow::Session { gap: GraphGap::Fixed { ms } } => lengths("session", &[("gap", *ms)], 0),
        GraphWindow::Session { gap: GraphGap::Sql(sql) } => json!({ "session": { "gap": sql } }),
    }
}

/// Writes `value` behind what stands on the line, its own lines indented.
fn write_yaml(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                text.push_str(&" ".repeat(indent));
                text.push_str(&scalar(key));
                text.push(':');
                let nested = value.as_object().is_some_and(|map| !map.is_empty());
                if nested {
                    text.push('\n');
                    write_yaml(value, indent + 2, text);
                } else {
                    text.push(' ');
                    text.push_str(&inline(value));
                    text.push('\n');
                }
            }
        }
        other => {
            text.push_str(&inline(other));
            text.push('\n');
        }
    }
}

/// A value on one line: lists and maps as in JSON, which is YAML.
fn inline(value: &Value) -> String {
    match value {
        Value::String(string) => scalar(string),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let entries: Vec<String> = map.iter().map(|(key, value)| format!("{}: {}", scalar(key), inline(value))).collect();
            if entries.is_empty() { "{}".into() } else { format!("{{ {} }}", entries.join(", ")) }
        }
        other => other.to_string(),
    }
}

/// A text, without quotes where it cannot be taken for anything else.
fn scalar(string: &str) -> String {
    let starts_well = string.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let ends_well = string.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ')' | '/' | '*'));
    let is_plain = string
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ' ' | '-' | '.' | '/' | '(' | ')' | '*' | '+' | '=' | '<' | '>'));
    let is_word = matches!(string.to_ascii_lowercase().as_str(), "null" | "true" | "false");
    if starts_well && ends_well && is_plain && !is_word { string.to_owned() } else { quoted(string) }
}

/// In double quotes, with escapes that both YAML and JSON know.
fn quoted(string: &str) -> String {
    let mut text = String::with_capacity(string.len() + 2);
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => {
                text.push_str(&format!("\\u{:04x}", c as u32));
            }
            c => text.push(c),
        }
    }
    text.push('"');
    text
}
