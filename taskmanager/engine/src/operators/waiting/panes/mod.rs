//! Rows that wait, by pane of time and side: those that memory has, and in front of a store those that only it has.
//!
//! Rows in memory are the write-back overlay of the store. No row changes, so what was sent of a pane is a number of rows, and a
//! barrier does no more than to note these numbers. Where memory is short the rows of whole panes are sent, and go when they are
//! written. What is in the store comes back when its window is read, one range of key groups after the other, and is deleted behind
//! the rows. Must never know what rows wait for, nor when windows fire.

mod evict;
mod finding;
mod place;
mod reading;
mod saving;
mod store;
mod touched;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, BooleanArray};
use arrow::error::ArrowError;
use levada_common::ids::Uid;
use levada_state::keyed::HeapShare;

use super::Side;
use crate::error::EngineError;
use crate::operator::OperatorContext;
use crate::operators::charge::charge;
use crate::operators::rows::{Marks, RowBuffer};
use crate::operators::window::Window;
use place::Unplaced;
use saving::Saving;
use store::PanesStore;
use touched::Touched;

pub(in crate::operators) use reading::{ReadRows, Reading};
pub(in crate::operators) use store::StoredRows;

/// The rows of one side in one pane, as whoever has them wait keeps them.
pub(in crate::operators) trait Waiting: Sized {
    /// Whose they are.
    type Owner: WaitingOwner;

    /// Which rows leave memory first: those of the oldest panes, or those of the newest ones, which are needed last.
    const OLDEST_LEAVE: bool;

    /// No rows.
    fn new(owner: &Self::Owner, side: usize) -> Self;

    /// Appends rows, at least one, in the columns that are kept; `marks` says which are marked.
    fn push(
        &mut self,
        owner: &Self::Owner,
        side: usize,
        columns: &[ArrayRef],
        marks: Option<&BooleanArray>,
    ) -> Result<(), ArrowError>;

    /// The rows.
    fn rows(&self) -> &RowBuffer;

    /// What is noted of each row, where something is.
    fn marks(&self) -> Option<&Marks> {
        None
    }

    /// Bytes held.
    fn memory_bytes(&self) -> usize;
}

/// An operator whose rows wait.
pub(in crate::operators) trait WaitingOwner {
    /// The node.
    fn uid(&self) -> &Uid;

    /// Its inputs.
    fn sides(&self) -> &[Side];

    /// What makes its state smaller.
    fn remedy(&self) -> &'static str;

    /// An Arrow kernel failed.
    fn kernel(&self, source: ArrowError) -> EngineError;
}

/// A pane and a side, by its place among the inputs.
pub(in crate::operators) type Place = (Window, usize);

/// What memory has of a side's rows in a pane.
struct Kept<W> {
    /// Shared with a window that is being read.
    rows: Arc<W>,
    /// The number that the store has of the first one: rows of a pane and side are numbered as they come.
    first: i64,
    /// How many of them were sent to the store, or are being sent.
    sent: usize,
    /// Those of them that were marked since.
    remarked: Vec<u32>,
}

impl<W: Waiting> Kept<W> {
    fn len(&self) -> usize {
        self.rows.rows().len()
    }
}

/// The panes that are open.
pub(in crate::operators) struct Panes<W: Waiting> {
    kept: BTreeMap<Place, Kept<W>>,
    store: Option<PanesStore>,
    saving: Option<Saving>,
    /// Marks of rows that only the store has.
    touched: BTreeMap<Place, Touched>,
    /// Rows of the store that are in no pane of the operator's, before the first rows come.
    unplaced: Unplaced,
    /// What is charged of the memory of all heap states; none in front of a store, which has a share of its own.
    share: Option<HeapShare>,
    /// Bytes that are held, as they were counted last.
    held_bytes: usize,
}

impl<W: Waiting> Panes<W> {
    /// None, before they are opened.
    pub(in crate::operators) fn new() -> Self {
        Self {
            kept: BTreeMap::new(),
            store: None,
            saving: None,
            touched: BTreeMap::new(),
            unplaced: Unplaced::default(),
            share: None,
            held_bytes: 0,
        }
    }

    /// Appends rows of a side to a pane; answers the number that the first of them has in it.
    ///
    /// Contract: nothing of the pane is being read.
    pub(in crate::operators) fn push(
        &mut self,
        owner: &W::Owner,
        place: Place,
        columns: &[ArrayRef],
        marks: Option<&BooleanArray>,
    ) -> Result<usize, EngineError> {
        let store = self.store.as_ref();
        let kept = self.kept.entry(place).or_insert_with(|| Kept {
            rows: Arc::new(W::new(owner, place.1)),
            first: store.map_or(0, |store| store.next_number(place)),
            sent: 0,
            remarked: Vec::new(),
        });
        let first = kept.len();
        let rows = Arc::get_mut(&mut kept.rows).expect("no window is read while rows come");
        rows.push(owner, place.1, columns, marks).map_err(|source| owner.kernel(source))?;
        Ok(first)
    }

    /// The pane that ends first, in memory or beyond it.
    pub(in crate::operators) fn first(&self) -> Option<Window> {
        let beyond = self.store.as_ref().and_then(PanesStore::first);
        self.kept.keys().next().map(|(window, _)| *window).into_iter().chain(beyond).min()
    }

    /// The panes that begin at `start` or after it and end at `end` or before it, in order, in memory or beyond it.
    pub(in crate::operators) fn within(&self, window: Window) -> Vec<Window> {
        let is_in = |pane: &Window| pane.start >= window.start && pane.end <= window.end;
        let beyond = self.store.iter().flat_map(PanesStore::windows);
        let kept = self.kept.keys().map(|(pane, _)| *pane).take_while(|pane| pane.end <= window.end);
        let mut found: Vec<Window> = kept.chain(beyond).filter(is_in).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Counts what is held, and what is held beside the panes (side, bytes, rows), and charges it.
    ///
    /// Errors: `OverBudget`.
    pub(in crate::operators) fn count(
        &mut self,
        owner: &W::Owner,
        context: &OperatorContext,
        beside: impl Iterator<Item = (usize, usize, usize)>,
    ) -> Result<(), EngineError> {
        let (mut bytes, mut rows) = (vec![0; owner.sides().len()], 0);
        let kept = self.kept.iter().map(|((_, side), kept)| (*side, kept.rows.memory_bytes(), kept.len()));
        let touched = self.touched.iter().map(|((_, side), touched)| (*side, touched.memory_bytes(), 0));
        for (side, of_side, count) in kept.chain(touched).chain(beside) {
            bytes[side] += of_side;
            rows += count;
        }
        self.held_bytes = bytes.iter().sum();
        context.metrics.state_keys.store(rows as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(self.held_bytes as u64, Ordering::Relaxed);
        if let Some(store) = &self.store {
            context.metrics.set_store(store.behind.write_back.metrics());
        }
        let Some(share) = &mut self.share else { return Ok(()) };
        let names = owner.sides().iter().map(|side| side.state.name.as_str());
        charge(owner.uid(), share, &names.zip(bytes).collect::<Vec<_>>(), owner.remedy())
    }
}
