//! Calls that count equal values once, that count some rows only, that take rows back, or that a library computes: what they need
//! beside the argument.

use levada_common::graph::TransformNode;
use levada_common::keys::is_key_type;
use levada_common::plan::{
    AggregateFunction, AggregateSpec, AssignSpec, DistinctSpec, OperatorKind, Partition, WindowSpec, WindowTime,
};
use levada_common::types::{Column, StreamSchema};

use super::aggregate::Arguments;
use super::call::Call;
use super::graph::{NewOperator, Planner};
use super::stream::Stream;
use crate::library::{Argument, LibraryRequest};

impl Planner<'_> {
    /// What a call asks of the library: its arguments, its order, and the column of its condition.
    pub(super) fn library_request(
        &mut self,
        path: &str,
        (function, sqls): (&str, &[String]),
        call: &Call,
        stream: &Stream,
        arguments: &mut Arguments,
    ) -> Option<LibraryRequest> {
        let mut taken = Vec::new();
        for sql in sqls {
            taken.push(match self.compiler.constant(sql, &stream.schema) {
                Ok(Some(value)) => Argument::Constant(sql.clone(), value),
                Ok(None) => Argument::Column(self.argument(path, sql, stream, arguments)?),
                Err(reason) => {
                    self.error(path, reason);
                    return None;
                }
            });
        }
        let order = self.call_order(path, call, stream, arguments)?;
        let filter = match &call.filter {
            Some(filter) => Some(self.argument(path, filter, stream, arguments)?.name),
            None => None,
        };
        Some(LibraryRequest { function: function.into(), arguments: taken, order, distinct: call.distinct, filter })
    }

    /// The column that has each value of `column` once.
    pub(super) fn told_apart(&mut self, path: &str, column: Column, arguments: &mut Arguments) -> Option<Column> {
        if !is_key_type(&column.ty) {
            self.error(path, format!("DISTINCT needs a plain value, and its argument is {}", column.ty));
            return None;
        }
        if !arguments.distinct.contains(&column.name) {
            arguments.distinct.push(column.name.clone());
        }
        Some(Column { name: DistinctSpec::output_name(&column.name), nullable: true, ..column })
    }

    /// Has the values of these columns told apart before the aggregation `spec`, by operators behind `stream` that take its rows by
    /// `partition` to so many instances; answers how it takes its rows then. Sessions and windows of rows do it themselves: only they
    /// know which rows are together.
    pub(super) fn tell_apart(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        spec: &mut AggregateSpec,
        values: Vec<String>,
        (partition, parallelism): (Partition, u32),
    ) -> Partition {
        if matches!(spec.window, WindowSpec::Session { .. } | WindowSpec::Count { .. }) {
            spec.distinct = values;
            return partition;
        }
        let mut partition = partition;
        let lateness_ms = spec.firing.map_or(0, |firing| firing.lateness_ms);
        if spec.window.overlaps() {
            // Distinct values of a window are not those of its slices added up.
            let window = std::mem::replace(&mut spec.window, WindowSpec::Same);
            let by_window = WindowTime { time_zone: None, ..spec.time.clone() };
            let time = std::mem::replace(&mut spec.time, by_window);
            self.push_assign(node, stream, AssignSpec { window, time, lateness_ms }, (partition, parallelism));
            partition = Partition::Forward;
        }
        let (keys, window, time) = (spec.keys.clone(), spec.window.clone(), spec.time.clone());
        let distinct = DistinctSpec { keys, window, time, lateness_ms, values };
        let output = distinct.output(&stream.schema);
        self.push_of_aggregate(node, stream, (OperatorKind::Distinct(distinct), output), (partition, parallelism));
        Partition::Forward
    }

    /// Puts an operator behind `stream` that an aggregate needs before it.
    fn push_of_aggregate(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        (kind, output): (OperatorKind, StreamSchema),
        (partition, parallelism): (Partition, u32),
    ) {
        let uid = node.uid.clone();
        let operator = NewOperator { uid, clause: "aggregate", kind, output, uses: Vec::new(), bad_records: node.bad_records };
        self.push_operator(stream, operator, partition, parallelism);
    }

    /// Puts an operator behind `stream` that gives each row once for each of its windows, which takes its rows by `partition` to so
    /// many instances.
    fn push_assign(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        spec: AssignSpec,
        (partition, parallelism): (Partition, u32),
    ) {
        if let Some(name) = AssignSpec::COLUMNS.iter().find(|name| stream.schema.column(name).is_some()) {
            let message = format!(
                "its input has a column \"{name}\", which windows that overlap give too where DISTINCT is asked for; give it another name before"
            );
            return self.error(format!("transforms.{}.window", node.uid), message);
        }
        let output = spec.output(&stream.schema);
        self.push_of_aggregate(node, stream, (OperatorKind::Assign(spec), output), (partition, parallelism));
    }

    /// Says which states a store does not take.
    pub(super) fn warn_of_heap(&mut self, node: &TransformNode, spec: &AggregateSpec) {
        let what = if spec.takes_changes && !spec.counted().is_empty() && spec.keys.is_empty() {
            "an aggregate with min or max over a changelog without a key keeps its values"
        } else if spec.trigger.is_some() {
            "a window with a trigger keeps what its rows have come to"
        } else {
            return;
        };
        let end = "on the heap and writes them whole at each checkpoint, also with state backend rocksdb";
        self.warn_with_rocksdb(node, &format!("{what} {end}"));
    }
}

/// Why a call cannot be computed over a changelog.
pub(super) fn refusal(call: &Call, over_changes: bool) -> Option<String> {
    let name = call.library.as_ref().map_or(call.function.name(), |(name, _)| name);
    let why = match call.function {
        AggregateFunction::First | AggregateFunction::Last => "the row that was chosen may go, and which is next is not kept",
        AggregateFunction::Library => "rows cannot be taken back out of its state",
        _ => return None,
    };
    over_changes.then(|| {
        format!("{name} over a changelog is not supported: {why}; over a changelog there are count, sum, avg, min and max")
    })
}
