//! The store behind the panes: rows by key group, pane, key and number.
//!
//! Memory has the newest rows of a pane, whose numbers follow on those of the store's. Must never know when rows come and go.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, new_empty_array};
use arrow::compute::{filter, kernels::cmp::lt};
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::keys::{KeyGroupRange, key_groups_of_rows};
use levada_common::state_schema::StateSchema;
use levada_state::cold::{Addresses, Change, ColdStateId, Loaded, Scan, Scope, Within};

use super::super::Side;
use super::{Place, WaitingOwner};
use crate::error::EngineError;
use crate::operator::OperatorContext;
use crate::operators::behind::{Behind, failed};
use crate::operators::window::Window;

/// The store of the panes of one operator in one task.
pub(super) struct PanesStore {
    pub(super) behind: Behind,
    /// By side.
    states: Vec<ColdStateId>,
    /// The task's.
    pub(super) key_groups: KeyGroupRange,
    /// Where the store may have rows that memory does not: the number of the next row.
    beyond: BTreeMap<Place, i64>,
    /// Above the numbers of all rows that were sent.
    pub(super) numbers_end: i64,
    /// Key groups that are read at once, as far as there are so many.
    pub(super) width: u32,
}

impl PanesStore {
    /// Takes up the states of the sides in the operator's store; `numbers_end` is above the numbers of all rows in it. Answers where it
    /// has rows, too.
    pub(super) fn open(
        owner: &impl WaitingOwner,
        context: &OperatorContext,
        numbers_end: Option<i64>,
    ) -> Result<Option<(Self, Vec<Place>)>, EngineError> {
        let Some(stores) = &context.cold else { return Ok(None) };
        let mut behind = Behind::open(owner.uid(), stores.as_ref())?;
        let (mut states, mut has) = (Vec::new(), Vec::new());
        for (at, side) in owner.sides().iter().enumerate() {
            let state = behind.open_state(&side.state.name, &stored_schema(&side.state.schema))?;
            let namespaces = behind.write_back.store().namespaces(state, context.key_groups);
            let namespaces = namespaces.map_err(|source| failed(owner.uid(), source))?;
            has.extend(namespaces.into_iter().map(|window| (Window::of_store(window), at)));
            states.push(state);
        }
        let store = Self {
            behind,
            states,
            key_groups: context.key_groups,
            beyond: BTreeMap::new(),
            numbers_end: numbers_end.unwrap_or_default(),
            width: u32::MAX,
        };
        Ok(Some((store, has)))
    }

    /// The number of the next row there.
    pub(super) fn next_number(&self, place: Place) -> i64 {
        self.beyond.get(&place).copied().unwrap_or_default()
    }

    /// Says that memory does not have the rows below `next` there.
    pub(super) fn has_beyond(&mut self, place: Place, next: i64) {
        self.beyond.insert(place, next);
    }

    /// Whether the store may have rows there that memory does not.
    pub(super) fn is_beyond(&self, place: Place) -> bool {
        self.beyond.contains_key(&place)
    }

    /// Forgets that there is something.
    pub(super) fn forget(&mut self, place: Place) {
        self.beyond.remove(&place);
    }

    /// The first pane beyond memory.
    pub(super) fn first(&self) -> Option<Window> {
        self.beyond.keys().next().map(|(window, _)| *window)
    }

    /// Every place beyond memory, in order.
    pub(super) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        self.beyond.keys().copied()
    }

    /// All panes beyond memory; some come twice.
    pub(super) fn windows(&self) -> impl Iterator<Item = Window> + '_ {
        self.beyond.keys().map(|(window, _)| *window)
    }

    /// Sends rows with these numbers.
    pub(super) fn upsert(
        &mut self,
        ((window, at), side): (Place, &Side),
        numbers: Int64Array,
        columns: &[ArrayRef],
        marks: Option<BooleanArray>,
    ) -> Result<(), EngineError> {
        let window = window.namespace_column(numbers.len());
        let mut stored: Vec<ArrayRef> = side.saved.iter().map(|place| Arc::clone(&columns[*place])).collect();
        let keys = side.key_types.len();
        stored.splice(keys..keys, window.into_iter().chain([Arc::new(numbers) as ArrayRef]));
        stored.extend(marks.map(|marks| Arc::new(marks) as ArrayRef));
        let state = self.states[at];
        let layout = self.behind.write_back.store().layout(state).columns();
        let rows = RecordBatch::try_new(Arc::clone(layout), stored).expect("a chunk has the input's columns");
        self.behind.change(state, Change { deletes: None, upserts: Some(rows) })
    }

    /// Says that rows are gone.
    ///
    /// Contract: no generation is being sent, whose rows would come after them.
    pub(super) fn delete(&mut self, at: usize, gone: Addresses) -> Result<(), EngineError> {
        if gone.rows == 0 {
            return Ok(());
        }
        self.behind.change(self.states[at], Change { deletes: Some(gone), upserts: None })
    }

    /// Looks up what is written of a side.
    pub(super) fn load(&mut self, at: usize, addresses: &Addresses) -> Result<Loaded, EngineError> {
        self.behind.load(self.states[at], addresses)
    }

    /// Begins to visit what is written there in these key groups.
    pub(super) fn scan(&mut self, (window, at): Place, groups: KeyGroupRange) -> Result<Scan, EngineError> {
        self.behind.scan(self.states[at], Scope { groups, within: Within::Exactly(window.in_store()) })
    }

    /// The key groups of rows with these keys.
    pub(super) fn groups_of_keys(&mut self, keys: &[ArrayRef], rows: usize) -> Vec<u16> {
        let mut groups = Vec::with_capacity(rows);
        let max_parallelism = self.behind.write_back.store().layout(self.states[0]).max_parallelism();
        key_groups_of_rows(keys, rows, max_parallelism, &mut groups);
        groups
    }
}

