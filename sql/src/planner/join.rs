//! Joins: the keys and columns of both sides, what makes rows meet, and an exchange of each side by its key.

use std::collections::BTreeSet;

use levada_common::graph::{GraphJoin, GraphWindow, TransformNode};
use levada_common::keys::is_key_type;
use levada_common::plan::{
    Changelog, JoinColumn, JoinKind, JoinScope, JoinSide, JoinSpec, OperatorKind, OperatorSpec, Partition, WindowSpec,
};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::aggregate::{WINDOW, WINDOW_END, WINDOW_START, WINDOW_TIME};
use super::graph::Planner;
use super::stream::{Outlet, Stage, StageKind, Stream};
use super::window::{NO_WINDOW, why_no_window, why_none_of_clock};
use crate::expression::unknown_column;

/// What a join in windows needs of its sides, and what else helps.
const A_WINDOW: (&str, &str) = ("a window needs event time", "; or write `time: processing`, for windows of when rows come in");

/// Likewise one within an interval.
const AN_INTERVAL: (&str, &str) = ("an interval needs event time", "");

/// The output's columns, and where each comes from.
#[derive(Default)]
pub(super) struct Output {
    pub(super) columns: Vec<Column>,
    pub(super) origins: Vec<JoinColumn>,
    pub(super) unknown: BTreeSet<String>,
}

impl Output {
    fn push(&mut self, column: Column, origin: JoinColumn) {
        self.columns.push(column);
        self.origins.push(origin);
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.name == name)
    }
}

