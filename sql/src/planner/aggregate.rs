//! Aggregation: keys, window and calls of a node, one operator or a partial and a final with an exchange between.

use std::collections::BTreeSet;

use levada_common::aggregate_state::state_columns;
use levada_common::graph::TransformNode;
use levada_common::keys::is_key_type;
use levada_common::plan::{
    AggregateCall, AggregateFunction, AggregatePhase, AggregateSpec, Changelog, FiringSpec, OperatorKind, OrderSpec, Partition,
    SessionGap, SideOutput, WindowSpec, WindowTime,
};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::call::{Call, read_call, result_type};
use super::distinct::refusal;
use super::graph::{NewOperator, Planner};
use super::stream::{Checked, Stream};
use crate::expression::{column_reference, unknown_column};

pub(super) const WINDOW_START: &str = "window_start";
pub(super) const WINDOW_END: &str = "window_end";
pub(super) const WINDOW_TIME: &str = "window_time";

/// The columns of a window.
pub(super) const WINDOW: [&str; 3] = [WINDOW_START, WINDOW_END, WINDOW_TIME];

/// The columns that the operator reads: name and expression, in order, each once.
#[derive(Default)]
pub(super) struct Arguments {
    columns: Vec<(String, String)>,
    typed: Vec<Column>,
    uses: Vec<BTreeSet<String>>,
    computed: bool,
    /// Columns of which equal values count once.
    pub(super) distinct: Vec<String>,
}

impl Arguments {
    /// Notes a column of the input.
    pub(super) fn column(&mut self, column: &Column) {
        if !self.columns.iter().any(|(name, _)| *name == column.name) {
            self.columns.push((column.name.clone(), column_reference(&column.name)));
            self.typed.push(column.clone());
            self.uses.push([column.name.clone()].into());
        }
    }

    /// Notes an expression and gives the name of its column.
    fn expression(&mut self, sql: &str, column: Column, uses: Vec<String>, input: &StreamSchema) -> String {
        if let Some((name, _)) = self.columns.iter().find(|(_, known)| known == sql) {
            return name.clone();
        }
        let taken = |name: &str| input.column(name).is_some() || self.columns.iter().any(|(known, _)| known == name);
        let mut name = sql.to_string();
        while taken(&name) {
            name.push('\'');
        }
        self.columns.push((name.clone(), sql.to_string()));
        self.typed.push(Column { name: name.clone(), ..column });
        self.uses.push(uses.into_iter().collect());
        self.computed = true;
        name
    }
}