/// What a store has of rows that wait: it knows the pane of each.
fn stored_schema(schema: &StateSchema) -> Arc<StateSchema> {
    Arc::new(StateSchema { windowed: true, ..schema.clone() })
}

/// The addresses of rows with these keys and numbers.
pub(super) fn addresses(window: Window, keys: Vec<ArrayRef>, numbers: Int64Array) -> Addresses {
    let rows = numbers.len();
    Addresses { keys, namespace: window.namespace_column(rows), below: vec![Arc::new(numbers)], rows }
}

/// Rows of a store, by columns.
pub(in crate::operators) struct StoredRows {
    /// Those that are kept, in their order.
    pub(in crate::operators) columns: Vec<ArrayRef>,
    pub(in crate::operators) keys: Vec<ArrayRef>,
    pub(super) numbers: Int64Array,
    pub(in crate::operators) marks: Option<BooleanArray>,
}

impl StoredRows {
    /// A batch of a scan of this side.
    pub(super) fn of(side: &Side, batch: &RecordBatch) -> Self {
        let (keys, found) = batch.columns().split_at(side.key_types.len());
        // Behind the keys there are the window and the number.
        Self::of_columns(side, keys, found[1].as_primitive::<Int64Type>().clone(), &found[2..])
    }

    /// None.
    pub(super) fn none(side: &Side) -> Self {
        let columns = side.input.fields().iter().map(|field| new_empty_array(field.data_type())).collect::<Vec<_>>();
        let (keys, numbers) = (side.keys(&columns), Int64Array::new(Vec::new().into(), None));
        Self { columns, keys, numbers, marks: None }
    }

    /// Rows with these keys, numbers and values, the marks among the last.
    pub(super) fn of_columns(side: &Side, keys: &[ArrayRef], numbers: Int64Array, values: &[ArrayRef]) -> Self {
        let mut places: Vec<(usize, &ArrayRef)> = side.saved.iter().copied().zip(keys.iter().chain(values)).collect();
        places.sort_by_key(|(place, _)| *place);
        places.dedup_by_key(|(place, _)| *place);
        Self {
            columns: places.into_iter().map(|(_, column)| Arc::clone(column)).collect(),
            keys: keys.to_vec(),
            numbers,
            marks: side.saves_marks.then(|| values[values.len() - 1].as_boolean().clone()),
        }
    }

    /// Number of rows.
    pub(in crate::operators) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Those with numbers below `end`.
    pub(super) fn below(self, end: i64) -> Result<Self, ArrowError> {
        if self.numbers.values().iter().all(|number| *number < end) {
            return Ok(self);
        }
        let is_below = lt(&self.numbers, &Int64Array::new_scalar(end))?;
        let some = |columns: &[ArrayRef]| columns.iter().map(|column| filter(column, &is_below)).collect::<Result<_, _>>();
        let marks = self.marks.as_ref().map(|marks| filter(marks, &is_below)).transpose()?;
        Ok(Self {
            columns: some(&self.columns)?,
            keys: some(&self.keys)?,
            numbers: filter(&self.numbers, &is_below)?.as_primitive::<Int64Type>().clone(),
            marks: marks.map(|marks| marks.as_boolean().clone()),
        })
    }

    /// Where they are.
    pub(super) fn addresses(&self, window: Window) -> Addresses {
        addresses(window, self.keys.clone(), self.numbers.clone())
    }
}
