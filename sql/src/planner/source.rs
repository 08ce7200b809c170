//! Sources: their columns and computed columns.

use std::collections::BTreeSet;

use levada_common::declaration::SourceShape;
use levada_common::graph::SourceNode;
use levada_common::plan::{OperatorKind, Partition, SourceSpec};
use levada_common::types::{Column, LogicalType, OP_COLUMN, StreamSchema};

use super::graph::{NewOperator, Planner};
use super::stream::{Checked, Stage, StageKind, Stream};
use levada_common::nearest::did_you_mean;

impl Planner<'_> {
    /// Plans a source; `None` where its columns are not known.
    pub(super) fn add_source(&mut self, node: &SourceNode) -> Option<Stream> {
        let path = format!("sources.{}", node.uid);
        let shape = self.source_shape(node, &path)?;
        let wanted = self.parallelism(&path, node.parallelism);
        let most = shape.parallelism_max.unwrap_or(u32::MAX).max(1);
        let parallelism = wanted.unwrap_or(self.settings.parallelism).min(most);
        if let Some(wanted) = wanted.filter(|wanted| *wanted > most) {
            self.warnings
                .push(format!("source \"{}\": parallelism {wanted} is lowered to {most}, the most that it can use", node.uid));
        }
        if !shape.replayable && self.settings.checkpoint.interval_ms.is_some() {
            let warning = "cannot read its input again: rows after the last completed checkpoint are lost when the job restarts";
            self.warnings.push(format!("source \"{}\" ({}) {warning}", node.uid, node.connector));
        }
        let spec = SourceSpec {
            uid: node.uid.clone(),
            connector: node.connector.clone(),
            options: node.options.clone(),
            schema: StreamSchema::append(shape.columns.clone()),
            bad_records: node.bad_records,
        };
        let schema = spec.schema.clone();
        let stage = Stage {
            uid: node.uid.clone(),
            kind: StageKind::Source(spec),
            parallelism,
            inputs: Vec::new(),
            output: schema.clone(),
            uses: Vec::new(),
        };
        let mut stream = Stream {
            stage: self.push_stage(stage),
            schema,
            unknown: BTreeSet::new(),
            parallelism,
            single: false,
            partitioned_by: None,
            changes: None,
            windowed: false,
            no_event_time: Some(format!("source \"{}\" sets no `watermark`", node.uid)),
            bounded: shape.bounded,
        };
        if !shape.computed.is_empty() {
            self.compute_columns(node, &shape, &mut stream);
        }
        self.add_watermark(node, &shape, &mut stream);
        Some(stream)
    }

    fn source_shape(&mut self, node: &SourceNode, path: &str) -> Option<SourceShape> {
        let declarations = self.declarations;
        let Some(declaration) = declarations.sources.get(&node.connector) else {
            let names = || declarations.sources.keys().map(String::as_str);
            let near = did_you_mean(&node.connector, names());
            let list = names().collect::<Vec<_>>().join(", ");
            self.error(
                format!("{path}.{}", node.connector),
                format!("unknown source \"{}\"{near}; sources: {list}", node.connector),
            );
            return None;
        };
        let read = (declaration.read)(&node.options);
        let path = format!("{path}.{}", node.connector);
        let (shape, found) = match read {
            Ok(shape) => (Some(shape), Vec::new()),
            Err(found) => (None, found),
        };
        self.option_errors(&path, &node.connector, &node.options, &declaration.options, found);
        let shape = shape?;
        let names = if shape.computed.is_empty() {
            shape.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>()
        } else {
            shape.computed.iter().map(|(name, _)| name.clone()).collect()
        };
        let mut seen = BTreeSet::new();
        for name in names {
            if name == OP_COLUMN {
                self.error(format!("{path}.columns.{name}"), format!("a column cannot be named \"{OP_COLUMN}\""));
            } else if !seen.insert(name.clone()) {
                self.error(format!("{path}.columns.{name}"), format!("column \"{name}\" is there twice"));
            }
        }
        if shape.columns.is_empty() {
            self.error(path, "the source has no columns");
            return None;
        }
        Some(shape)
    }

    /// Columns that are SQL of others: a projection behind the source; only they are visible.
    fn compute_columns(&mut self, node: &SourceNode, shape: &SourceShape, stream: &mut Stream) {
        let (mut columns, mut uses) = (Vec::new(), Vec::new());
        for (name, sql) in &shape.computed {
            let (ty, nullable, used) = match stream.check(&self.compiler, sql) {
                Ok(Checked::Known(typed)) => (typed.ty, typed.nullable, typed.columns),
                Ok(Checked::Unknown) => (LogicalType::Int64, true, Vec::new()),
                Err(reason) => {
                    self.error(format!("sources.{}.{}.columns.{name}", node.uid, node.connector), reason);
                    stream.unknown.insert(name.clone());
                    (LogicalType::Int64, true, Vec::new())
                }
            };
            columns.push(Column::new(name, ty, nullable));
            uses.push(used.into_iter().collect());
        }
        let operator = NewOperator {
            uid: node.uid.clone(),
            clause: "columns",
            kind: OperatorKind::Project { columns: shape.computed.clone(), unnest: None },
            output: StreamSchema::append(columns),
            uses,
            bad_records: node.bad_records,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }
}