impl Planner<'_> {
    /// Plans `key_by`, `window` and `aggregate`; `None` where the result is not known.
    pub(super) fn add_aggregate(
        &mut self,
        node: &TransformNode,
        calls: &[(String, String)],
        mut stream: Stream,
        wanted: Option<u32>,
    ) -> Option<Stream> {
        let path = format!("transforms.{}", node.uid);
        if stream.schema.changelog && node.window.is_some() {
            let message = "a window over a changelog would count updates as rows; give the aggregate before it a window";
            self.error(format!("{path}.window"), message);
            return None;
        }
        if let Err(reason) = self.ask_for_replaced(&mut stream) {
            self.error(format!("{path}.inputs"), reason);
            return None;
        }
        let errors = self.errors.0.len();
        let mut arguments = Arguments::default();
        let keys = self.key_columns(node, &stream);
        keys.iter().for_each(|key| arguments.column(key));
        let window = self.window(node, &stream, &mut arguments);
        let firing = self.firing(node, &window);
        let trigger = self.trigger(node, &window, &stream, &mut arguments);
        // By processing time no row is late.
        let late = (window.is_windowed() && !node.window_time.processing).then(|| stream.clone());
        if late.is_some() && self.outputs.is_read(&node.uid, SideOutput::LATE) {
            stream.schema.columns.iter().for_each(|column| arguments.column(column));
        }
        let mut unknown: BTreeSet<String> =
            keys.iter().filter(|key| stream.unknown.contains(&key.name)).map(|key| key.name.clone()).collect();
        let mut planned = Vec::new();
        for (name, sql) in calls {
            match self.call(&format!("{path}.aggregate.{name}"), name, sql, &stream, &mut arguments) {
                Some(call) => planned.push(call),
                None => {
                    unknown.insert(name.clone());
                    planned.push(placeholder(name));
                }
            }
        }
        let accumulate = firing.map(|firing| firing.accumulate).or(trigger.as_ref().map(|trigger| trigger.accumulate));
        let changes = self.changes(node, &keys, &window, accumulate);
        // A group has a row; only the one without key of a global window gives results over none, and a session that was purged before
        // its result is taken back.
        let may_be_empty = match window {
            WindowSpec::Global => keys.is_empty(),
            WindowSpec::Session { .. } => trigger.is_some(),
            _ => false,
        };
        let output = aggregate_output(&keys, (&window, &node.window_time), (&planned, may_be_empty), changes.is_some());
        let spec = AggregateSpec {
            keys: keys.iter().map(|key| key.name.clone()).collect(),
            window: window.clone(),
            time: node.window_time.clone(),
            phase: AggregatePhase::Single,
            calls: planned,
            changelog_full: node.changelog_full,
            firing,
            trigger: trigger.map(Box::new),
            takes_changes: stream.schema.changelog,
            distinct: Vec::new(),
        };
        self.check_outputs(node, &keys, &spec);
        self.check_trigger_states(node, &spec, &arguments.distinct);
        if self.errors.0.len() == errors && unknown.is_empty() {
            self.push_aggregate(node, &mut stream, spec, arguments, output.clone(), wanted);
            if let Some(late) = late {
                let late = Stream { partitioned_by: stream.partitioned_by.clone(), single: stream.single, ..late };
                self.add_sides(&node.uid, &stream, vec![(SideOutput::LATE.into(), late)]);
            }
        } else {
            stream.partitioned_by = None;
            if late.is_some() {
                self.outputs.offer(&node.uid, SideOutput::LATE, None);
            }
        }
        describe_output(node, &mut stream, &window, changes);
        stream.schema = output;
        stream.unknown = unknown;
        Some(stream)
    }

    /// The columns of `key_by`; what cannot be a key is reported and left out.
    pub(super) fn key_columns(&mut self, node: &TransformNode, stream: &Stream) -> Vec<Column> {
        let mut keys: Vec<Column> = Vec::new();
        for (index, name) in node.key_by.iter().flatten().enumerate() {
            let path = format!("transforms.{}.key_by[{index}]", node.uid);
            match stream.schema.column(name) {
                None => self.error(path, unknown_column(name, &stream.schema)),
                Some(_) if keys.iter().any(|key| key.name == *name) => self.error(path, format!("key \"{name}\" is there twice")),
                Some(Column { ty, .. }) if !is_key_type(ty) => {
                    self.error(path, format!("key \"{name}\" is {ty}; a key is a plain value"));
                }
                Some(column) => keys.push(column.clone()),
            }
        }
        keys
    }

    /// Plans one call; `None` where it is wrong or of unknown type.
    fn call(&mut self, path: &str, name: &str, sql: &str, stream: &Stream, arguments: &mut Arguments) -> Option<AggregateCall> {
        let schema = stream.schema.clone();
        let call = match read_call(sql, |name| schema.column(name).is_some()) {
            Ok(call) => call,
            Err(reason) => {
                self.error(path, reason);
                return None;
            }
        };
        if let Some(reason) = refusal(&call, stream.schema.changelog) {
            self.error(path, reason);
            return None;
        }
        if let Some(filter) = &call.filter {
            self.condition(path, "the condition of FILTER", filter, stream)?;
        }
        if let Some((function, sqls)) = &call.library {
            let request = self.library_request(path, (function, sqls), &call, stream, arguments)?;
            return request.plan(name).map_err(|reason| self.error(path, reason)).ok();
        }
        let argument = match &call.argument {
            Some(argument) => Some(self.argument(path, argument, stream, arguments)?),
            None => None,
        };
        let argument = match argument {
            Some(column) if call.distinct => Some(self.told_apart(path, column, arguments)?),
            argument => argument,
        };
        let order = self.call_order(path, &call, stream, arguments)?;
        let result = match result_type(call.function, argument.as_ref().map(|column| &column.ty)) {
            Ok(result) => result,
            Err(reason) => {
                self.error(path, reason);
                return None;
            }
        };
        let argument_nullable = argument.as_ref().is_some_and(|column| column.nullable);
        let (argument, argument_type) = argument.map(|column| (column.name, column.ty)).unzip();
        let (name, function) = (name.into(), call.function);
        Some(AggregateCall { name, function, argument, argument_type, argument_nullable, order, result, library: None })
    }

    /// The order of a call's rows.
    pub(super) fn call_order(
        &mut self,
        path: &str,
        call: &Call,
        stream: &Stream,
        arguments: &mut Arguments,
    ) -> Option<Vec<OrderSpec>> {
        let mut order = Vec::new();
        for (sql, descending) in &call.order {
            let column = self.argument(path, sql, stream, arguments)?;
            if matches!(column.ty, LogicalType::List(_) | LogicalType::Struct(_)) {
                self.error(path, format!("cannot order by \"{sql}\", which is {}", column.ty));
                return None;
            }
            order.push(OrderSpec { column: column.name, ty: column.ty, nullable: column.nullable, descending: *descending });
        }
        Some(order)
    }

    pub(super) fn argument(&mut self, path: &str, sql: &str, stream: &Stream, arguments: &mut Arguments) -> Option<Column> {
        let typed = match stream.check(&self.compiler, sql) {
            Ok(Checked::Known(typed)) => typed,
            Ok(Checked::Unknown) => return None,
            Err(reason) => {
                self.error(path, reason);
                return None;
            }
        };
        if let Some(column) = typed.column.as_ref().and_then(|name| stream.schema.column(name)) {
            arguments.column(column);
            return Some(column.clone());
        }
        let column = Column::new(sql, typed.ty, typed.nullable);
        let name = arguments.expression(sql, column.clone(), typed.columns, &stream.schema);
        Some(Column { name, ..column })
    }

    /// Output columns have names of their own, and so do the columns of partial states.
    fn check_outputs(&mut self, node: &TransformNode, keys: &[Column], spec: &AggregateSpec) {
        let (window, calls) = (&spec.window, &spec.calls);
        let mut taken: Vec<(String, &str)> = keys.iter().map(|key| (key.name.clone(), "a key")).collect();
        if window.is_windowed() {
            for name in WINDOW {
                if keys.iter().any(|key| key.name == name) {
                    let message =
                        format!("\"{name}\" is a column of the window and cannot be a key; the window groups by it already");
                    self.error(format!("transforms.{}.key_by", node.uid), message);
                }
                taken.push((name.to_string(), "a column of the window"));
            }
        }
        let states = state_columns(&spec.kept_calls());
        for call in calls {
            let path = format!("transforms.{}.aggregate.{}", node.uid, call.name);
            if let Some((_, what)) = taken.iter().find(|(name, _)| *name == call.name) {
                self.error(path, format!("\"{}\" is also {what}; give the result another name", call.name));
                continue;
            }
            taken.push((call.name.clone(), "another result"));
            if FiringSpec::is_state_column(&call.name) || WindowSpec::is_count_state_column(&call.name) {
                self.error(
                    path,
                    format!("\"{}\" is what a window's own state is called; give the result another name", call.name),
                );
                continue;
            }
            if spec.takes_changes && states.iter().filter(|state| state.name == call.name).count() > 1 {
                let message =
                    format!("\"{}\" is the name of what is kept over a changelog; give the result another name", call.name);
                self.error(path.clone(), message);
            }
            for state in state_columns(std::slice::from_ref(call)).into_iter().filter(|state| state.name != call.name) {
                let is_taken = keys.iter().any(|key| key.name == state.name)
                    || calls.iter().any(|other| other.name == state.name)
                    || states.iter().filter(|other| other.name == state.name).count() > 1;
                if is_taken {
                    self.error(path.clone(), format!("its state \"{}\" has the name of another column; rename one", state.name));
                }
            }
        }
    }

    fn push_aggregate(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        mut spec: AggregateSpec,
        arguments: Arguments,
        output: StreamSchema,
        wanted: Option<u32>,
    ) {
        let keyed = !spec.keys.is_empty();
        let parallelism = if keyed { wanted.unwrap_or(self.settings.parallelism) } else { 1 };
        let in_place = stream.is_in_place(&spec.keys, parallelism);
        let distinct = arguments.distinct.clone();
        self.push_computed(node, "aggregate", stream, arguments);
        // A count window takes rows in the order of their arrival, and a session by the clock their gaps: states of several rows
        // have neither. Late rows are known where windows fire, and must be rows there; and rows that are told apart, or taken back,
        // go whole over the exchange too.
        let reads_late = spec.window.is_windowed() && self.outputs.is_read(&node.uid, SideOutput::LATE);
        let needs_rows = match spec.window {
            WindowSpec::Count { .. } => true,
            WindowSpec::Session { gap: SessionGap::Column { .. } } => spec.time.processing || reads_late,
            _ => reads_late,
        };
        // A trigger looks at rows.
        let needs_rows = needs_rows || spec.trigger.is_some();
        let takes_rows = in_place || needs_rows || spec.takes_changes || !distinct.is_empty();
        if !takes_rows {
            let partial = AggregateSpec { phase: AggregatePhase::Partial, ..spec.clone() };
            let states = partial_output(&stream.schema, &partial);
            let before = stream.parallelism;
            self.push_operator(stream, aggregate_operator(node, partial, states), Partition::Forward, before);
        }
        let mut partition = match (in_place, keyed) {
            (true, _) => Partition::Forward,
            (false, true) => Partition::Hash { columns: spec.keys.clone() },
            (false, false) => Partition::Rebalance,
        };
        stream.partitioned_by = keyed.then(|| spec.keys.clone());
        stream.single = !keyed;
        self.warn_of_heap(node, &spec);
        if !distinct.is_empty() {
            partition = self.tell_apart(node, stream, &mut spec, distinct, (partition, parallelism));
        }
        let phase = if takes_rows { AggregatePhase::Single } else { AggregatePhase::Final };
        self.push_operator(stream, aggregate_operator(node, AggregateSpec { phase, ..spec }, output), partition, parallelism);
    }

    /// A projection that computes what a clause takes, where that is more than columns of the input.
    pub(super) fn push_computed(
        &mut self,
        node: &TransformNode,
        clause: &'static str,
        stream: &mut Stream,
        arguments: Arguments,
    ) {
        if !arguments.computed {
            return;
        }
        let event_time = stream.schema.event_time.clone().filter(|name| arguments.columns.iter().any(|(known, _)| known == name));
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause,
            kind: OperatorKind::Project { columns: arguments.columns, unnest: None },
            output: StreamSchema { columns: arguments.typed, event_time, changelog: stream.schema.changelog },
            uses: arguments.uses,
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }
}

