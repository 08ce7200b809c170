//! Bringing in what a store had when the task began, beside the rows, as long as there is room.
//!
//! Without it every new key would be asked for in the store for ever, though soon nothing may be left there that memory does not
//! have. The keys of each state are visited once, in the order of the store, and those that memory does not have come in as the keys
//! of a batch do: with all of their rows, as they are written now. It ends at the first key that leaves memory.

use levada_state::cold::{Scan, Scope, Within};

use arrow::record_batch::RecordBatch;

use super::{ByKey, KeyedRowStore};
use crate::error::EngineError;

/// Rows of the store whose keys are looked for at once.
const ROWS_AT_ONCE: usize = 512;

/// How far the visit is.
#[derive(Default)]
pub(super) struct Warming {
    /// The state that is visited.
    state: usize,
    scan: Option<Scan>,
    /// What was read and not looked at.
    left: Option<RecordBatch>,
}

impl std::fmt::Debug for Warming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Warming").field("state", &self.state).finish_non_exhaustive()
    }
}

impl KeyedRowStore {
    /// Brings in the keys of some further rows; answers whether more may be left.
    pub(in crate::operators) fn warm(&mut self, rows: &mut impl ByKey) -> Result<bool, EngineError> {
        let Some(mut warming) = self.warming.take().filter(|_| !self.is_short(rows)) else { return Ok(false) };
        if warming.state == rows.states() {
            self.is_whole = true;
            return Ok(false);
        }
        if warming.scan.is_none() {
            let state = rows.state(warming.state).0;
            warming.scan = Some(self.behind.scan(state, Scope { groups: self.key_groups, within: Within::Any })?);
        }
        let batch = match warming.left.take() {
            Some(batch) => Some(batch),
            None => warming.scan.as_mut().and_then(Iterator::next).transpose().map_err(|source| self.failed(source))?,
        };
        match batch {
            Some(batch) => {
                let now = batch.num_rows().min(ROWS_AT_ONCE);
                let keys = rows.key_columns(warming.state, &batch.slice(0, now));
                let now = self.load(rows, &keys, now)?;
                warming.left = (now < batch.num_rows()).then(|| batch.slice(now, batch.num_rows() - now));
            }
            None => warming = Warming { state: warming.state + 1, ..Warming::default() },
        }
        self.warming = Some(warming);
        Ok(true)
    }
}
