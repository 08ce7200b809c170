//! Functions of users: `process`, with its key, its broadcast input, and the columns that its declaration promises.

use std::collections::BTreeSet;

use levada_common::function::{FunctionDeclaration, FunctionKind, SideDeclaration};
use levada_common::graph::{GraphProcess, TransformNode};
use levada_common::nearest::did_you_mean;
use levada_common::plan::{OperatorKind, OperatorSpec, Partition, ProcessSpec, SecondInput};
use levada_common::types::{Column, StreamSchema};

use super::graph::Planner;
use super::stream::{Outlet, Stage, StageKind, Stream};
use super::window::why_none_of_clock;
use crate::expression::unknown_column;

/// Where a function's second input comes from.
enum Other {
    /// All rows go to every instance.
    Broadcast(Outlet),
    /// Rows go where their key is, or, without a key, anywhere.
    Second(Stream),
}

impl Planner<'_> {
    /// Plans `process`; `None` where its output is not known.
    pub(super) fn add_process(
        &mut self,
        node: &TransformNode,
        process: &GraphProcess,
        mut stream: Stream,
        wanted: Option<u32>,
    ) -> Option<Stream> {
        let path = format!("transforms.{}.process", node.uid);
        if stream.schema.changelog {
            let message = "a function takes rows, not changes, and what it reads is a changelog; give the aggregate a window";
            self.error(&path, message);
            return None;
        }
        let function = self.function(&path, &process.function, None)?;
        self.option_errors(
            &format!("{path}.options"),
            &format!("function \"{}\"", function.name),
            &process.options,
            &function.options,
            Vec::new(),
        );
        let errors = self.errors.0.len();
        let mut window = self.process_window(node, &function, &stream);
        let keys = self.key_columns(node, &stream);
        self.check_key(node, &function);
        self.check_inputs(&path, &function, "input", &function.inputs, &stream);
        let broadcast = self.broadcast(node, &function);
        let mut second = self.second(node, &function, &keys, &stream);
        let mut late = Vec::new();
        if let Some(window) = &mut window {
            if let Some((_, second)) = &second {
                self.check_window_inputs(node, window, second);
            }
            // By processing time no row is late, and nothing that comes out has a time.
            if window.time.processing {
                stream.schema.event_time = None;
                stream.no_event_time = Some(why_none_of_clock(node));
            } else {
                late = self.late_sides(node, &function, &stream, second.as_ref().map(|(input, stream)| (&input.keys, stream)));
            }
            let mut streams: Vec<&mut Stream> =
                std::iter::once(&mut stream).chain(second.as_mut().map(|(_, stream)| stream)).collect();
            self.add_gaps(node, window, &mut streams);
            if let Some((input, stream)) = &mut second {
                input.schema = stream.schema.clone();
            }
        }
        self.check_time(&path, "", &function, &stream);
        if let Some((_, second)) = &second {
            self.check_time(&path, " on both inputs, and the second", &function, second);
            stream.bounded &= second.bounded;
            if stream.schema.event_time.is_some() && second.schema.event_time.is_none() {
                // Time is the lesser of both, and one that has none never goes on.
                stream.schema.event_time = None;
                stream.no_event_time.clone_from(&second.no_event_time);
            }
        }
        let output = match &window {
            None => self.process_output(&path, &function, &keys, &stream),
            Some(window) => self.window_output(&path, &function, &keys, window),
        };
        let mut sides = self.function_sides(node, &function, &stream);
        sides.extend(late);
        if self.errors.0.len() == errors {
            let spec = ProcessSpec {
                function: function.clone(),
                options: process.options.clone(),
                keys: keys.clone(),
                broadcast: broadcast.as_ref().map(|(_, schema)| schema.clone()),
                second: second.as_ref().map(|(second, _)| second.clone()),
                window: window.clone(),
            };
            let other = broadcast.map(|(stage, _)| Other::Broadcast(stage)).or(second.map(|(_, stream)| Other::Second(stream)));
            self.push_process(node, &mut stream, spec, output.clone(), other, wanted);
            self.add_sides(&node.uid, &stream, std::mem::take(&mut sides));
        }
        for (side, _) in sides {
            self.outputs.offer(&node.uid, &side, None);
        }
        let keyed = function.keys_first && !keys.is_empty();
        stream.partitioned_by = keyed.then(|| keys.into_iter().map(|key| key.name).collect());
        stream.windowed = window.as_ref().is_some_and(|window| !window.time.processing);
        stream.unknown.clear();
        if function.event_time.is_none() && window.is_none() {
            let reason = format!("the function of transform \"{}\" declares no output column as event time", node.uid);
            stream.no_event_time = Some(reason);
        }
        stream.schema = output;
        Some(stream)
    }

    /// The declaration of what is registered under `name`, a function of a node or else of this kind; `None` where it is not known,
    /// which is reported.
    pub(super) fn function(&mut self, path: &str, name: &str, kind: Option<FunctionKind>) -> Option<FunctionDeclaration> {
        let path =
            if self.graph.lines.0.contains_key(&format!("{path}.function")) { format!("{path}.function") } else { path.into() };
        let what = kind.map_or("function", FunctionKind::name);
        let Some(functions) = &self.declarations.functions else {
            let message = format!(
                "{what} \"{name}\" is brought by a TaskManager's own binary, and without a cluster it cannot be known; \
                 check the job against a running cluster whose TaskManagers have it"
            );
            self.error(path, message);
            return None;
        };
        if let Some(function) = functions.get(name) {
            let is = function.kind;
            if kind.map_or(!is.is_of_window(), |kind| is == kind) {
                return Some(function.clone());
            }
            self.error(path, format!("\"{name}\" is registered as {is}, not as {what}; it belongs under `{}`", is.clause()));
            return None;
        }
        let fits = |function: &&FunctionDeclaration| kind.map_or(!function.kind.is_of_window(), |kind| function.kind == kind);
        let names: Vec<&str> = functions.values().filter(fits).map(|function| function.name.as_str()).collect();
        let near = did_you_mean(name, names.iter().copied());
        let list = if names.is_empty() { "no TaskManager brings any".into() } else { format!("{what}s: {}", names.join(", ")) };
        self.error(path, format!("no TaskManager has a {what} \"{name}\"{near}; {list}"));
        None
    }

    fn check_key(&mut self, node: &TransformNode, function: &FunctionDeclaration) {
        let (name, path) = (&function.name, format!("transforms.{}", node.uid));
        match (function.keyed, &node.key_by) {
            (true, None) => self.error(path, format!("function \"{name}\" keeps its state by key; `key_by` is missing")),
            (false, Some(_)) => self.error(format!("{path}.key_by"), format!("function \"{name}\" takes no key")),
            _ => {}
        }
    }

    /// Every column that the function requires must be there, of its type.
    pub(super) fn check_inputs(
        &mut self,
        path: &str,
        function: &FunctionDeclaration,
        what: &str,
        required: &[Column],
        stream: &Stream,
    ) {
        let name = &function.name;
        for column in required {
            let found = match stream.schema.column(&column.name) {
                None => {
                    let reason = unknown_column(&column.name, &stream.schema);
                    self.error(path, format!("{what} of function \"{name}\": {reason}"));
                    continue;
                }
                Some(_) if stream.unknown.contains(&column.name) => continue,
                Some(found) => found,
            };
            if found.ty != column.ty {
                let message = format!(
                    "{what} of function \"{name}\": column \"{}\" is {}, and the function takes {}; cast it in a `select` before",
                    column.name, found.ty, column.ty
                );
                self.error(path, message);
            } else if found.nullable && !column.nullable {
                let message = format!(
                    "{what} of function \"{name}\": column \"{}\" may be null, and the function takes no null; \
                     give it a value in a `select` before, as in coalesce({}, ...)",
                    column.name, column.name
                );
                self.error(path, message);
            }
        }
    }

    /// The broadcast input: where it comes out and what it carries.
    fn broadcast(&mut self, node: &TransformNode, function: &FunctionDeclaration) -> Option<(Outlet, StreamSchema)> {
        let path = format!("transforms.{}.broadcast", node.uid);
        let required = match (&function.broadcast, node.broadcast.is_empty()) {
            (None, true) => return None,
            (None, false) => {
                self.error(path, format!("function \"{}\" has no broadcast input", function.name));
                return None;
            }
            (Some(_), true) => {
                let message = format!(
                    "function \"{}\" has a broadcast input; name the nodes that it reads, as in `broadcast: [rules]`",
                    function.name
                );
                self.error(format!("transforms.{}.process", node.uid), message);
                return None;
            }
            (Some(required), false) => required,
        };
        let inputs = self.inputs(&node.broadcast)?;
        let stream = self.unite(&format!("transforms.{}", node.uid), "broadcast", &node.uid, inputs, None)?;
        if stream.schema.changelog {
            self.error(&path, "a function takes rows, not changes, and what is broadcast is a changelog");
        }
        self.check_inputs(&path, function, "broadcast input", required, &stream);
        Some((stream.stage, stream.schema))
    }

    /// The second input with a key: what it carries, its key, and where it comes from.
    fn second(
        &mut self,
        node: &TransformNode,
        function: &FunctionDeclaration,
        keys: &[Column],
        first: &Stream,
    ) -> Option<(SecondInput, Stream)> {
        let (name, path) = (&function.name, format!("transforms.{}", node.uid));
        let required = match (&function.second, node.with.is_empty()) {
            (None, true) => return None,
            (None, false) => {
                self.error(format!("{path}.with"), format!("function \"{name}\" has no second input"));
                return None;
            }
            (Some(_), true) => {
                let message =
                    format!("function \"{name}\" has a second input; name the nodes that it reads, as in `with: [payments]`");
                self.error(format!("{path}.process"), message);
                return None;
            }
            (Some(required), false) => required,
        };
        let inputs = self.inputs(&node.with)?;
        let stream = self.unite(&path, "with", &node.uid, inputs, None)?;
        let at = format!("{path}.with");
        if stream.schema.changelog {
            self.error(&at, "a function takes rows, not changes, and its second input is a changelog");
        }
        self.check_inputs(&at, function, "second input", required, &stream);
        let names = node.with_key.clone().unwrap_or_else(|| node.key_by.clone().unwrap_or_default());
        for (key, name) in keys.iter().zip(&names).filter(|(key, _)| !first.unknown.contains(&key.name)) {
            match stream.schema.column(name) {
                None => self.error(format!("{path}.key_by"), format!("second input: {}", unknown_column(name, &stream.schema))),
                Some(column) if column.ty != key.ty && !stream.unknown.contains(name) => {
                    let message = format!(
                        "\"{}\" is {} in the first input and \"{name}\" {} in the second; cast one in a `select` before",
                        key.name, key.ty, column.ty
                    );
                    self.error(format!("{path}.key_by"), message);
                }
                Some(_) => {}
            }
        }
        Some((SecondInput { schema: stream.schema.clone(), keys: names }, stream))
    }

    pub(super) fn check_time(&mut self, path: &str, whose: &str, function: &FunctionDeclaration, stream: &Stream) {
        if function.event_timers
            && stream.schema.event_time.is_none()
            && let Some(reason) = &stream.no_event_time
        {
            self.error(path, format!("function \"{}\" sets timers of event time{whose}; {reason}", function.name));
        }
    }

    fn process_output(&mut self, path: &str, function: &FunctionDeclaration, keys: &[Column], stream: &Stream) -> StreamSchema {
        let mut columns = if function.keys_first { keys.to_vec() } else { Vec::new() };
        for column in &function.outputs {
            if columns.iter().any(|known| known.name == column.name) {
                let message = format!("function \"{}\" gives \"{}\", which is also a key", function.name, column.name);
                self.error(path, message);
            }
            columns.push(column.clone());
        }
        let event_time = function.event_time.clone().filter(|_| stream.schema.event_time.is_some());
        StreamSchema { columns, event_time, changelog: false }
    }

    /// What the function gives beside its main output, `stream` being its input.
    fn function_sides(&self, node: &TransformNode, function: &FunctionDeclaration, stream: &Stream) -> Vec<(String, Stream)> {
        let side = |side: &SideDeclaration| {
            let event_time = side.event_time.clone().filter(|_| stream.schema.event_time.is_some());
            let no_event_time = format!(
                "the function of transform \"{}\" declares no column of its output \"{}\" as event time",
                node.uid, side.name
            );
            let rows = Stream {
                schema: StreamSchema { columns: side.columns.clone(), event_time, changelog: false },
                unknown: BTreeSet::new(),
                partitioned_by: None,
                windowed: false,
                no_event_time: Some(no_event_time),
                ..stream.clone()
            };
            (side.name.clone(), rows)
        };
        function.sides.iter().map(side).collect()
    }

    fn push_process(
        &mut self,
        node: &TransformNode,
        stream: &mut Stream,
        spec: ProcessSpec,
        output: StreamSchema,
        other: Option<Other>,
        wanted: Option<u32>,
    ) {
        let keys: Vec<String> = spec.keys.iter().map(|key| key.name.clone()).collect();
        let second_keys = spec.second.as_ref().map(|second| second.keys.clone()).unwrap_or_default();
        // All rows of a window without a key are one group.
        let all_to_one = spec.window.is_some() && keys.is_empty();
        let (parallelism, partition) = if all_to_one {
            (1, anywhere(stream, 1))
        } else if keys.is_empty() {
            let parallelism = wanted.unwrap_or(if stream.single { stream.parallelism } else { self.settings.parallelism });
            (parallelism, anywhere(stream, parallelism))
        } else {
            let parallelism = wanted.unwrap_or(self.settings.parallelism);
            (parallelism, stream.by_key(&keys, parallelism))
        };
        let operator = OperatorSpec {
            uid: node.uid.clone(),
            clause: "process".into(),
            kind: OperatorKind::Process(Box::new(spec)),
            input: stream.schema.clone(),
            output: output.clone(),
            sides: Vec::new(),
            bad_records: node.bad_records,
        };
        let mut inputs = vec![(stream.stage, partition)];
        inputs.extend(other.map(|other| match other {
            Other::Broadcast(stage) => (stage, Partition::Broadcast),
            Other::Second(second) if second_keys.is_empty() => (second.stage, anywhere(&second, parallelism)),
            Other::Second(second) => (second.stage, second.by_key(&second_keys, parallelism)),
        }));
        let (uid, kind) = (node.uid.clone(), StageKind::Operator(operator));
        stream.single = all_to_one || (stream.single && stream.parallelism == parallelism);
        stream.stage = self.push_stage(Stage { uid, kind, parallelism, inputs, output, uses: Vec::new() });
        stream.parallelism = parallelism;
    }
}

/// How rows get to so many instances, any of which may take them.
fn anywhere(stream: &Stream, parallelism: u32) -> Partition {
    if stream.parallelism == parallelism { Partition::Forward } else { Partition::Rebalance }
}
