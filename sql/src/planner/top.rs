//! Top-N, running or of each window, and deduplication: keys, order, what the output's changes are.

use levada_common::graph::{GraphDeduplicate, GraphTop, GraphWindow, TransformNode};
use levada_common::plan::{Changelog, OperatorKind, OrderSpec, Partition, SideOutput, TopSpec, TopWindow, WindowSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::aggregate::{WINDOW, WINDOW_TIME};
use super::graph::{NewOperator, Planner};
use super::stream::Stream;
use super::window::why_none_of_clock;
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
            (Some(GraphTop { order, limit, rank, .. }), _) => (self.order(&path, order, &stream), false, *limit, rank.clone()),
            (None, Some(GraphDeduplicate { last, by_event_time })) => {
                let order = if by_event_time { self.time_order(&path, last, &stream) } else { Vec::new() };
                (order, last, 1, None)
            }
            (None, None) => return Some(stream),
        };
        let with_ties = node.top.as_ref().is_some_and(|top| top.with_ties);
        let window = node.window.as_ref().and_then(|window| self.top_window(node, window, &stream));
        let of_window = |place: &String| window.is_some() && WINDOW.contains(&place.as_str());
        if let Some(place) = place.as_ref().filter(|place| stream.schema.column(place).is_some() || of_window(place)) {
            let what = if of_window(place) { "the window" } else { "the input" };
            let message = format!("{what} has a column \"{place}\"; give the rank another name");
            self.error(format!("transforms.{}.rank", node.uid), message);
        }
        if self.errors.0.len() > errors {
            if node.window.is_some() {
                self.outputs.offer(&node.uid, SideOutput::LATE, None);
            }
            return None;
        }
        let ttl_ms = node.ttl_ms.map(|ttl| ttl as i64);
        let changelog_full = node.changelog_full;
        let spec = TopSpec { keys, order, newest_wins, limit, place, changelog_full, ttl_ms, window, with_ties, local: false };
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
        let keyed = !spec.keys.is_empty();
        // Late rows that are read are told where windows fire, of all rows.
        let reads_late = self.outputs.is_read(&node.uid, SideOutput::LATE);
        if !keyed && spec.window.is_some() && stream.parallelism > 1 && !reads_late {
            self.push_local_top(node, clause, stream, &spec);
        }
        let parallelism = if keyed { wanted.unwrap_or(self.settings.parallelism) } else { 1 };
        let partition = match (stream.is_in_place(&spec.keys, parallelism), keyed) {
            (true, _) => Partition::Forward,
            (false, true) => Partition::Hash { columns: spec.keys.clone() },
            (false, false) => Partition::Rebalance,
        };
        let place = spec.place.as_ref().map(|place| Column::new(place, LogicalType::Int64, false));
        let is_windowed = spec.window.is_some();
        // By processing time no row is late, and what comes of it has no event time.
        let late = (is_windowed && !spec.is_by_clock()).then(|| stream.clone());
        let window = WINDOW.iter().filter(|_| is_windowed);
        let input = stream.schema.columns.iter().filter(|column| !is_windowed || !WINDOW.contains(&column.name.as_str()));
        let columns = input.cloned().chain(place);
        let columns = columns.chain(window.map(|name| Column::new(*name, LogicalType::Timestamp, false))).collect();
        let event_time = match is_windowed {
            true => late.is_some().then(|| WINDOW_TIME.into()),
            false => stream.schema.event_time.clone().filter(|_| spec.is_append()),
        };
        let output = StreamSchema { columns, event_time, changelog: spec.is_changelog() };
        if is_windowed {
            stream.windowed = late.is_some();
        }
        if spec.is_by_clock() {
            stream.no_event_time = Some(why_none_of_clock(node));
        }
        if spec.is_changelog() {
            let key = spec.keys.iter().cloned().chain(spec.place.clone()).collect();
            let unique = spec.place.is_some() || spec.limit == 1;
            stream.changes = Some(Changelog { key, full: spec.is_full(), unique });
            stream.no_event_time = Some(format!("transform \"{}\" gives changes, which have no event time", node.uid));
            stream.windowed = false;
        }
        stream.partitioned_by = keyed.then(|| spec.keys.clone());
        stream.single = !keyed;
        let kind = OperatorKind::Top(spec);
        let operator =
            NewOperator { uid: node.uid.clone(), clause, kind, output, uses: Vec::new(), bad_records: node.bad_records };
        self.push_operator(stream, operator, partition, parallelism);
        if let Some(late) = late {
            let late = Stream { partitioned_by: stream.partitioned_by.clone(), single: stream.single, ..late };
            self.add_sides(&node.uid, stream, vec![(SideOutput::LATE.into(), late)]);
        }
    }

    /// Puts the local half of a top-N without a key before the rows of all instances come together.
    fn push_local_top(&mut self, node: &TransformNode, clause: &'static str, stream: &mut Stream, spec: &TopSpec) {
        let kind = OperatorKind::Top(TopSpec { local: true, ..spec.clone() });
        let (output, parallelism) = (stream.schema.clone(), stream.parallelism);
        let operator =
            NewOperator { uid: node.uid.clone(), clause, kind, output, uses: Vec::new(), bad_records: node.bad_records };
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }

    /// The window that the best rows are of; `None` where it cannot be one, which is reported.
    fn top_window(&mut self, node: &TransformNode, window: &GraphWindow, stream: &Stream) -> Option<TopWindow> {
        let path = format!("transforms.{}.window", node.uid);
        self.refuse_firing(node, "the best rows are given");
        let time = node.window_time.clone();
        let overlapping = match *window {
            GraphWindow::Tumbling { size_ms, offset_ms } => {
                self.check_window_time(node, stream);
                if time.processing {
                    self.check_arrival(&path, [("first", stream)]);
                }
                return Some(TopWindow::Tumbling { size_ms, offset_ms, time });
            }
            GraphWindow::Same => {
                self.check_window_time(node, stream);
                return Some(TopWindow::Same);
            }
            GraphWindow::Sliding { size_ms, slide_ms, offset_ms } => WindowSpec::Sliding { size_ms, slide_ms, offset_ms },
            GraphWindow::Cumulate { size_ms, step_ms, offset_ms } => WindowSpec::Cumulate { size_ms, step_ms, offset_ms },
            GraphWindow::Session { .. } | GraphWindow::Count { .. } | GraphWindow::Global => {
                let message = "the best rows are found in tumbling, sliding and cumulating windows, or in the `same` window; for those \
                               of sessions aggregate in them first, and take the best of that in the `same` window";
                self.error(&path, message);
                return None;
            }
        };
        self.check_window_time(node, stream);
        for name in TopSpec::WINDOW.iter().filter(|name| stream.schema.column(name).is_some()) {
            let message = format!(
                "\"{name}\" is what the state calls a bound of the window that a row is kept in, and the first input has a column of \
                 that name; select it under another one"
            );
            self.error(&path, message);
        }
        self.warn_overlap(node, &overlapping, "each of them has best rows of its own");
        Some(TopWindow::Overlapping { windows: overlapping, time })
    }
}

fn order_by(column: &Column, descending: bool) -> OrderSpec {
    OrderSpec { column: column.name.clone(), ty: column.ty.clone(), nullable: column.nullable, descending }
}
