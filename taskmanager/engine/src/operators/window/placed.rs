//! By what rows were put into their windows, where it is the rows that say so, as snapshots have it: a store has each row in its window,
//! and a job that goes on with windows of another making must not take it to be where it belongs.

use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::planned_state::PLACED_BY;
use levada_state::snapshot::StatePart;

use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::task::entries;

/// That it was `by`, for a snapshot.
pub(in crate::operators) fn placed_part(uid: &Uid, by: String) -> Vec<StatePart> {
    entries::part_of(uid, PLACED_BY, StateKind::OperatorUnion, vec![by])
}

/// Whether it was `by` in the snapshot, taken out of `restored`; not where it does not say.
///
/// Errors: `Restore` where it says so in no texts.
pub(in crate::operators) fn was_placed(uid: &Uid, by: &str, restored: &mut Vec<RestoredState>) -> Result<bool, EngineError> {
    let found: Vec<RestoredState> = restored.extract_if(.., |state| state.name == PLACED_BY).collect();
    let entries = entries::read(uid, PLACED_BY, &found)?;
    Ok(!entries.is_empty() && entries.iter().all(|entry| entry == by))
}
