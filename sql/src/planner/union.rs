//! Several inputs of one node: the same columns of the same types in the same order, or an error that lists the difference.

use levada_common::graph::InputRef;
use levada_common::ids::Uid;
use levada_common::plan::{BadRecordPolicy, OperatorKind, Partition};
use levada_common::types::{Column, StreamSchema};

use super::graph::{NewOperator, Planner};
use super::stream::{Stage, StageKind, Stream};
use crate::expression::column_reference;

impl Planner<'_> {
    /// Makes one stream of `inputs`; of a single one, itself. `uid` is the node at `path` that reads them, `list` its key under which
    /// they stand; its stages run at `parallelism`, or, where that is open, at the inputs' where they agree.
    pub(super) fn unite(
        &mut self,
        path: &str,
        list: &str,
        uid: &Uid,
        mut inputs: Vec<(InputRef, Stream)>,
        parallelism: Option<u32>,
    ) -> Option<Stream> {
        if inputs.len() == 1 {
            return inputs.pop().map(|(_, stream)| stream);
        }
        self.check_alike(&format!("{path}.{list}"), &inputs)?;
        let parallelism = parallelism.unwrap_or_else(|| {
            let first = inputs[0].1.parallelism;
            let same = inputs.iter().all(|(_, stream)| stream.parallelism == first);
            if same { first } else { self.settings.parallelism }
        });
        let schema = united_schema(&inputs);
        let mut united = inputs[0].1.clone();
        for (_, stream) in &inputs {
            united.unknown.extend(stream.unknown.iter().cloned());
        }
        united.single = inputs.iter().all(|(_, stream)| stream.single);
        united.bounded = inputs.iter().all(|(_, stream)| stream.bounded);
        united.windowed = inputs.iter().all(|(_, stream)| stream.windowed);
        let alike = |stream: &Stream| stream.partitioned_by == united.partitioned_by && stream.parallelism == parallelism;
        if !inputs.iter().all(|(_, stream)| alike(stream)) {
            united.partitioned_by = None;
        }
        if schema.event_time.is_none() {
            united.no_event_time = event_time_difference(path, &inputs);
        }
        let mut links = Vec::new();
        for (name, mut stream) in inputs {
            if stream.schema.columns != schema.columns {
                self.widen(&name.node, &mut stream, &schema);
            }
            match stream.spread(parallelism) {
                Ok(partition) => links.push((stream.stage, partition)),
                Err(reason) => self.error(format!("{path}.{list}"), reason),
            }
        }
        let stage = Stage {
            uid: uid.clone(),
            kind: StageKind::Pass,
            parallelism,
            inputs: links,
            output: schema.clone(),
            uses: Vec::new(),
        };
        united.stage = self.push_stage(stage);
        united.schema = schema;
        united.parallelism = parallelism;
        Some(united)
    }

    fn check_alike(&mut self, list: &str, inputs: &[(InputRef, Stream)]) -> Option<()> {
        let changelogs = inputs.iter().enumerate().filter(|(_, (_, stream))| stream.schema.changelog);
        let defects: Vec<(usize, String)> = changelogs
            .map(|(index, (name, _))| {
                let reason = "is a changelog and cannot be united: its updates could not be told from rows of the other inputs";
                (index, format!("\"{name}\" {reason}"))
            })
            .collect();
        let (first_name, first) = &inputs[0];
        let different = inputs
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(index, (name, stream))| difference(first_name, first, name, stream).map(|defect| (index, defect)));
        let defects = if defects.is_empty() { different.collect() } else { defects };
        let alike = defects.is_empty();
        for (index, defect) in defects {
            self.error(format!("{list}[{index}]"), defect);
        }
        alike.then_some(())
    }

    /// Gives the columns of `stream` the nullability of the union, so that every batch has one schema.
    fn widen(&mut self, name: &Uid, stream: &mut Stream, schema: &StreamSchema) {
        let columns = schema.columns.iter().map(|column| (column.name.clone(), column_reference(&column.name))).collect();
        let uses = schema.columns.iter().map(|column| [column.name.clone()].into()).collect();
        let mut output = schema.clone();
        output.event_time.clone_from(&stream.schema.event_time);
        let operator = NewOperator {
            uid: name.clone(),
            clause: "union",
            kind: OperatorKind::Project { columns, unnest: None },
            output,
            uses,
            bad_records: BadRecordPolicy::Fail,
        };
        let parallelism = stream.parallelism;
        self.push_operator(stream, operator, Partition::Forward, parallelism);
    }
}

fn united_schema(inputs: &[(InputRef, Stream)]) -> StreamSchema {
    let first = &inputs[0].1.schema;
    let columns = first.columns.iter().enumerate().map(|(at, column)| {
        let nullable = inputs.iter().any(|(_, stream)| stream.schema.columns[at].nullable);
        Column::new(&column.name, column.ty.clone(), nullable)
    });
    let agreed = inputs.iter().all(|(_, stream)| stream.schema.event_time == first.event_time);
    StreamSchema { columns: columns.collect(), event_time: first.event_time.clone().filter(|_| agreed), changelog: false }
}

/// What is different in `stream`, or `None` where the columns are the same.
fn difference(first_name: &InputRef, first: &Stream, name: &InputRef, stream: &Stream) -> Option<String> {
    let mut parts = Vec::new();
    for column in &first.schema.columns {
        match stream.schema.column(&column.name) {
            None => parts.push(format!("\"{name}\" has no \"{}\"", column.name)),
            Some(other)
                if other.ty != column.ty && !first.unknown.contains(&column.name) && !stream.unknown.contains(&other.name) =>
            {
                parts.push(format!("\"{}\" is {} in \"{first_name}\" and {} in \"{name}\"", column.name, column.ty, other.ty));
            }
            Some(_) => {}
        }
    }
    let extra = stream.schema.columns.iter().filter(|column| first.schema.column(&column.name).is_none());
    parts.extend(extra.map(|column| format!("\"{first_name}\" has no \"{}\"", column.name)));
    if parts.is_empty() && first.schema.names() != stream.schema.names() {
        parts.push(format!(
            "the order is {} in \"{first_name}\" and {} in \"{name}\"",
            first.schema.names(),
            stream.schema.names()
        ));
    }
    (!parts.is_empty()).then(|| format!("inputs of one node need the same columns: {}", parts.join("; ")))
}

/// Why the union has no event time; `None` where an error said so already.
fn event_time_difference(path: &str, inputs: &[(InputRef, Stream)]) -> Option<String> {
    let described: Option<Vec<String>> = inputs
        .iter()
        .map(|(name, stream)| match (&stream.schema.event_time, &stream.no_event_time) {
            (Some(column), _) => Some(format!("\"{name}\" has \"{column}\"")),
            (None, reason) => reason.as_ref().map(|reason| format!("\"{name}\" has none: {reason}")),
        })
        .collect();
    described.map(|described| format!("the inputs of {path} do not agree on it: {}", described.join("; ")))
}
