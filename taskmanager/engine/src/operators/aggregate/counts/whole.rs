//! Windows of rows that do not overlap: of each group the window that is open, as a group of the whole stream.
//!
//! A batch is collapsed to parts of windows first. What stays of a group is its last part, and nothing once that is full; so it may
//! leave memory for a store like any other group. Must never know time.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::Int64Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_state::key_index::KeyIndex;
use levada_state::rows::Rows;
use levada_state::snapshot::StatePart;

use super::super::changed::Changed;
use super::super::panes::OpenPanes;
use super::super::restore::{refuse, restored_rows};
use super::super::shape::Shape;
use crate::aggregate::{AggregateSet, Groups};
use crate::error::EngineError;
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::pending::Pending;
use crate::operators::window::Window;

/// No part.
const NONE: u32 = u32::MAX;

/// What a batch has of one window.
#[derive(Debug, Clone, Copy)]
struct Part {
    group: u32,
    /// Rows of the window, with this part and those before the batch.
    rows: i64,
    begins: Begins,
}

/// Where the window of a part begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    /// Before the batch: the part goes on with what is kept of the group.
    Before,
    /// With the group's first row of the batch.
    First,
    /// With a later one.
    Later,
}

/// An aggregation in windows of rows that do not overlap.
///
/// Shape of the output: keys, aggregates; append. The windows of a group come in order, each when its last row has arrived.
#[derive(Debug)]
pub(in super::super) struct WholeCounts {
    shape: Arc<Shape>,
    size: i64,
    groups: OpenPanes,
    changed: Changed,
    ids: Vec<u32>,
    /// A batch's parts and their states; filled anew each time.
    parts: Vec<Part>,
    part_set: AggregateSet,
    /// By group: the part that its next row belongs to; all `NONE` between two batches.
    part_of: Vec<u32>,
    /// By group: the rows of its window before the batch, where the batch has some of it.
    rows_before: Vec<i64>,
    pending: Pending,
    context: Option<OperatorContext>,
}

impl WholeCounts {
    /// In windows of `size` rows; the plan of `shape` counts their rows by its last call.
    pub(in super::super) fn new(shape: Arc<Shape>, size: u32) -> Self {
        Self {
            part_set: shape.plan.accumulators(),
            shape,
            size: i64::from(size.max(1)),
            groups: OpenPanes::default(),
            changed: Changed::default(),
            ids: Vec::new(),
            parts: Vec::new(),
            part_of: Vec::new(),
            rows_before: Vec::new(),
            pending: Pending::default(),
            context: None,
        }
    }

    fn count(&mut self) -> Result<(), EngineError> {
        let context = self.context.as_ref().expect("an operator is opened first");
        let bytes = self.part_set.memory_bytes() + self.parts.capacity() * size_of::<Part>();
        let of_groups = self.part_of.capacity() * size_of::<u32>() + self.rows_before.capacity() * size_of::<i64>();
        self.groups.hold_beside(bytes + of_groups);
        self.groups.count(&self.shape, context)
    }

    /// Cuts a batch of so many rows into parts of windows: `ids`, the group of each row, becomes its part.
    ///
    /// Errors: `Restore` where a group has more rows than a window.
    fn split(&mut self, rows: usize) -> Result<(), EngineError> {
        if self.ids.len() < rows {
            // Without key there is one group.
            self.ids.resize(rows, 0);
        }
        self.changed.collect(&self.ids);
        let groups = self.groups.made_groups(&self.shape, Window::WHOLE)?;
        let len = groups.len().max(self.part_of.len());
        self.part_of.resize(len, NONE);
        self.rows_before.resize(len, 0);
        let before = groups.read_call(self.shape.plan.calls() - 1, Rows::Ids(&self.changed.ids));
        for (group, before) in self.changed.ids.iter().zip(before.as_primitive::<Int64Type>().values()) {
            if *before >= self.size {
                return Err(other_windows(&self.shape));
            }
            self.rows_before[*group as usize] = *before;
        }
        // Accumulators take new parts in the order in which their rows come.
        self.parts.clear();
        for id in &mut self.ids {
            let (group, next) = (*id, self.parts.len() as u32);
            let part_of = &mut self.part_of[group as usize];
            if *part_of == NONE {
                let rows = self.rows_before[group as usize];
                let begins = if rows > 0 { Begins::Before } else { Begins::First };
                self.parts.push(Part { group, rows, begins });
                *part_of = next;
            } else if self.parts[*part_of as usize].rows == self.size {
                self.parts.push(Part { group, rows: 0, begins: Begins::Later });
                *part_of = next;
            }
            self.parts[*part_of as usize].rows += 1;
            *id = *part_of;
        }
        Ok(())
    }

