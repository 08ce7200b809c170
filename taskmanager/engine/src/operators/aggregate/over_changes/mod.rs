//! Running aggregates over a changelog: rows are taken in and taken back, and a group without rows is gone.
//!
//! Counts, sums and averages are taken back by subtracting; minima and maxima are the ends of the counted values of a group. Must
//! never know where changes come from: the input is a full changelog, each row that goes is one that came.

mod extremes;
mod in_panes;
mod kept;
mod order;
mod results;
mod stored;

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, UInt32Array};
use arrow::compute::{filter_record_batch, not, take};
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{AggregateSpec, OperatorSpec};
use levada_common::types::RowKind;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::change_rows::ChangeRows;
use super::changed::Changed;
use super::shape::Shape;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use extremes::ExtremesShape;
use in_panes::InPanes;
use kept::{Changing, Kept, group_of};
use results::Results;
use stored::ByKeyInStore;

/// A running aggregation over a changelog.
///
/// Shape of the output: `_op`, keys, aggregates. At most one change of a group and batch, in order of first appearance (in front of a
/// store, among those groups that memory has room for at once): its insert, its update (with `full`, the row that it replaces before
/// it), or its delete.
pub(super) struct OverChanges {
    shape: Arc<Shape>,
    full: bool,
    extremes: Vec<ExtremesShape>,
    results: Results,
    changed: Changed,
    ids: Vec<u32>,
    /// Rows that wait until what is known of their keys comes in: all that a batch has of these.
    waiting: Option<RecordBatch>,
    pending: Pending,
    running: Option<Running>,
}

/// What there is once it was opened.
struct Running {
    context: OperatorContext,
    kept: Box<dyn Kept>,
}

impl OverChanges {
    pub(super) fn new(shape: Arc<Shape>, spec: &OperatorSpec, aggregate: &AggregateSpec) -> Result<Self, EngineError> {
        if !shape.plan.takes_back() {
            return Err(shape.invariant("an aggregate that cannot take rows back is planned over a changelog"));
        }
        let extremes = aggregate.counted().iter().map(|counted| ExtremesShape::new(spec, counted)).collect::<Result<_, _>>()?;
        let results = Results::new(aggregate).map_err(|reason| shape.invariant(reason))?;
        Ok(Self {
            shape,
            full: aggregate.changelog_full,
            extremes,
            results,
            changed: Changed::default(),
            ids: Vec::new(),
            waiting: None,
            pending: Pending::default(),
            running: None,
        })
    }

    fn kept(&self) -> &dyn Kept {
        self.running.as_ref().expect("an operator is opened first").kept.as_ref()
    }

    fn kept_mut(&mut self) -> &mut dyn Kept {
        self.running.as_mut().expect("an operator is opened first").kept.as_mut()
    }

    /// Keys and results of these groups.
    fn read(&self, ids: &[u32]) -> Result<Vec<ArrayRef>, EngineError> {
        let (kept, rows) = (self.kept(), Rows::Ids(ids));
        let groups = kept.groups()?;
        let results = self.results.read(&groups.read(rows), |column, is_greatest| kept.ends(column, ids, is_greatest));
        Ok(groups.keys(rows).into_iter().chain(results.map_err(|source| self.shape.kernel(source))?).collect())
    }

    /// Takes rows that wait in, those of as many keys as there is memory for; whether there were any.
    fn take_waiting(&mut self) -> Result<bool, EngineError> {
        let Some(batch) = self.waiting.take() else { return Ok(false) };
        let (keys, rows) = (self.shape.keys(&batch), batch.num_rows());
        let batch = match self.kept_mut().load(&keys, rows)? {
            None => batch,
            Some(ready) => {
                let some = |which: &BooleanArray| filter_record_batch(&batch, which);
                let parts = not(&ready).and_then(|waits| Ok((some(&ready)?, some(&waits)?)));
                let (ready, waits) = parts.map_err(|source| self.shape.kernel(source))?;
                self.waiting = (waits.num_rows() > 0).then_some(waits);
                ready
            }
        };
        self.take(&batch)?;
        Ok(true)
    }

