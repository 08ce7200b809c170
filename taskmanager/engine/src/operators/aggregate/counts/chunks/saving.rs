//! Snapshots of chunks, and restores from them.
//!
//! A chunk is saved as it was at the barrier: before it grows or goes, or by the cursor. Its number tells it from the others of its
//! group, so that they are put into their order again.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array};
use arrow::datatypes::Int64Type;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use levada_common::ids::CheckpointId;
use levada_common::keys::KeyGroupRange;
use levada_state::bits::Bits;
use levada_state::snapshot::{PieceSender, StatePart, pieces};

use super::super::super::panes::BACKGROUND_ROWS;
use super::super::super::restore::{refuse, restored_rows};
use super::*;
use crate::operator::RestoredState;

/// The snapshot that may be running.
#[derive(Debug, Default)]
pub(super) struct Saving {
    running: Option<(CheckpointId, PieceSender)>,
    /// Chunks that must be saved before they change, as they were at the barrier.
    unsaved: Vec<(u32, Chunk)>,
}

impl Saving {
    /// Notes a chunk that is going to change, if a running snapshot has still to save it.
    pub(super) fn touch(&mut self, frozen: &mut FrozenRows, id: u32, chunk: Chunk) {
        if frozen.take(id) {
            self.unsaved.push((id, chunk));
        }
    }
}

impl Chunks {
    /// The synchronous part of a snapshot. One that is still running is finished first.
    pub(in super::super) fn snapshot(&mut self, shape: &Shape, checkpoint: CheckpointId) -> Vec<StatePart> {
        while self.saving.running.is_some() {
            self.save(shape);
        }
        let mut live = Bits::ones(self.chunks.len());
        self.free.iter().for_each(|free| live.clear(*free));
        self.frozen.resize(self.chunks.len());
        self.frozen.freeze_these(live.words());
        let (sender, reader) = pieces();
        self.saving.running = Some((checkpoint, sender));
        self.save(shape);
        let values = self.values.as_mut().map(|values| values.snapshot(shape, &self.keys, checkpoint));
        std::iter::once(shape.part(reader.into())).chain(values.into_iter().flatten()).collect()
    }

    /// Saves a further piece of a running snapshot, none while the background has enough to do; answers whether more remain.
    pub(in super::super) fn save_next(&mut self, shape: &Shape) -> bool {
        let values_remain = self.values.as_mut().is_some_and(|values| values.save_next(shape, &self.keys));
        match &self.saving.running {
            None => return values_remain,
            Some((checkpoint, sender)) if sender.is_abandoned() => self.abandon(*checkpoint),
            Some((_, sender)) if sender.is_full() => {}
            Some(_) => self.save(shape),
        }
        self.saving.running.is_some() | values_remain
    }

    /// Takes some values of chunks that are gone out; answers whether more remain.
    pub(in super::super) fn bury(&mut self) -> bool {
        self.values.as_mut().is_some_and(|values| values.bury(BACKGROUND_ROWS))
    }

    /// Gives the snapshot of this checkpoint up, if it is running.
    pub(in super::super) fn abandon(&mut self, checkpoint: CheckpointId) {
        self.values.iter_mut().for_each(|values| values.abandon(checkpoint));
        if self.saving.running.take_if(|(running, _)| *running == checkpoint).is_some() {
            self.frozen.abandon();
        }
    }

    /// Takes what was in the snapshot that the task starts from.
    pub(in super::super) fn restore(
        &mut self,
        shape: &Shape,
        key_groups: KeyGroupRange,
        restored: Vec<RestoredState>,
    ) -> Result<(), EngineError> {
        let of_values = |state: &RestoredState| shape.sets.as_ref().is_some_and(|sets| sets.has_state(&state.name));
        let (of_values, restored): (Vec<_>, Vec<_>) = restored.into_iter().partition(of_values);
        let mut found = Vec::new();
        for mut rows in restored_rows(shape, key_groups, restored)? {
            let counts = rows.states.split_off(rows.states.len() - 2);
            let [numbers, lengths] = [0, 1].map(|at| counts[at].as_primitive::<Int64Type>().values().clone());
            self.intern(&rows.keys, rows.rows);
            for (row, group) in self.ids.iter().enumerate() {
                let length = self.lengths.chunk(shape, lengths[row])?;
                found.push((*group, numbers[row], length, self.chunks.len() as u32));
                self.chunks.push(Chunk { group: *group, newer: NONE, number: numbers[row], rows: length });
            }
            let ids: Vec<u32> = ((self.chunks.len() - rows.rows) as u32..self.chunks.len() as u32).collect();
            self.set.resize(self.chunks.len());
            self.set.assign(&ids, &rows.states);
        }
        self.frozen.resize(self.chunks.len());
        found.sort_unstable();
        found.into_iter().try_for_each(|(group, _, rows, id)| self.link_restored(shape, group, rows, id))?;
        let Self { values: Some(values), keys, groups, chunks, .. } = self else { return Ok(()) };
        for rows in values.restored(shape, (key_groups, &of_values))? {
            values.restore(shape, keys, &rows, |group, number| chunk_of(groups, chunks, group, number))?;
        }
        values.settle();
        Ok(())
    }

