//! Joins with a table: its rows go to every instance, and left rows stay where they are.
//!
//! Rows of one key of the table come through one sender, so that every instance sees them in one order and all have the same table. Left
//! rows wait for a table that ends; what would then wait for itself is refused.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::graph::{GraphJoin, TransformNode};
use levada_common::ids::Uid;
use levada_common::plan::{JoinScope, JoinSpec, OperatorKind, Partition};
use levada_common::types::StreamSchema;

use super::graph::Planner;
use super::stream::{Outlet, Stage, StageKind, Stream};

/// Left rows that wait until a table has ended.
pub(super) struct Waits {
    node: Uid,
    /// Where the rows come out.
    rows: Outlet,
    table: Outlet,
}

impl Planner<'_> {
    /// Plans a join with a table, `left` being the node's inputs and `table` what stands under `with`; `None` where the result is not
    /// known.
    pub(super) fn add_lookup(
        &mut self,
        node: &TransformNode,
        join: &GraphJoin,
        left: Stream,
        mut table: Stream,
        wanted: Option<u32>,
    ) -> Option<Stream> {
        let path = format!("transforms.{}.join", node.uid);
        let errors = self.errors.0.len();
        if join.kind.keeps_right() {
            let message = format!(
                "rows of a table go out with the left rows that meet them only; a lookup is inner, left, semi or anti, not {}",
                join.kind
            );
            self.error(format!("{path}.kind"), message);
        }
        if left.schema.changelog {
            let message = "the left side is a changelog, and what a row met could not be taken back once the table has changed; leave \
                           `lookup` out, a join of all rows that stand takes changes on both sides";
            self.error(format!("transforms.{}.inputs", node.uid), message);
        }
        let keys = self.join_keys(&path, join, &left, &table);
        let moves = self.table_moves(&path, join, &mut table);
        let scope = JoinScope::Lookup { whole: table.bounded, moves };
        let output = self.join_output(&path, join, &scope, [&left, &table]);
        if self.errors.0.len() > errors {
            return None;
        }
        if table.bounded {
            self.waits.push(Waits { node: node.uid.clone(), rows: left.stage, table: table.stage });
        }
        let what = "the table of a lookup is on the heap, in every instance, and is written whole at each checkpoint, also with state \
                    backend rocksdb";
        self.warn_with_rocksdb(node, what);
        let (left_keys, right_keys): (Vec<String>, Vec<String>) = keys.into_iter().unzip();
        self.order_by_key(node, &mut table, &right_keys);
        let parallelism = wanted.unwrap_or(if left.single { left.parallelism } else { self.settings.parallelism });
        let partition = if left.parallelism == parallelism { Partition::Forward } else { Partition::Rebalance };
        // Rows that wait are given out anew at another parallelism, whatever their key.
        let stays = partition == Partition::Forward && !table.bounded;
        let spec =
            JoinSpec { kind: join.kind, left_keys, right_keys, scope, right: table.schema.clone(), columns: output.origins };
        let mut joined = Stream {
            schema: StreamSchema { columns: output.columns, event_time: left.schema.event_time.clone(), changelog: false },
            unknown: output.unknown,
            single: left.single && left.parallelism == parallelism,
            partitioned_by: left.partitioned_by.clone().filter(|_| stays),
            bounded: left.bounded && table.bounded,
            ..left.clone()
        };
        let inputs = vec![(left.stage, partition), (table.stage, Partition::Broadcast)];
        self.push_joined(node, &mut joined, (spec, left.schema), inputs, parallelism);
        Some(joined)
    }

    /// Whether an update of the table may give a row another key. A table has one row of a key, so its own key is among `on`.
    fn table_moves(&mut self, path: &str, join: &GraphJoin, table: &mut Stream) -> bool {
        let Some(changes) = &table.changes else { return false };
        let on: Vec<&String> = join.on.iter().map(|(_, right)| right).collect();
        let moves = on.iter().any(|name| !changes.key.contains(name));
        if !changes.unique || changes.key.iter().any(|name| !on.contains(&name)) {
            let key = if changes.key.is_empty() { "no key".into() } else { format!("the key {}", changes.key.join(", ")) };
            let several = if changes.unique { "" } else { " with several rows each" };
            let message = format!(
                "the table is a changelog by {key}{several}, so that several of its rows may be found; look up by all of a key that its \
                 rows have for themselves, or leave `lookup` out"
            );
            self.error(format!("{path}.on"), message);
        } else if moves && let Err(reason) = self.ask_for_replaced(table) {
            self.error(format!("{path}.with"), reason);
        }
        moves
    }

    /// Has the rows of each key of the table come through one sender.
    fn order_by_key(&mut self, node: &TransformNode, table: &mut Stream, keys: &[String]) {
        // A changelog's are there already: the changes of a key have an order.
        if table.parallelism == 1 || table.changes.is_some() || table.is_in_place(keys, table.parallelism) {
            return;
        }
        let partition = Partition::Hash { columns: keys.to_vec() };
        let stage = Stage {
            uid: node.uid.clone(),
            kind: StageKind::Pass,
            parallelism: table.parallelism,
            inputs: vec![(table.stage, partition)],
            output: table.schema.clone(),
            uses: Vec::new(),
        };
        table.stage = self.push_stage(stage);
    }

    /// Reports left rows that would wait for a table which cannot end while they do.
    pub(super) fn check_waits(&mut self) {
        let waits = std::mem::take(&mut self.waits);
        let sources = |outlet: Outlet| self.sources_of(outlet.stage);
        let waits: Vec<_> = waits.iter().map(|wait| (&wait.node, sources(wait.rows), sources(wait.table))).collect();
        // Which sources cannot go on for ever while this one stands still.
        let mut held: BTreeMap<usize, BTreeSet<usize>> = self.aligned();
        for (_, rows, table) in &waits {
            for source in table {
                held.entry(*source).or_default().extend(rows);
            }
        }
        for (node, rows, table) in &waits {
            let stopped = rows.iter().flat_map(|source| reached(&held, *source)).collect::<BTreeSet<usize>>();
            let name = |source: usize| self.stages[source].uid.clone();
            let message = if let Some(both) = rows.intersection(table).next() {
                let source = name(*both);
                format!(
                    "left rows wait until the table has been read whole, and source \"{source}\" is read by both sides, so that it would \
                     wait for itself; read the table by a source of its own"
                )
            } else if let Some(source) = table.intersection(&stopped).next() {
                let (source, rows) = (name(*source), rows.iter().map(|row| format!("\"{}\"", name(*row))).collect::<Vec<_>>());
                format!(
                    "left rows wait until the table has been read whole, and its source \"{source}\" waits for {}, in another lookup or \
                     a group of sources that keep pace; read the table by a source of its own, in no such group",
                    rows.join(" or ")
                )
            } else {
                continue;
            };
            self.errors.push(&self.graph.lines, format!("transforms.{node}.join.with"), message);
        }
    }

    /// The sources that flow into a stage.
    fn sources_of(&self, stage: usize) -> BTreeSet<usize> {
        let (mut found, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![stage]);
        while let Some(at) = open.pop() {
            if !seen.insert(at) {
                continue;
            }
            if let StageKind::Source(_) = &self.stages[at].kind {
                found.insert(at);
            }
            open.extend(self.stages[at].inputs.iter().map(|(input, _)| input.stage));
        }
        found
    }

    /// Of each source the others that keep pace with it.
    fn aligned(&self) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut groups: BTreeMap<&String, BTreeSet<usize>> = BTreeMap::new();
        for (at, stage) in self.stages.iter().enumerate() {
            if let StageKind::Operator(operator) = &stage.kind
                && let OperatorKind::Watermark(watermark) = &operator.kind
                && let Some(align) = &watermark.align
            {
                groups.entry(&align.group).or_default().extend(self.sources_of(at));
            }
        }
        let members = groups.values().flat_map(|group| group.iter().map(move |source| (*source, group.clone())));
        members.map(|(source, group)| (source, group.into_iter().filter(|other| *other != source).collect())).collect()
    }
}

/// What stands still where `source` does, itself left out unless it comes back to it.
fn reached(held: &BTreeMap<usize, BTreeSet<usize>>, source: usize) -> BTreeSet<usize> {
    let (mut found, mut open) = (BTreeSet::new(), vec![source]);
    while let Some(at) = open.pop() {
        open.extend(held.get(&at).into_iter().flatten().filter(|other| found.insert(**other)));
    }
    found
}