/// What is known of the stream that an aggregation gives.
fn describe_output(node: &TransformNode, stream: &mut Stream, window: &WindowSpec, changes: Option<Changelog>) {
    let running = *window == WindowSpec::Running;
    stream.changes = changes;
    stream.windowed = window.is_windowed() && !node.window_time.processing;
    let why = match window {
        WindowSpec::Count { .. } => "has a count window, and its results have",
        _ if node.window_time.processing => "has windows of processing time, and their results have",
        _ if running => "aggregates without a window, and its changes have",
        _ => "has a global window, and its result has",
    };
    stream.no_event_time = Some(format!("transform \"{}\" {why} no event time", node.uid));
}

fn aggregate_operator(node: &TransformNode, spec: AggregateSpec, output: StreamSchema) -> NewOperator {
    let kind = OperatorKind::Aggregate(spec);
    NewOperator { uid: node.uid.clone(), clause: "aggregate", kind, output, uses: Vec::new(), bad_records: node.bad_records }
}

/// Stands for a call that is wrong, so that what reads its column is checked all the same.
fn placeholder(name: &str) -> AggregateCall {
    AggregateCall { argument_nullable: true, ..AggregateCall::count(name) }
}

/// Keys, the window's columns, results.
fn aggregate_output(
    keys: &[Column],
    (window, time): (&WindowSpec, &WindowTime),
    (calls, may_be_empty): (&[AggregateCall], bool),
    changelog: bool,
) -> StreamSchema {
    let windowed = window.is_windowed();
    let mut columns = keys.to_vec();
    if windowed {
        columns.extend(WINDOW.map(|name| Column::new(name, LogicalType::Timestamp, false)));
    }
    columns.extend(calls.iter().map(|call| {
        let nullable = call.function != AggregateFunction::Count && (call.argument_nullable || may_be_empty);
        Column::new(&call.name, call.result.clone(), nullable)
    }));
    let event_time = (windowed && !time.processing).then(|| WINDOW_TIME.into());
    StreamSchema { columns, event_time, changelog }
}

/// Keys, the window's bounds, states.
fn partial_output(input: &StreamSchema, spec: &AggregateSpec) -> StreamSchema {
    let keys = spec.keys.iter().filter_map(|key| input.column(key).cloned());
    let mut columns: Vec<Column> = keys.collect();
    if spec.gives_windows() {
        columns.extend([WINDOW_START, WINDOW_END].map(|name| Column::new(name, LogicalType::Timestamp, false)));
    }
    columns.extend(spec.state_columns());
    StreamSchema::append(columns)
}