impl Planner<'_> {
    /// Plans `join` with the `window` beside it, `left` being the node's inputs; `None` where the result is not known.
    pub(super) fn add_join(
        &mut self,
        node: &TransformNode,
        join: &GraphJoin,
        left: Stream,
        wanted: Option<u32>,
    ) -> Option<Stream> {
        let path = format!("transforms.{}.join", node.uid);
        let inputs = self.inputs(&join.with)?;
        let right = self.unite(&path, "with", &node.uid, inputs, None)?;
        if join.lookup {
            return self.add_lookup(node, join, left, right, wanted);
        }
        let errors = self.errors.0.len();
        let is_standing = join.within.is_none() && node.window.is_none();
        for (side, stream, at) in
            [("left", &left, format!("transforms.{}.inputs", node.uid)), ("right", &right, format!("{path}.with"))]
        {
            if stream.schema.changelog && !is_standing {
                let message = format!(
                    "the {side} side is a changelog, and a join in windows or intervals takes rows, not changes; \
                     give the aggregate before it a window"
                );
                self.error(at, message);
            }
        }
        let keys = self.join_keys(&path, join, &left, &right);
        let scope = self.join_scope(node, join, &left, &right)?;
        let output = self.join_output(&path, join, &scope, [&left, &right]);
        if self.errors.0.len() > errors {
            return None;
        }
        let (left_keys, right_keys): (Vec<String>, Vec<String>) = keys.into_iter().unzip();
        let spec =
            JoinSpec { kind: join.kind, left_keys, right_keys, scope, right: right.schema.clone(), columns: output.origins };
        // By processing time no row is late.
        let has_late = !matches!(spec.scope, JoinScope::Standing { .. }) && !spec.is_by_clock();
        let event_time = event_time(&spec, &output.columns, &left);
        let changes = changes(&spec, &left, &right);
        let schema = StreamSchema { event_time, changelog: changes.is_some(), columns: output.columns };
        let mut joined = Stream {
            partitioned_by: partitioned_by(&spec),
            changes,
            windowed: is_windowed(&spec, &left),
            bounded: left.bounded && right.bounded,
            unknown: output.unknown,
            single: false,
            no_event_time: Some(no_event_time(node, &spec)),
            schema,
            ..left.clone()
        };
        let late = [(JoinSide::Left, &left, &spec.left_keys), (JoinSide::Right, &right, &spec.right_keys)].map(
            |(side, stream, keys)| {
                let stream = Stream { partitioned_by: Some(keys.clone()), single: false, ..stream.clone() };
                (side.late_output().to_string(), stream)
            },
        );
        self.push_join(node, &mut joined, spec, [left, right], wanted);
        if has_late {
            self.add_sides(&node.uid, &joined, late.into());
        }
        Some(joined)
    }

    /// The pairs of columns that must be equal; what cannot be a key is reported and left out.
    pub(super) fn join_keys(&mut self, path: &str, join: &GraphJoin, left: &Stream, right: &Stream) -> Vec<(String, String)> {
        let path = format!("{path}.on");
        let mut keys: Vec<(String, String)> = Vec::new();
        for (left_name, right_name) in &join.on {
            let sides = [("left", left, left_name), ("right", right, right_name)];
            let found = sides.map(|(side, stream, name)| match stream.schema.column(name) {
                None => {
                    self.error(&path, format!("{side} side: {}", unknown_column(name, &stream.schema)));
                    None
                }
                Some(column) if !is_key_type(&column.ty) => {
                    self.error(&path, format!("{side} side: \"{name}\" is {}; a key is a plain value", column.ty));
                    None
                }
                Some(column) => Some((column, stream.unknown.contains(name))),
            });
            let [Some((one, one_unknown)), Some((other, other_unknown))] = found else { continue };
            if keys.iter().any(|(_, known)| known == right_name) {
                self.error(&path, format!("right column \"{right_name}\" stands here twice"));
            } else if one.ty != other.ty && !one_unknown && !other_unknown {
                let message = format!(
                    "\"{left_name}\" is {} on the left side and \"{right_name}\" {} on the right; cast one in a `select` before",
                    one.ty, other.ty
                );
                self.error(&path, message);
            } else {
                keys.push((left_name.clone(), right_name.clone()));
            }
        }
        keys
    }

    /// What makes rows meet; `None` where nothing says so, which is reported.
    fn join_scope(&mut self, node: &TransformNode, join: &GraphJoin, left: &Stream, right: &Stream) -> Option<JoinScope> {
        let path = format!("transforms.{}", node.uid);
        if let Some(interval) = join.within {
            self.check_times(&format!("{path}.join.within"), AN_INTERVAL, left, right);
            return Some(JoinScope::Within { from_ms: interval.from_ms, to_ms: interval.to_ms });
        }
        let Some(window) = &node.window else { return Some(self.standing(node, join, left, right)) };
        let path = format!("{path}.window");
        self.refuse_firing(node, "rows of a join meet");
        let time = node.window_time.clone();
        let scope = match *window {
            GraphWindow::Tumbling { size_ms, offset_ms } => JoinScope::Tumbling { size_ms, offset_ms, time },
            GraphWindow::Sliding { size_ms, slide_ms, offset_ms } => {
                JoinScope::Overlapping { windows: WindowSpec::Sliding { size_ms, slide_ms, offset_ms }, time }
            }
            GraphWindow::Cumulate { size_ms, step_ms, offset_ms } => {
                JoinScope::Overlapping { windows: WindowSpec::Cumulate { size_ms, step_ms, offset_ms }, time }
            }
            GraphWindow::Same => {
                for (side, stream) in [("left", left), ("right", right)] {
                    if !stream.windowed {
                        self.error(&path, format!("{NO_WINDOW}; the {side} side has none{}", why_no_window(stream)));
                    }
                }
                return Some(JoinScope::Same);
            }
            GraphWindow::Session { .. } | GraphWindow::Count { .. } | GraphWindow::Global => {
                self.error(path, why_no_join(window));
                return None;
            }
        };
        if node.window_time.processing {
            self.check_arrival(&path, [("left", left), ("right", right)]);
        } else {
            self.check_times(&path, A_WINDOW, left, right);
        }
        Some(scope)
    }

    /// Rows meet whenever they come: a changelog must have a key by which a change finds the row that it replaces.
    fn standing(&mut self, node: &TransformNode, join: &GraphJoin, left: &Stream, right: &Stream) -> JoinScope {
        let path = format!("transforms.{}", node.uid);
        let sides = [("left", left, format!("{path}.inputs")), ("right", right, format!("{path}.join.with"))];
        let [left_unique, right_unique] = sides.map(|(side, stream, at)| {
            let changes = stream.changes.as_ref()?;
            let names = join.on.iter().map(|(left, right)| if side == "left" { left } else { right });
            let loose = names.into_iter().find(|name| !changes.key.contains(name));
            if !changes.unique {
                let message = format!(
                    "the {side} side is a changelog whose rows have no key of their own, so none can be told from another"
                );
                self.error(at, message);
            } else if let Some(name) = loose {
                let message = format!(
                    "the {side} side is a changelog with the key {}, and its \"{name}\" may change; join on columns of its key",
                    changes.key.join(", ")
                );
                self.error(format!("{path}.join.on"), message);
            }
            Some(changes.key.clone())
        });
        if node.ttl_ms.is_none() && !(left.bounded && right.bounded) {
            self.warnings.push(format!(
                "transform \"{}\": a join without `window`, `within` and `ttl` keeps every row, and its input does not end",
                node.uid
            ));
        }
        JoinScope::Standing { ttl_ms: node.ttl_ms.map(|ttl| ttl as i64), left_unique, right_unique }
    }

    fn check_times(&mut self, path: &str, (what, hint): (&str, &str), left: &Stream, right: &Stream) {
        for (side, stream) in [("left", left), ("right", right)] {
            if let (None, Some(reason)) = (&stream.schema.event_time, &stream.no_event_time) {
                self.error(path, format!("{what} on both sides, and the {side} one has none: {reason}{hint}"));
            }
        }
    }

    /// The left side's columns, what is taken of the right side's, the window's. A column of the window takes the place of one of
    /// that name in the input.
    pub(super) fn join_output(&mut self, path: &str, join: &GraphJoin, scope: &JoinScope, [left, right]: [&Stream; 2]) -> Output {
        let in_window = scope.is_in_windows();
        let is_window = |name: &str| in_window && WINDOW.contains(&name);
        let shared = |name: &str| join.on.iter().position(|(left, right)| left == name && right == name);
        let mut output = Output::default();
        for column in left.schema.columns.iter().filter(|column| !is_window(&column.name)) {
            let key = shared(&column.name).filter(|_| join.kind.keeps_right());
            let nullable = match key {
                Some(_) => {
                    let other = right.schema.column(&column.name).is_none_or(|other| other.nullable);
                    other || (column.nullable && join.kind == JoinKind::Full)
                }
                None => column.nullable || join.kind.keeps_right(),
            };
            let origin = key.map_or_else(|| JoinColumn::Left(column.name.clone()), JoinColumn::Key);
            output.push(Column { nullable, ..column.clone() }, origin);
        }
        output.unknown.extend(left.unknown.iter().filter(|name| output.has(name)).cloned().collect::<Vec<_>>());
        if join.kind.gives_pairs() {
            let all = || {
                let columns = right.schema.columns.iter().map(|column| &column.name);
                let columns = columns.filter(|name| !is_window(name) && shared(name).is_none());
                columns.map(|name| (name.clone(), name.clone())).collect()
            };
            for (name, taken) in join.take.clone().unwrap_or_else(all) {
                self.take(path, join, (name, taken), right, &mut output);
            }
        }
        if in_window {
            let columns = [
                (WINDOW_START, JoinColumn::WindowStart),
                (WINDOW_END, JoinColumn::WindowEnd),
                (WINDOW_TIME, JoinColumn::WindowTime),
            ];
            for (name, origin) in columns {
                if output.has(name) {
                    self.error(format!("{path}.take"), format!("\"{name}\" is a column of the window; give it another name"));
                }
                output.push(Column::new(name, LogicalType::Timestamp, false), origin);
            }
        }
        output
    }

    /// Takes a column of the right side into the output.
    fn take(&mut self, path: &str, join: &GraphJoin, (name, taken): (String, String), right: &Stream, output: &mut Output) {
        let path = if join.take.is_some() { format!("{path}.take.{name}") } else { path.to_string() };
        let Some(column) = right.schema.column(&taken) else {
            return self.error(path, format!("right side: {}", unknown_column(&taken, &right.schema)));
        };
        if output.has(&name) {
            let message = format!(
                "both sides have a column \"{name}\"; name what comes of the right side, as in `take: {{ right_{name}: {taken} }}`"
            );
            return self.error(path, message);
        }
        if right.unknown.contains(&taken) {
            output.unknown.insert(name.clone());
        }
        let nullable = column.nullable || join.kind.keeps_left();
        output.push(Column { name, nullable, ty: column.ty.clone() }, JoinColumn::Right(taken));
    }

    fn push_join(
        &mut self,
        node: &TransformNode,
        joined: &mut Stream,
        spec: JoinSpec,
        [left, right]: [Stream; 2],
        wanted: Option<u32>,
    ) {
        let parallelism = wanted.unwrap_or(self.settings.parallelism);
        let link = |stream: &Stream, keys: &[String]| (stream.stage, stream.by_key(keys, parallelism));
        let inputs = vec![link(&left, &spec.left_keys), link(&right, &spec.right_keys)];
        self.push_joined(node, joined, (spec, left.schema), inputs, parallelism);
    }

    /// Puts a join, whose left input carries this, behind its two inputs.
    pub(super) fn push_joined(
        &mut self,
        node: &TransformNode,
        joined: &mut Stream,
        (spec, left): (JoinSpec, StreamSchema),
        inputs: Vec<(Outlet, Partition)>,
        parallelism: u32,
    ) {
        let operator = OperatorSpec {
            uid: node.uid.clone(),
            clause: "join".into(),
            kind: OperatorKind::Join(Box::new(spec)),
            input: left,
            output: joined.schema.clone(),
            sides: Vec::new(),
            bad_records: node.bad_records,
        };
        let (uid, kind, output) = (node.uid.clone(), StageKind::Operator(operator), joined.schema.clone());
        joined.stage = self.push_stage(Stage { uid, kind, parallelism, inputs, output, uses: Vec::new() });
        joined.parallelism = parallelism;
    }
}

