//! What windows of keys hold, behind one seam: rows that a function gets, or accumulators that rows are added up in.
//!
//! All else is one thing for both: which windows a row is in, triggers and their timers, sessions that become one, late rows, restores.
//! Must never know when a window fires.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::OperatorSpec;
use levada_common::types::Column;
use levada_state::cold::ColdMetrics;
use levada_state::descriptor::{BindError, Binder};
use levada_state::snapshot::StatePart;

use super::table::Groups;
use crate::error::EngineError;
use crate::function::{Inner, TriggerResult};
use crate::operator::{OperatorContext, RestoredState};
use crate::operators::window::{Series, Split, Window};

/// Whose windows they are.
pub(in crate::operators) struct Frame {
    pub(in crate::operators) uid: Uid,
    pub(in crate::operators) clause: String,
    /// What errors of states name: the function, or the trigger.
    pub(in crate::operators) name: String,
    pub(in crate::operators) keys: Vec<Column>,
    pub(in crate::operators) key_schema: SchemaRef,
    /// Windows that overlap, of slices.
    pub(in crate::operators) series: Option<Series>,
}

impl Frame {
    /// Of this operator.
    pub(in crate::operators) fn new(spec: &OperatorSpec, name: &str, keys: Vec<Column>, series: Option<Series>) -> Self {
        let key_schema = Arc::new(Schema::new(keys.iter().map(Column::to_field).collect::<Vec<_>>()));
        Self { uid: spec.uid.clone(), clause: spec.clause.clone(), name: name.into(), keys, key_schema, series }
    }

    /// An Arrow kernel failed.
    pub(in crate::operators) fn kernel(&self, source: ArrowError) -> EngineError {
        EngineError::Kernel { uid: self.uid.clone(), clause: self.clause.clone(), source }
    }

    /// A rule of the engine's own was broken.
    pub(in crate::operators) fn invariant(&self, message: impl Into<String>) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message: message.into() }
    }
}

/// A batch of an input.
pub(in crate::operators) struct Arrival {
    pub(in crate::operators) input: usize,
    pub(in crate::operators) batch: RecordBatch,
    /// Its columns that are kept.
    pub(in crate::operators) kept: RecordBatch,
}

/// Rows of a batch and their groups: a row once for each of its windows.
#[derive(Default)]
pub(in crate::operators) struct Entries {
    pub(in crate::operators) rows: Vec<u32>,
    pub(in crate::operators) keys: Vec<u32>,
    pub(in crate::operators) windows: Vec<Window>,
    pub(in crate::operators) groups: Vec<u32>,
    /// Places of those with which a session begins earlier, rising, each with what it was before.
    pub(in crate::operators) restarts: Vec<(usize, Window)>,
}

impl Entries {
    /// Puts them in the order of their rows, those of one row as they are. Contract: before they have groups.
    pub(super) fn sort_by_row(&mut self) {
        let mut order: Vec<usize> = (0..self.rows.len()).collect();
        order.sort_by_key(|at| self.rows[*at]);
        self.keys = order.iter().map(|at| self.keys[*at]).collect();
        self.windows = order.iter().map(|at| self.windows[*at]).collect();
        self.rows = order.into_iter().map(|at| self.rows[at]).collect();
    }

    /// Those at these places.
    pub(super) fn part(&self, places: Range<usize>) -> Self {
        let within = self.restarts.iter().filter(|(at, _)| places.contains(at));
        Self {
            rows: self.rows[places.clone()].to_vec(),
            keys: self.keys[places.clone()].to_vec(),
            windows: self.windows[places.clone()].to_vec(),
            groups: self.groups[places.clone()].to_vec(),
            restarts: within.map(|(at, before)| (at - places.start, *before)).collect(),
        }
    }

    /// The columns of these rows of a batch.
    pub(in crate::operators) fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, ArrowError> {
        rows_of(batch.columns(), &self.rows)
    }
}

/// These rows of columns; the columns themselves where these are all of them.
pub(in crate::operators) fn rows_of(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
    let all = columns.first().map_or(0, |column| column.len());
    if rows.len() == all && rows.iter().enumerate().all(|(at, row)| at == *row as usize) {
        return Ok(columns.to_vec());
    }
    let rows = UInt32Array::from(rows.to_vec());
    columns.iter().map(|column| take(column, &rows, None)).collect()
}

/// The groups that there are, and the states of their keys and windows.
pub(in crate::operators) struct Place<'a> {
    pub(in crate::operators) groups: &'a Groups,
    pub(in crate::operators) inner: &'a mut Inner,
}

/// Which windows something is of that comes back from a snapshot, row by row.
pub(in crate::operators) enum Belongs {
    /// Of these, by what each was when it began; of sessions by what they were then or are now.
    In(Vec<Window>),
    /// Of the session that has this time.
    At(Vec<i64>),
}

/// Rows of a snapshot.
pub(in crate::operators) struct Returned<S> {
    pub(in crate::operators) keys: Vec<ArrayRef>,
    pub(in crate::operators) rows: usize,
    pub(in crate::operators) belongs: Belongs,
    /// The state that they are of.
    pub(in crate::operators) state: String,
    pub(in crate::operators) saved: S,
}

/// What windows hold.
///
/// Contract: groups are dense numbers, below `Groups::numbers`; one that is forgotten is cleared first, and its number may come again.
pub(in crate::operators) trait Contents: Send {
    /// What comes back of it.
    type Saved;