    /// Puts a restored chunk behind those of its group.
    ///
    /// Errors: its window would be full already, or a chunk before it is not.
    pub(super) fn link_restored(&mut self, shape: &Shape, group: u32, rows: u32, id: u32) -> Result<(), EngineError> {
        let of_group = &mut self.groups[group as usize];
        let newest = self.chunks.get(of_group.newest as usize);
        let follows_full = newest.is_none_or(|chunk| chunk.rows == self.lengths.chunk_rows);
        of_group.chunks += 1;
        let is_full = of_group.chunks == self.lengths.window_chunks && rows == self.lengths.chunk_rows;
        if !follows_full || is_full || of_group.chunks > self.lengths.window_chunks {
            let reason =
                "it has chunks of rows that are not those of this window; restore with the window's size and slide as they were";
            return Err(refuse(shape, shape.state_name(), reason));
        }
        match of_group.newest {
            NONE => of_group.oldest = id,
            newest => self.chunks[newest as usize].newer = id,
        }
        of_group.newest = id;
        if let Some(values) = &mut self.values {
            values.open(id, Owner { key: group, place: self.chunks[id as usize].number });
        }
        Ok(())
    }

    /// Sends what must be saved before it changes.
    pub(super) fn send_unsaved(&mut self, shape: &Shape, store: Option<&mut KeyedRowStore>) -> Result<(), EngineError> {
        if self.saving.unsaved.is_empty() {
            return Ok(());
        }
        let (ids, chunks): (Vec<u32>, Vec<Chunk>) = self.saving.unsaved.drain(..).unzip();
        match (&self.saving.running, store) {
            (_, Some(store)) => self.send_entries(store, &ids, &chunks)?,
            (Some((_, sender)), None) => sender.send(self.piece(shape, &ids, &chunks)),
            (None, None) => {}
        }
        Ok(())
    }

    /// Saves further chunks as one piece.
    fn save(&mut self, shape: &Shape) {
        let Some((checkpoint, sender)) = self.saving.running.take() else { return };
        let mut ids = Vec::new();
        self.frozen.take_next(BACKGROUND_ROWS, &mut ids);
        let chunks: Vec<Chunk> = ids.iter().map(|id| self.chunks[*id as usize]).collect();
        sender.send(self.piece(shape, &ids, &chunks));
        match self.frozen.is_running() {
            true => self.saving.running = Some((checkpoint, sender)),
            false => sender.finish(),
        }
    }

    /// The saved rows of these chunks, which were like this.
    fn piece(&self, shape: &Shape, ids: &[u32], chunks: &[Chunk]) -> RecordBatch {
        let Saved { keys, numbers, states, lengths } = self.saved(ids, chunks);
        let columns = keys.into_iter().chain(states).chain([numbers, lengths]).collect();
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        RecordBatch::try_new_with_options(Arc::clone(&shape.pieces), columns, &options).expect("states have the planned columns")
    }
    /// What is saved of these chunks, which were like this.
    pub(super) fn saved(&self, ids: &[u32], chunks: &[Chunk]) -> Saved {
        let groups: Vec<u32> = chunks.iter().map(|chunk| chunk.group).collect();
        Saved {
            keys: self.keys.keys(Rows::Ids(&groups)),
            numbers: Arc::new(Int64Array::from_iter_values(chunks.iter().map(|chunk| chunk.number))),
            states: self.set.states(Rows::Ids(ids)),
            lengths: Arc::new(Int64Array::from_iter_values(chunks.iter().map(|chunk| i64::from(chunk.rows)))),
        }
    }
}

/// The group's chunk of this number, if it has one.
pub(super) fn chunk_of(groups: &[Group], chunks: &[Chunk], group: u32, number: i64) -> Option<u32> {
    let some = |chunk: u32| (chunk != NONE).then_some(chunk);
    let mut of_group = std::iter::successors(some(groups[group as usize].oldest), |at| some(chunks[*at as usize].newer));
    of_group.find(|at| chunks[*at as usize].number == number)
}

/// What is saved of chunks, by columns.
pub(super) struct Saved {
    pub(super) keys: Vec<ArrayRef>,
    pub(super) numbers: ArrayRef,
    pub(super) states: Vec<ArrayRef>,
    pub(super) lengths: ArrayRef,
}

impl Lengths {
    /// The rows of a restored chunk.
    ///
    /// Errors: `Restore` where they are none, or more than a chunk has.
    pub(super) fn chunk(&self, shape: &Shape, rows: i64) -> Result<u32, EngineError> {
        let fits = u32::try_from(rows).ok().filter(|rows| (1..=self.chunk_rows).contains(rows));
        fits.ok_or_else(|| {
            let reason = format!("it has {rows} rows in a chunk of {}", self.chunk_rows);
            refuse(shape, shape.state_name(), reason)
        })
    }
}
