//! A plan as text, for `levada check` and `describe`.

use std::fmt::Write;

use levada_common::plan::{
    AggregateCall, AggregatePhase, AggregateSpec, AlignSpec, Changelog, Edge, Evict, FiringSpec, FutureBound, FutureRows,
    JobSettings, JoinScope, JoinSide, JoinSpec, LibraryArgument, OperatorKind, OperatorSpec, Partition, Plan, ProcessSpec,
    ProcessWindow, RestartSettings, SessionGap, SplitBranch, TimeFormat, TopSpec, TopWindow, Trigger, TriggerSpec, Vertex,
    WatermarkRule, WatermarkSpec, WindowPart, WindowSpec, WindowTime,
};
use levada_common::types::StreamSchema;

/// The execution graph of `plan`: vertices with what runs in them, streams with who gets which row and what they carry.
pub fn explain(plan: &Plan) -> String {
    let mut text = String::new();
    describe(&mut text, plan).expect("writing to a String cannot fail");
    text
}

fn describe(out: &mut String, plan: &Plan) -> std::fmt::Result {
    let vertices = counted(plan.vertices.len(), "vertex", "vertices");
    let slots = counted(plan.slots() as usize, "slot", "slots");
    writeln!(out, "job \"{}\": {vertices}, {slots}, max parallelism {}", plan.name, plan.max_parallelism)?;
    describe_settings(out, &plan.settings)?;
    for warning in &plan.warnings {
        writeln!(out, "  warning: {warning}")?;
    }
    for vertex in &plan.vertices {
        describe_vertex(out, plan, vertex)?;
    }
    Ok(())
}

fn describe_settings(out: &mut String, settings: &JobSettings) -> std::fmt::Result {
    write!(out, "  state {}, checkpoints ", settings.backend.name())?;
    match settings.checkpoint.interval_ms {
        Some(interval) => write!(out, "every {}", duration(interval))?,
        None => write!(out, "off")?,
    }
    if let Some(dir) = &settings.checkpoint.dir {
        write!(out, " to {dir}")?;
    }
    match &settings.restart {
        RestartSettings::None => writeln!(out, ", no restart"),
        RestartSettings::FixedDelay { attempts, delay_ms } => {
            writeln!(out, ", {attempts} restarts {} apart", duration(*delay_ms))
        }
    }
}

fn describe_vertex(out: &mut String, plan: &Plan, vertex: &Vertex) -> std::fmt::Result {
    writeln!(out, "\nvertex {} \"{}\", parallelism {}", vertex.id, vertex.name, vertex.parallelism)?;
    for edge in plan.inputs(vertex.id) {
        let sides = plan.vertex(edge.from).operators.last().map_or(&[][..], |operator| operator.sides.as_slice());
        let side = (edge.output as usize).checked_sub(1).and_then(|side| sides.get(side));
        let side = side.map(|side| format!(" output \"{}\"", side.name)).unwrap_or_default();
        writeln!(out, "  <- vertex {}{side} by {}", edge.from, partition(plan, edge))?;
    }
    if let Some(source) = &vertex.source {
        writeln!(out, "  source \"{}\": {}", source.uid, source.connector)?;
        writeln!(out, "     {}", stream(&source.schema))?;
    }
    for (at, operator) in vertex.operators.iter().enumerate() {
        writeln!(out, "  {} of \"{}\": {}", clause(operator), operator.uid, kind(&operator.kind))?;
        if operator.output != operator.input {
            writeln!(out, "     {}", stream(&operator.output))?;
        }
        for side in &operator.sides {
            writeln!(out, "     output \"{}\" {}", side.name, stream(&side.schema))?;
        }
        match &operator.kind {
            OperatorKind::Aggregate(spec) => {
                let counted = spec.counted().into_iter().map(|counted| counted.state);
                for state in spec.state_name().map(String::from).into_iter().chain(counted) {
                    writeln!(out, "     state \"{state}\"")?;
                }
            }
            OperatorKind::Distinct(_) => {
                for state in operator.state_names() {
                    writeln!(out, "     state \"{state}\"")?;
                }
            }
            OperatorKind::Process(spec) => {
                for state in &spec.function.states {
                    writeln!(out, "     {} state \"{}\"", state.schema.shape, state.name)?;
                }
            }
            OperatorKind::Top(spec) if spec.local => {}
            OperatorKind::Top(_) => writeln!(out, "     state \"top\"")?,
            OperatorKind::Join(spec) if matches!(spec.scope, JoinScope::Lookup { .. }) => {
                writeln!(out, "     state \"{}\"", JoinSpec::TABLE)?;
            }
            OperatorKind::Join(_) => {
                let [left, right] = JoinSide::ALL.map(JoinSide::state_name);
                writeln!(out, "     states \"{left}\", \"{right}\"")?;
            }
            _ => {}
        }
        let is_last = vertex.operators.get(at + 1).is_none_or(|next| next.uid != operator.uid);
        if let Some(changes) = plan.changelogs.get(&operator.uid).filter(|_| is_last && operator.output.changelog) {
            writeln!(out, "     changes {}", changelog(changes))?;
        }
    }
    if let Some(sink) = &vertex.sink {
        writeln!(out, "  sink \"{}\": {}", sink.uid, sink.connector)?;
    }
    Ok(())
}