    /// Takes the parts in, and gives the windows that are full.
    fn take(&mut self, inputs: &[ArrayRef]) -> Result<(), EngineError> {
        let (shape, parts, set) = (&self.shape, &self.parts, &mut self.part_set);
        set.clear();
        set.resize(parts.len());
        let table = self.groups.made_groups(shape, Window::WHOLE)?;
        let taken = set.take_in(Groups::Each(&self.ids), inputs);
        taken.map_err(|overflow| shape.overflow(&overflow, &table.keys(Rows::Ids(&[parts[overflow.group].group]))))?;

        // What was of a group before is nothing where its window begins here.
        let beginning = |begins: Begins| {
            let parts = (0u32..).zip(parts).filter(move |(_, part)| part.begins == begins);
            parts.map(|(at, part)| (at, part.group)).unzip::<u32, u32, Vec<u32>, Vec<u32>>()
        };
        let ((first, first_of), (more, more_of)) = (beginning(Begins::First), beginning(Begins::Before));
        if !first.is_empty() {
            self.groups.assign(shape, Window::WHOLE, &first_of, &set.states(Rows::Ids(&first)));
        }
        if !more.is_empty() {
            self.groups.merge(shape, Window::WHOLE, &more_of, &set.states(Rows::Ids(&more)))?;
        }
        let full = |part: &&Part| part.rows == self.size;
        let kept = parts.iter().filter(full).filter(|part| part.begins != Begins::Later);
        let first: Vec<u32> = kept.map(|part| part.group).collect();
        let table = self.groups.made_groups(shape, Window::WHOLE)?;
        if !first.is_empty() {
            self.pending.push(given(shape, table.keys(Rows::Ids(&first)), table.read(Rows::Ids(&first)))?);
        }
        let others = (0u32..).zip(parts).filter(|(_, part)| full(part) && part.begins == Begins::Later);
        let (others, of): (Vec<u32>, Vec<u32>) = others.map(|(at, part)| (at, part.group)).unzip();
        if !others.is_empty() {
            self.pending.push(given(shape, table.keys(Rows::Ids(&of)), set.read(Rows::Ids(&others)))?);
        }

        // The last part of each group is what stays.
        let (mut gone, mut begun, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for group in &self.changed.ids {
            let at = std::mem::replace(&mut self.part_of[*group as usize], NONE);
            let last = parts[at as usize];
            if last.rows == self.size {
                gone.push(*group);
            } else if last.begins == Begins::Later {
                begun.push(*group);
                rest.push(at);
            }
        }
        if !begun.is_empty() {
            self.groups.assign(shape, Window::WHOLE, &begun, &set.states(Rows::Ids(&rest)));
        }
        self.groups.remove(Window::WHOLE, &gone);
        Ok(())
    }

    /// What was restored is one window of each key that is not full.
    fn check(&self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let (mut keys, mut ids, mut rows) = (KeyIndex::new(&self.shape.key_types), Vec::new(), 0);
        for found in restored_rows(&self.shape, context.key_groups, restored)? {
            let counts = found.states.last().ok_or_else(|| other_windows(&self.shape))?;
            if counts.as_primitive::<Int64Type>().values().iter().any(|count| !(0..self.size).contains(count)) {
                return Err(other_windows(&self.shape));
            }
            ids.clear();
            keys.intern(&found.keys, found.rows, &mut ids);
            rows += found.rows;
        }
        if keys.len() == rows { Ok(()) } else { Err(other_windows(&self.shape)) }
    }
}

/// The state is of windows of another size or slide.
fn other_windows(shape: &Shape) -> EngineError {
    let reason = "it has chunks of rows that are not those of this window; restore with the window's size and slide as they were";
    refuse(shape, shape.state_name(), reason)
}

/// Keys and results, without what only the window's own state has.
fn given(shape: &Shape, keys: Vec<ArrayRef>, results: Vec<ArrayRef>) -> Result<RecordBatch, EngineError> {
    let columns = shape.output.fields().len();
    shape.output(keys.into_iter().chain(results).take(columns).collect())
}

impl Operator for WholeCounts {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.check(context, restored.clone())?;
        self.groups.open(&self.shape, context, restored)?;
        self.context = Some(context.clone());
        self.count()
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.groups.is_ready(&self.shape)
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (keys, inputs) = (self.shape.keys(&batch), self.shape.inputs(&batch));
        self.groups.intern(&self.shape, Window::WHOLE, &keys, batch.num_rows(), &mut self.ids)?;
        self.split(batch.num_rows())?;
        self.take(&inputs)?;
        self.groups.make_room(&self.shape)?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let rows_max = self.context.as_ref().expect("an operator is opened first").batch_rows_max;
        Ok(self.pending.pop(rows_max))
    }

    fn has_output(&self) -> bool {
        !self.pending.is_empty()
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        Ok(if finished { Vec::new() } else { vec![self.groups.snapshot(&self.shape, checkpoint)?] })
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        self.groups.background(&self.shape)
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.groups.abandon(checkpoint);
        }
        Ok(())
    }
}
