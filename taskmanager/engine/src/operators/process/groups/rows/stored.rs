//! The store behind the rows of groups: what is away of which, and how it comes in.
//!
//! Rows are added to a group whatever the store has of it. Where memory is short the rows go that the store has, of groups that have not
//! fired lately first; a group that fires brings in what is away of it. Which groups there are stays in memory, so nothing is looked for
//! that is not there. In the store a row is (key group, window, key, number) → its other columns; the window is what the group's was
//! when it began, of sessions its start twice: no window of time is that, which whoever reads the rows otherwise knows by it.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::planned_state::ROW_NUMBERS;
use levada_state::bits::Bits;
use levada_state::cold::{Addresses, Change, ColdStateId, Scan};
use levada_state::format::with_groups;
use levada_state::row_codec::to_open;
use levada_state::snapshot::StateMeta;

use super::held::{Held, entry_places};
use super::{FunctionRows, Place};
use crate::error::EngineError;
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::behind::failed;
use crate::operators::event_time::restored_number;
use crate::operators::process::groups::table::Group;
use crate::operators::process::window::Shape;
use crate::operators::rows::{self, ByKey, Found, KeyedRowStore, StoredRows};
use crate::operators::waiting::{self, RestoredRows};
use crate::operators::window::{Window, was_placed};

/// The store, and what of the rows it alone has.
pub(super) struct Behind {
    pub(super) store: KeyedRowStore,
    /// Groups of which it may have rows that memory does not.
    away: Bits,
    context: OperatorContext,
    /// Whether what was restored in it is where it belongs.
    is_placed: bool,
    /// What is to be put into groups.
    unplaced: VecDeque<Unplaced>,
}

/// Rows of an input that are in no group.
struct Unplaced {
    input: usize,
    scan: Scan,
    /// Whether they are the store's, and go there.
    is_stored: bool,
}

/// The rows as a store sees them, by group.
pub(super) struct RowsOf<'a> {
    shape: &'a Shape,
    held: &'a mut [Held],
    away: &'a mut Bits,
    groups: usize,
}

impl RowsOf<'_> {
    fn stored(&mut self, at: usize) -> &mut StoredRows {
        self.held[at].stored.as_mut().expect("rows are asked for after they were put before a store")
    }

    fn kernel(&self) -> impl Fn(ArrowError) -> EngineError {
        |source| self.shape.kernel(source)
    }
}

impl ByKey for RowsOf<'_> {
    fn has_one_key(&self) -> bool {
        false
    }

    fn key_count(&self) -> usize {
        self.groups
    }

    fn find_keys(&mut self, _columns: &[ArrayRef], _rows: usize, _ids: &mut Vec<u32>) {
        unreachable!("groups are known by their numbers")
    }

    fn make_keys(&mut self, _columns: &[ArrayRef], _rows: usize, _ids: &mut Vec<u32>) {
        unreachable!("groups are known by their numbers")
    }

    fn forget_key(&mut self, _group: u32) {}

    fn states(&self) -> usize {
        self.held.len()
    }

    fn state(&mut self, at: usize) -> (ColdStateId, &StateMeta) {
        self.stored(at).state()
    }

    fn addresses(&mut self, at: usize, keys: &[ArrayRef], rows: usize) -> Addresses {
        self.stored(at).addresses(keys, rows)
    }

    fn key_columns(&mut self, at: usize, entries: &RecordBatch) -> Vec<ArrayRef> {
        self.stored(at).key_columns(entries)
    }

    fn take_found(&mut self, at: usize, found: Found<'_>) -> Result<bool, EngineError> {
        let groups = self.groups;
        let taken = self.stored(at).taken(found.keys, found.ids, found.loaded);
        let taken = taken.map_err(self.kernel())?;
        self.held[at].take_back(taken, groups).map_err(self.kernel())?;
        Ok(false)
    }

    fn has_entries(&self, group: u32) -> bool {
        self.held.iter().any(|held| held.has_stored(group))
    }

    fn forget_entries(&mut self, group: u32) {
        self.away.set_one(group);
        self.held.iter_mut().for_each(|held| held.forget_stored(group));
    }

    fn has_unsent(&self, group: u32) -> bool {
        self.held.iter().any(|held| held.len(group) > 0)
    }

    fn has_gone(&mut self) -> bool {
        self.held.iter().filter_map(|held| held.stored.as_ref()).any(|stored| stored.has_gone() || stored.has_changed())
    }

    fn freeze(&mut self) -> Result<(), EngineError> {
        let Self { shape, held, .. } = self;
        for Held { heap, stored, .. } in held.iter_mut() {
            stored.as_mut().map_or(Ok(()), |stored| stored.freeze(heap, None)).map_err(|source| shape.kernel(source))?;
        }
        Ok(())
    }

    fn next_change(&mut self, at: usize, _rows_max: usize) -> Result<Option<(usize, Change)>, EngineError> {
        let change = self.stored(at).next_change();
        change.map_err(self.kernel())
    }

    fn is_sent(&mut self, at: usize) -> bool {
        self.stored(at).is_sent()
    }

    fn held(&self) -> rows::Held {
        let each = self.held.iter().map(Held::row_bytes);
        each.fold(rows::Held::default(), |all, one| rows::Held {
            bytes: all.bytes + one.bytes,
            idle_bytes: all.idle_bytes + one.idle_bytes,
        })
    }
}

