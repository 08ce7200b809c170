//! Compares a snapshot with the plan that is to be restored from it, before anything starts.
//!
//! Pure, and one for all: the JobManager at a submission, `levada check --from`, and the JobManager's core use it. State is
//! matched by (operator uid, state name) alone, so operators without state may come and go, and vertices may be cut otherwise.
//! Invariant: every mismatch is in the report, and what is dropped was named by the user.

mod drop;
mod report;
mod windows;

use std::collections::BTreeMap;

pub use drop::{BadDrop, DropState, without};
pub use report::{Mismatch, RestoreReport, StateText};

use crate::checkpoint::{CheckpointMetadata, Handle, StateHandle};
use crate::ids::Uid;
use crate::keys::MAX_PARALLELISM_LIMIT;
use crate::nearest::nearest;
use crate::plan::{FiringSpec, LibraryCall, Plan};
use crate::planned_state::PlannedState;
use crate::state_schema::StateSchema;
use crate::types::Column;

/// A snapshot that a plan can be restored from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restorable {
    /// The snapshot, without what is dropped.
    pub metadata: CheckpointMetadata,
    /// What should be known: what is dropped, what begins or ceases to expire, what begins empty.
    pub notes: Vec<String>,
}

/// Compares, and leaves out what `drops` name.
///
/// Errors: every mismatch at once.
pub fn check(metadata: &CheckpointMetadata, plan: &Plan, drops: &[DropState]) -> Result<Restorable, RestoreReport> {
    let mut mismatches = Vec::new();
    let (kept, dropped) = without(metadata, drops, &mut mismatches);
    check_parallelism(metadata, plan, &mut mismatches);
    let planned = plan.states();
    let found = by_name(&kept);
    for (uid, states) in &found {
        if !planned.iter().any(|state| state.uid == **uid) {
            mismatches.push(missing_operator(uid, states, plan, &planned, &found));
            continue;
        }
        let of_windows = windows::check(uid, states, (plan, &planned), metadata);
        mismatches.extend(of_windows.mismatches);
        for (name, handles) in states {
            match planned.iter().find(|state| state.uid == **uid && state.name == **name) {
                Some(state) => compare(state, handles, &mut mismatches),
                None if of_windows.is_all => {}
                None => mismatches.push(missing_state(uid, name, handles, &planned, states)),
            }
        }
    }
    if !mismatches.is_empty() {
        return Err(RestoreReport { checkpoint: metadata.id, savepoint: metadata.savepoint, mismatches });
    }
    let mut notes: Vec<String> = dropped.iter().map(|state| format!("state {state} is dropped")).collect();
    notes.extend(planned.iter().filter_map(|state| changed_life(state, &found)));
    notes.extend(begins_empty(&planned, &found, metadata));
    Ok(Restorable { metadata: kept, notes })
}

/// A job that sets no max parallelism (`written`) inherits its snapshot's: it is part of the state's layout.
pub fn inherit_max_parallelism(plan: &mut Plan, written: Option<u32>, metadata: &CheckpointMetadata) {
    if written.is_none() {
        plan.max_parallelism = metadata.max_parallelism;
    }
}

/// The max parallelism is the snapshot's or a multiple of it, since key groups nest; no vertex is wider.
fn check_parallelism(metadata: &CheckpointMetadata, plan: &Plan, mismatches: &mut Vec<Mismatch>) {
    let (old, new) = (metadata.max_parallelism, plan.max_parallelism);
    if old == 0 || new > MAX_PARALLELISM_LIMIT || !new.is_multiple_of(old) {
        mismatches.push(Mismatch::MaxParallelism { found: old, planned: new });
    } else if plan.slots() > new {
        mismatches.push(Mismatch::Parallelism { wanted: plan.slots(), max_parallelism: new });
    }
}

type States<'a> = BTreeMap<&'a str, Vec<&'a StateHandle>>;

/// The handles of each state of each operator.
fn by_name(metadata: &CheckpointMetadata) -> BTreeMap<&Uid, States<'_>> {
    let mut found: BTreeMap<&Uid, States<'_>> = BTreeMap::new();
    for handle in metadata.states() {
        found.entry(&handle.uid).or_default().entry(&handle.name).or_default().push(handle);
    }
    found
}

fn missing_operator(
    uid: &Uid,
    states: &States<'_>,
    plan: &Plan,
    planned: &[PlannedState],
    found: &BTreeMap<&Uid, States<'_>>,
) -> Mismatch {
    // Renamed: an operator of the job that has state and finds none here. One in the same states is likelier than a like name.
    let free: Vec<&PlannedState> = planned.iter().filter(|state| !found.contains_key(&state.uid)).collect();
    let same = |candidate: &&&PlannedState| {
        states.iter().all(|(name, handles)| {
            let likes = |state: &&PlannedState| state.uid == candidate.uid && state.name == *name;
            free.iter().find(|state| likes(state)).is_some_and(|state| differences(state, handles).is_empty())
        })
    };
    let renamed = free.iter().find(same).map(|state| state.uid.as_str());
    let near = nearest(uid.as_str(), free.iter().map(|state| state.uid.as_str()));
    Mismatch::Operator {
        uid: uid.clone(),
        stateless: plan.has(uid),
        states: states.iter().map(|(name, handles)| StateText::of(uid, name, handles)).collect(),
        renamed: near.or(renamed).map(str::to_owned),
    }
}

fn missing_state(uid: &Uid, name: &str, handles: &[&StateHandle], planned: &[PlannedState], states: &States<'_>) -> Mismatch {
    let of_operator = planned.iter().filter(|state| state.uid == *uid && !states.contains_key(state.name.as_str()));
    let free: Vec<&str> = of_operator.map(|state| state.name.as_str()).collect();
    let renamed = nearest(name, free.iter().copied()).map(str::to_owned);
    Mismatch::State { state: StateText::of(uid, name, handles), renamed, planned: free.into_iter().map(str::to_owned).collect() }
}

