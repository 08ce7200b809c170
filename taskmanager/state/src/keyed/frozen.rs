//! A table's side of its snapshots: *save before first change*, and a cursor for the rest.
//!
//! Before a row changes for the first time after a barrier, what stood in it goes into the next piece, a list into a buffer; both
//! leave when they are full, when keys are to be forgotten, and at the end. A list is
//! never copied because it grows: its length at the barrier is noted, and what stood there then still stands there. A list of
//! any length leaves in pieces of bounded size. Must never know where pieces go.

use crate::cold::Change;
use crate::freeze::FrozenRows;
use crate::key_index::KeyIndex;
use crate::snapshot::PieceSender;
use crate::types::{StateType, TypeError};

use super::at::Namespace;
use super::cell::Cell;
use super::piece::{AddressBuilder, Owner, PIECE_ITEMS_MAX, PieceBuilder};
use super::row_index::RowIndex;
use super::stored_list::StoredList;
use super::table::Table;

/// Rows looked at for each item that may be saved: empty ones cost little, but not nothing.
const LOOKS_PER_ITEM: usize = 8;

/// What a running snapshot still has to save, and what it has saved.
pub(crate) struct Frozen<M: StateType, C: Cell> {
    rows: FrozenRows,
    /// Number of the barrier, from 1.
    epoch: u32,
    sink: Option<Sink>,
    /// What goes to the cold store, until it is taken.
    outbox: Vec<Change>,
    /// What stood in rows that have changed.
    values: Option<Values<M, C::Item>>,
    /// Likewise, as much as a piece has.
    full: Vec<Values<M, C::Item>>,
    /// How many values were in the last piece of such that was sent.
    values_before: usize,
    /// Lists that stood in rows that have changed.
    saved: Vec<Saved<M, C>>,
    saved_bytes: usize,
    /// Rows that were saved before they changed since the cursor went on.
    since_cursor: usize,
    /// A list of which only a part has left.
    partial: Option<(u32, Span)>,
    /// What was touched at this time or before had expired at the barrier.
    expired_up_to: Option<i64>,
}

/// Where what was saved goes.
enum Sink {
    /// Into a snapshot: what is there.
    Pieces(PieceSender),
    /// Into a cold store: what has changed, and what is gone.
    Store,
}

/// Values as they were at the barrier, and which rows had none any more.
struct Values<M: StateType, T: StateType> {
    piece: PieceBuilder<M, T>,
    gone: AddressBuilder<M>,
}

/// A list as it was at the barrier.
struct Saved<M, C> {
    key: u32,
    namespace: Option<Namespace>,
    map_key: M,
    cell: C,
    span: Span,
    stamp: i64,
}

/// Items of a cell: those from `from` up to, not including, `to`.
#[derive(Debug, Clone, Copy)]
struct Span {
    /// The place of the cell's first item, whether it is of the span or not.
    first: i64,
    from: usize,
    to: usize,
    /// The store has to forget what it has of the row before it takes the items.
    clears: bool,
}

impl<M: StateType, C: Cell> Default for Frozen<M, C> {
    fn default() -> Self {
        Self {
            rows: FrozenRows::new(),
            epoch: 0,
            sink: None,
            outbox: Vec::new(),
            values: None,
            full: Vec::new(),
            values_before: 0,
            saved: Vec::new(),
            saved_bytes: 0,
            since_cursor: 0,
            partial: None,
            expired_up_to: None,
        }
    }
}

impl<M: StateType, C: Cell> Frozen<M, C> {
    /// Whether a snapshot is running.
    #[inline]
    pub(super) fn is_running(&self) -> bool {
        self.sink.is_some()
    }

    /// Number of the last barrier.
    #[inline]
    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether the running snapshot has saved nothing of this row yet and has to.
    #[inline]
    pub(super) fn must_save(&self, row: u32) -> bool {
        self.rows.is_unsaved(row)
    }

    /// Whether the running snapshot has still to read this row.
    pub(super) fn needs(&self, row: u32) -> bool {
        self.rows.is_unsaved(row) || self.partial.is_some_and(|(partial, _)| partial == row)
    }