impl FunctionRows {
    /// Opens the store, where there is one.
    pub(super) fn stand_before_store(&mut self, context: &OperatorContext) -> Result<(), EngineError> {
        let Some(stores) = &context.cold else { return Ok(()) };
        let mut store = KeyedRowStore::open(&self.shape.uid, &self.frame.clause, stores, context.key_groups)?;
        for (held, side) in self.held.iter_mut().zip(&self.shape.sides) {
            let keys = (0..side.key_types.len()).filter_map(|at| side.key(at)).collect();
            let places = entry_places(keys, side.input.fields().len());
            held.stand_before(store.open_known_rows(&side.state, places)?);
        }
        let (away, context, unplaced) = (Bits::default(), context.clone(), VecDeque::new());
        self.behind = Some(Behind { store, away, context, is_placed: false, unplaced });
        Ok(())
    }

    /// The store, the rows in front of it, and what is away; there are so many groups.
    pub(super) fn before(&mut self, groups: usize) -> Option<(&mut KeyedRowStore, RowsOf<'_>)> {
        let Self { shape, held, behind, .. } = self;
        let Behind { store, away, .. } = behind.as_mut()?;
        Some((store, RowsOf { shape, held, away, groups }))
    }

    /// Takes out of a snapshot how a store's rows were numbered, and by what they were placed, and finds those that are in no group.
    pub(super) fn begin_placing(&mut self, restored: &mut Vec<RestoredState>) -> Result<(), EngineError> {
        let Self { shape, held, placed_by, behind: Some(behind), .. } = self else { return Ok(()) };
        let Behind { store, context, is_placed, unplaced, .. } = behind;
        let has_numbers = restored.iter().any(|state| state.name == ROW_NUMBERS);
        let next = restored_number(&shape.uid, ROW_NUMBERS, restored)?;
        *is_placed = was_placed(&shape.uid, placed_by, restored)? && has_numbers;
        for (input, (held, side)) in held.iter_mut().zip(&shape.sides).enumerate() {
            let stored = held.stored.as_mut().expect("it stands before a store");
            let state = stored.state().0;
            stored.number_from(next);
            let (scan, mut is_any) = ((!*is_placed).then(|| store.visit_state(state)).transpose()?, false);
            for batch in scan.into_iter().flatten() {
                let last = stored.last_number(&batch.map_err(|source| failed(&shape.uid, source))?);
                stored.number_from(last.saturating_add(1));
                is_any = true;
            }
            if is_any {
                unplaced.push_back(Unplaced { input, scan: store.visit_state(state)?, is_stored: true });
            }
            let fetched = context.cold.iter().flat_map(|stores| stores.take_fetched(&shape.uid, &side.state.name));
            unplaced.extend(fetched.map(|scan| Unplaced { input, scan, is_stored: false }));
        }
        Ok(())
    }

    /// The store has rows of these groups, if it has any that are where they belong.
    pub(super) fn are_away(&mut self, groups: impl Iterator<Item = u32>) {
        if let Some(behind) = self.behind.as_mut().filter(|behind| behind.is_placed) {
            groups.for_each(|group| behind.away.set_one(group));
        }
    }

    /// The next rows that are in no group; the store has them no longer.
    pub(super) fn next_unplaced(&mut self) -> Result<Option<RestoredRows>, EngineError> {
        let Self { shape, held, behind: Some(behind), .. } = self else { return Ok(None) };
        let Behind { store, context, unplaced, .. } = behind;
        while let Some(Unplaced { input, scan, is_stored }) = unplaced.front_mut() {
            let Some(batch) = scan.next() else {
                unplaced.pop_front();
                continue;
            };
            let (at, batch) = (*input, batch.map_err(|source| failed(&shape.uid, source))?);
            let batch = if *is_stored {
                let stored = held[at].stored.as_ref().expect("it stands before a store");
                let keys = stored.key_columns(&batch);
                let (window, number) = (batch.column(keys.len()), batch.column(keys.len() + 1));
                let (namespace, below) = (Some(Arc::clone(window)), vec![Arc::clone(number)]);
                let deletes = Some(Addresses { keys, namespace, below, rows: batch.num_rows() });
                store.send_now(stored.state().0, Change { deletes, upserts: None })?;
                with_groups(&to_open(&shape.sides[at].state.schema, &batch), context.max_parallelism)
            } else {
                batch
            };
            let rows = waiting::read_batch(&shape.uid, &shape.sides, context.key_groups, (at, &batch))?;
            if rows.is_some() {
                return Ok(rows);
            }
        }
        Ok(None)
    }

