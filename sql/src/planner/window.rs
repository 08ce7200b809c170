//! The window of a node: where it comes from, and what it needs of the stream.

use levada_common::graph::{GraphGap, GraphWindow, TransformNode};
use levada_common::plan::{SessionGap, WindowSpec, WindowTime};

use super::aggregate::{Arguments, WINDOW_END, WINDOW_START};
use super::graph::Planner;
use super::stream::Stream;

/// Why there is no window to be in the `same` one.
pub(super) const NO_WINDOW: &str =
    "`window: same` needs the columns window_start and window_end of a window upstream, passed on unchanged";

/// What else is to be said where a stream has the columns of windows, but they are of processing time.
pub(super) fn why_no_window(stream: &Stream) -> String {
    let has_columns = stream.schema.column(WINDOW_START).is_some() && stream.schema.column(WINDOW_END).is_some();
    match &stream.no_event_time {
        Some(reason) if has_columns => format!(", and goes by event time; {reason}"),
        _ => String::new(),
    }
}

/// Why what comes of windows of processing time has no event time.
pub(super) fn why_none_of_clock(node: &TransformNode) -> String {
    format!("transform \"{}\" has windows of processing time, and their results have no event time", node.uid)
}

impl Planner<'_> {
    /// What rows that wait in windows of processing time need of these inputs: a place for when each came in.
    pub(super) fn check_arrival<'a>(&mut self, path: &str, inputs: impl IntoIterator<Item = (&'a str, &'a Stream)>) {
        for (which, _) in inputs.into_iter().filter(|(_, stream)| stream.schema.column(WindowTime::ARRIVED).is_some()) {
            let message = format!(
                "\"{}\" is what the state calls when a row of a window of processing time came in, and the {which} input has a \
                 column of that name; select it under another one",
                WindowTime::ARRIVED
            );
            self.error(path, message);
        }
    }

    /// The window; what it reads of the stream goes to `arguments`.
    pub(super) fn window(&mut self, node: &TransformNode, stream: &Stream, arguments: &mut Arguments) -> WindowSpec {
        let path = format!("transforms.{}.window", node.uid);
        let mut read = |name: &str| {
            if let Some(column) = stream.schema.column(name) {
                arguments.column(column);
            }
        };
        match &node.window {
            None => WindowSpec::Running,
            Some(GraphWindow::Global) => WindowSpec::Global,
            Some(GraphWindow::Count { size, slide }) => WindowSpec::Count { size: *size, slide: *slide },
            Some(GraphWindow::Same) => {
                read(WINDOW_START);
                read(WINDOW_END);
                if !stream.windowed {
                    self.error(path, format!("{}{}", NO_WINDOW, why_no_window(stream)));
                }
                WindowSpec::Same
            }
            Some(timed) => {
                match &stream.schema.event_time {
                    _ if node.window_time.processing => {}
                    Some(column) => read(column),
                    None => {
                        if let Some(reason) = &stream.no_event_time {
                            let hint = "or write `time: processing`, for windows of when rows come in";
                            self.error(&path, format!("a window needs event time; {reason}; {hint}"));
                        }
                    }
                }
                self.timed_window(&path, timed, stream, arguments)
            }
        }
    }

    /// The window over event or processing time, its gap among the arguments where rows have their own.
    fn timed_window(&mut self, path: &str, window: &GraphWindow, stream: &Stream, arguments: &mut Arguments) -> WindowSpec {
        match window {
            GraphWindow::Tumbling { size_ms, offset_ms } => WindowSpec::Tumbling { size_ms: *size_ms, offset_ms: *offset_ms },
            GraphWindow::Sliding { size_ms, slide_ms, offset_ms } => {
                WindowSpec::Sliding { size_ms: *size_ms, slide_ms: *slide_ms, offset_ms: *offset_ms }
            }
            GraphWindow::Cumulate { size_ms, step_ms, offset_ms } => {
                WindowSpec::Cumulate { size_ms: *size_ms, step_ms: *step_ms, offset_ms: *offset_ms }
            }
            GraphWindow::Session { gap: GraphGap::Fixed { ms } } => {
                WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: *ms } }
            }
            GraphWindow::Session { gap: GraphGap::Sql(sql) } => {
                let path = format!("{path}.session.gap");
                let name = match self.argument(&path, sql, stream, arguments) {
                    Some(column) if column.ty.is_integer() => column.name,
                    Some(column) => {
                        self.error(path, format!("a gap is an integer, in milliseconds, and this one is {}", column.ty));
                        column.name
                    }
                    None => sql.clone(),
                };
                WindowSpec::Session { gap: SessionGap::Column { name } }
            }
            GraphWindow::Count { size, slide } => WindowSpec::Count { size: *size, slide: *slide },
            GraphWindow::Same => WindowSpec::Same,
            GraphWindow::Global => WindowSpec::Global,
        }
    }
}
