//! Functions of users: `process`, with its key, its broadcast input, and the columns that its declaration promises.

use std::collections::BTreeSet;

use levada_common::function::{FunctionDeclaration, SideDeclaration};
use levada_common::graph::{GraphProcess, TransformNode};
use levada_common::nearest::did_you_mean;
use levada_common::plan::{OperatorKind, OperatorSpec, Partition, ProcessSpec};
use levada_common::types::{Column, StreamSchema};

use super::graph::Planner;
use super::stream::{Outlet, Stage, StageKind, Stream};
use crate::expression::unknown_column;

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
        let function = self.function(&path, &process.function)?;
        self.option_errors(
            &format!("{path}.options"),
            &format!("function \"{}\"", function.name),
            &process.options,
            &function.options,
            Vec::new(),
        );
        let errors = self.errors.0.len();
        let keys = self.key_columns(node, &stream);
        self.check_key(node, &function);
        self.check_inputs(&path, &function, "input", &function.inputs, &stream);
        let broadcast = self.broadcast(node, &function);
        self.check_time(&path, &function, &stream);
        let output = self.process_output(&path, &function, &keys, &stream);
        let mut sides = self.function_sides(node, &function, &stream);
        if self.errors.0.len() == errors {
            let spec = ProcessSpec {
                function: function.clone(),
                options: process.options.clone(),
                keys: keys.clone(),
                broadcast: broadcast.as_ref().map(|(_, schema)| schema.clone()),
            };
            self.push_process(node, &mut stream, spec, output.clone(), broadcast.map(|(stage, _)| stage), wanted);
            self.add_sides(&node.uid, &stream, std::mem::take(&mut sides));
        }
        for (side, _) in sides {
            self.outputs.offer(&node.uid, &side, None);
        }
        stream.partitioned_by = function.keys_first.then(|| keys.into_iter().map(|key| key.name).collect());
        stream.windowed = false;
        stream.unknown.clear();
        if function.event_time.is_none() {
            let reason = format!("the function of transform \"{}\" declares no output column as event time", node.uid);
            stream.no_event_time = Some(reason);
        }
        stream.schema = output;
        Some(stream)
    }

    /// The declaration of the function `name`; `None` where it is not known, which is reported.
    fn function(&mut self, path: &str, name: &str) -> Option<FunctionDeclaration> {
        let path =
            if self.graph.lines.0.contains_key(&format!("{path}.function")) { format!("{path}.function") } else { path.into() };
        let Some(functions) = &self.declarations.functions else {
            let message = format!(
                "function \"{name}\" is brought by a TaskManager's own binary, and without a cluster it cannot be known; \
                 check the job against a running cluster whose TaskManagers have it"
            );
            self.error(path, message);
            return None;
        };
        if let Some(function) = functions.get(name) {
            return Some(function.clone());
        }
        let near = did_you_mean(name, functions.keys().map(String::as_str));
        let list = functions.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let list = if list.is_empty() { "no TaskManager brings any".into() } else { format!("functions: {list}") };
        self.error(path, format!("no TaskManager has a function \"{name}\"{near}; {list}"));
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
    fn check_inputs(&mut self, path: &str, function: &FunctionDeclaration, what: &str, required: &[Column], stream: &Stream) {
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

    fn check_time(&mut self, path: &str, function: &FunctionDeclaration, stream: &Stream) {
        if function.event_timers
            && stream.schema.event_time.is_none()
            && let Some(reason) = &stream.no_event_time
        {
            self.error(path, format!("function \"{}\" sets timers of event time; {reason}", function.name));
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
        broadcast: Option<Outlet>,
        wanted: Option<u32>,
    ) {
        let keys: Vec<String> = spec.keys.iter().map(|key| key.name.clone()).collect();
        let (parallelism, partition) = if keys.is_empty() {
            let parallelism = wanted.unwrap_or(if stream.single { stream.parallelism } else { self.settings.parallelism });
            (parallelism, if stream.parallelism == parallelism { Partition::Forward } else { Partition::Rebalance })
        } else {
            let parallelism = wanted.unwrap_or(self.settings.parallelism);
            let in_place =
                stream.parallelism == parallelism && (parallelism == 1 || stream.partitioned_by.as_ref() == Some(&keys));
            (parallelism, if in_place { Partition::Forward } else { Partition::Hash { columns: keys } })
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
        inputs.extend(broadcast.map(|stage| (stage, Partition::Broadcast)));
        let (uid, kind) = (node.uid.clone(), StageKind::Operator(operator));
        stream.single &= stream.parallelism == parallelism;
        stream.stage = self.push_stage(Stage { uid, kind, parallelism, inputs, output, uses: Vec::new() });
        stream.parallelism = parallelism;
    }
}
