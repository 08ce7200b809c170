//! Running aggregates over a changelog: rows are taken in and taken back, and a group without rows is gone.
//!
//! Counts, sums and averages are taken back by subtracting; minima and maxima are the ends of the counted values of a group. Must
//! never know where changes come from: the input is a full changelog, each row that goes is one that came.

mod extremes;
mod order;
mod results;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{AggregateSpec, OperatorSpec};
use levada_common::types::RowKind;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::change_rows::ChangeRows;
use super::changed::Changed;
use super::group_table::GroupTable;
use super::panes::OpenPanes;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::Window;
use extremes::Extremes;
use results::Results;

/// A running aggregation over a changelog.
///
/// Shape of the output: `_op`, keys, aggregates. At most one change of a group and batch, in order of first appearance in the batch:
/// its insert, its update (with `full`, the row that it replaces before it), or its delete.
pub(super) struct OverChanges {
    shape: Arc<Shape>,
    full: bool,
    groups: OpenPanes,
    extremes: Vec<Extremes>,
    results: Results,
    changed: Changed,
    ids: Vec<u32>,
    pending: Pending,
    context: Option<OperatorContext>,
}

impl OverChanges {
    pub(super) fn new(shape: Arc<Shape>, spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<Self, EngineError> {
        if !shape.plan.takes_back() {
            return Err(shape.invariant("an aggregate that cannot take rows back is planned over a changelog"));
        }
        let extremes = aggregate.counted().iter().map(|counted| Extremes::new(spec, counted)).collect::<Result<_, _>>()?;
        let results = Results::new(aggregate).map_err(|reason| shape.invariant(reason))?;
        Ok(Self {
            shape,
            full: aggregate.changelog_full,
            groups: OpenPanes::default(),
            extremes,
            results,
            changed: Changed::default(),
            ids: Vec::new(),
            pending: Pending::default(),
            context: None,
        })
    }

    fn table(&self) -> Result<&GroupTable, EngineError> {
        self.groups.made_groups(&self.shape, Window::WHOLE)
    }

    /// Keys and results of these groups.
    fn read(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        let groups = self.table()?;
        let rows = Rows::Ids(ids);
        let results = self.results.read(&groups.read(rows), &self.extremes, ids);
        Ok(groups.keys(rows).into_iter().chain(results.map_err(|source| self.shape.kernel(source))?).collect())
    }

    /// Takes rows in and back.
    fn take(&mut self, batch: &RecordBatch, comes: Option<&[bool]>) -> Result<(), EngineError> {
        let (inputs, rows) = (self.shape.inputs(batch), batch.num_rows());
        match comes {
            None => self.groups.take_in(&self.shape, Window::WHOLE, &self.ids, &inputs, rows)?,
            Some(comes) => {
                for takes_in in [true, false] {
                    let places = (0u32..).zip(comes).filter(|(_, comes)| **comes == takes_in).map(|(row, _)| row);
                    let places = UInt32Array::from_iter_values(places);
                    if places.is_empty() {
                        continue;
                    }
                    let inputs = inputs.iter().map(|column| take(column, &places, None)).collect::<Result<Vec<_>, _>>();
                    let inputs = inputs.map_err(|source| self.shape.kernel(source))?;
                    let ids: Vec<u32> = places.values().iter().map(|row| group_of(&self.ids, *row)).collect();
                    match takes_in {
                        true => self.groups.take_in(&self.shape, Window::WHOLE, &ids, &inputs, places.len())?,
                        false => self.groups.take_back(&self.shape, Window::WHOLE, &ids, &inputs, places.len())?,
                    }
                }
            }
        }
        for extremes in &mut self.extremes {
            extremes.take(batch, comes, |row| group_of(&self.ids, row))?;
        }
        Ok(())
    }

    /// Whether each of these groups has rows.
    fn stands(&self, ids: &[u32]) -> Result<Vec<bool>, EngineError> {
        let counts = self.table()?.read_call(Results::ROWS, Rows::Ids(ids));
        Ok(counts.as_primitive::<Int64Type>().values().iter().map(|count| *count > 0).collect())
    }

    /// The change rows of the changed groups, and the removal of those that are gone.
    fn change(&mut self, stood: &[bool], before: &[ArrayRef]) -> Result<(), EngineError> {
        let ids = std::mem::take(&mut self.changed.ids);
        let counts = self.table()?.read_call(Results::ROWS, Rows::Ids(&ids));
        let counts = counts.as_primitive::<Int64Type>().values();
        let (mut rows, mut old) = (ChangeRows::default(), 0);
        for (row, count) in counts.iter().enumerate() {
            match (stood[row], *count > 0) {
                (false, true) => rows.insert(row),
                (true, true) => rows.update(self.full.then_some(old), row),
                (true, false) => rows.delete(old),
                (false, false) => {}
            }
            old += usize::from(stood[row]);
        }
        let changes = rows.batch(&self.shape, before, self.read(&ids)?)?;
        self.pending.push(changes);
        // What went before it came is remembered, and only what is balanced is forgotten.
        let gone: Vec<u32> = ids.iter().zip(counts).filter(|(_, count)| **count == 0).map(|(id, _)| *id).collect();
        self.extremes.iter_mut().for_each(|extremes| extremes.forget(&gone));
        self.groups.remove(Window::WHOLE, &gone);
        self.changed.ids = ids;
        Ok(())
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        self.groups.count(&self.shape, context)?;
        self.extremes.iter_mut().try_for_each(|extremes| extremes.count(context))
    }
}

impl Operator for OverChanges {
    fn open(&mut self, context: &OperatorContext, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        for extremes in &mut self.extremes {
            extremes.open(context, &mut restored)?;
        }
        // Values are in the order of their group, by its place in memory: it does not leave that.
        let cold = context.cold.clone().filter(|_| self.extremes.is_empty());
        self.groups.open(&self.shape, &OperatorContext { cold, ..context.clone() }, &restored)?;
        for extremes in &mut self.extremes {
            extremes.put_in_order(|keys, rows, ids| self.groups.find(Window::WHOLE, keys, rows, ids))?;
        }
        self.context = Some(context.clone());
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.groups.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let keys = self.shape.keys(&batch);
        self.groups.intern(&self.shape, Window::WHOLE, &keys, batch.num_rows(), &mut self.ids)?;
        self.changed.collect(&self.ids);
        let comes = comes(&batch);
        let stood = self.stands(&self.changed.ids)?;
        // What they were is needed where it is said, or where a group may be gone afterwards.
        let before = match self.full || comes.is_some() {
            false => Vec::new(),
            true => {
                let known = self.changed.ids.iter().zip(&stood).filter(|(_, stood)| **stood).map(|(id, _)| *id);
                self.read(&known.collect::<Vec<_>>())?
            }
        };
        self.take(&batch, comes.as_deref())?;
        self.change(&stood, &before)?;
        self.groups.make_room(&self.shape)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context.as_ref().expect("an operator is opened first").batch_rows_max;
        Ok(self.pending.pop(rows_max))
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished {
            return Ok(Vec::new());
        }
        let mut parts = vec![self.groups.snapshot(&self.shape, checkpoint)?];
        for extremes in &mut self.extremes {
            parts.push(extremes.snapshot(checkpoint)?);
        }
        Ok(parts)
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        let mut remains = self.groups.background(&self.shape)?;
        for extremes in &mut self.extremes {
            remains |= extremes.background()?;
        }
        Ok(remains)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.groups.abandon(checkpoint);
            self.extremes.iter_mut().for_each(|extremes| extremes.abandon(checkpoint));
        }
        Ok(())
    }
}

/// Which rows of a changelog come, the others going; `None` where all do.
pub(super) fn comes(batch: &RecordBatch) -> Option<Vec<bool>> {
    let ops = batch.column(0).as_primitive::<Int8Type>().values();
    let comes = |op: &i8| *op == RowKind::Insert as i8 || *op == RowKind::UpdateAfter as i8;
    (!ops.iter().all(comes)).then(|| ops.iter().map(comes).collect())
}

/// The group of a row: without key there is one id for all rows.
fn group_of(ids: &[u32], row: u32) -> u32 {
    if ids.len() == 1 { ids[0] } else { ids[row as usize] }
}