    /// Whether something waits to be sent: as many rows as `at_least`, or a full piece. Their keys are known by id only.
    pub(super) fn is_due(&self, at_least: usize) -> bool {
        let of_values = self.values.as_ref().map_or(0, |values| values.piece.len() + values.gone.len());
        !self.full.is_empty() || self.saved.len() + of_values >= at_least.max(1)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let values: usize = self.full.iter().chain(&self.values).map(|values| values.piece.bytes()).sum();
        self.rows.memory_bytes() + self.saved.capacity() * size_of::<Saved<M, C>>() + self.saved_bytes + values
    }

    /// What was sent to the store since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.outbox)
    }

    fn is_of_store(&self) -> bool {
        matches!(self.sink, Some(Sink::Store))
    }

    fn end(&mut self) -> Option<Sink> {
        self.values = None;
        self.full = Vec::new();
        self.values_before = 0;
        self.saved = Vec::new();
        self.saved_bytes = 0;
        self.since_cursor = 0;
        self.partial = None;
        self.sink.take()
    }
}

impl<I: RowIndex, C: Cell> Table<I, C> {
    /// Starts a snapshot of the rows that the table has now. One that is still running is finished first.
    pub(super) fn freeze(&mut self, keys: &KeyIndex, sender: PieceSender, expired_up_to: Option<i64>) -> Result<(), TypeError> {
        while self.frozen.is_running() {
            self.save_next(keys, PIECE_ITEMS_MAX)?;
        }
        let frozen = &mut self.frozen;
        frozen.rows.resize(self.cells.len());
        frozen.rows.freeze();
        frozen.epoch += 1;
        frozen.sink = Some(Sink::Pieces(sender));
        frozen.expired_up_to = expired_up_to;
        Ok(())
    }

    /// Starts sending what has changed to the cold store, as it is now; what was being sent and has not left goes with it.
    ///
    /// Contract: the table is in front of one.
    pub(super) fn freeze_dirty(&mut self, expired_up_to: Option<i64>) {
        let mut dirty = self.cold.as_mut().map(|cold| std::mem::take(&mut cold.dirty)).unwrap_or_default();
        let frozen = &mut self.frozen;
        // Rows that were saved before they changed have changed, so they are among the dirty ones.
        frozen.rows.take_rest(dirty.words_mut());
        if let Some((row, _)) = frozen.partial.take() {
            dirty.set_one(row);
        }
        frozen.end();
        frozen.rows.resize(self.cells.len());
        frozen.rows.freeze_these(dirty.words());
        frozen.epoch += 1;
        frozen.sink = Some(Sink::Store);
        frozen.expired_up_to = expired_up_to;
    }

    /// Saves about `items` further items, less those that were saved before they changed since the last call, and none while the
    /// background has enough to do; answers whether more remain.
    pub(super) fn advance(&mut self, keys: &KeyIndex, items: usize) -> Result<bool, TypeError> {
        let items = items.saturating_sub(std::mem::take(&mut self.frozen.since_cursor));
        match &self.frozen.sink {
            None => return Ok(false),
            Some(Sink::Pieces(sender)) if sender.is_abandoned() => self.abandon(),
            Some(Sink::Pieces(sender)) if sender.is_full() => return Ok(true),
            Some(_) if items == 0 => return Ok(true),
            Some(_) => self.save_next(keys, items)?,
        }
        Ok(self.frozen.is_running())
    }

    /// Gives the running snapshot up; its reader is told.
    pub(super) fn abandon(&mut self) {
        self.frozen.rows.abandon();
        self.frozen.end();
    }

    /// Sends what was saved before it changed.
    pub(super) fn flush_saved(&mut self, keys: &KeyIndex) -> Result<(), TypeError> {
        let values = std::mem::take(&mut self.frozen.full).into_iter().chain(self.frozen.values.take());
        for Values { piece, gone } in values {
            self.frozen.values_before = piece.len();
            self.send(piece, gone, keys)?;
        }
        let saved = std::mem::take(&mut self.frozen.saved);
        if saved.is_empty() {
            return Ok(());
        }
        self.frozen.saved_bytes = 0;
        let (mut piece, mut gone) = (self.piece(0), AddressBuilder::new());
        for Saved { key, namespace, map_key, cell, mut span, stamp } in saved {
            let owner = Owner { key, namespace, map_key: &map_key };
            if std::mem::take(&mut span.clears) {
                gone.push(&owner);
            }
            while push_items(&mut piece, &owner, &cell, &mut span, stamp, usize::MAX) {
                let (full, of_full) =
                    (std::mem::replace(&mut piece, self.piece(0)), std::mem::replace(&mut gone, AddressBuilder::new()));
                self.send(full, of_full, keys)?;
            }
        }
        self.send(piece, gone, keys)
    }

