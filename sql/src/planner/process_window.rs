//! Functions over whole windows: which windows, when each gives its rows and which, what stands before what they give, and the rows
//! that come too late.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::graph::{GraphEvict, GraphGap, GraphProcess, GraphWindow, TransformNode};
use levada_common::plan::{Evict, JoinSide, ProcessWindow, SessionGap, SideOutput, WindowPart, WindowSpec};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::aggregate::{Arguments, WINDOW, WINDOW_TIME};
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
        self.check_trigger(node);
        if node.window_time.processing {
            self.check_arrival(&path, [("first", stream)]);
        }
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
            GraphWindow::Session { gap: GraphGap::Fixed { ms } } => {
                WindowSpec::Session { gap: SessionGap::Fixed { gap_ms: *ms } }
            }
            // Where it is SQL the column is made when both inputs are known.
            GraphWindow::Session { gap: GraphGap::Sql(sql) } => {
                WindowSpec::Session { gap: SessionGap::Column { name: sql.clone() } }
            }
            GraphWindow::Global | GraphWindow::Count { .. } => {
                let message = "a function gets the rows of tumbling, sliding or cumulating windows, of sessions, or of the `same` \
                               window; over everything, and by count, write a `KeyedProcessFunction`, whose state and timers are its \
                               own";
                self.error(path, message);
                return None;
            }
        };
        let (evict, evictor) = match &node.evict {
            None => (None, None),
            Some(GraphEvict::Last(evict)) => (Some(*evict), None),
            Some(GraphEvict::Function(evictor)) => (None, self.window_part(node, FunctionKind::Evictor, evictor, stream)),
        };
        let has_time = stream.schema.event_time.is_some() || node.window_time.processing;
        if let (Some(Evict::Time { .. }), false) = (evict, has_time) {
            self.error(format!("transforms.{}.evict", node.uid), "`time` needs event time, and the input has none");
        }
        if node.evict.is_some() && function.second.is_some() {
            let message = format!("function \"{name}\" has two inputs, and `evict` is for one; leave it out");
            self.error(format!("transforms.{}.evict", node.uid), message);
        }
        let trigger = node.trigger.as_ref().and_then(|trigger| self.window_part(node, FunctionKind::Trigger, trigger, stream));
        if let Some(trigger) = &trigger {
            self.check_trigger_window(node, &trigger.function, matches!(window, WindowSpec::Session { .. }));
        }
        let time = node.window_time.clone();
        let planned = ProcessWindow { window, time, evict, firing: node.firing, trigger, evictor };
        if planned.is_by_key() {
            self.warn_overlap(node, &planned.window, "each of them gives its rows by itself");
            let what = "which windows each key has, in sessions and with `trigger`, `evict` by a function or late rows, and what a trigger keeps of \
                        them, is kept on the heap and written whole at each checkpoint, also with state backend rocksdb; their rows are not";
            self.warn_with_rocksdb(node, what);
        }
        Some(planned)
    }

    /// What a window leaves to its trigger.
    fn check_trigger(&mut self, node: &TransformNode) {
        let Some(firing) = node.firing.filter(|_| node.trigger.is_some()) else { return };
        if firing.early.is_some() || firing.late.is_some() || !firing.accumulate {
            let message = "the `trigger` says when the window gives its rows, and whether they stay; leave `early`, `late` and \
                           `accumulate` out, or the trigger";
            self.error(format!("transforms.{}.window", node.uid), message);
        }
    }

    /// A trigger or evictor of a window; `None` where it cannot be one, which is reported.
    pub(super) fn window_part(
        &mut self,
        node: &TransformNode,
        kind: FunctionKind,
        part: &GraphProcess,
        stream: &Stream,
    ) -> Option<Box<WindowPart>> {
        let path = match kind {
            FunctionKind::Trigger => format!("transforms.{}.window.trigger", node.uid),
            _ => format!("transforms.{}.evict", node.uid),
        };
        let function = self.function(&path, &part.function, Some(kind))?;
        let whose = format!("{kind} \"{}\"", function.name);
        self.option_errors(&format!("{path}.options"), &whose, &part.options, &function.options, Vec::new());
        self.check_inputs(&path, &function, "input", &function.inputs, stream);
        Some(Box::new(WindowPart { function, options: part.options.clone() }))
    }

    /// What the window needs of the second input, which it has of the first.
    pub(super) fn check_window_inputs(&mut self, node: &TransformNode, window: &ProcessWindow, second: &Stream) {
        self.check_window_time(node, second);
        if window.time.processing {
            self.check_arrival(&format!("transforms.{}.window", node.uid), [("second", second)]);
        }
        if let Some(trigger) = &window.trigger {
            let path = format!("transforms.{}.window.trigger", node.uid);
            self.check_inputs(&path, &trigger.function, "second input", &trigger.function.inputs, second);
        }
    }

    /// Gives the rows of the inputs a column with their session's gap, where that is SQL.
    pub(super) fn add_gaps(&mut self, node: &TransformNode, window: &mut ProcessWindow, streams: &mut [&mut Stream]) {
        let Some(GraphWindow::Session { gap: GraphGap::Sql(sql) }) = &node.window else { return };
        let path = format!("transforms.{}.window.session.gap", node.uid);
        let mut names = Vec::new();
        for stream in streams {
            let mut arguments = Arguments::default();
            stream.schema.columns.iter().for_each(|column| arguments.column(column));
            let Some(column) = self.argument(&path, sql, stream, &mut arguments) else { continue };
            if !column.ty.is_integer() {
                self.error(&path, format!("a gap is an integer, in milliseconds, and this one is {}", column.ty));
            }
            self.push_computed(node, "window", stream, arguments);
            names.push(column.name);
        }
        if let [first, second] = names.as_slice()
            && first != second
        {
            let message = format!(
                "the gap is the column \"{first}\" of one input and \"{second}\" of the other; select one under one name"
            );
            self.error(&path, message);
        }
        if let Some(name) = names.into_iter().next() {
            window.window = WindowSpec::Session { gap: SessionGap::Column { name } };
        }
    }

    /// An input must have what its rows are put into windows by.
    pub(super) fn check_window_time(&mut self, node: &TransformNode, stream: &Stream) {
        let path = format!("transforms.{}.window", node.uid);
        match &node.window {
            Some(GraphWindow::Same) if !stream.windowed => {
                self.error(path, format!("{NO_WINDOW}{}", why_no_window(stream)));
            }
            Some(GraphWindow::Same) | None => {}
            Some(_) if node.window_time.processing => {}
            Some(_) => {
                if let (None, Some(reason)) = (&stream.schema.event_time, &stream.no_event_time) {
                    self.error(path, format!("a window needs event time; {reason}"));
                }
            }
        }
    }

    /// The key, the window, what the function gives.
    pub(super) fn window_output(
        &mut self,
        path: &str,
        function: &FunctionDeclaration,
        keys: &[Column],
        window: &ProcessWindow,
    ) -> StreamSchema {
        let bounds = WINDOW.map(|name| Column::new(name, LogicalType::Timestamp, false));
        let mut columns: Vec<Column> = keys.iter().cloned().chain(bounds).collect();
        for column in &function.outputs {
            if let Some(at) = columns.iter().position(|known| known.name == column.name) {
                let what = if at < keys.len() { "a key" } else { "a column of the window" };
                self.error(path, format!("function \"{}\" gives \"{}\", which is also {what}", function.name, column.name));
            }
            columns.push(column.clone());
        }
        StreamSchema { columns, event_time: (!window.time.processing).then(|| WINDOW_TIME.into()), changelog: false }
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
