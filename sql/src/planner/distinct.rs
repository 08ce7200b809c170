//! Calls that count equal values once, that count some rows only, that take rows back, or that a library computes: what they need
//! beside the argument.

use levada_common::graph::TransformNode;
use levada_common::keys::is_key_type;
use levada_common::plan::{
    AggregateFunction, AggregateSpec, AssignSpec, DistinctSpec, OperatorKind, Partition, SideOutput, WindowSpec,
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

    /// What windows do that values cannot be told apart in.
    pub(super) fn check_distinct(&mut self, node: &TransformNode, spec: &AggregateSpec) {
        let what = match (&spec.window, &spec.firing) {
            (WindowSpec::Count { .. }, _) => "a window of rows",
            _ if spec.time.processing => "a window of processing time",
            (_, Some(firing)) if firing.lateness_ms > 0 => "a window with `allowed_lateness`",
            _ if spec.window.is_windowed() && self.outputs.is_read(&node.uid, SideOutput::LATE) => {
                "a window whose late rows are read"
            }
            (window, Some(_)) if window.overlaps() => "windows that overlap and give early results",
            _ => return,
        };
        let path = format!("transforms.{}.window", node.uid);
        self.error(path, format!("DISTINCT in {what} is not supported; put the aggregate into a node of its own, without it"));
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

    /// Puts the operator that marks values behind `stream`, which takes its rows by `partition` to so many instances.
    pub(super) fn push_distinct(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        spec: DistinctSpec,
        (partition, parallelism): (Partition, u32),
    ) {
        let output = spec.output(&stream.schema);
        self.push_of_aggregate(node, stream, (OperatorKind::Distinct(spec), output), (partition, parallelism));
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
    pub(super) fn push_assign(
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
    pub(super) fn warn_of_heap(&mut self, node: &TransformNode, spec: &AggregateSpec, distinct: &[String]) {
        let what = match (spec.takes_changes, distinct.is_empty()) {
            (true, _) => "an aggregate over a changelog keeps its groups and values",
            (false, false) => "DISTINCT keeps its values",
            (false, true) => return,
        };
        let end = "on the heap and writes them whole at each checkpoint, also with state backend rocksdb";
        self.warn_with_rocksdb(node, &format!("{what} {end}"));
    }
}

/// Why a call cannot be computed in this window, or over a changelog.
pub(super) fn refusal(call: &Call, window: &WindowSpec, over_changes: bool) -> Option<String> {
    let name = call.library.as_ref().map_or(call.function.name(), |(name, _)| name);
    let why = match call.function {
        AggregateFunction::First | AggregateFunction::Last => "the row that was chosen may go, and which is next is not kept",
        AggregateFunction::Library => "rows cannot be taken back out of its state",
        _ => "",
    };
    if over_changes && !why.is_empty() {
        return Some(format!(
            "{name} over a changelog is not supported: {why}; over a changelog there are count, sum, avg, min and max"
        ));
    }
    if call.library.is_some() {
        return None;
    }
    let in_sessions = call.distinct && matches!(window, WindowSpec::Session { .. });
    in_sessions.then(|| {
        format!("{name} with DISTINCT in session windows is not supported, whose values would have to be united as they grow; use a tumbling window")
    })
}