    /// The row has changed from `old` to what it is now.
    #[cold]
    pub(super) fn save_old(&mut self, row: u32, old: C) {
        if !C::IS_LIST {
            return self.save_value(row, Some(&old));
        }
        let Some(span) = self.take_span(row, Some(&old)) else { return };
        self.frozen.since_cursor += 1;
        let stamp = self.stamp_of(row);
        let map_key = self.index.map_key(row).clone();
        self.frozen.saved_bytes += old.heap_bytes() + if I::MapKey::ON_HEAP { map_key.heap_bytes() } else { 0 };
        let (key, namespace) = (self.index.key(row), self.index.namespace(row));
        self.frozen.saved.push(Saved { key, namespace, map_key, cell: old, span, stamp });
    }

    /// The row is about to change in place.
    #[cold]
    pub(super) fn save_copy(&mut self, row: u32) {
        if !C::IS_LIST {
            return self.save_value(row, None);
        }
        if self.frozen.needs(row) {
            let copy = self.cells[row as usize].clone();
            self.save_old(row, copy);
            if let Some(cold) = self.cold.as_mut().filter(|_| self.frozen.is_of_store()) {
                cold.list(row).copied();
            }
        }
    }

    /// Puts the one item that was there at the barrier, or that there was none, into the next piece; `old`: where it is, if not in the
    /// row any more.
    fn save_value(&mut self, row: u32, old: Option<&C>) {
        let Some(span) = self.take_span(row, old) else { return };
        let stamp = self.stamp_of(row);
        let frozen = &mut self.frozen;
        frozen.since_cursor += 1;
        let values = frozen.values.get_or_insert_with(|| Values {
            piece: PieceBuilder::new(&self.info.pieces, C::IS_LIST, self.info.ttl.is_some(), frozen.values_before),
            gone: AddressBuilder::new(),
        });
        let owner = Owner { key: self.index.key(row), namespace: self.index.namespace(row), map_key: self.index.map_key(row) };
        if span.clears {
            values.gone.push(&owner);
        }
        let value = old.unwrap_or(&self.cells[row as usize]);
        for item in &value.items()[span.from..span.to.max(span.from)] {
            values.piece.push(&owner, 0, item, stamp);
        }
        if values.piece.is_full() {
            frozen.full.extend(frozen.values.take());
        }
    }

    /// Counts the row as saved; answers what of its cell, `old` or the one that it has, still has to leave, if anything.
    fn take_span(&mut self, row: u32, old: Option<&C>) -> Option<Span> {
        if let Some((_, span)) = self.frozen.partial.take_if(|(partial, _)| *partial == row) {
            return Some(span).filter(|span| span.says_something());
        }
        if !self.frozen.rows.take(row) {
            return None;
        }
        let cell = old.unwrap_or(&self.cells[row as usize]);
        Some(self.barrier_span(row, cell)).filter(|span| span.says_something())
    }

    /// What of a row's cell was there at the barrier and had not expired.
    fn barrier_span(&self, row: u32, cell: &C) -> Span {
        let to = cell.barrier_len(self.frozen.epoch);
        let from = match self.frozen.expired_up_to {
            Some(time) if self.stamp_of(row) != super::piece::UNTOUCHED => {
                if !C::IS_LIST && self.stamp_of(row) <= time {
                    to
                } else {
                    cell.first_after(time)
                }
            }
            _ => 0,
        };
        let whole = Span { first: -(from as i64), from, to: to.max(from), clears: false };
        match self.cold.as_ref().filter(|_| self.frozen.is_of_store()) {
            None => whole,
            Some(cold) if C::IS_LIST => match cold.list_of(row) {
                StoredList { others: true, .. } => Span { clears: true, ..whole },
                StoredList { first, len, .. } => Span { first, from: from.max(len), to: to.max(from.max(len)), clears: false },
            },
            Some(_) => Span { clears: whole.is_empty(), ..whole },
        }
    }