    /// Takes rows in and back, of whose keys everything that is known is in memory, and gives what has changed by them.
    fn take(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let (keys, mut ids) = (self.shape.keys(batch), std::mem::take(&mut self.ids));
        self.kept_mut().intern(&keys, batch.num_rows(), &mut ids)?;
        self.changed.collect(&ids);
        let comes = comes(batch);
        let stood = self.stands(&self.changed.ids)?;
        // What they were is needed where it is said, or where a group may be gone afterwards.
        let before = match self.full || comes.is_some() {
            false => Vec::new(),
            true => {
                let known = self.changed.ids.iter().zip(&stood).filter(|(_, stood)| **stood).map(|(id, _)| *id);
                self.read(&known.collect::<Vec<_>>())?
            }
        };
        self.take_rows(batch, comes.as_deref(), &ids)?;
        self.ids = ids;
        self.change(&stood, &before)?;
        self.kept_mut().make_room()?;
        self.count()
    }

    fn take_rows(&mut self, batch: &RecordBatch, comes: Option<&[bool]>, ids: &[u32]) -> Result<(), EngineError> {
        let (shape, inputs, rows) = (Arc::clone(&self.shape), self.shape.inputs(batch), batch.num_rows());
        let kept = self.kept_mut();
        match comes {
            None => kept.change(Changing { comes: true, ids, inputs: &inputs, rows })?,
            Some(comes) => {
                for takes_in in [true, false] {
                    let places = (0u32..).zip(comes).filter(|(_, comes)| **comes == takes_in).map(|(row, _)| row);
                    let places = UInt32Array::from_iter_values(places);
                    if places.is_empty() {
                        continue;
                    }
                    let inputs = inputs.iter().map(|column| take(column, &places, None)).collect::<Result<Vec<_>, _>>();
                    let inputs = inputs.map_err(|source| shape.kernel(source))?;
                    let ids: Vec<u32> = places.values().iter().map(|row| group_of(ids, *row)).collect();
                    kept.change(Changing { comes: takes_in, ids: &ids, inputs: &inputs, rows: places.len() })?;
                }
            }
        }
        kept.count_values(batch, comes, ids)
    }

    /// Whether each of these groups has rows.
    fn stands(&self, ids: &[u32]) -> Result<Vec<bool>, EngineError> {
        let counts = self.kept().groups()?.read_call(Results::ROWS, Rows::Ids(ids));
        Ok(counts.as_primitive::<Int64Type>().values().iter().map(|count| *count > 0).collect())
    }

    /// The change rows of the changed groups, and the removal of those that are gone.
    fn change(&mut self, stood: &[bool], before: &[ArrayRef]) -> Result<(), EngineError> {
        let ids = std::mem::take(&mut self.changed.ids);
        let counts = self.kept().groups()?.read_call(Results::ROWS, Rows::Ids(&ids));
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
        self.kept_mut().settle(&ids, counts);
        self.changed.ids = ids;
        Ok(())
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let Running { context, kept } = self.running.as_mut().expect("an operator is opened first");
        kept.count(context)
    }
}

impl Operator for OverChanges {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        // Values in their order of which there is no key are one group, of which nothing could leave memory.
        let stays = !self.extremes.is_empty() && self.shape.key_types.is_empty();
        let context = &OperatorContext { cold: context.cold.clone().filter(|_| !stays), ..context.clone() };
        let kept: Box<dyn Kept> = match context.cold.as_ref().filter(|_| !self.extremes.is_empty()) {
            Some(stores) => Box::new(ByKeyInStore::open(&self.shape, &self.extremes, (context, stores), restored)?),
            None => Box::new(InPanes::open(&self.shape, &self.extremes, context, restored)?),
        };
        self.running = Some(Running { context: context.clone(), kept });
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.kept_mut().is_ready()
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.waiting = Some(batch);
        self.take_waiting().map(|_| ())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.running.as_ref().expect("an operator is opened first").context.batch_rows_max;
        loop {
            if let Some(batch) = self.pending.pop(rows_max) {
                return Ok(Some(batch));
            }
            if !self.take_waiting()? {
                return Ok(None);
            }
        }
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished { Ok(Vec::new()) } else { self.kept_mut().snapshot(checkpoint) }
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.kept_mut().background()
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.kept_mut().abandon(checkpoint);
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
