//! Making room in front of a store: rows that it has go, those of whole panes; first those that are needed last.

use std::sync::Arc;

use super::touched::Touched;
use super::{Kept, Panes, Place, Waiting, WaitingOwner};
use crate::error::EngineError;
use crate::operators::behind::Due;

/// Rows that are sent after a batch while memory is short.
const SENT_ROWS: usize = 16_384;

impl<W: Waiting> Panes<W> {
    /// Whether there is room for another batch. Where there is none the store is writing: it wakes the task when it is done.
    pub(in crate::operators) fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.store.as_mut().map_or(Ok(true), |store| store.behind.is_ready(self.held_bytes))
    }

    /// To be called after each batch, when it was counted: sends and forgets what is due where memory is short.
    ///
    /// Contract: nothing is being read.
    pub(in crate::operators) fn make_room(&mut self, owner: &W::Owner) -> Result<(), EngineError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        match store.behind.due(self.held_bytes)? {
            Due::Nothing => return Ok(()),
            Due::Send => {}
            Due::Room => {
                let target_bytes = store.behind.write_back.target_bytes();
                self.forget(owner, target_bytes)?;
                if self.held_bytes <= target_bytes {
                    return Ok(());
                }
                self.begin_generation();
                let mut leaving_bytes = self.touched.values().map(Touched::memory_bytes).sum::<usize>();
                self.send_touched_later();
                for place in self.leaving_order() {
                    if self.held_bytes.saturating_sub(leaving_bytes) <= target_bytes {
                        break;
                    }
                    leaving_bytes += self.kept.get(&place).map_or(0, |kept| kept.rows.memory_bytes());
                    self.send_later(place);
                }
            }
        }
        self.send_more(owner, SENT_ROWS).map(drop)
    }

    /// Sends everything, waits until it is written, and forgets it where memory is short: only before rows come.
    pub(super) fn settle(&mut self, owner: &W::Owner) -> Result<(), EngineError> {
        self.held_bytes = self.kept.values().map(|kept| kept.rows.memory_bytes()).sum();
        if !self.store.as_ref().is_some_and(|store| store.behind.is_short(self.held_bytes)) {
            return Ok(());
        }
        self.begin_generation();
        self.send_all_later();
        self.send_all(owner)?;
        self.store.as_mut().map_or(Ok(()), |store| store.behind.wait())?;
        self.forget(owner, 0)
    }

    /// Every pane and side in memory, the first to leave first.
    fn leaving_order(&self) -> Vec<Place> {
        let mut order: Vec<Place> = self.kept.keys().copied().collect();
        if !W::OLDEST_LEAVE {
            order.reverse();
        }
        order
    }

    /// Forgets rows that the store has until no more than `target_bytes` are held, as far as there are such.
    ///
    /// Contract: nothing is being sent or written.
    fn forget(&mut self, owner: &W::Owner, target_bytes: usize) -> Result<(), EngineError> {
        for ((_, side), touched) in &mut self.touched {
            if let Some(store) = &mut self.store {
                let before = touched.memory_bytes();
                touched.forget_sent(owner, *side, store)?;
                self.held_bytes = (self.held_bytes + touched.memory_bytes()).saturating_sub(before);
            }
        }
        self.touched.retain(|_, touched| !touched.numbers.is_empty());
        for place in self.leaving_order() {
            if self.held_bytes <= target_bytes {
                break;
            }
            let Some(kept) = self.kept.get(&place) else { continue };
            // Where few of the rows were sent it is not worth while to copy the others.
            if kept.sent == 0 || kept.sent * 2 < kept.len() {
                continue;
            }
            self.touch_remarked(owner, place)?;
            let (Some(store), Some(kept)) = (&mut self.store, self.kept.get_mut(&place)) else { continue };
            let mut rest = W::new(owner, place.1);
            for part in kept.rows.rows().parts(kept.sent..kept.len()) {
                let (first, columns) = part.map_err(|source| owner.kernel(source))?;
                let marks = kept.rows.marks().map(|marks| marks.column(first, columns[0].len()));
                rest.push(owner, place.1, &columns, marks.as_ref()).map_err(|source| owner.kernel(source))?;
            }
            let first = kept.first + kept.sent as i64;
            store.has_beyond(place, first);
            self.held_bytes = (self.held_bytes + rest.memory_bytes()).saturating_sub(kept.rows.memory_bytes());
            *kept = Kept { rows: Arc::new(rest), first, sent: 0, remarked: Vec::new() };
        }
        self.kept.retain(|_, kept| kept.len() > 0);
        Ok(())
    }
}