/// Why rows do not meet in windows like these.
fn why_no_join(window: &GraphWindow) -> &'static str {
    match window {
        GraphWindow::Session { .. } => {
            "rows meet in tumbling, sliding or cumulating windows, in the `same` window, or `within: { from, to }` of each other; for \
             the rows of both sides in a session write a `CoGroupFunction` (`process` beside `with`)"
        }
        GraphWindow::Count { .. } => {
            "rows of two sides have no common count; rows meet in windows of time, in the `same` window, or `within: { from, to }` of \
             each other"
        }
        _ => "a join in one window over everything would keep every row; give it a size, or `within: { from, to }`",
    }
}

/// Why the output has no event time, where it has none.
fn no_event_time(node: &TransformNode, spec: &JoinSpec) -> String {
    match spec.is_by_clock() {
        true => why_none_of_clock(node),
        false => format!("transform \"{}\" is a {} join whose rows have no one time", node.uid, spec.kind),
    }
}

/// The output's event time: the window's, or the left row's, or, where there may be none, the right row's.
fn event_time(spec: &JoinSpec, columns: &[Column], left: &Stream) -> Option<String> {
    match spec.scope {
        JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same => {
            return (!spec.is_by_clock()).then(|| WINDOW_TIME.into());
        }
        JoinScope::Standing { .. } => return None,
        JoinScope::Within { .. } | JoinScope::Lookup { .. } => {}
    }
    match spec.kind {
        JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti => left.schema.event_time.clone(),
        JoinKind::Right => {
            let time = spec.right.event_time.as_ref()?;
            let mut origins = columns.iter().zip(&spec.columns);
            let taken = origins.find(|(_, origin)| matches!(origin, JoinColumn::Right(name) if name == time));
            taken.map(|(column, _)| column.name.clone())
        }
        JoinKind::Full => None,
    }
}