    /// The store was sent a list's items from the start of this span up to, not including, `to`; `begins`: no other part of the span
    /// before.
    fn note_sent(&mut self, row: u32, span: Span, to: usize, begins: bool) {
        if let Some(cold) = self.cold.as_mut().filter(|_| C::IS_LIST && self.frozen.is_of_store()) {
            match begins {
                true => cold.list(row).sent(span.first, to),
                false => cold.list(row).sent_more(span.from, to),
            }
        }
    }

    fn stamp_of(&self, row: u32) -> i64 {
        let stamp = self.stamps.as_ref().and_then(|stamps| stamps.get(row as usize));
        stamp.copied().unwrap_or(super::piece::UNTOUCHED)
    }

    fn save_next(&mut self, keys: &KeyIndex, items: usize) -> Result<(), TypeError> {
        self.flush_saved(keys)?;
        let (mut piece, mut gone) = (self.piece(items.min(self.entries)), AddressBuilder::new());
        let is_of_store = self.frozen.is_of_store();
        let (mut left, mut looks) = (items, items * LOOKS_PER_ITEM);
        while left > 0 && looks > 0 {
            looks -= 1;
            let partial = self.frozen.partial.take();
            let begins = partial.is_none();
            let (row, mut span) = match partial {
                Some(partial) => partial,
                None => match self.frozen.rows.take_one() {
                    None => break,
                    Some(row) => (row, self.barrier_span(row, &self.cells[row as usize])),
                },
            };
            if span.is_empty() && !span.clears {
                continue;
            }
            let owner =
                Owner { key: self.index.key(row), namespace: self.index.namespace(row), map_key: self.index.map_key(row) };
            if std::mem::take(&mut span.clears) {
                gone.push(&owner);
            }
            let (before, begun) = (piece.len(), span);
            let is_full = push_items(&mut piece, &owner, &self.cells[row as usize], &mut span, self.stamp_of(row), left);
            left -= (piece.len() - before).max(usize::from(is_of_store)).min(left);
            self.note_sent(row, begun, span.from, begins);
            if !span.is_empty() {
                self.frozen.partial = Some((row, span));
            }
            if is_full {
                let (full, of_full) = (
                    std::mem::replace(&mut piece, self.piece(left.min(self.entries))),
                    std::mem::replace(&mut gone, AddressBuilder::new()),
                );
                self.send(full, of_full, keys)?;
            }
        }
        self.send(piece, gone, keys)?;
        if !self.frozen.rows.is_running() && self.frozen.partial.is_none() {
            match self.frozen.end() {
                Some(Sink::Pieces(sender)) => sender.finish(),
                Some(Sink::Store) | None => {}
            }
        }
        Ok(())
    }

    /// A piece for so many items.
    fn piece(&self, items: usize) -> PieceBuilder<I::MapKey, C::Item> {
        PieceBuilder::new(&self.info.pieces, C::IS_LIST, self.info.ttl.is_some(), items)
    }

    fn send(
        &mut self,
        piece: PieceBuilder<I::MapKey, C::Item>,
        gone: AddressBuilder<I::MapKey>,
        keys: &KeyIndex,
    ) -> Result<(), TypeError> {
        match &mut self.frozen.sink {
            Some(Sink::Pieces(sender)) if piece.len() > 0 => sender.send(piece.finish(keys)?),
            Some(Sink::Store) if piece.len() + gone.len() > 0 => {
                let deletes = if gone.len() > 0 { Some(gone.finish(keys)?) } else { None };
                let upserts = if piece.len() > 0 { Some(piece.finish(keys)?) } else { None };
                self.frozen.outbox.push(Change { deletes, upserts });
            }
            _ => {}
        }
        Ok(())
    }
}

impl Span {
    /// Whether there is anything to save.
    fn says_something(&self) -> bool {
        !self.is_empty() || self.clears
    }

    fn is_empty(self) -> bool {
        self.from >= self.to
    }
}

/// Adds items of the span, at most `items`, and moves its start behind them; answers whether the piece is full.
fn push_items<M: StateType, C: Cell>(
    piece: &mut PieceBuilder<M, C::Item>,
    owner: &Owner<'_, M>,
    cell: &C,
    span: &mut Span,
    stamp: i64,
    items: usize,
) -> bool {
    let to = span.to.min(span.from.saturating_add(items));
    while span.from < to && !piece.is_full() {
        let item = span.from;
        piece.push(owner, span.first + item as i64, &cell.items()[item], cell.item_touched(item).unwrap_or(stamp));
        span.from += 1;
    }
    piece.is_full()
}