fn partition(plan: &Plan, edge: &Edge) -> String {
    match &edge.partition {
        Partition::Forward => "forward".into(),
        Partition::Hash { columns } => format!("hash of {}", columns.join(", ")),
        Partition::Rebalance if plan.vertex(edge.to).parallelism == 1 => "all to one".into(),
        Partition::Rebalance => "rebalance".into(),
        Partition::Broadcast => "broadcast".into(),
    }
}

fn stream(schema: &StreamSchema) -> String {
    let columns: Vec<String> = schema
        .columns
        .iter()
        .map(|column| format!("{} {}{}", column.name, column.ty, if column.nullable { "" } else { " NOT NULL" }))
        .collect();
    let kind = if schema.changelog { "changelog" } else { "append" };
    let time = schema.event_time.as_ref().map(|column| format!(", event time {column}")).unwrap_or_default();
    format!("({}) {kind}{time}", columns.join(", "))
}

fn changelog(changes: &Changelog) -> String {
    let replaced = if changes.full { ", with the rows that they replace" } else { "" };
    let several = if changes.unique { "" } else { ", several rows of a key" };
    let key = if changes.key.is_empty() { "without key".into() } else { keys(&changes.key) };
    format!("{key}{several}{replaced}")
}

fn clause(operator: &OperatorSpec) -> String {
    match &operator.kind {
        OperatorKind::Aggregate(AggregateSpec { phase: AggregatePhase::Partial, .. }) => format!("partial {}", operator.clause),
        OperatorKind::Aggregate(AggregateSpec { phase: AggregatePhase::Final, .. }) => format!("final {}", operator.clause),
        OperatorKind::Top(TopSpec { local: true, .. }) => format!("local {}", operator.clause),
        _ => operator.clause.clone(),
    }
}

fn kind(kind: &OperatorKind) -> String {
    match kind {
        OperatorKind::Watermark(spec) => watermark(spec),
        OperatorKind::Filter { predicate, .. } => predicate.clone(),
        OperatorKind::Project { columns, unnest } => {
            let columns = columns.iter().enumerate().map(|(at, (name, sql))| match unnest {
                Some(unnest) if *unnest == at => format!("{name}: unnest({sql})"),
                _ => format!("{name}: {sql}"),
            });
            columns.collect::<Vec<_>>().join(", ")
        }
        OperatorKind::Assign(spec) => {
            let late = lateness(spec.lateness_ms);
            format!("each row for each of its windows, {}{}{late}", window(&spec.window), window_time(&spec.time))
        }
        OperatorKind::Distinct(spec) => {
            let window = window(&spec.window) + &window_time(&spec.time) + &lateness(spec.lateness_ms);
            format!("each {} once, {window}, {}", spec.values.join(", "), keys(&spec.keys))
        }
        OperatorKind::Aggregate(spec) => aggregate(spec),
        OperatorKind::Process(spec) => process(spec),
        OperatorKind::Join(spec) => join(spec),
        OperatorKind::Top(spec) => top(spec),
        OperatorKind::Split { branches, .. } => split(branches),
    }
}

fn join(spec: &JoinSpec) -> String {
    let keys = spec.left_keys.iter().zip(&spec.right_keys);
    let keys: Vec<String> = keys.map(|(left, right)| format!("{left} = {right}")).collect();
    let scope = match &spec.scope {
        scope @ (JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same) => {
            let time = scope.window_time().map(window_time).unwrap_or_default();
            format!("{}{time}", scope.windows().as_ref().map(window).unwrap_or_default())
        }
        JoinScope::Standing { ttl_ms, .. } => format!("all rows{}", ttl(*ttl_ms)),
        JoinScope::Lookup { whole: true, .. } => "looked up in the whole table".into(),
        JoinScope::Lookup { whole: false, .. } => "looked up in the table as it is".into(),
        JoinScope::Within { from_ms, to_ms } => format!("right within {} to {}", signed(*from_ms), signed(*to_ms)),
    };
    format!("{}, {}, {scope}", spec.kind, keys.join(", "))
}

