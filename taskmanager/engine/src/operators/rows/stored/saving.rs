//! What goes to the store: generations of what has changed, with snapshots or without.
//!
//! A barrier that comes while a generation is being sent puts what has changed since behind it; so what the store passes through is
//! what was true at one moment after the other.

use std::sync::Arc;

use levada_common::ids::CheckpointId;
use levada_state::cold::{Change, ColdStateId, Phase};
use levada_state::snapshot::{Contents, StatePart};

use super::{ByKey, KeyedRowStore};
use crate::error::EngineError;

/// Rows that are sent after a batch while memory is short.
const SENT_ROWS: usize = 16_384;

/// Rows that are sent beside the rows, in about a quarter of a millisecond.
const BACKGROUND_ROWS: usize = 2048;

impl KeyedRowStore {
    /// The synchronous part of a snapshot: a part for each state. One that is still being sent is sent whole first.
    pub(in crate::operators) fn snapshot(
        &mut self,
        rows: &mut impl ByKey,
        checkpoint: CheckpointId,
    ) -> Result<Vec<StatePart>, EngineError> {
        while self.checkpoint.is_some() {
            self.send(rows, SENT_ROWS)?;
        }
        let database = self.behind.begin_snapshot();
        self.checkpoint = Some(checkpoint);
        self.freeze(rows)?;
        self.send(rows, BACKGROUND_ROWS)?;
        let states = 0..rows.states();
        let part = |at| StatePart { meta: rows.state(at).1.clone(), contents: Contents::Database(Arc::clone(&database)) };
        Ok(states.map(part).collect())
    }

    /// Gives the snapshot of this checkpoint up, if it is being sent; what changed is sent all the same.
    pub(in crate::operators) fn abandon(&mut self, checkpoint: CheckpointId) {
        if self.checkpoint.take_if(|running| *running == checkpoint).is_some() {
            self.behind.write_back.abandon_snapshot();
        }
    }

    /// A bounded piece of what waits beside the rows; answers whether more remains.
    pub(in crate::operators) fn background(&mut self, rows: &mut impl ByKey) -> Result<bool, EngineError> {
        // A failure of the background is heard of here, whether rows come or not.
        if !matches!(self.behind.write_back.look().map_err(|source| self.failed(source))?, Phase::Sending { .. }) {
            return self.warm(rows);
        }
        if self.behind.takes_more()? {
            self.send(rows, BACKGROUND_ROWS)?;
        }
        Ok(self.is_sending())
    }

    /// Begins to send what has changed. Keys that are not used until it is written go first then.
    pub(super) fn begin_generation(&mut self, rows: &mut impl ByKey) -> Result<(), EngineError> {
        self.behind.write_back.begin_generation();
        self.used.clear_all();
        self.freeze(rows)
    }

    /// Sends some more while memory is short, none while the store has enough to do.
    pub(super) fn send_some(&mut self, rows: &mut impl ByKey) -> Result<(), EngineError> {
        if self.behind.takes_more()? { self.send(rows, SENT_ROWS) } else { Ok(()) }
    }

    /// Sends an entry that is being sent, as it was, before it changes.
    pub(in crate::operators) fn send_now(&mut self, state: ColdStateId, change: Change) -> Result<(), EngineError> {
        self.behind.change(state, change)
    }

    /// Sends what has changed, waits until it is written, and lets keys go until there is room: only before rows come.
    pub(in crate::operators) fn settle(&mut self, rows: &mut impl ByKey) -> Result<(), EngineError> {
        if !self.is_short(rows) {
            return Ok(());
        }
        self.begin_generation(rows)?;
        while self.is_sending() {
            self.send(rows, SENT_ROWS)?;
        }
        self.behind.wait()?;
        self.make_room(rows)
    }

    pub(super) fn is_sending(&self) -> bool {
        matches!(self.behind.write_back.phase(), Phase::Sending { .. })
    }

    fn freeze(&mut self, rows: &mut impl ByKey) -> Result<(), EngineError> {
        self.dirty.clear_all();
        self.leaving.unite(&self.emptied);
        self.emptied.clear_all();
        rows.freeze()
    }

    /// Sends about so many rows of what is being sent.
    pub(super) fn send(&mut self, rows: &mut impl ByKey, rows_max: usize) -> Result<(), EngineError> {
        let mut sent = 0;
        for at in 0..rows.states() {
            while sent < rows_max
                && let Some((count, change)) = rows.next_change(at, rows_max - sent)?
            {
                sent += count;
                self.send_now(rows.state(at).0, change)?;
            }
        }
        if (0..rows.states()).all(|at| rows.is_sent(at)) {
            self.checkpoint = None;
            self.behind.end_generation();
        }
        Ok(())
    }
}
