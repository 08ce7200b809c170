//! `--drop-state UID[/NAME]`: state that its owner gives up.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::report::{Mismatch, StateText};
use crate::checkpoint::{CheckpointMetadata, StateHandle, TaskSnapshot};
use crate::ids::Uid;
use crate::nearest::nearest;
use crate::planned_state::SPLITS;

/// State to be left behind: that of an operator, or one state of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropState {
    /// The operator.
    pub uid: Uid,
    /// The state; `None` = all of the operator's.
    pub state: Option<String>,
}

/// Text that names no state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{text}\" names no state: UID or UID/NAME is expected ({reason})")]
pub struct BadDrop {
    text: String,
    reason: String,
}

impl FromStr for DropState {
    type Err = BadDrop;

    fn from_str(text: &str) -> Result<Self, BadDrop> {
        let (uid, state) = match text.split_once('/') {
            Some((uid, state)) => (uid, Some(state)),
            None => (text, None),
        };
        let bad = |reason: String| BadDrop { text: text.chars().take(300).collect(), reason };
        if let Some(reason) = Uid::defect(uid) {
            return Err(bad(reason));
        }
        if state == Some("") {
            return Err(bad("the state's name is empty".into()));
        }
        Ok(Self { uid: Uid::new(uid), state: state.map(str::to_owned) })
    }
}

impl fmt::Display for DropState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.state {
            Some(state) => write!(f, "{}/{state}", self.uid),
            None => write!(f, "{}", self.uid),
        }
    }
}

impl DropState {
    fn names(&self, handle: &StateHandle) -> bool {
        self.uid == handle.uid && self.state.as_ref().is_none_or(|state| *state == handle.name)
    }
}

/// The snapshot without what is dropped, and that. What names nothing in the snapshot goes to `mismatches`.
pub fn without(
    metadata: &CheckpointMetadata,
    drops: &[DropState],
    mismatches: &mut Vec<Mismatch>,
) -> (CheckpointMetadata, Vec<StateText>) {
    for drop in drops.iter().filter(|drop| !metadata.states().any(|handle| drop.names(handle))) {
        let known: BTreeSet<String> = metadata
            .states()
            .map(|handle| match &drop.state {
                Some(_) => format!("{}/{}", handle.uid, handle.name),
                None => handle.uid.to_string(),
            })
            .collect();
        let near = nearest(&drop.to_string(), known.iter().map(String::as_str)).map(str::to_owned);
        mismatches.push(Mismatch::NothingToDrop { drop: drop.to_string(), near });
    }
    let is_dropped = |handle: &StateHandle| drops.iter().any(|drop| drop.names(handle));
    let mut names: Vec<(&Uid, &str)> =
        metadata.states().filter(|handle| is_dropped(handle)).map(|handle| (&handle.uid, handle.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    let dropped = names.into_iter().map(|(uid, name)| {
        let handles: Vec<&StateHandle> = metadata.states().filter(|handle| handle.uid == *uid && handle.name == name).collect();
        StateText::of(uid, name, &handles)
    });
    let dropped = dropped.collect();
    let task = |task: &TaskSnapshot| TaskSnapshot {
        states: task.states.iter().filter(|handle| !is_dropped(handle)).cloned().collect(),
        ..task.clone()
    };
    // An operator that lost all its state is as good as new, and a source that lost its positions: it begins with the splits of a
    // first start.
    let is_all = |drop: &DropState| drop.state.as_deref().is_none_or(|state| state == SPLITS);
    let forgotten = |uid: &Uid| drops.iter().any(|drop| drop.uid == *uid && is_all(drop));
    let mut vertices = metadata.vertices.clone();
    vertices.iter_mut().for_each(|vertex| vertex.uids.retain(|uid| !forgotten(uid)));
    let kept = CheckpointMetadata { tasks: metadata.tasks.iter().map(task).collect(), vertices, ..metadata.clone() };
    (kept, dropped)
}
