//! Column pruning: what no one reads is neither computed nor made at the source.
//!
//! Invariant: a sink gets every column of its input, and every stage keeps at least one column.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::plan::{
    AggregateCall, AggregatePhase, AggregateSpec, AssignSpec, DistinctSpec, JoinSide, OperatorKind, OperatorSpec, ProcessSpec,
    SessionGap, TopSpec, TopWindow, WindowSpec,
};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::aggregate::{WINDOW, WINDOW_END, WINDOW_START};
use super::stream::{Outlet, Stage, StageKind};

/// Leaves out what no one reads: backwards for what is read, forwards for the schemas that remain.
pub(super) fn prune(stages: &mut [Stage]) {
    let mut read: BTreeMap<Outlet, BTreeSet<String>> = BTreeMap::new();
    for index in (0..stages.len()).rev() {
        let mut read_of = |output| read.remove(&Outlet { stage: index, output }).unwrap_or_default();
        let (main, sides) = (read_of(0), (1..=stages[index].sides().len()).map(read_of).collect::<Vec<_>>());
        let mut wanted = drop_columns(&mut stages[index], main);
        let second = drop_side_columns(&mut stages[index], sides, &mut wanted);
        for (link, (input, _)) in stages[index].inputs.clone().into_iter().enumerate() {
            let wanted = if stages[index].input(link) == 1 { &second } else { &wanted };
            // A union takes whole rows, so that its inputs stay alike.
            let whole = stages[index].inputs.len() > 1 && matches!(stages[index].kind, StageKind::Pass | StageKind::Sink(_));
            let columns = &stages[input.stage].schema(input.output).columns;
            let names = columns.iter().map(|column| &column.name).filter(|name| whole || wanted.contains(*name));
            read.entry(input).or_default().extend(names.cloned());
        }
    }
    for index in 0..stages.len() {
        let input = match stages[index].inputs.as_slice() {
            [(input, _)] => Some(stages[input.stage].schema(input.output).clone()),
            [(input, _), (other, _)] if stages[index].input(1) == 1 => {
                let [input, other] = [input, other].map(|input| stages[input.stage].schema(input.output).clone());
                renew_second(&mut stages[index], other);
                Some(input)
            }
            _ => None,
        };
        if let Some(input) = input {
            renew(&mut stages[index], input);
        }
    }
}

/// Drops what is not among `read` from the stage's own columns and gives what it then reads of its input.
fn drop_columns(stage: &mut Stage, read: BTreeSet<String>) -> BTreeSet<String> {
    match &mut stage.kind {
        StageKind::Source(spec) => {
            keep(&mut spec.schema.columns, &read);
            stage.output = spec.schema.clone();
            BTreeSet::new()
        }
        StageKind::Sink(spec) => spec.input.columns.iter().map(|column| column.name.clone()).collect(),
        StageKind::Pass => read,
        StageKind::Operator(OperatorSpec { kind, output, input, .. }) => match kind {
            OperatorKind::Filter { .. } | OperatorKind::Split { .. } => {
                read.into_iter().chain(stage.uses.iter().flatten().cloned()).collect()
            }
            OperatorKind::Watermark(spec) => {
                read.into_iter().chain([spec.column.clone()]).chain(stage.uses.iter().flatten().cloned()).collect()
            }
            OperatorKind::Assign(spec) => {
                let read = read.into_iter().filter(|name| !AssignSpec::COLUMNS.contains(&name.as_str()));
                read.chain(input.event_time.clone().filter(|_| !spec.time.processing)).collect()
            }
            OperatorKind::Distinct(spec) => {
                let read = read.into_iter().filter(|name| !is_marked(&spec.values, name));
                let is_over_event_time = spec.window.is_over_time() && !spec.time.processing;
                read.chain(spec.keys.iter().chain(&spec.values).cloned())
                    .chain(window_reads(&spec.window, is_over_event_time, input))
                    .collect()
            }
            OperatorKind::Aggregate(spec) => aggregate_reads(spec, input),
            OperatorKind::Process(spec) => {
                let columns = spec.keys.iter().chain(&spec.function.inputs).map(|column| column.name.clone());
                columns.chain(input.event_time.clone()).chain(process_window_reads(spec)).collect()
            }
            OperatorKind::Top(spec) => {
                let order = spec.order.iter().map(|by| &by.column);
                let window = WINDOW;
                // A local half gives what it takes.
                let is_own = !spec.local;
                let of_window = |name: &String| is_own && spec.window.is_some() && window.contains(&name.as_str());
                let is_place = |name: &String| is_own && Some(name) == spec.place.as_ref();
                let read = read.into_iter().filter(|name| !is_place(name) && !of_window(name));
                let times: Vec<String> = match &spec.window {
                    None => Vec::new(),
                    Some(TopWindow::Tumbling { time, .. } | TopWindow::Overlapping { time, .. }) => {
                        input.event_time.iter().filter(|_| !time.processing).cloned().collect()
                    }
                    Some(TopWindow::Same) => vec![WINDOW_START.into(), WINDOW_END.into()],
                };
                read.chain(spec.keys.iter().chain(order).cloned()).chain(times).collect()
            }
            OperatorKind::Join(spec) => {
                let all = output.columns.clone();
                keep(&mut output.columns, &read);
                let kept = |column: &Column| output.columns.iter().any(|kept| kept.name == column.name);
                let origins = all.iter().zip(std::mem::take(&mut spec.columns)).filter(|(column, _)| kept(column));
                (output.columns, spec.columns) = origins.map(|(column, origin)| (column.clone(), origin)).unzip();
                stage.output.columns.clone_from(&output.columns);
                spec.reads(JoinSide::Left, input.event_time.as_ref()).into_iter().collect()
            }
            OperatorKind::Project { columns, unnest } => {
                let all = output.columns.clone();
                let unrolled = unnest.map(|at| all[at].name.clone());
                let read: BTreeSet<String> = read.into_iter().chain(unrolled.clone()).collect();
                keep(&mut output.columns, &read);
                let kept = |name: &str| output.columns.iter().any(|column| column.name == name);
                columns.retain(|(name, _)| kept(name));
                *unnest = unrolled.and_then(|name| columns.iter().position(|(column, _)| *column == name));
                let uses = std::mem::take(&mut stage.uses).into_iter().zip(&all);
                stage.uses = uses.filter(|(_, column)| kept(&column.name)).map(|(uses, _)| uses).collect();
                stage.output.columns.clone_from(&output.columns);
                stage.uses.iter().flatten().cloned().collect()
            }
        },
    }
}