fn top(spec: &TopSpec) -> String {
    let keys = keys(&spec.keys);
    let order = spec.order.iter().map(|by| format!("{}{}", by.column, if by.descending { " desc" } else { "" }));
    let arrival = if spec.newest_wins { "arrival desc" } else { "arrival" };
    let order: Vec<String> = order.chain([arrival.to_string()]).collect();
    let place = spec.place.as_ref().map(|place| format!(", place as {place}")).unwrap_or_default();
    let ties = if spec.with_ties { " with ties" } else { "" };
    let window = match &spec.window {
        None => String::new(),
        Some(TopWindow::Tumbling { size_ms, offset_ms, time }) => {
            let tumbling = window(&WindowSpec::Tumbling { size_ms: *size_ms, offset_ms: *offset_ms });
            format!(", {tumbling}{}", window_time(time))
        }
        Some(TopWindow::Overlapping { windows, time }) => format!(", {}{}", window(windows), window_time(time)),
        Some(TopWindow::Same) => format!(", {}", window(&WindowSpec::Same)),
    };
    format!("the first {}{ties}, {keys}{window}, in order of {}{place}{}", spec.limit, order.join(", "), ttl(spec.ttl_ms))
}

fn split(branches: &[SplitBranch]) -> String {
    let branch = |branch: &SplitBranch| format!("{}: {}", branch.output, branch.predicate.as_deref().unwrap_or("else"));
    branches.iter().map(branch).collect::<Vec<_>>().join(", ")
}

fn ttl(ms: Option<i64>) -> String {
    ms.map(|ms| format!(", kept for {}", duration(ms.unsigned_abs()))).unwrap_or_default()
}

fn signed(ms: i64) -> String {
    format!("{}{}", if ms < 0 { "-" } else { "" }, duration(ms.unsigned_abs()))
}

/// What differs from the defaults is said, and the rest where it matters to everyone.
fn watermark(spec: &WatermarkSpec) -> String {
    let mut text = spec.column.clone();
    match &spec.format {
        TimeFormat::Time => {}
        TimeFormat::Integer(unit) => text += &format!(" in {}", unit.name()),
        TimeFormat::Text { zone } => text += &format!(" as text, {}", zone.as_deref().unwrap_or("UTC")),
    }
    match &spec.rule {
        WatermarkRule::Disorder { ms } => text += &format!(", disorder {}", duration(ms.unsigned_abs())),
        WatermarkRule::Expression { sql } => text += &format!(", up to {sql}"),
    }
    text += &format!(", step {}", duration(spec.step_ms.unsigned_abs()));
    text += &spec.idleness_ms.map_or(", never idle".into(), |idle| format!(", idle after {}", duration(idle)));
    match &spec.future {
        Some(FutureBound { max_ms: WatermarkSpec::MAX_FUTURE_DEFAULT_MS, rows: FutureRows::Pass }) => {}
        Some(FutureBound { max_ms, rows }) => {
            let rows = match rows {
                FutureRows::Pass => "pass",
                FutureRows::BadRecord => "are bad records",
            };
            text += &format!(", rows more than {} ahead {rows}", duration(*max_ms));
        }
        None => text += ", the future without bound",
    }
    if let Some(AlignSpec { group, max_drift_ms }) = &spec.align {
        text += &format!(", at most {} ahead of group \"{group}\"", duration(*max_drift_ms));
    }
    text
}

fn process(spec: &ProcessSpec) -> String {
    let keys = keys(&spec.keys.iter().map(|key| key.name.clone()).collect::<Vec<_>>());
    let of_window = |process: &ProcessWindow| {
        let part = |what: &str, part: &Option<Box<WindowPart>>| {
            part.as_ref().map(|part| format!(", {what} \"{}\"", part.function.name)).unwrap_or_default()
        };
        let evict = match process.evict {
            None => part("evictor", &process.evictor),
            Some(Evict::Rows { rows }) => format!(", the last {rows} rows"),
            Some(Evict::Time { ms }) => format!(", the last {}", duration(ms.unsigned_abs())),
        };
        let results = process.firing.as_ref().map(firing).unwrap_or_default();
        let window = window(&process.window) + &window_time(&process.time);
        format!(", {window}{results}{}{evict}", part("trigger", &process.trigger))
    };
    let window = spec.window.as_ref().map(of_window).unwrap_or_default();
    format!("{} \"{}\", {keys}{window}", spec.function.kind, spec.function.name)
}

