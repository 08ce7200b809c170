//! What an operator's states hold of the memory that all heap states of the TaskManager share.
//!
//! Charged once a batch, by what tables and chunks say that they hold. Must never know what a state is.

use levada_common::ids::Uid;
use levada_state::keyed::HeapShare;

use crate::error::{EngineError, Remedy};

/// Notes how much each of an operator's states holds, at least one, by its name; `remedy` says what makes them smaller.
///
/// Errors: `OverBudget`, naming the largest of them, where all states of the TaskManager are over its limit.
pub(crate) fn charge(
    uid: &Uid,
    share: &mut HeapShare,
    states: &[(&str, usize)],
    remedy: impl Into<Remedy>,
) -> Result<(), EngineError> {
    if share.set(states.iter().map(|(_, bytes)| bytes).sum()) {
        return Ok(());
    }
    let (state, bytes) = states.iter().max_by_key(|(_, bytes)| *bytes).expect("an operator that is charged has a state");
    let (used, limit) = (share.budget().used(), share.budget().limit());
    Err(EngineError::OverBudget { uid: uid.clone(), state: (*state).into(), bytes: *bytes, used, limit, remedy: remedy.into() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use levada_state::keyed::HeapBudget;

    use super::*;

    #[test]
    fn the_limit_is_everyones_and_a_byte_more_names_the_largest_state() {
        let budget = Arc::new(HeapBudget::new(100));
        let (mut one, mut other) = (HeapShare::new(Arc::clone(&budget)), HeapShare::new(Arc::clone(&budget)));
        let set = |uid: &str, share: &mut HeapShare, left, right| {
            charge(&Uid::new(uid), share, &[("left", left), ("right", right)], "do less").map_err(|error| error.to_string())
        };
        assert_eq!(set("a", &mut one, 40, 0), Ok(()));
        assert_eq!(set("b", &mut other, 19, 41), Ok(()), "the limit itself is within it");
        let text = set("b", &mut other, 19, 42).expect_err("a byte over");
        let expected =
            "node \"b\": state \"right\" holds 42 bytes, and all states of this TaskManager hold 101 of 100 bytes; do less, ";
        assert!(text.starts_with(expected), "{text}");
        drop(one);
        assert_eq!(set("b", &mut other, 19, 81), Ok(()), "who is gone holds nothing");
    }
}
