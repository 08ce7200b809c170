//! Groups that fire: gathered until there are enough of them, handed to the function together, and what it gives for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, TimestampMillisecondArray};
use arrow::compute::{filter_record_batch, interleave};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::evict::Evictor;
use super::held::Held;
use crate::error::EngineError;
use crate::function::{FunctionError, GroupBounds, Inner, Output, WindowGroups, WindowWork};
use crate::operators::process::guard::guarded;
use crate::operators::process::window::Shape;
use crate::operators::rows::{Marks, Part};
use crate::operators::window::Window;

/// Groups that a function gets in one go.
const GROUPS_MAX: usize = 256;

/// Groups that fire, with their rows as they were then.
#[derive(Default)]
pub(super) struct Firing {
    groups: Vec<u32>,
    keys: Vec<u32>,
    windows: Vec<Window>,
    /// By input.
    rows: Vec<Vec<u32>>,
    spans: Vec<Vec<Range<usize>>>,
    /// Which groups are among them; noted only where a function does not get all rows.
    among: Marks,
}

impl Firing {
    /// Of an operator with so many inputs.
    pub(super) fn new(inputs: usize) -> Self {
        Self { rows: vec![Vec::new(); inputs], spans: vec![Vec::new(); inputs], ..Self::default() }
    }

    /// Adds a group as it is now, if it has rows.
    pub(super) fn push(&mut self, group: u32, key: u32, window: Window, held: &[Held]) {
        if held.iter().all(|held| held.len(group) == 0) {
            return;
        }
        self.groups.push(group);
        self.keys.push(key);
        self.windows.push(window);
        for ((held, rows), spans) in held.iter().zip(&mut self.rows).zip(&mut self.spans) {
            let start = rows.len();
            held.rows_of(group, rows);
            spans.push(start..rows.len());
        }
        self.among.resize(group as usize + 1);
        self.among.set(group);
    }

    /// Whether the group is among them.
    pub(super) fn has(&self, group: u32) -> bool {
        self.among.has(group)
    }

    /// Whether there are as many as the function gets at once, or as many rows.
    pub(super) fn is_full(&self, rows_max: usize) -> bool {
        self.groups.len() >= GROUPS_MAX || self.rows.iter().any(|rows| rows.len() >= rows_max)
    }

    /// Hands them to the function; what it gives waits in `given`. Rows that the evictor names are removed.
    ///
    /// Errors: what the function or the evictor answers.
    pub(super) fn flush(
        &mut self,
        shape: &Shape,
        held: &mut [Held],
        (work, evictor): (&mut dyn WindowWork, Option<&mut Evictor>),
        (inner, out, given): (&Inner, &mut Output, &mut Given),
        failed: &impl Fn(FunctionError) -> EngineError,
    ) -> Result<(), EngineError> {
        if self.groups.is_empty() {
            return Ok(());
        }
        let (mut keys, mut windows) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.windows));
        let mut rows: Vec<Vec<u32>> = self.rows.iter_mut().map(std::mem::take).collect();
        let mut spans: Vec<Vec<Range<usize>>> = self.spans.iter_mut().map(std::mem::take).collect();
        self.groups.drain(..).for_each(|group| self.among.clear(group));
        let mut evictor = evictor;
        let mut groups = groups(shape, held, inner, (&keys, &windows), (&rows, &spans))?;
        if let Some(evictor) = &mut evictor {
            let mut keep = vec![true; rows[0].len()];
            guarded(|| evictor.before(&groups, &mut keep)).map_err(failed)?;
            if keep.contains(&false) {
                remove(&mut held[0], &rows[0], &keep);
                let left = left(&groups, &keep, &mut rows[0], &mut spans[0]).map_err(|source| shape.kernel(source))?;
                let is_left: Vec<bool> = spans[0].iter().map(|span| !span.is_empty()).collect();
                retain(&mut keys, &is_left);
                retain(&mut windows, &is_left);
                spans[0].retain(|span| !span.is_empty());
                groups = with_rows(shape, inner, (&keys, &windows), vec![(left, spans[0].clone())])?;
            }
        }
        let mut counts = Vec::with_capacity(keys.len());
        guarded(|| work.fire(&groups, out, &mut counts)).map_err(failed)?;
        if let Some(evictor) = &mut evictor {
            let mut keep = vec![true; rows[0].len()];
            guarded(|| evictor.after(&groups, &mut keep)).map_err(failed)?;
            remove(&mut held[0], &rows[0], &keep);
        }
        given.push(groups.keys, windows, &counts);
        Ok(())
    }
}

/// Removes rows that are not kept.
fn remove(held: &mut Held, rows: &[u32], keep: &[bool]) {
    rows.iter().zip(keep).filter(|(_, keep)| !**keep).for_each(|(row, _)| held.remove(*row));
}

fn retain<T>(values: &mut Vec<T>, keep: &[bool]) {
    let mut keep = keep.iter();
    values.retain(|_| *keep.next().expect("a mark for each"));
}