fn aggregate(spec: &AggregateSpec) -> String {
    let of_trigger = |trigger: &TriggerSpec| {
        let TriggerSpec { lateness_ms, accumulate, .. } = *trigger;
        let results = firing(&FiringSpec { early: None, lateness_ms, late: None, accumulate });
        format!("{results}, trigger \"{}\"", trigger.part.function.name)
    };
    let results = spec.firing.as_ref().map(firing).or(spec.trigger.as_deref().map(of_trigger)).unwrap_or_default();
    let window = window(&spec.window) + &window_time(&spec.time) + &results;
    let keys = keys(&spec.keys);
    let changes = if spec.takes_changes { " over changes" } else { "" };
    let values = spec.distinct.join(", ");
    let distinct = if values.is_empty() { String::new() } else { format!(", each {values} once") };
    let calls: Vec<String> = spec.calls.iter().map(call).collect();
    format!("{window}{changes}{distinct}, {keys}: {}", calls.join(", "))
}

fn lateness(ms: i64) -> String {
    if ms == 0 { String::new() } else { format!(" up to {} late", duration(ms.unsigned_abs())) }
}

fn keys(keys: &[String]) -> String {
    if keys.is_empty() { "no key".into() } else { format!("by {}", keys.join(", ")) }
}

fn firing(firing: &FiringSpec) -> String {
    let trigger = |Trigger { every_ms, rows }: Trigger| {
        let every = every_ms.map(|ms| format!("every {}", duration(ms.unsigned_abs())));
        let rows = rows.map(|rows| format!("after {} of a group", counted(rows as usize, "row", "rows")));
        every.into_iter().chain(rows).collect::<Vec<_>>().join(" and ")
    };
    let mut text = firing.early.map(|early| format!(" early {}", trigger(early))).unwrap_or_default();
    if firing.lateness_ms > 0 {
        let when = firing.late.map_or("with each batch".into(), trigger);
        text += &format!(" up to {} late {when}", duration(firing.lateness_ms.unsigned_abs()));
    }
    text + if firing.accumulate { "" } else { " in parts" }
}

fn window(window: &WindowSpec) -> String {
    let length = |ms: &i64| duration(ms.unsigned_abs());
    let offset = |ms: &i64| if *ms == 0 { String::new() } else { format!(" offset {}", length(ms)) };
    match window {
        WindowSpec::Running => "running".into(),
        WindowSpec::Tumbling { size_ms, offset_ms } => format!("tumbling {}{}", length(size_ms), offset(offset_ms)),
        WindowSpec::Sliding { size_ms, slide_ms, offset_ms } => {
            format!("sliding {} by {}{}", length(size_ms), length(slide_ms), offset(offset_ms))
        }
        WindowSpec::Cumulate { size_ms, step_ms, offset_ms } => {
            format!("cumulating {} by {}{}", length(size_ms), length(step_ms), offset(offset_ms))
        }
        WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } } => format!("session gap {}", length(gap_ms)),
        WindowSpec::Session { gap: SessionGap::Column { name } } => format!("session gap of {name} ms"),
        WindowSpec::Count { size, slide } if size == slide => format!("count of {}", counted(*size as usize, "row", "rows")),
        WindowSpec::Count { size, slide } => format!("count of {} by {slide}", counted(*size as usize, "row", "rows")),
        WindowSpec::Same => "same window".into(),
        WindowSpec::Global => "global window".into(),
    }
}

fn window_time(time: &WindowTime) -> String {
    let zone = time.time_zone.as_ref().map_or_else(String::new, |zone| format!(" in {zone}"));
    format!("{}{zone}", if time.processing { " of processing time" } else { "" })
}

fn call(call: &AggregateCall) -> String {
    let order: Vec<String> =
        call.order.iter().map(|order| format!("{}{}", order.column, if order.descending { " desc" } else { "" })).collect();
    let order = if order.is_empty() { String::new() } else { format!(" order by {}", order.join(", ")) };
    let Some(library) = &call.library else {
        return format!("{}: {}({}{order})", call.name, call.function.name(), call.argument.as_deref().unwrap_or("*"));
    };
    let arguments: Vec<&str> = library.arguments.iter().map(LibraryArgument::text).collect();
    let distinct = if library.distinct { "distinct " } else { "" };
    let filter = library.filter.as_ref().map(|filter| format!(" where {filter}")).unwrap_or_default();
    format!("{}: {}({distinct}{}{order}{filter})", call.name, library.function, arguments.join(", "))
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `10 s`, `2.5 s`, `100 ms`, `10 min`.
fn duration(ms: u64) -> String {
    match ms {
        0 => "0".into(),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{ms} ms"),
    }
}
