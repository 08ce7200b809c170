//! Rows that come: kept, put into their groups, and what was answered for each is done.

use std::collections::HashSet;

use super::placing::window_column;
use super::stored::window_columns;
use super::{Arrival, Contents, Entries, FunctionRows, Place};
use crate::error::EngineError;
use crate::function::TriggerResult;

impl FunctionRows {
    /// Takes rows into their groups. Where more is away of those that fire than may come in at once, part by part.
    pub(super) fn take_all(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError> {
        let parts = self.parts(entries, answers);
        if let [(_, coming)] = parts.as_slice() {
            self.bring_in_away(place, coming)?;
            return self.take_part(place, arrival, entries, answers);
        }
        let mut start = 0;
        for (end, coming) in parts {
            self.bring_in_away(place, &coming)?;
            self.take_part(place, arrival, &entries.part(start..end), &answers[start..end])?;
            self.flush(place)?;
            if let Some((store, mut rows)) = self.before(place.groups.numbers()) {
                store.let_go(&mut rows, &coming);
            }
            self.tidy_rows()?;
            start = end;
        }
        Ok(())
    }

    /// Keeps the rows, and answers their numbers.
    fn keep(&mut self, place: &Place<'_>, arrival: &Arrival, entries: &Entries) -> Result<Vec<u32>, EngineError> {
        let mut columns = entries.columns(&arrival.kept).map_err(|source| self.shape.kernel(source))?;
        let (held, groups, mut numbers) = (&mut self.held[arrival.input], place.groups.numbers(), Vec::new());
        let kept = if let Some(stored) = &mut held.stored {
            let of = entries.groups.iter().map(|group| place.groups.get(*group));
            columns.extend(window_columns(self.is_session, of));
            columns.push(stored.numbers(entries.rows.len()));
            held.push_stored(&columns, groups, &mut numbers)
        } else {
            if self.shape.series.is_some() {
                columns.push(window_column(&entries.windows));
            }
            held.push(&columns, groups, &mut numbers)
        };
        kept.map_err(|source| self.shape.kernel(source))?;
        self.note_live(place, &entries.groups);
        Ok(numbers)
    }

    /// Takes rows into their groups, and does what was answered for each. What is away of those that fire comes in as they do, where it
    /// is not there yet.
    fn take_part(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError> {
        let (input, numbers) = (arrival.input, self.keep(place, arrival, entries)?);
        for (at, (group, number)) in entries.groups.iter().zip(numbers).enumerate() {
            // Which of its rows stay is known when the evictor was asked.
            if self.evictor.is_some() && self.firing.has(*group) {
                self.flush(place)?;
            }
            self.held[input].append(*group, number);
            if answers[at] != TriggerResult::Continue {
                self.answer(place, *group, entries.windows[at], answers[at])?;
            }
        }
        Ok(())
    }

    /// Behind which of these rows groups fire of which so much is away that it should go before more comes in; the last is the end of all.
    fn parts(&self, entries: &Entries, answers: &[TriggerResult]) -> Vec<(usize, Vec<u32>)> {
        let (mut parts, mut coming, at_once) = (Vec::new(), HashSet::new(), self.groups_at_once());
        for (at, group) in entries.groups.iter().enumerate() {
            if !answers[at].fires() || !self.is_away(*group) || coming.contains(group) {
                continue;
            }
            if coming.len() >= at_once {
                parts.push((at, coming.drain().collect()));
            }
            coming.insert(*group);
        }
        parts.push((entries.groups.len(), coming.into_iter().collect()));
        parts
    }
}
