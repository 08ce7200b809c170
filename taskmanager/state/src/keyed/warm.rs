//! Bringing in what a store had when the task began, beside the rows, as long as there is room.
//!
//! Without it every new key would be asked for in the store for ever, though soon nothing may be left there that memory does not
//! have. So each state is read once, in the order of the store, a batch at a time; at its end the table is whole and nobody asks.
//! What the table has wins over what is read, and no key may leave memory meanwhile, or the view that is read would bring an old
//! value back: the first that goes ends it. Lists are left out: one that is read half must not be seen.

use crate::bits::Bits;
use crate::cold::{Scan, Scope, Within};

use super::error::StateResult;
use super::overlay::failed;
use super::state::KeyedState;

/// How far the visit is.
#[derive(Default)]
pub(super) struct Warming {
    /// The state that is read, or is the next.
    state: usize,
    scan: Option<Scan>,
    /// Rows of the state that came out of the store.
    absent: Bits,
    /// All states were read, or a key has left memory.
    is_over: bool,
}

impl Warming {
    /// A key leaves memory, or there is no room for more, or nothing is left to be read.
    pub(super) fn end(&mut self) {
        *self = Self { is_over: true, ..Self::default() };
    }
}

impl std::fmt::Debug for Warming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warming").field("state", &self.state).field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

impl KeyedState {
    /// Brings in a further batch; answers whether more may be left.
    pub(super) fn warm(&mut self) -> StateResult<bool> {
        if self.overlay.as_ref().is_none_or(|overlay| overlay.warming.is_over) {
            return Ok(false);
        }
        let is_short = self.is_short();
        let Some(overlay) = &mut self.overlay else { return Ok(false) };
        if is_short {
            overlay.warming.end();
            return Ok(false);
        }
        // States are opened with the first batch, when it is known what time it is.
        if self.states.iter().any(|bound| bound.state.rows().cold_state().is_none()) {
            return Ok(false);
        }
        if overlay.warming.scan.is_none() && !self.begin_next()? {
            return Ok(false);
        }
        self.read_next()
    }

    /// Begins to read the next state that is not whole; answers whether there is one.
    fn begin_next(&mut self) -> StateResult<bool> {
        let groups = self.options.key_groups;
        let Self { overlay: Some(overlay), states, .. } = self else { return Ok(false) };
        while let Some(bound) = states.get_mut(overlay.warming.state) {
            let rows = bound.state.rows_mut();
            let is_whole = rows.cold().is_none_or(|cold| cold.is_whole);
            if let Some(state) = rows.cold_state().filter(|_| !is_whole && !rows.holds_lists()) {
                let scan = overlay.scan(&rows.info().name, state, Scope { groups, within: Within::Any })?;
                (overlay.warming.scan, overlay.warming.absent) = (Some(scan), Bits::default());
                return Ok(true);
            }
            overlay.warming.state += 1;
        }
        overlay.warming.end();
        Ok(false)
    }

    /// Takes the next batch of the state in.
    fn read_next(&mut self) -> StateResult<bool> {
        let Self { overlay: Some(overlay), states, .. } = self else { return Ok(false) };
        let state = overlay.warming.state;
        let Some(batch) = overlay.warming.scan.as_mut().and_then(Iterator::next) else {
            overlay.warming.scan = None;
            overlay.warming.state += 1;
            states[state].state.rows_mut().cold().into_iter().for_each(|cold| cold.is_whole = true);
            return Ok(true);
        };
        let batch = batch.map_err(|source| failed(&states[state].state.rows().info().name, source))?;
        let mut absent = std::mem::take(&mut overlay.warming.absent);
        self.take_scanned(state, &batch, &mut absent)?;
        if let Some(overlay) = &mut self.overlay {
            overlay.warming.absent = absent;
        }
        Ok(true)
    }
}
