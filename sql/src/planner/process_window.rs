//! Functions over whole windows: which windows, what stands before what they give, and the rows that come too late.

use levada_common::function::FunctionDeclaration;
use levada_common::graph::{GraphWindow, TransformNode};
use levada_common::plan::{Evict, JoinSide, ProcessWindow, SideOutput, WindowSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::aggregate::{WINDOW, WINDOW_TIME};
use super::graph::Planner;
use super::stream::Stream;
use super::window::{NO_WINDOW, why_no_window};

impl Planner<'_> {
    /// The windows whose rows the function gets; `None` where it has none, or cannot have those, which is reported.
    pub(super) fn process_window(
        &mut self,
        node: &TransformNode,
        function: &FunctionDeclaration,
        stream: &Stream,
    ) -> Option<ProcessWindow> {
        let (name, path) = (&function.name, format!("transforms.{}.window", node.uid));
        let window = match (&node.window, function.kind.takes_window()) {
            (None, Some(true)) => {
                let message =
                    format!("function \"{name}\" is a {} and takes the rows of windows; `window` is missing", function.kind);
                self.error(format!("transforms.{}", node.uid), message);
                return None;
            }
            (None, _) => return None,
            (Some(_), Some(false)) => {
                let message =
                    format!("function \"{name}\" is a {} and takes rows as they come; leave `window` out", function.kind);
                self.error(path, message);
                return None;
            }
            (Some(window), _) => window,
        };
        self.refuse_firing(node, "a function gets its rows");
        self.refuse_window_time(node, "a function gets its rows");
        self.check_window_time(node, stream);
        let window = match window {
            GraphWindow::Tumbling { size_ms, offset_ms } => WindowSpec::Tumbling { size_ms: *size_ms, offset_ms: *offset_ms },
            GraphWindow::Sliding { size_ms, slide_ms, offset_ms } => {
                WindowSpec::Sliding { size_ms: *size_ms, slide_ms: *slide_ms, offset_ms: *offset_ms }
            }
            GraphWindow::Cumulate { size_ms, step_ms, offset_ms } => {
                WindowSpec::Cumulate { size_ms: *size_ms, step_ms: *step_ms, offset_ms: *offset_ms }
            }
            GraphWindow::Same => WindowSpec::Same,
            GraphWindow::Session { .. } | GraphWindow::Global | GraphWindow::Count { .. } => {
                let message = "a function gets the rows of tumbling, sliding or cumulating windows, or of the `same` window; the rows of \
                               a session, of everything or of a count are not kept for one in this release";
                self.error(path, message);
                return None;
            }
        };
        if let (Some(Evict::Time { .. }), None) = (node.evict, &stream.schema.event_time) {
            self.error(format!("transforms.{}.evict", node.uid), "`time` needs event time, and the input has none");
        }
        if node.evict.is_some() && function.second.is_some() {
            let message = format!("function \"{name}\" has two inputs, and `evict` is for one; leave it out");
            self.error(format!("transforms.{}.evict", node.uid), message);
        }
        let what = "the rows of windows for a function are kept on the heap and written whole at each checkpoint, also with state \
                    backend rocksdb";
        self.warn_with_rocksdb(node, what);
        Some(ProcessWindow { window, evict: node.evict })
    }

    /// An input must have what its rows are put into windows by.
    pub(super) fn check_window_time(&mut self, node: &TransformNode, stream: &Stream) {
        let path = format!("transforms.{}.window", node.uid);
        match &node.window {
            Some(GraphWindow::Same) if !stream.windowed => {
                self.error(path, format!("{NO_WINDOW}{}", why_no_window(stream)));
            }
            Some(GraphWindow::Same) | None => {}
            Some(_) => {
                if let (None, Some(reason)) = (&stream.schema.event_time, &stream.no_event_time) {
                    self.error(path, format!("a window needs event time; {reason}"));
                }
            }
        }
    }

    /// The key, the window, what the function gives.
    pub(super) fn window_output(&mut self, path: &str, function: &FunctionDeclaration, keys: &[Column]) -> StreamSchema {
        let window = WINDOW.map(|name| Column::new(name, LogicalType::Timestamp, false));
        let mut columns: Vec<Column> = keys.iter().cloned().chain(window).collect();
        for column in &function.outputs {
            if let Some(at) = columns.iter().position(|known| known.name == column.name) {
                let what = if at < keys.len() { "a key" } else { "a column of the window" };
                self.error(path, format!("function \"{}\" gives \"{}\", which is also {what}", function.name, column.name));
            }
            columns.push(column.clone());
        }
        StreamSchema { columns, event_time: Some(WINDOW_TIME.into()), changelog: false }
    }

    /// The outputs for rows that come too late, of the first input and of the second where there is one.
    pub(super) fn late_sides(
        &mut self,
        node: &TransformNode,
        function: &FunctionDeclaration,
        first: &Stream,
        second: Option<(&Vec<String>, &Stream)>,
    ) -> Vec<(String, Stream)> {
        let keyed = |stream: &Stream, keys: Option<&Vec<String>>| Stream {
            partitioned_by: keys.cloned(),
            single: keys.is_none(),
            ..stream.clone()
        };
        let sides = match second {
            None => vec![(SideOutput::LATE, keyed(first, node.key_by.as_ref()))],
            Some((keys, second)) => vec![
                (JoinSide::Left.late_output(), keyed(first, node.key_by.as_ref())),
                (JoinSide::Right.late_output(), keyed(second, Some(keys))),
            ],
        };
        for (name, _) in sides.iter().filter(|(name, _)| function.sides.iter().any(|side| side.name == *name)) {
            let message =
                format!("function \"{}\" has an output \"{name}\", which is that of late rows in a window", function.name);
            self.error(format!("transforms.{}.process", node.uid), message);
        }
        sides.into_iter().map(|(name, stream)| (name.to_string(), stream)).collect()
    }
}