/// Drops what is not read of the columns of a stage's other outputs; what it reads for them of its input is added to `wanted`, and
/// what it reads of its second input is answered.
fn drop_side_columns(stage: &mut Stage, read: Vec<BTreeSet<String>>, wanted: &mut BTreeSet<String>) -> BTreeSet<String> {
    let mut second = second_reads(stage);
    let StageKind::Operator(OperatorSpec { kind, sides, .. }) = &mut stage.kind else { return second };
    for (side, read) in sides.iter_mut().zip(read) {
        let passes_on = match kind {
            // Its outputs are alike, whatever each reader takes.
            OperatorKind::Split { .. } => {
                wanted.extend(read);
                continue;
            }
            OperatorKind::Aggregate(_) | OperatorKind::Top(_) => &mut *wanted,
            OperatorKind::Process(spec) if spec.function.sides.iter().any(|own| own.name == side.name) => continue,
            OperatorKind::Join(_) | OperatorKind::Process(_) if side.name == JoinSide::Right.late_output() => &mut second,
            OperatorKind::Join(_) | OperatorKind::Process(_) => &mut *wanted,
            // What others give beside their main output is of their own making.
            _ => continue,
        };
        keep(&mut side.schema.columns, &read);
        let columns = &side.schema.columns;
        side.schema.event_time.take_if(|name| !columns.iter().any(|column| column.name == *name));
        passes_on.extend(columns.iter().map(|column| column.name.clone()));
    }
    second
}

/// Keeps the columns that are read, or one, the cheapest, where none is.
fn keep(columns: &mut Vec<Column>, read: &BTreeSet<String>) {
    if !columns.iter().any(|column| read.contains(&column.name)) {
        let wide = |column: &Column| {
            matches!(column.ty, LogicalType::String | LogicalType::Binary | LogicalType::List(_) | LogicalType::Struct(_))
        };
        let at = columns.iter().position(|column| !wide(column)).unwrap_or(0);
        columns.swap(0, at);
        return columns.truncate(1);
    }
    columns.retain(|column| read.contains(&column.name));
}

fn aggregate_reads(spec: &AggregateSpec, input: &StreamSchema) -> BTreeSet<String> {
    if spec.phase == AggregatePhase::Final {
        return input.columns.iter().map(|column| column.name.clone()).collect();
    }
    let arguments = spec.calls.iter().flat_map(AggregateCall::reads).filter(|name| !is_marked(&spec.distinct, name));
    let asked = spec.trigger.iter().flat_map(|trigger| &trigger.part.function.inputs).map(|column| &column.name);
    let arguments = arguments.chain(&spec.distinct).chain(asked);
    let windows = window_reads(&spec.window, spec.is_over_event_time(), input);
    spec.keys.iter().chain(arguments).cloned().chain(windows).collect()
}

/// Whether a column of this name is made where one of `values` is told apart.
fn is_marked(values: &[String], name: &str) -> bool {
    values.iter().any(|value| DistinctSpec::output_name(value) == name)
}

