//! Running top-N and deduplication: keys, order, what the output's changes are.

use levada_common::graph::{GraphDeduplicate, GraphTop, TransformNode};
use levada_common::plan::{BackendKind, OperatorKind, OrderSpec, Partition, TopSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::graph::{NewOperator, Planner};
use super::stream::{Changes, Stream};
use crate::expression::unknown_column;

impl Planner<'_> {
    /// Plans `order_by` with `limit`, or `deduplicate`; `None` where its output is not known.
    pub(super) fn add_top(&mut self, node: &TransformNode, mut stream: Stream, wanted: Option<u32>) -> Option<Stream> {
        let clause = if node.top.is_some() { "order_by" } else { "deduplicate" };
        let path = format!("transforms.{}.{clause}", node.uid);
        if stream.schema.changelog {
            let message =
                format!("`{clause}` takes rows, not changes, and what it reads is a changelog; give the aggregate a window");
            self.error(&path, message);
            return None;
        }
        let errors = self.errors.0.len();
        let keys: Vec<String> = self.key_columns(node, &stream).into_iter().map(|key| key.name).collect();
        let (order, newest_wins, limit, place) = match (&node.top, node.deduplicate) {
            (Some(GraphTop { order, limit, rank }), _) => (self.order(&path, order, &stream), false, *limit, rank.clone()),
            (None, Some(GraphDeduplicate { last, by_event_time })) => {
                let order = if by_event_time { self.time_order(&path, last, &stream) } else { Vec::new() };
                (order, last, 1, None)
            }
            (None, None) => return Some(stream),
        };
        if let Some(place) = place.as_ref().filter(|place| stream.schema.column(place).is_some()) {
            let message = format!("the input has a column \"{place}\"; give the rank another name");
            self.error(format!("transforms.{}.rank", node.uid), message);
        }
        if self.errors.0.len() > errors {
            return None;
        }
        let ttl_ms = node.ttl_ms.map(|ttl| ttl as i64);
        let spec = TopSpec { keys, order, newest_wins, limit, place, changelog_full: node.changelog_full, ttl_ms };
        self.push_top(node, clause, &mut stream, spec, wanted);
        Some(stream)
    }

    /// The columns of `order_by`; what has no order is reported and left out.
    fn order(&mut self, path: &str, order: &[(String, bool)], stream: &Stream) -> Vec<OrderSpec> {
        let mut found = Vec::new();
        for (name, descending) in order {
            match stream.schema.column(name) {
                None => self.error(path, format!("{}; compute it in a `select` before", unknown_column(name, &stream.schema))),
                Some(column) if matches!(column.ty, LogicalType::List(_) | LogicalType::Struct(_)) => {
                    self.error(path, format!("cannot order by \"{name}\", which is {}", column.ty));
                }
                Some(column) => found.push(order_by(column, *descending)),
            }
        }
        found
    }

    /// The order by event time.
    fn time_order(&mut self, path: &str, last: bool, stream: &Stream) -> Vec<OrderSpec> {
        let column = stream.schema.event_time.as_ref().and_then(|name| stream.schema.column(name));
        if let (None, Some(reason)) = (column, &stream.no_event_time) {
            self.error(path, format!("there is no event time to go by; {reason}"));
        }
        column.map(|column| order_by(column, last)).into_iter().collect()
    }

    fn push_top(&mut self, node: &TransformNode, clause: &'static str, stream: &mut Stream, spec: TopSpec, wanted: Option<u32>) {
        if self.settings.backend == BackendKind::Rocksdb {
            self.warnings.push(format!(
                "transform \"{}\": `{clause}` keeps its rows on the heap and writes them whole at each checkpoint, also with state \
                 backend rocksdb",
                node.uid
            ));
        }
        let keyed = !spec.keys.is_empty();
        let parallelism = if keyed { wanted.unwrap_or(self.settings.parallelism) } else { 1 };
        let in_place =
            stream.parallelism == parallelism && (parallelism == 1 || stream.partitioned_by.as_ref() == Some(&spec.keys));
        let partition = match (in_place, keyed) {
            (true, _) => Partition::Forward,
            (false, true) => Partition::Hash { columns: spec.keys.clone() },
            (false, false) => Partition::Rebalance,
        };
        let place = spec.place.as_ref().map(|place| Column::new(place, LogicalType::Int64, false));
        let columns = stream.schema.columns.iter().cloned().chain(place).collect();
        let event_time = stream.schema.event_time.clone().filter(|_| spec.is_append());
        let output = StreamSchema { columns, event_time, changelog: !spec.is_append() };
        if !spec.is_append() {
            let key = spec.keys.iter().cloned().chain(spec.place.clone()).collect();
            let unique = spec.place.is_some() || spec.limit == 1;
            stream.changes = Some(Changes { key, full: spec.is_full(), unique });
            stream.no_event_time = Some(format!("transform \"{}\" gives changes, which have no event time", node.uid));
            stream.windowed = false;
        }
        stream.partitioned_by = keyed.then(|| spec.keys.clone());
        stream.single = !keyed;
        let kind = OperatorKind::Top(spec);
        let operator =
            NewOperator { uid: node.uid.clone(), clause, kind, output, uses: Vec::new(), bad_records: node.bad_records };
        self.push_operator(stream, operator, partition, parallelism);
    }
}

fn order_by(column: &Column, descending: bool) -> OrderSpec {
    OrderSpec { column: column.name.clone(), ty: column.ty.clone(), nullable: column.nullable, descending }
}