/// The rows of the first input that are kept; `rows` and `spans` are made those of the kept ones.
fn left(
    groups: &WindowGroups,
    keep: &[bool],
    rows: &mut Vec<u32>,
    spans: &mut [Range<usize>],
) -> Result<RecordBatch, arrow::error::ArrowError> {
    let mut next = 0;
    for span in spans {
        let kept = keep[span.clone()].iter().filter(|keep| **keep).count();
        *span = next..next + kept;
        next += kept;
    }
    retain(rows, keep);
    filter_record_batch(&groups.inputs[0].0, &BooleanArray::from(keep.to_vec()))
}

/// Groups with these rows of the heaps.
fn groups(
    shape: &Shape,
    held: &[Held],
    inner: &Inner,
    keys: (&[u32], &[Window]),
    (rows, spans): (&[Vec<u32>], &[Vec<Range<usize>>]),
) -> Result<WindowGroups, EngineError> {
    let mut inputs = Vec::with_capacity(held.len());
    for (((held, rows), spans), side) in held.iter().zip(rows).zip(spans).zip(&shape.sides) {
        let batch = if rows.is_empty() {
            RecordBatch::new_empty(Arc::clone(&side.input))
        } else {
            let part = Part::in_heap(&held.heap, rows);
            let fields = side.input.fields().iter().enumerate();
            let columns = fields.map(|(at, field)| part.column(at, field.data_type(), rows.len())).collect::<Result<Vec<_>, _>>();
            columns.and_then(|columns| side.batch(columns)).map_err(|source| shape.kernel(source))?
        };
        inputs.push((batch, spans.clone()));
    }
    with_rows(shape, inner, keys, inputs)
}

/// Groups with these rows.
fn with_rows(
    shape: &Shape,
    inner: &Inner,
    (keys, windows): (&[u32], &[Window]),
    inputs: Vec<(RecordBatch, Vec<Range<usize>>)>,
) -> Result<WindowGroups, EngineError> {
    let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
    let keys = RecordBatch::try_new_with_options(Arc::clone(&shape.key_schema), inner.keyed.key_columns(keys), &options);
    let keys = keys.map_err(|source| shape.kernel(source))?;
    let starts = windows.iter().map(|window| window.start).collect();
    let bounds = GroupBounds::Each(starts, windows.iter().map(|window| window.end).collect());
    Ok(WindowGroups { bounds, keys, inputs })
}

/// Whose the rows are that the function gave, in their order.
#[derive(Default)]
pub(super) struct Given {
    blocks: VecDeque<Block>,
}

struct Block {
    keys: RecordBatch,
    windows: Vec<Window>,
    /// Groups that gave rows, and how many that are not out yet.
    runs: VecDeque<(usize, usize)>,
}

impl Given {
    fn push(&mut self, keys: RecordBatch, windows: Vec<Window>, counts: &[usize]) {
        let runs: VecDeque<_> = counts.iter().copied().enumerate().filter(|(_, rows)| *rows > 0).collect();
        if !runs.is_empty() {
            self.blocks.push_back(Block { keys, windows, runs });
        }
    }

    /// Puts keys and windows before the next rows that the function gave.
    pub(super) fn output(&mut self, shape: &Shape, own: &RecordBatch) -> Result<RecordBatch, EngineError> {
        let rows = own.num_rows();
        let (mut places, mut windows, mut keys) = (Vec::with_capacity(rows), Vec::with_capacity(rows), Vec::new());
        while places.len() < rows
            && let Some(block) = self.blocks.front_mut()
        {
            while let Some((group, left)) = block.runs.front_mut().filter(|_| places.len() < rows) {
                let taken = (*left).min(rows - places.len());
                places.extend(std::iter::repeat_n((keys.len(), *group), taken));
                windows.extend(std::iter::repeat_n(block.windows[*group], taken));
                *left -= taken;
                if *left == 0 {
                    block.runs.pop_front();
                }
            }
            keys.push(block.keys.clone());
            if block.runs.is_empty() {
                self.blocks.pop_front();
            }
        }
        let key = |at: usize| {
            let parts: Vec<&dyn Array> = keys.iter().map(|keys| keys.column(at).as_ref()).collect();
            interleave(&parts, &places)
        };
        let keys = (0..shape.keys.len()).map(key).collect::<Result<Vec<_>, _>>().map_err(|source| shape.kernel(source))?;
        let times = |time: fn(&Window) -> i64| -> ArrayRef {
            Arc::new(TimestampMillisecondArray::from_iter_values(windows.iter().map(time)))
        };
        let window = [times(|window| window.start), times(|window| window.end), times(|window| window.end.saturating_sub(1))];
        let columns: Vec<ArrayRef> = keys.into_iter().chain(window).chain(own.columns().iter().cloned()).collect();
        RecordBatch::try_new(Arc::clone(&shape.output), columns).map_err(|source| shape.kernel(source))
    }
}
