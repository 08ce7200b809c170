//! What goes out of windows that give results more than once: groups that have changed, in the order in which it was asked for.
//!
//! A cursor over the groups of panes that stay, never a copy of them. Contract: nothing else happens to the panes until everything that
//! was asked for is out.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use levada_state::rows::Rows;

use super::super::change_rows::ChangeRows;
use super::super::group_table::GroupTable;
use super::super::panes::{Emission, OpenPanes, StoredRows};
use super::super::shape::Shape;
use crate::error::EngineError;
use crate::operators::window::Window;

/// Something to be given: only groups that have changed since they were given go out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    /// These groups of a window's pane.
    These(Window, Vec<u32>),
    /// All groups of a window.
    All(Window),
    /// All groups of a window, which is forgotten.
    Last(Window),
}

/// What is being given.
#[derive(Debug)]
pub(super) struct Giving {
    shape: Arc<Shape>,
    /// Whether changes go out, and not rows.
    is_changelog: bool,
    jobs: VecDeque<Job>,
    /// How far the first job has come: the next group of its pane, or of its list.
    cursor: usize,
    /// The rest of the first job: what only the store has of its window.
    stored: Option<StoredRows>,
    /// Panes that were taken out.
    leaving: Emission,
    ids: Vec<u32>,
}

impl Giving {
    pub(super) fn new(shape: Arc<Shape>, is_changelog: bool) -> Self {
        let (jobs, leaving, ids) = (VecDeque::new(), Emission::default(), Vec::new());
        Self { shape, is_changelog, jobs, cursor: 0, stored: None, leaving, ids }
    }

    /// Asks for something behind everything else.
    pub(super) fn push(&mut self, job: Job) {
        if self.jobs.back() != Some(&job) {
            self.jobs.push_back(job);
        }
    }

    /// Whether something was asked for that is not out.
    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// The rows of the next groups, at most `rows_max` of these; those that go out of panes that stay count as given. Small panes share
    /// a batch.
    pub(super) fn next(&mut self, panes: &mut OpenPanes, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let (mut parts, mut rows) = (Vec::new(), 0);
        loop {
            if let Some(batch) = self.next_leaving(panes, rows_max)? {
                return Ok(Some(batch));
            }
            if rows >= rows_max {
                break;
            }
            match self.jobs.front() {
                None => break,
                Some(Job::Last(_)) if rows > 0 => break,
                Some(Job::Last(_)) => self.take_leaving(panes)?,
                Some(_) => match self.next_part(panes, rows_max - rows)? {
                    Some(part) => {
                        rows += part.num_rows();
                        parts.push(part);
                    }
                    None => {
                        self.jobs.pop_front();
                        self.cursor = 0;
                    }
                },
            }
        }
        self.shape.joined(parts)
    }

    /// The next windows, as far as they are forgotten, go out together.
    fn take_leaving(&mut self, panes: &mut OpenPanes) -> Result<(), EngineError> {
        while let Some(Job::Last(window)) = self.jobs.front() {
            let pane = panes.pop(&self.shape, *window)?;
            self.leaving.push(pane);
            self.jobs.pop_front();
        }
        Ok(())
    }

    fn next_leaving(&mut self, panes: &mut OpenPanes, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let (shape, is_changelog) = (&self.shape, self.is_changelog);
        loop {
            let columns = |window, groups: &GroupTable, rows: Rows<'_>| {
                result_columns(shape, is_changelog, window, groups, &groups.due(rows))
            };
            match self.leaving.next(shape, panes, rows_max, columns)? {
                Some(batch) if batch.num_rows() == 0 => {}
                batch => return Ok(batch),
            }
        }
    }

    /// The next rows of the first job, of a pane that stays; none where there are no more.
    fn next_part(&mut self, panes: &mut OpenPanes, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        if self.stored.is_some() {
            return self.next_stored(panes, rows_max);
        }
        let Self { shape, is_changelog, jobs, cursor, stored, ids, .. } = self;
        let Some(job) = jobs.front() else { return Ok(None) };
        let (Job::These(window, _) | Job::All(window) | Job::Last(window)) = job;
        let groups = &panes.opened(shape, *window).groups;
        ids.clear();
        let len = if let Job::These(_, these) = job { these.len() } else { groups.len() };
        while ids.len() < rows_max && *cursor < len {
            let (start, end) = (*cursor, len.min(*cursor + rows_max - ids.len()));
            ids.extend(match job {
                Job::These(_, these) => groups.due(Rows::Ids(&these[start..end])),
                Job::All(_) | Job::Last(_) => groups.due(Rows::Span { start, end }),
            });
            *cursor = end;
        }
        if !ids.is_empty() {
            let batch = shape.output(result_columns(shape, *is_changelog, *window, groups, ids)?)?;
            panes.give(shape, *window, ids)?;
            return Ok(Some(batch));
        }
        if !matches!(job, Job::These(..)) {
            *stored = panes.stored_due(shape, *window)?;
        }
        self.next_stored(panes, rows_max)
    }

    fn next_stored(&mut self, panes: &mut OpenPanes, rows_max: usize) -> Result<Option<RecordBatch>, EngineError> {
        let Some(stored) = &mut self.stored else { return Ok(None) };
        let (shape, is_changelog) = (&self.shape, self.is_changelog);
        let batch = stored.next(shape, panes, rows_max, |window, groups, rows| {
            result_columns(shape, is_changelog, window, groups, &groups.due(rows))
        })?;
        if batch.is_none() {
            self.stored = None;
        }
        Ok(batch)
    }
}

/// The rows of these groups. Where what was given last is kept it goes out before what replaces it: two rows of a group then.
fn result_columns(
    shape: &Shape,
    is_changelog: bool,
    window: Window,
    groups: &GroupTable,
    due: &[u32],
) -> Result<Vec<ArrayRef>, EngineError> {
    let rows = Rows::Ids(due);
    let bounds = shape.is_windowed.then(|| window.result_columns(due.len()));
    let known: Vec<ArrayRef> = groups.keys(rows).into_iter().chain(bounds.into_iter().flatten()).collect();
    let after = known.iter().cloned().chain(groups.read(rows)).collect();
    if !is_changelog {
        return Ok(after);
    }
    let given = groups.given(rows);
    let mut changes = ChangeRows::default();
    for (row, id) in due.iter().enumerate() {
        match groups.is_given(*id) {
            false => changes.insert(row),
            true => changes.update(given.as_ref().filter(|given| given.is_valid(row)).map(|_| row), row),
        }
    }
    let before: Vec<ArrayRef> = given.iter().flat_map(|given| known.iter().chain(given.columns())).cloned().collect();
    changes.columns(shape, &before, after)
}