/// The columns by whose key group the output is spread: those of the key that every row has.
fn partitioned_by(spec: &JoinSpec) -> Option<Vec<String>> {
    (!spec.kind.keeps_right() || spec.left_keys == spec.right_keys).then(|| spec.left_keys.clone())
}

/// How the output's changes are matched, where something can be taken back: a row that met none, or what a changelog takes back. They
/// have a key of their own where each left row goes out once at most.
fn changes(spec: &JoinSpec, left: &Stream, right: &Stream) -> Option<Changelog> {
    let JoinScope::Standing { left_unique, right_unique, .. } = &spec.scope else { return None };
    if !(left.schema.changelog || right.schema.changelog || spec.kind.keeps_left() || spec.kind.keeps_right()) {
        return None;
    }
    let is_single = right_unique.as_ref().is_some_and(|unique| unique.iter().all(|name| spec.right_keys.contains(name)));
    let key = left_unique.as_ref().filter(|_| !spec.kind.keeps_right() && (is_single || !spec.kind.gives_pairs()));
    Some(Changelog { key: key.unwrap_or(&spec.left_keys).clone(), full: true, unique: key.is_some() })
}

/// Whether the output's `window_start` and `window_end` are those of a window.
fn is_windowed(spec: &JoinSpec, left: &Stream) -> bool {
    match spec.scope {
        // By processing time it has their columns, and no one may go by them.
        JoinScope::Tumbling { .. } | JoinScope::Overlapping { .. } | JoinScope::Same => !spec.is_by_clock(),
        JoinScope::Standing { .. } => false,
        JoinScope::Within { .. } | JoinScope::Lookup { .. } => left.windowed && !spec.kind.keeps_right(),
    }
}