    /// Whether what a session has given is taken back where that begins earlier, or becomes part of another one.
    const TAKES_BACK: bool;

    /// Whose they are.
    fn frame(&self) -> &Frame;

    /// What makes it smaller where memory is short.
    fn remedy(&self) -> &'static str;

    /// The columns that are kept of rows of an input that come in at `now`, where windows go by that.
    fn kept(&self, input: usize, batch: &RecordBatch, now: Option<i64>) -> Result<RecordBatch, EngineError>;

    /// The key's columns among these.
    fn keys(&self, input: usize, kept: &RecordBatch) -> Vec<ArrayRef>;

    /// Them by window, or by slice where windows overlap. Sessions are not asked.
    fn split(&self, input: usize, kept: &RecordBatch, now: Option<i64>) -> Result<Vec<(Window, Split)>, EngineError>;

    /// Binds what it keeps by key and window beside its contents.
    fn bind(&mut self, binder: &mut dyn Binder) -> Result<(), BindError>;

    /// The task starts.
    fn open(&mut self, context: &OperatorContext) -> Result<(), EngineError>;

    /// Takes out of a snapshot what it says of a store.
    ///
    /// Errors: `Restore` where that cannot be read.
    fn take_stored(&mut self, _restored: &mut Vec<RestoredState>) -> Result<(), EngineError> {
        Ok(())
    }

    /// The groups that there are have in the store what they had in the snapshot, where it was theirs.
    fn stand(&mut self, _place: &mut Place<'_>) {}

    /// The next that a store has, or files beside it, and in no group; it is there no longer.
    ///
    /// Errors: as `read`.
    fn next_stored(&mut self) -> Result<Option<Returned<Self::Saved>>, EngineError> {
        Ok(None)
    }

    /// Before rows come: gives memory back, if it has to wait for it.
    fn settle(&mut self, _place: &mut Place<'_>) -> Result<(), EngineError> {
        Ok(())
    }

    /// Whether there is room for more rows. Where there is none, a store is writing: it wakes the task when it is done.
    fn is_ready(&mut self, _place: &mut Place<'_>) -> Result<bool, EngineError> {
        Ok(true)
    }

    /// How many groups may have all they hold in memory at once.
    fn groups_at_once(&self) -> usize {
        usize::MAX
    }

    /// Brings in what only a store has of these groups, which are about to fire.
    fn bring_in(&mut self, _place: &mut Place<'_>, _groups: &[u32]) -> Result<(), EngineError> {
        Ok(())
    }

    /// Takes rows into their groups, and does what was answered for each, row by row. What a session gave that begins earlier with a row
    /// is taken back before it.
    fn take_in(
        &mut self,
        place: &mut Place<'_>,
        arrival: &Arrival,
        entries: &Entries,
        answers: &[TriggerResult],
    ) -> Result<(), EngineError>;

    /// Does with a group, whose window is this, what was answered.
    fn answer(&mut self, place: &mut Place<'_>, group: u32, window: Window, answer: TriggerResult) -> Result<(), EngineError>;

    /// All that has fired is given.
    fn flush(&mut self, place: &mut Place<'_>) -> Result<(), EngineError>;

    /// Puts all that a group has into another. Contract: behind `flush`.
    fn merge(&mut self, place: &mut Place<'_>, into: u32, from: u32) -> Result<(), EngineError>;

    /// A session, which is this, is about to begin earlier, or to be part of another. Contract: behind `flush`; only where it
    /// `TAKES_BACK`.
    fn take_back(&mut self, place: &mut Place<'_>, group: u32, window: Window) -> Result<(), EngineError>;

    /// Forgets what these groups have.
    fn clear(&mut self, place: &mut Place<'_>, groups: &[u32]);

    /// After each change, behind `flush`: gives memory back.
    fn tidy(&mut self, place: &mut Place<'_>) -> Result<(), EngineError>;

    /// Rows that wait to go out.
    fn waiting(&self) -> usize;

    /// The next ones.
    fn next(&mut self) -> Result<Option<RecordBatch>, EngineError>;

    /// Whether rows wait for other outputs.
    fn has_side_rows(&self) -> bool;

    /// The next of these, with the place of their output.
    fn next_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError>;

    /// Whether a state of this name is its own, and comes back by `read`.
    fn has_state(&self, name: &str) -> bool;

    /// What a snapshot had of these key groups.
    ///
    /// Errors: `Restore` where it is of another shape.
    fn read(&self, restored: Vec<RestoredState>, key_groups: KeyGroupRange) -> Result<Vec<Returned<Self::Saved>>, EngineError>;

    /// Takes it back, row by row into these groups.
    fn put_back(&mut self, place: &mut Place<'_>, saved: Self::Saved, groups: &[u32]) -> Result<(), EngineError>;

    /// The synchronous part of a snapshot.
    fn snapshot(&mut self, place: &mut Place<'_>, checkpoint: CheckpointId) -> Result<Vec<StatePart>, EngineError>;

    /// Saves a further piece of it; whether more remains.
    fn background(&mut self, place: &mut Place<'_>) -> Result<bool, EngineError>;

    /// The checkpoint will not be.
    fn abandon(&mut self, checkpoint: CheckpointId);

    /// Bytes held on the heap, by state.
    fn sizes(&self) -> Vec<(&str, usize)>;

    /// What a store did and has, and bytes held in front of it.
    fn before_store(&self) -> Option<(ColdMetrics, usize)> {
        None
    }
}