    /// Puts rows of a snapshot into their groups.
    pub(super) fn put_stored(&mut self, place: &Place<'_>, saved: RestoredRows, groups: &[u32]) -> Result<(), EngineError> {
        let RestoredRows { side: input, batch, .. } = saved;
        let window = window_columns(self.is_session, groups.iter().map(|group| place.groups.get(*group)));
        let held = &mut self.held[input];
        let stored = held.stored.as_mut().expect("it stands before a store");
        let number = stored.numbers(groups.len());
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(window).chain([number]).collect();
        let mut rows = Vec::with_capacity(groups.len());
        held.push_stored(&columns, place.groups.numbers(), &mut rows).map_err(|source| self.shape.kernel(source))?;
        groups.iter().zip(rows).for_each(|(group, row)| held.append(*group, row));
        self.note_live(place, groups);
        Ok(())
    }

    /// Something of these groups is in memory.
    pub(super) fn note_live(&mut self, place: &Place<'_>, groups: &[u32]) {
        if let Some(behind) = &mut self.behind {
            behind.store.note_live(groups, place.groups.numbers());
        }
    }

    /// Brings in what is away of these groups, by one read of each input.
    pub(super) fn bring_in_away(&mut self, place: &Place<'_>, groups: &[u32]) -> Result<(), EngineError> {
        let Some(behind) = &mut self.behind else { return Ok(()) };
        let away: Vec<u32> = groups.iter().copied().filter(|group| behind.away.take(*group)).collect();
        if away.is_empty() {
            return Ok(());
        }
        let (keys, numbers) = (self.store_keys(place, &away), place.groups.numbers());
        let Some((store, mut rows)) = self.before(numbers) else { return Ok(()) };
        store.load_known(&mut rows, &keys, &away)?;
        store.note_used(&away, numbers);
        Ok(())
    }

    /// Where rows of these groups are in the store: the columns of their keys and windows.
    fn store_keys(&self, place: &Place<'_>, groups: &[u32]) -> Vec<ArrayRef> {
        let keys: Vec<u32> = groups.iter().map(|group| place.groups.get(*group).key).collect();
        let window = window_columns(self.is_session, groups.iter().map(|group| place.groups.get(*group)));
        place.inner.keyed.key_columns(&keys).into_iter().chain(window).collect()
    }

    /// Whether the store has rows of a group that memory does not.
    pub(super) fn is_away(&self, group: u32) -> bool {
        self.behind.as_ref().is_some_and(|behind| behind.away.get(group))
    }

    /// Groups are used, and what the store has of them may change.
    pub(super) fn note_fired(&mut self, place: &Place<'_>, group: u32) {
        let (numbers, may_change) = (place.groups.numbers(), self.evictor.is_some());
        if let Some(Behind { store, .. }) = &mut self.behind {
            store.note_used(&[group], numbers);
            if may_change {
                store.note_changed(&[group], numbers);
            }
        }
    }

    /// What is away of these groups is gone.
    pub(super) fn clear_away(&mut self, place: &Place<'_>, groups: &[u32]) {
        let Some(behind) = &mut self.behind else { return };
        let away: Vec<u32> = groups.iter().copied().filter(|group| behind.away.take(*group)).collect();
        if !away.is_empty() {
            let keys = self.store_keys(place, &away);
            self.held.iter_mut().filter_map(|held| held.stored.as_mut()).for_each(|stored| stored.all_went(&keys, away.len()));
        }
    }

    /// Puts what a session has among the rows of another.
    pub(super) fn merge_stored(&mut self, place: &Place<'_>, into: u32, from: u32) -> Result<(), EngineError> {
        self.bring_in_away(place, &[from])?;
        for held in &mut self.held {
            let of = std::iter::repeat_n(place.groups.get(into), held.len(from));
            let merged = held.merge_stored(into, from, window_columns(true, of));
            merged.map_err(|source| self.shape.kernel(source))?;
        }
        self.note_live(place, &[into]);
        Ok(())
    }
}

/// What the windows of groups are in a store.
pub(super) fn window_columns<'a>(is_session: bool, groups: impl Iterator<Item = &'a Group> + Clone) -> [ArrayRef; 2] {
    let name = |group: &Group| match group.name {
        Window { start, .. } if is_session => (start, start),
        Window { start, end } => (start, end),
    };
    let starts = groups.clone().map(|group| name(group).0);
    let ends = groups.map(|group| name(group).1);
    [Arc::new(TimestampMillisecondArray::from_iter_values(starts)), Arc::new(TimestampMillisecondArray::from_iter_values(ends))]
}
