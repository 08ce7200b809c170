//! `select`: columns computed of columns, one of which may unroll a list.

use std::collections::{BTreeMap, BTreeSet};

use datafusion_sql::sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments};
use levada_common::graph::TransformNode;
use levada_common::plan::{OperatorKind, Partition};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::graph::{NewOperator, Planner};
use super::stream::{Checked, Stream};
use crate::expression::{on_deep_stack, parse};

/// A `select` as far as it is read.
#[derive(Default)]
struct Selection {
    expressions: Vec<(String, String)>,
    columns: Vec<Column>,
    uses: Vec<BTreeSet<String>>,
    /// Input columns passed on unchanged, to the first name that each gets (its own, where that is among them).
    renamed: BTreeMap<String, String>,
    unnest: Option<usize>,
    unknown: BTreeSet<String>,
}

impl Planner<'_> {
    /// Puts the projection of `select` behind `stream`.
    pub(super) fn add_select(&mut self, node: &TransformNode, select: &[(String, String)], stream: &mut Stream) {
        let path = format!("transforms.{}.select", node.uid);
        let mut selection = Selection::default();
        for (name, sql) in select {
            let path = format!("{path}.{name}");
            self.select_column(&path, name, sql, stream, &mut selection);
        }
        self.check_changes(&path, stream, &selection);
        let output = self.selected(node, stream, &selection);
        let identity = selection.unnest.is_none()
            && output.columns == stream.schema.columns
            && output.columns.iter().all(|column| selection.renamed.get(&column.name) == Some(&column.name));
        stream.unknown = selection.unknown;
        if identity {
            return;
        }
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause: "select",
            kind: OperatorKind::Project { columns: selection.expressions, unnest: selection.unnest },
            output,
            uses: selection.uses,
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }

    fn select_column(&mut self, path: &str, name: &str, sql: &str, stream: &Stream, selection: &mut Selection) {
        let schema = &stream.schema;
        let unnested = on_deep_stack(|| Ok(unnest_argument(sql, schema)));
        let (sql, is_unnest) = match unnested {
            Ok(Some(argument)) => (argument, true),
            _ => (sql.to_string(), false),
        };
        let at = selection.columns.len();
        if is_unnest && selection.unnest.replace(at).is_some() {
            self.error(path, "a select can unnest one list only");
        }
        let typed = match stream.check(&self.compiler, &sql) {
            Ok(Checked::Known(typed)) => Some(typed),
            Ok(Checked::Unknown) => None,
            Err(reason) => {
                self.error(path, reason);
                None
            }
        };
        let (mut ty, mut nullable, mut uses) = (LogicalType::Int64, true, BTreeSet::new());
        match typed {
            None => {
                selection.unknown.insert(name.to_string());
            }
            Some(typed) => {
                if let Some(column) = typed.column.filter(|_| !is_unnest) {
                    let kept = selection.renamed.entry(column.clone()).or_insert_with(|| name.to_string());
                    if name == column {
                        *kept = column;
                    }
                }
                (ty, nullable, uses) = (typed.ty, typed.nullable, typed.columns.into_iter().collect());
            }
        }
        if is_unnest && !selection.unknown.contains(name) {
            match ty {
                LogicalType::List(element) => (ty, nullable) = (*element, true),
                other => {
                    self.error(path, format!("unnest needs a list, and its argument is {other}"));
                    (ty, nullable) = (LogicalType::Int64, true);
                    selection.unknown.insert(name.to_string());
                }
            }
        }
        selection.expressions.push((name.to_string(), sql));
        selection.columns.push(Column::new(name, ty, nullable));
        selection.uses.push(uses);
    }

    /// On a changelog without its key an update can be matched to the row that it replaces only where that comes too.
    fn check_changes(&mut self, path: &str, stream: &mut Stream, selection: &Selection) {
        let Some(changes) = &mut stream.changes else { return };
        if selection.unnest.is_some() {
            return self.error(path, "unnest over a changelog would leave the elements of replaced lists in place");
        }
        let keeps_key = changes.key.iter().all(|key| selection.renamed.contains_key(key));
        if !keeps_key && let Err(reason) = self.ask_for_replaced(stream) {
            return self.error(path, reason);
        }
        let Some(changes) = &mut stream.changes else { return };
        changes.unique &= keeps_key;
        changes.key = changes.key.iter().filter_map(|key| selection.renamed.get(key).cloned()).collect();
    }

    /// The schema of the output; what is known of the stream is brought up to date.
    fn selected(&mut self, node: &TransformNode, stream: &mut Stream, selection: &Selection) -> StreamSchema {
        let renamed = |name: &String| selection.renamed.get(name).cloned();
        let keys = stream.partitioned_by.take();
        stream.partitioned_by = keys.and_then(|keys| keys.iter().map(renamed).collect());
        let same = |name: &str| selection.renamed.get(name).is_some_and(|new| new == name);
        stream.windowed = stream.windowed && same("window_start") && same("window_end");
        let event_time = stream.schema.event_time.as_ref().and_then(renamed);
        if let (Some(lost), None) = (&stream.schema.event_time, &event_time) {
            let reason = format!("transform \"{}\" does not select its event-time column \"{lost}\" unchanged", node.uid);
            stream.no_event_time = Some(reason);
        }
        StreamSchema { columns: selection.columns.clone(), event_time, changelog: stream.schema.changelog }
    }
}

/// The argument of `unnest(list)`, where that is the whole expression.
fn unnest_argument(sql: &str, schema: &StreamSchema) -> Option<String> {
    let Ok(Expr::Function(function)) = parse(sql, |name| schema.column(name).is_some()) else {
        return None;
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))] if function.name.to_string().eq_ignore_ascii_case("unnest") => {
            Some(argument.to_string())
        }
        _ => None,
    }
}