/// What makes the windows of rows.
fn window_reads(window: &WindowSpec, is_over_event_time: bool, input: &StreamSchema) -> Vec<String> {
    let mut read: Vec<String> = input.event_time.iter().filter(|_| is_over_event_time).cloned().collect();
    match window {
        WindowSpec::Session { gap: SessionGap::Column { name } } => read.push(name.clone()),
        WindowSpec::Same => read.extend(["window_start".into(), "window_end".into()]),
        _ => {}
    }
    read
}

/// What a function in windows reads of each input for them.
fn process_window_reads(spec: &ProcessSpec) -> Vec<String> {
    let Some(window) = &spec.window else { return Vec::new() };
    let mut read: Vec<String> = window.parts().flat_map(|part| &part.function.inputs).map(|column| column.name.clone()).collect();
    match &window.window {
        WindowSpec::Same => read.extend([WINDOW_START, WINDOW_END].map(String::from)),
        WindowSpec::Session { gap: SessionGap::Column { name } } => read.push(name.clone()),
        _ => {}
    }
    read
}

/// What a stage reads of its operator's second input.
fn second_reads(stage: &Stage) -> BTreeSet<String> {
    match &stage.kind {
        StageKind::Operator(OperatorSpec { kind: OperatorKind::Process(spec), .. }) => {
            let window = process_window_reads(spec);
            let keys = spec.second.iter().flat_map(|second| second.keys.iter().chain(&second.schema.event_time)).cloned();
            let declared = spec.function.broadcast.iter().chain(&spec.function.second).flatten();
            declared.map(|column| column.name.clone()).chain(keys).chain(window).collect()
        }
        StageKind::Operator(OperatorSpec { kind: OperatorKind::Join(spec), .. }) => {
            spec.reads(JoinSide::Right, spec.right.event_time.as_ref()).into_iter().collect()
        }
        _ => BTreeSet::new(),
    }
}

/// Brings the schema of an operator's second input up to date with what that now gives.
fn renew_second(stage: &mut Stage, input: StreamSchema) {
    match &mut stage.kind {
        StageKind::Operator(OperatorSpec { kind: OperatorKind::Process(spec), .. }) => match &mut spec.second {
            Some(second) => second.schema = input,
            None => spec.broadcast = Some(input),
        },
        StageKind::Operator(OperatorSpec { kind: OperatorKind::Join(spec), .. }) => spec.right = input,
        _ => {}
    }
}

/// Brings the schemas of a stage with one input up to date with what the input now gives.
fn renew(stage: &mut Stage, input: StreamSchema) {
    match &mut stage.kind {
        StageKind::Source(_) => {}
        StageKind::Pass => stage.output = input,
        StageKind::Sink(spec) => {
            stage.output = input.clone();
            spec.input = input;
        }
        StageKind::Operator(operator) => {
            match &operator.kind {
                OperatorKind::Filter { .. } | OperatorKind::Split { .. } => operator.output = input.clone(),
                OperatorKind::Watermark(spec) => operator.output = spec.output(&input),
                OperatorKind::Assign(spec) => operator.output = spec.output(&input),
                OperatorKind::Distinct(spec) => operator.output = spec.output(&input),
                OperatorKind::Project { .. } | OperatorKind::Join(_) => {
                    let columns = &operator.output.columns;
                    operator.output.event_time.take_if(|name| !columns.iter().any(|column| column.name == *name));
                }
                OperatorKind::Top(TopSpec { local: true, .. }) => operator.output = input.clone(),
                OperatorKind::Top(TopSpec { window: Some(_), place, .. }) => {
                    let window = WINDOW;
                    let own = |column: &Column| Some(&column.name) == place.as_ref() || window.contains(&column.name.as_str());
                    let own: Vec<Column> = operator.output.columns.drain(..).filter(own).collect();
                    let others = input.columns.iter().filter(|column| !window.contains(&column.name.as_str()));
                    operator.output.columns = others.cloned().chain(own).collect();
                }
                OperatorKind::Top(spec) => {
                    let place = operator.output.columns.pop().filter(|column| Some(&column.name) == spec.place.as_ref());
                    operator.output.columns = input.columns.iter().cloned().chain(place).collect();
                    let columns = &operator.output.columns;
                    operator.output.event_time.take_if(|name| !columns.iter().any(|column| column.name == *name));
                }
                OperatorKind::Aggregate(_) | OperatorKind::Process(_) => {}
            }
            if let OperatorKind::Split { .. } = operator.kind {
                operator.sides.iter_mut().for_each(|side| side.schema = input.clone());
            }
            operator.input = input;
            stage.output = operator.output.clone();
        }
    }
}
