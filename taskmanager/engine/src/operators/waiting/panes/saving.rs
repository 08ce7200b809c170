//! What is being sent to the store: a snapshot, or rows that are to leave memory. And snapshots of panes without a store, which are
//! references to their rows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, BooleanArray, Int64Array};
use levada_common::ids::CheckpointId;
use levada_common::planned_state::ROW_NUMBERS;
use levada_state::snapshot::{Contents, StatePart, ready};

use super::super::save;
use super::{Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operators::event_time::number_part;
use crate::operators::rows::Part;

/// Rows that are sent between two batches beside a snapshot, about a quarter of a millisecond.
const BACKGROUND_ROWS: usize = 4096;

/// Rows of a place, at least one.
struct Unsent {
    place: Place,
    rows: UnsentRows,
}

enum UnsentRows {
    /// Rows that memory has, and which of them were marked when they were to be sent.
    New { rows: Range<usize>, marks: Option<(usize, BooleanArray)> },
    /// Rows that memory has and that were marked after they had been sent.
    Remarked(Vec<u32>),
    /// Rows that only the store has and that were marked.
    Touched(Range<usize>),
}

/// What is being sent.
#[derive(Default)]
pub(super) struct Saving {
    /// The checkpoint that it is for, if it is for one.
    checkpoint: Option<CheckpointId>,
    rest: VecDeque<Unsent>,
}

impl<W: Waiting> Panes<W> {
    /// The synchronous part of a snapshot: a part for each side, and how rows are numbered.
    pub(in crate::operators) fn snapshot(
        &mut self,
        owner: &W::Owner,
        checkpoint: CheckpointId,
    ) -> Result<Vec<StatePart>, EngineError> {
        let part = |at: usize, contents| StatePart { meta: owner.sides()[at].state.clone(), contents };
        let sides = 0..owner.sides().len();
        if self.store.is_none() {
            let mut parts = Vec::new();
            for at in sides {
                let mut pieces = Vec::new();
                for (_, kept) in self.kept.iter().filter(|((_, side), _)| *side == at) {
                    save(&owner.sides()[at], kept.rows.rows(), kept.rows.marks(), &mut pieces);
                }
                parts.push(part(at, ready(pieces).into()));
            }
            return Ok(parts);
        }
        if self.saving.as_ref().is_some_and(|saving| saving.checkpoint.is_some()) {
            self.send_all(owner)?;
        }
        let Some(store) = &mut self.store else { return Ok(Vec::new()) };
        let database = store.behind.begin_snapshot();
        self.saving.get_or_insert_default().checkpoint = Some(checkpoint);
        self.send_all_later();
        let mut parts: Vec<StatePart> = sides.map(|at| part(at, Contents::Database(Arc::clone(&database)))).collect();
        let numbers_end = self.store.as_ref().map_or(0, |store| store.numbers_end);
        parts.extend(number_part(owner.uid(), ROW_NUMBERS, numbers_end));
        self.send(owner, BACKGROUND_ROWS)?;
        Ok(parts)
    }

    /// Begins to send rows that are to leave memory.
    ///
    /// Contract: nothing is being sent.
    pub(super) fn begin_generation(&mut self) {
        if let Some(store) = &mut self.store {
            store.behind.write_back.begin_generation();
            self.saving = Some(Saving::default());
        }
    }

    /// Has everything sent that the store does not have.
    ///
    /// Contract: something is being sent.
    pub(super) fn send_all_later(&mut self) {
        let all: Vec<Place> = self.kept.keys().copied().collect();
        all.into_iter().for_each(|place| self.send_later(place));
        self.send_touched_later();
    }

    /// Likewise what memory has of one place.
    pub(super) fn send_later(&mut self, place: Place) {
        let (Some(saving), Some(store)) = (&mut self.saving, &mut self.store) else { return };
        let Some(kept) = self.kept.get_mut(&place) else { return };
        if !kept.remarked.is_empty() {
            let remarked = UnsentRows::Remarked(std::mem::take(&mut kept.remarked));
            saving.rest.push_back(Unsent { place, rows: remarked });
        }
        let rows = kept.sent..kept.len();
        if !rows.is_empty() {
            let marks = kept.rows.marks().map(|marks| (rows.start, marks.column(rows.start, rows.len())));
            kept.sent = rows.end;
            store.numbers_end = store.numbers_end.max(kept.first + rows.end as i64);
            saving.rest.push_back(Unsent { place, rows: UnsentRows::New { rows, marks } });
        }
    }

    /// Likewise the marks of rows that only the store has.
    pub(super) fn send_touched_later(&mut self) {
        let Some(saving) = &mut self.saving else { return };
        for (place, touched) in &mut self.touched {
            let rows = touched.sent..touched.numbers.len();
            touched.sent = rows.end;
            if !rows.is_empty() {
                saving.rest.push_back(Unsent { place: *place, rows: UnsentRows::Touched(rows) });
            }
        }
    }

    /// Sends a further piece of what is being sent, none while the store has enough to do; answers whether more remain.
    pub(in crate::operators) fn background(&mut self, owner: &W::Owner) -> Result<bool, EngineError> {
        self.send_more(owner, BACKGROUND_ROWS)
    }

    /// Sends about so many rows, if the store takes them; answers whether more remain.
    pub(super) fn send_more(&mut self, owner: &W::Owner, rows_max: usize) -> Result<bool, EngineError> {
        let Some(store) = self.store.as_mut().filter(|_| self.saving.is_some()) else { return Ok(false) };
        if store.behind.takes_more()? {
            self.send(owner, rows_max)?;
        }
        Ok(self.saving.is_some())
    }

    /// Sends all that is left of what is being sent.
    pub(super) fn send_all(&mut self, owner: &W::Owner) -> Result<(), EngineError> {
        self.send(owner, usize::MAX)
    }

    fn send(&mut self, owner: &W::Owner, rows_max: usize) -> Result<(), EngineError> {
        let mut sent = 0;
        while sent < rows_max
            && let Some(unsent) = self.saving.as_mut().and_then(|saving| saving.rest.pop_front())
        {
            sent += self.send_piece(owner, unsent)?;
        }
        if let (Some(_), Some(store)) = (self.saving.take_if(|saving| saving.rest.is_empty()), &mut self.store) {
            store.behind.end_generation();
        }
        Ok(())
    }

    /// Sends the first of these rows, and puts the others back; answers how many were sent.
    fn send_piece(&mut self, owner: &W::Owner, Unsent { place, rows }: Unsent) -> Result<usize, EngineError> {
        let (Some(saving), Some(store)) = (&mut self.saving, &mut self.store) else { return Ok(0) };
        let (kept, touched) = (self.kept.get(&place), self.touched.get(&place));
        let side = &owner.sides()[place.1];
        let kernel = |source| owner.kernel(source);
        let mut put_back = |rows| saving.rest.push_front(Unsent { place, rows });
        let (numbers, columns, marks): (Int64Array, _, _) = match rows {
            UnsentRows::New { rows, marks } => {
                let Some((kept, part)) = kept.and_then(|kept| Some((kept, kept.rows.rows().parts(rows.clone()).next()?))) else {
                    return Ok(0);
                };
                let (first, columns) = part.map_err(kernel)?;
                let count = columns[0].len();
                let of_part = marks.as_ref().map(|(start, marks)| marks.slice(first - start, count));
                if first + count < rows.end {
                    put_back(UnsentRows::New { rows: first + count..rows.end, marks });
                }
                let number = kept.first + first as i64;
                ((number..number + count as i64).collect(), columns, of_part)
            }
            UnsentRows::Remarked(mut rows) => {
                let Some(kept) = kept else { return Ok(0) };
                let rest = rows.split_off(rows.len().min(BACKGROUND_ROWS));
                if !rest.is_empty() {
                    put_back(UnsentRows::Remarked(rest));
                }
                let columns = side.gather(&Part::kept(kept.rows.rows(), &rows), rows.len()).map_err(kernel)?;
                let marks = BooleanArray::from(vec![true; rows.len()]);
                (rows.iter().map(|row| kept.first + i64::from(*row)).collect(), columns, Some(marks))
            }
            UnsentRows::Touched(rows) => {
                let part = touched.and_then(|touched| Some((touched, touched.rows.parts(rows.clone()).next()?)));
                let Some((touched, part)) = part else { return Ok(0) };
                let (first, columns) = part.map_err(kernel)?;
                let end = first + columns[0].len();
                if end < rows.end {
                    put_back(UnsentRows::Touched(end..rows.end));
                }
                let marks = BooleanArray::from(vec![true; end - first]);
                (touched.numbers[first..end].iter().copied().collect(), columns, Some(marks))
            }
        };
        store.upsert((place, side), numbers, &columns, marks)?;
        Ok(columns[0].len())
    }

    /// Gives the snapshot of this checkpoint up, if it is running. What the store gets of it is sent all the same.
    pub(in crate::operators) fn abandon(&mut self, checkpoint: CheckpointId) {
        if let Some(saving) = self.saving.as_mut().filter(|saving| saving.checkpoint == Some(checkpoint))
            && let Some(store) = &mut self.store
        {
            saving.checkpoint = None;
            store.behind.write_back.abandon_snapshot();
        }
    }
}
