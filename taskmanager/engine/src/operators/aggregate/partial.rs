//! The first half of a two-phase aggregation, before the exchange: fewer rows go over it.
//!
//! Keeps nothing across a barrier, so it has no state in snapshots. Lateness is not its to judge: a row whose window its own
//! watermark has passed goes on as a state by itself, and the final half drops and counts it or not.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_common::plan::{AggregateSpec, WindowSpec};
use levada_common::time::Watermark;
use levada_state::rows::Rows;

use super::group_table::GroupTable;
use super::panes::{Firing, Pane};
use super::restore::no_state;
use super::shape::Shape;
use crate::aggregate::Groups;
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::Window;

/// Groups held in all panes above which they are sent on.
const GROUPS_MAX: usize = 1 << 16;

/// A partial aggregation.
///
/// Shape of the output: keys, `window_start` and `window_end` where there are windows, states.
#[derive(Debug)]
pub(super) struct Partial {
    shape: Arc<Shape>,
    /// Whether each batch is sent on by itself, so that changes go out at once.
    every_batch: bool,
    /// For how long after their window rows are taken in.
    lateness_ms: i64,
    /// One pane, under `Window::WHOLE`, where there are no windows.
    panes: BTreeMap<Window, Pane>,
    groups: usize,
    watermark: i64,
    firing: Firing,
    /// A pane that has gone out and is empty again: its memory serves the next one.
    spare: Option<GroupTable>,
    pending: Pending,
    ids: Vec<u32>,
    context: Option<OperatorContext>,
}

impl Partial {
    pub(super) fn new(shape: Arc<Shape>, aggregate: &AggregateSpec) -> Self {
        let firing = aggregate.firing.as_ref();
        let is_early = firing.is_some_and(|firing| firing.early.is_some());
        Self {
            shape,
            every_batch: aggregate.window == WindowSpec::Running || aggregate.time.processing || is_early,
            lateness_ms: firing.map_or(0, |firing| firing.lateness_ms),
            panes: BTreeMap::new(),
            groups: 0,
            watermark: i64::MIN,
            firing: Firing::default(),
            spare: None,
            pending: Pending::default(),
            ids: Vec::new(),
            context: None,
        }
    }

    fn take_in(&mut self, window: Window, keys: &[ArrayRef], inputs: &[ArrayRef], rows: usize) -> Result<(), EngineError> {
        let (shape, spare) = (&self.shape, &mut self.spare);
        let mut new_groups = || spare.take().unwrap_or_else(|| GroupTable::new(shape));
        let pane = self.panes.entry(window).or_insert_with(|| Pane::new(window, new_groups()));
        let before = pane.groups.len();
        pane.groups.intern(keys, rows, &mut self.ids);
        pane.groups.take_in(&self.shape, pane.groups.groups(&self.ids, rows), inputs)?;
        self.groups += pane.groups.len() - before;
        Ok(())
    }

    /// Sends late rows on, each as a state of its own, so that the final half counts rows where it drops them.
    fn pass_on(&mut self, window: Window, keys: &[ArrayRef], inputs: &[ArrayRef], rows: usize) -> Result<(), EngineError> {
        let mut set = self.shape.plan.accumulators();
        set.resize(rows);
        let each: Vec<u32> = (0..rows as u32).collect();
        let taken = set.take_in(Groups::Each(&each), inputs).map_err(|overflow| {
            let key: Vec<ArrayRef> = keys.iter().map(|column| column.slice(overflow.group, 1)).collect();
            self.shape.overflow(&overflow, &key)
        });
        taken?;
        let (start, end) = window.columns(rows);
        let columns = keys.iter().cloned().chain([start, end]).chain(set.states(Rows::first(rows)));
        let batch = self.shape.output(columns.collect())?;
        self.pending.push(batch);
        Ok(())
    }

    /// Sends the windows on that time has passed.
    fn send_fired(&mut self) {
        while let Some(entry) = self.panes.first_entry().filter(|entry| entry.key().has_fired(self.watermark)) {
            let pane = entry.remove();
            self.groups -= pane.groups.len();
            self.firing.push(pane);
        }
    }

    /// Sends everything on.
    fn flush(&mut self) {
        std::mem::take(&mut self.panes).into_values().for_each(|pane| self.firing.push(pane));
        self.groups = 0;
    }
}

impl Operator for Partial {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        no_state(&self.shape, &restored)?;
        self.context = Some(context.clone());
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        for (window, split) in self.shape.split(&batch)? {
            let rows = split.rows(batch.num_rows());
            let keys = split.columns(&keys).map_err(|source| self.shape.kernel(source))?;
            let inputs = split.columns(&inputs).map_err(|source| self.shape.kernel(source))?;
            match window.has_fired(self.watermark.saturating_sub(self.lateness_ms)) {
                true => self.pass_on(window, &keys, &inputs, rows)?,
                false => self.take_in(window, &keys, &inputs, rows)?,
            }
        }
        if self.every_batch || self.groups > GROUPS_MAX {
            self.flush();
        }
        self.send_fired();
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context.as_ref().expect("an operator is opened first").batch_rows_max;
        if let Some(batch) = self.pending.pop(rows_max) {
            return Ok(Some(batch));
        }
        let shape = Arc::clone(&self.shape);
        let batch =
            self.firing.next(&shape, rows_max, |window, groups, rows| Ok(partial_columns(&shape, window, groups, rows)))?;
        if let Some(mut pane) = self.firing.take_done().last() {
            pane.groups.clear();
            self.spare = Some(pane.groups);
        }
        Ok(batch)
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.watermark = watermark.0;
        self.send_fired();
        Ok(Some(watermark))
    }

    fn idle(&mut self) -> Result<(), EngineError> {
        self.flush();
        Ok(())
    }

    fn before_barrier(&mut self) -> Result<(), EngineError> {
        self.flush();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.flush();
        Ok(())
    }
}

fn partial_columns(shape: &Shape, window: Window, groups: &GroupTable, rows: Rows<'_>) -> Vec<ArrayRef> {
    let window = shape.is_windowed.then(|| window.columns(rows.len()));
    let window = window.into_iter().flat_map(|(start, end)| [start, end]);
    groups.keys(rows).into_iter().chain(window).chain(groups.states(rows)).collect()
}