fn compare(planned: &PlannedState, handles: &[&StateHandle], mismatches: &mut Vec<Mismatch>) {
    for (what, found, wanted) in differences(planned, handles) {
        let (uid, state) = (planned.uid.clone(), planned.name.clone());
        mismatches.push(Mismatch::Changed { uid, state, what, found, planned: wanted });
    }
}

/// What differs: which part of it, as it is in the snapshot, as it is in the plan.
fn differences(planned: &PlannedState, handles: &[&StateHandle]) -> Vec<(&'static str, String, String)> {
    let mut differences = Vec::new();
    let Some(handle) = handles.first() else { return differences };
    if handle.kind != planned.kind {
        differences.push(("kind", handle.kind.name().into(), planned.kind.name().into()));
    }
    let (old, new) = (&*handle.schema, &planned.schema);
    // Nothing is known of texts of connectors, and of what release 0.1 wrote.
    if *old == StateSchema::default() || *new == StateSchema::default() {
        return differences;
    }
    let mut differs = |what, old: String, new: String| {
        if old != new {
            differences.push((what, old, new));
        }
    };
    differs("state type", old.shape.name().into(), new.shape.name().into());
    differs("key type", columns(&old.keys), columns(&new.keys));
    differs("grouping", windowed(old), windowed(new));
    let is_known = !old.grid.is_empty() && !new.grid.is_empty();
    if is_known && handles.iter().any(|handle| handle.rows > 0) {
        differs("window", old.grid.clone(), new.grid.clone());
    }
    differs("map key type", columns(&old.map_key), columns(&new.map_key));
    // What a window notes of its results may begin and cease, where rows are taken in anew; a database has them as they are. But whoever
    // reads results has those that were given, which must be known to be replaced.
    let is_rewritten = !handles.iter().any(|handle| matches!(handle.handle, Handle::Database { .. }));
    let keeps_results = |schema: &StateSchema| schema.values.iter().any(|column| column.name == FiringSpec::RESULT_COLUMN);
    let keep_results = keeps_results(old) && keeps_results(new);
    let may_differ = |name: &str| FiringSpec::is_state_column(name) && !(keep_results && name == FiringSpec::RESULT_COLUMN);
    let is_compared = |column: &&Column| !(is_rewritten && may_differ(&column.name));
    let values = |schema: &StateSchema| nullable_columns(schema.values.iter().filter(is_compared));
    match other_library(&old.values, &new.values) {
        Some((old, new)) => differs("library that made it", old, new),
        None => differs("value type", values(old), values(new)),
    }
    differences
}

/// The libraries, with their versions, of the same call's state, where they are not the same.
fn other_library(old: &[Column], new: &[Column]) -> Option<(String, String)> {
    let libraries = |columns: &'_ [Column]| -> BTreeMap<String, String> {
        let found = columns.iter().filter_map(|column| LibraryCall::of_state(&column.name));
        found.map(|(call, library)| (call.to_string(), library.to_string())).collect()
    };
    let new = libraries(new);
    let is_other = |(call, old): (String, String)| new.get(&call).filter(|new| **new != old).map(|new| (old, new.clone()));
    libraries(old).into_iter().find_map(is_other)
}

fn windowed(schema: &StateSchema) -> String {
    if schema.windowed { "per window".into() } else { "without window".into() }
}

/// As `columns`; that a value may be null tells a minimum from a count.
fn nullable_columns<'a>(columns: impl Iterator<Item = &'a Column>) -> String {
    let null = |column: &Column| if column.nullable { "" } else { " NOT NULL" };
    let columns: Vec<String> = columns.map(|column| format!("{} {}{}", column.name, column.ty, null(column))).collect();
    format!("({})", columns.join(", "))
}

fn columns(columns: &[Column]) -> String {
    let columns: Vec<String> = columns.iter().map(|column| format!("{} {}", column.name, column.ty)).collect();
    format!("({})", columns.join(", "))
}

/// What becomes of entries where a state has a time to live now and had none, the other way round, or by another clock: all can be
/// restored.
fn changed_life(planned: &PlannedState, found: &BTreeMap<&Uid, States<'_>>) -> Option<String> {
    let handle = found.get(&planned.uid)?.get(planned.name.as_str())?.first()?;
    let (had, has) = (handle.schema.ttl, planned.schema.ttl);
    let what = match (had.is_some(), has.is_some()) {
        (false, true) => "begins to expire: the life of what it has begins with the restore",
        (true, false) => "ceases to expire: what it has stays",
        (true, true) if !had.reads_as(has) => "expires by another clock: the life of what it has begins anew with the restore",
        (true, true) | (false, false) => return None,
    };
    Some(format!("state \"{}\" of operator \"{}\" {what}", planned.name, planned.uid))
}

/// States of the plan that the snapshot has nothing of, though it is of a job that knew its operators.
fn begins_empty(planned: &[PlannedState], found: &BTreeMap<&Uid, States<'_>>, metadata: &CheckpointMetadata) -> Vec<String> {
    let known = |uid: &Uid| metadata.vertices.iter().any(|vertex| vertex.uids.contains(uid));
    let mut notes: Vec<String> = Vec::new();
    for state in planned {
        if found.contains_key(&state.uid) || known(&state.uid) {
            continue;
        }
        let note = format!("operator \"{}\" is new and begins without state", state.uid);
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    notes
}

#[cfg(test)]
mod tests;
