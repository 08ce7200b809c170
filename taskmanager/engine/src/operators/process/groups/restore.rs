//! What a snapshot had, back into groups: windows first, then the rows of each.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::TimestampMillisecondType;
use levada_common::plan::ProcessSpec;
use levada_common::planned_state::ROW_NUMBERS;
use levada_common::time::Watermark;

use super::{GroupProcess, Running};
use super::table::NO_GROUP;
use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::operators::process::states;
use crate::operators::waiting::{self, RestoredRows};
use crate::operators::window::Window;

impl GroupProcess {
    /// Takes the states of a snapshot in. Windows that are over by now, and take no more rows, are left out: they were given. By processing
    /// time what was given is not there.
    ///
    /// Errors: `Restore` for a state that it does not have, or has otherwise, and for rows of no session.
    pub(super) fn restore(&mut self, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let Some(Running { context, inner, .. }) = &mut self.running else { return Ok(()) };
        self.clock.restore(&self.shape.uid, context, &mut restored)?;
        match self.clock.now() {
            None => inner.set_watermark(Watermark(self.clock.watermark())),
            Some(now) => inner.set_processing_time(now),
        }
        let is_rows = |state: &RestoredState| self.shape.sides.iter().any(|side| side.state.name == state.name);
        // What a window had that gave its rows once: how rows of a store were numbered.
        let restored = restored.into_iter().filter(|state| state.name != ROW_NUMBERS);
        let (rows, others): (Vec<_>, Vec<_>) = restored.partition(is_rows);
        let key_groups = self.running().context.key_groups;
        let rows = waiting::read(&self.shape.uid, &self.shape.sides, key_groups, rows)?;
        let (uid, failed) = (self.shape.uid.clone(), self.failed());
        let running = self.running();
        states::restore(&uid, &mut running.inner, &running.context, others)?;
        let mut found = Vec::new();
        let windows = running.windows.for_each_key(&mut running.inner.keyed, |key, name, (start, end)| {
            let name = name.expect("it is kept per window");
            found.push((key, Window { start: name.start, end: name.end }, Window { start: *start, end: *end }));
        });
        windows.map_err(|source| failed(source.into()))?;
        self.restore_windows(&found);
        rows.into_iter().try_for_each(|rows| self.restore_rows(rows))?;
        // `is_late` says no by processing time.
        let given: Vec<u32> = (0..self.groups.numbers() as u32)
            .filter(|group| self.groups.has(*group) && self.is_late(self.groups.get(*group).window))
            .collect();
        given.into_iter().for_each(|group| self.forget(group));
        Ok(())
    }

    /// Windows of keys: the id of each key, what the window was when it began, what it is.
    fn restore_windows(&mut self, found: &[(u32, Window, Window)]) {
        if !self.sessions.is_empty() {
            for (key, name, window) in found {
                let group = self.groups.open(*key, *name, *window);
                self.schedule(group);
            }
            return;
        }
        let keys: Vec<u32> = found.iter().map(|(key, ..)| *key).collect();
        let windows: Vec<Window> = found.iter().map(|(_, name, _)| *name).collect();
        let mut made = Vec::new();
        self.groups.enter(&keys, &windows, &mut Vec::new(), &mut made);
        made.into_iter().for_each(|group| self.schedule(group));
    }

    fn restore_rows(&mut self, rows: RestoredRows) -> Result<(), EngineError> {
        let RestoredRows { side: input, batch, windows, .. } = rows;
        let side = &self.shape.sides[input];
        let (keys, mut ids, mut groups) = (side.keys(batch.columns()), Vec::new(), Vec::new());
        self.inner().keyed.intern(&keys, batch.num_rows(), &mut ids);
        if self.sessions.is_empty() {
            let windows = match &windows {
                Some(windows) => windows_of(windows),
                None => self.windows_of_rows(input, &batch)?,
            };
            let mut made = Vec::new();
            self.groups.enter(&ids, &windows, &mut groups, &mut made);
            made.into_iter().for_each(|group| self.schedule(group));
        } else {
            let side = &self.shape.sides[input];
            let place = side.time.expect("sessions go by a time of rows");
            let times = crate::operators::window::times(batch.column(place)).map_err(|reason| self.shape.invariant(reason))?;
            for (key, time) in ids.iter().zip(times) {
                let mut near = self.groups.touching(*key, Window { start: *time, end: *time });
                let found = near.find(|group| self.groups.get(*group).window.has(*time));
                groups.push(found.unwrap_or(NO_GROUP));
            }
            if let Some(at) = groups.iter().position(|group| *group == NO_GROUP) {
                let reason = format!("a row at {} is in no session of its key in state \"{}\"", times[at], ProcessSpec::WINDOWS);
                let (uid, state) = (self.shape.uid.clone(), side.state.name.clone());
                return Err(EngineError::Restore { uid, state, reason });
            }
        }
        let columns: Vec<ArrayRef> = batch.columns().iter().cloned().chain(windows).collect();
        let mut numbers = Vec::with_capacity(groups.len());
        let kept = self.held[input].push(&columns, self.groups.numbers(), &mut numbers);
        kept.map_err(|source| self.shape.kernel(source))?;
        groups.into_iter().zip(numbers).for_each(|(group, number)| self.held[input].append(group, number));
        Ok(())
    }

    /// The window of each row, where it is in one.
    fn windows_of_rows(&self, input: usize, batch: &arrow::record_batch::RecordBatch) -> Result<Vec<Window>, EngineError> {
        let source = self.shape.sides[input].windows.as_ref().expect("it is in windows");
        let mut windows = vec![Window::WHOLE; batch.num_rows()];
        for (window, split) in source.split(batch).map_err(|reason| self.shape.invariant(reason))? {
            split.numbers(batch.num_rows()).into_iter().for_each(|row| windows[row as usize] = window);
        }
        Ok(windows)
    }
}

/// A column of windows.
fn windows_of(column: &ArrayRef) -> Vec<Window> {
    let times = |at: usize| column.as_struct().column(at).as_primitive::<TimestampMillisecondType>().values().clone();
    times(0).iter().zip(times(1).iter()).map(|(start, end)| Window { start: *start, end: *end }).collect()
}
