//! Functions over whole windows: the rows of a key in a window at once, when it fires.
//!
//! Must never know where windows come from.

use std::marker::PhantomData;
use std::ops::Range;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;
use levada_state::types::{StateReader, StateType, StateWriter};

use super::adapters::Accumulating;
use super::context::FunctionContext;
use super::error::FunctionError;
use super::output::Output;
use super::rows::Rows;

/// A function that gets the rows of each key in a window when that fires.
///
/// What it gives has the key's columns and the window's before it. Contract: called on the task's thread only, one call at a
/// time; a window's rows are what decides, fields of the function are lost with the task.
///
/// ```
/// use levada_engine::function::{FunctionError, Output, Rows, WindowFunction, WindowGroup};
///
/// /// The middle one of a window's values.
/// struct Median;
///
/// impl WindowFunction for Median {
///     fn process(&mut self, _group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError> {
///         let mut values = rows.column::<i64>("value")?.values().to_vec();
///         let middle = values.len() / 2;
///         out.push((*values.select_nth_unstable(middle).1,))
///     }
/// }
/// ```
pub trait WindowFunction: Send + 'static {
    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// A window fires in which this key has rows, at least one: as they came, but after a restore or in windows that overlap only
    /// those of one slice are in that order.
    fn process(&mut self, group: WindowGroup<'_>, rows: Rows<'_>, out: &mut Output) -> Result<(), FunctionError>;
}

/// A function that gets the rows of each key in a window of two inputs when that fires.
///
/// Contract: as of a window function.
pub trait CoGroupFunction: Send + 'static {
    /// The task starts.
    fn open(&mut self, _context: &FunctionContext) -> Result<(), FunctionError> {
        Ok(())
    }

    /// A window fires in which this key has rows, of one input or of both.
    fn co_group(
        &mut self,
        group: WindowGroup<'_>,
        first: Rows<'_>,
        second: Rows<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError>;
}

/// Whose rows they are: a key and a window.
#[derive(Debug, Clone, Copy)]
pub struct WindowGroup<'a> {
    key: Rows<'a>,
    start_ms: i64,
    end_ms: i64,
}

impl<'a> WindowGroup<'a> {
    /// The key's columns, one row.
    pub fn key(&self) -> Rows<'a> {
        self.key
    }

    /// The window's first millisecond since 1970.
    pub fn start_ms(&self) -> i64 {
        self.start_ms
    }

    /// The first millisecond behind the window.
    pub fn end_ms(&self) -> i64 {
        self.end_ms
    }
}

/// Groups that fire: keys of a window, or of several.
pub(crate) struct WindowGroups {
    pub(crate) bounds: GroupBounds,
    /// The key's columns, a row for each group.
    pub(crate) keys: RecordBatch,
    /// By input: rows, and which of them are each group's.
    pub(crate) inputs: Vec<(RecordBatch, Vec<Range<usize>>)>,
}

/// From when to when the windows of groups are.
pub(crate) enum GroupBounds {
    /// All groups are of one: its start and end.
    One(i64, i64),
    /// Starts and ends by group.
    Each(Vec<i64>, Vec<i64>),
}

impl WindowGroups {
    fn len(&self) -> usize {
        self.keys.num_rows()
    }

    /// Calls with each group, and its number.
    pub(super) fn each(
        &self,
        mut call: impl FnMut(WindowGroup<'_>, usize) -> Result<(), FunctionError>,
    ) -> Result<(), FunctionError> {
        (0..self.len()).try_for_each(|at| {
            let key = self.keys.slice(at, 1);
            let (start_ms, end_ms) = match &self.bounds {
                GroupBounds::One(start, end) => (*start, *end),
                GroupBounds::Each(starts, ends) => (starts[at], ends[at]),
            };
            call(WindowGroup { key: Rows::new(&key), start_ms, end_ms }, at)
        })
    }

    /// Which rows of an input a group has.
    pub(super) fn span(&self, input: usize, at: usize) -> Range<usize> {
        self.inputs[input].1[at].clone()
    }

    pub(super) fn rows(&self, input: usize, at: usize) -> RecordBatch {
        let (rows, spans) = &self.inputs[input];
        rows.slice(spans[at].start, spans[at].len())
    }
}

/// What an operator does with a function over whole windows.
pub(crate) trait WindowWork: Send {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError>;

    /// Gives the function groups; appends to `given` how many rows it gave for each, on its main output.
    fn fire(&mut self, groups: &WindowGroups, out: &mut Output, given: &mut Vec<usize>) -> Result<(), FunctionError>;
}

/// A window function without its type.
pub(super) struct Windowed<F>(pub(super) F);

impl<F: WindowFunction> WindowWork for Windowed<F> {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.0.open(context)
    }

    fn fire(&mut self, groups: &WindowGroups, out: &mut Output, given: &mut Vec<usize>) -> Result<(), FunctionError> {
        let function = &mut self.0;
        each(groups, out, given, |group, at, out| function.process(group, Rows::new(&groups.rows(0, at)), out))
    }
}

/// A co-group function without its type.
pub(super) struct CoGrouped<F>(pub(super) F);

impl<F: CoGroupFunction> WindowWork for CoGrouped<F> {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.0.open(context)
    }

    fn fire(&mut self, groups: &WindowGroups, out: &mut Output, given: &mut Vec<usize>) -> Result<(), FunctionError> {
        let function = &mut self.0;
        each(groups, out, given, |group, at, out| {
            function.co_group(group, Rows::new(&groups.rows(0, at)), Rows::new(&groups.rows(1, at)), out)
        })
    }
}

/// Calls a function for each group, and counts what it gives.
fn each(
    groups: &WindowGroups,
    out: &mut Output,
    given: &mut Vec<usize>,
    mut call: impl FnMut(WindowGroup<'_>, usize, &mut Output) -> Result<(), FunctionError>,
) -> Result<(), FunctionError> {
    groups.each(|group, at| {
        let before = out.waiting();
        call(group, at, out)?;
        given.push(out.waiting() - before);
        Ok(())
    })
}

/// A reduce, fold or aggregate over whole windows: a row for each group.
pub(super) struct Accumulated<A> {
    inputs: Vec<String>,
    kind: PhantomData<fn() -> A>,
}

impl<A> Default for Accumulated<A> {
    fn default() -> Self {
        Self { inputs: Vec::new(), kind: PhantomData }
    }
}

impl<A: Accumulating> WindowWork for Accumulated<A> {
    fn open(&mut self, context: &FunctionContext) -> Result<(), FunctionError> {
        self.inputs = context.declaration().inputs.iter().map(|column| column.name.clone()).collect();
        Ok(())
    }

    fn fire(&mut self, groups: &WindowGroups, out: &mut Output, given: &mut Vec<usize>) -> Result<(), FunctionError> {
        let (batch, spans) = &groups.inputs[0];
        let rows = Rows::new(batch);
        let arrays = self.inputs.iter().map(|name| rows.array(name).cloned()).collect::<Result<Vec<_>, _>>()?;
        let reader = A::Input::reader("input", &arrays)?;
        let mut writer = A::Output::writer(spans.len());
        for span in spans {
            writer.push(&A::over(span.clone().map(|row| reader.get(row))));
        }
        let mut columns: Vec<ArrayRef> = Vec::new();
        writer.finish(&mut columns)?;
        given.extend(std::iter::repeat_n(1, spans.len()));
        out.columns(columns)
    }
}
