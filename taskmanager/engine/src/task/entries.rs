//! Operator state made of texts: a source's positions, a sink's transactions.
//!
//! Shape: one column `entry`, Utf8, not null, in order.

use std::sync::Arc;

use arrow::array::{Array, AsArray, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_state::snapshot::{StateMeta, StatePart, pieces, ready};

use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::sink::{Durable, Late};

pub(crate) use levada_common::planned_state::{SPLITS, TRANSACTIONS};

/// The one column.
const ENTRY: &str = "entry";

/// The list of this name; none where there is no entry.
pub(crate) fn part(uid: &Uid, name: &str, entries: Vec<String>) -> Vec<StatePart> {
    part_of(uid, name, StateKind::OperatorList, entries)
}

/// The state of this name and kind; none where there is no entry.
pub(crate) fn part_of(uid: &Uid, name: &str, kind: StateKind, entries: Vec<String>) -> Vec<StatePart> {
    if entries.is_empty() {
        return Vec::new();
    }
    vec![StatePart { meta: meta(uid, name, kind), contents: ready([batch(entries)]).into() }]
}

/// The state of this name, some of whose entries come later: with them once what is returned beside it was run, in the background.
pub(crate) fn part_with_late(uid: &Uid, name: &str, entries: Vec<String>, late: Late) -> (StatePart, Durable) {
    let (sender, pieces) = pieces();
    if !entries.is_empty() {
        sender.send(batch(entries));
    }
    let rest = move || {
        let late = late();
        if let Ok(entries) = &late
            && !entries.is_empty()
        {
            sender.send(batch(entries.clone()));
        }
        // Also after an error, which declines the snapshot by itself: without an end the state would count as given up.
        sender.finish();
        late.map(drop)
    };
    (StatePart { meta: meta(uid, name, StateKind::OperatorList), contents: pieces.into() }, Box::new(rest))
}

fn meta(uid: &Uid, name: &str, kind: StateKind) -> StateMeta {
    StateMeta { uid: uid.clone(), name: name.into(), kind, schema: Arc::default() }
}

fn batch(entries: Vec<String>) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![Field::new(ENTRY, DataType::Utf8, false)]));
    let column = Arc::new(StringArray::from(entries));
    RecordBatch::try_new(schema, vec![column]).expect("a column of texts fits its schema")
}

/// The entries of the state of this name among what `uid` had.
///
/// Errors: `Restore` where it has another shape.
pub(crate) fn read(uid: &Uid, name: &str, restored: &[RestoredState]) -> Result<Vec<String>, EngineError> {
    let refuse = |reason: String| EngineError::Restore { uid: uid.clone(), state: name.into(), reason };
    let mut entries = Vec::new();
    for state in restored.iter().filter(|state| state.name == name) {
        if state.kind.is_keyed() {
            return Err(refuse("it is keyed, and no state of the operator itself".into()));
        }
        for batch in &state.batches {
            let column = batch.column_by_name(ENTRY).and_then(|column| column.as_string_opt::<i32>());
            let column = column.ok_or_else(|| refuse(format!("it has no column \"{ENTRY}\" of texts")))?;
            if column.null_count() > 0 {
                return Err(refuse(format!("column \"{ENTRY}\" has nulls")));
            }
            entries.extend(column.iter().flatten().map(str::to_owned));
        }
    }
    Ok(entries)
}
