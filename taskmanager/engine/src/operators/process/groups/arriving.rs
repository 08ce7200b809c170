//! Rows on their way into their groups: which windows they are in, what the trigger says of them, and sessions that become one.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, TimestampMillisecondArray, UInt32Array};
use arrow::compute::take;
use arrow::record_batch::RecordBatch;

use super::GroupProcess;
use super::table::{Group, namespace};
use crate::error::EngineError;
use crate::function::{MergedWindows, Namespace, Rows, TriggerResult, TriggerRows};
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;
use crate::operators::window::{Split, Window, namespace_column};

/// A batch of an input.
struct Arrival {
    input: usize,
    batch: RecordBatch,
    /// Its columns that are kept.
    kept: RecordBatch,
}

/// Rows of a batch and their groups: a row once for each of its windows.
#[derive(Default)]
struct Entries {
    rows: Vec<u32>,
    keys: Vec<u32>,
    windows: Vec<Window>,
    groups: Vec<u32>,
}

impl GroupProcess {
    /// Takes rows of an input in.
    pub(super) fn take_in(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let (batch, bounds) = match self.sessions.get(input) {
            Some(source) => source.read(batch, self.clock.now()).map(|(batch, bounds)| (batch, Some(bounds)))?,
            None => (batch, None),
        };
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let side = &self.shape.sides[input];
        let kept = side.rows(batch.clone(), self.clock.now()).map_err(|source| self.shape.kernel(source))?;
        let (keys, failed) = (side.keys(kept.columns()), self.failed());
        let inner = self.inner();
        inner.enter(&keys, batch.num_rows()).map_err(failed)?;
        let ids = std::mem::take(&mut inner.ids);
        let arrival = Arrival { input, batch, kept };
        let late = match bounds {
            None => self.take_into_windows(&arrival, &ids)?,
            Some(bounds) => self.take_into_sessions(&arrival, &ids, &bounds.starts, &bounds.ends)?,
        };
        for split in late {
            self.late[input].take(&arrival.batch, &split).map_err(|source| self.shape.kernel(source))?;
        }
        Ok(())
    }

    /// Takes rows with these keys into the windows of their times; answers which are late.
    fn take_into_windows(&mut self, arrival: &Arrival, ids: &[u32]) -> Result<Vec<Split>, EngineError> {
        let windows = self.shape.sides[arrival.input].windows.as_ref().expect("it is in windows");
        let (mut entries, mut late) = (Entries::default(), Vec::new());
        let fired = self.clock.watermark().saturating_sub(self.lateness_ms);
        for (pane, split) in windows.split(&arrival.kept).map_err(|reason| self.shape.invariant(reason))? {
            let rows = split.numbers(ids.len());
            let mut enter = |window: Window| {
                entries.keys.extend(rows.iter().map(|row| ids[*row as usize]));
                entries.windows.extend(std::iter::repeat_n(window, rows.len()));
                entries.rows.extend_from_slice(&rows);
            };
            let next = |window: &Window| self.shape.series?.first_after(pane, window.end.saturating_sub(1));
            let first = match self.shape.series {
                Some(series) => series.first_after(pane, fired),
                None => Some(pane).filter(|pane| !self.is_late(*pane)),
            };
            if first.is_none() {
                late.push(split);
                continue;
            }
            std::iter::successors(first, next).for_each(&mut enter);
        }
        let mut made = Vec::new();
        self.groups.enter(&entries.keys, &entries.windows, &mut entries.groups, &mut made);
        made.into_iter().for_each(|group| self.schedule(group));
        self.arrive(arrival, &entries)?;
        Ok(late)
    }

    /// Takes rows with these keys, which hold sessions open from `starts` to `ends`, into them; answers which are late.
    fn take_into_sessions(
        &mut self,
        arrival: &Arrival,
        ids: &[u32],
        starts: &[i64],
        ends: &[i64],
    ) -> Result<Vec<Split>, EngineError> {
        let (mut entries, mut late, mut touched) = (Entries::default(), Vec::new(), Vec::new());
        for (row, (key, (start, end))) in ids.iter().zip(starts.iter().zip(ends)).enumerate() {
            let own = Window { start: *start, end: *end };
            touched.clear();
            touched.extend(self.groups.touching(*key, own));
            let group = match touched.as_slice() {
                [] if self.is_late(own) => {
                    late.push(row as u32);
                    continue;
                }
                [] => {
                    let group = self.groups.open(*key, own, own);
                    self.schedule(group);
                    group
                }
                [group] => {
                    let group = *group;
                    let window = hull(self.groups.get(group).window, own);
                    self.groups.grow(group, window);
                    self.schedule(group);
                    group
                }
                // What came before belongs to the sessions as they were.
                several => {
                    self.arrive(arrival, &std::mem::take(&mut entries))?;
                    self.flush()?;
                    self.merge(several, own)?
                }
            };
            entries.rows.push(row as u32);
            entries.keys.push(*key);
            entries.windows.push(self.groups.get(group).window);
            entries.groups.push(group);
        }
        self.arrive(arrival, &entries)?;
        Ok(if late.is_empty() { Vec::new() } else { vec![Split::Rows(UInt32Array::from(late))] })
    }

    /// Makes sessions of a key one, which reaches over `own` too; answers it. The earliest one goes on.
    fn merge(&mut self, sessions: &[u32], own: Window) -> Result<u32, EngineError> {
        let start = |group: &u32| self.groups.get(*group).window.start;
        let into = sessions.iter().copied().min_by_key(start).expect("there are several");
        let from: Vec<u32> = sessions.iter().copied().filter(|group| *group != into).collect();
        let window = sessions.iter().fold(own, |window, group| hull(window, self.groups.get(*group).window));
        let Group { key, name, .. } = *self.groups.get(into);
        let names: Vec<Namespace> = from.iter().map(|group| namespace(self.groups.get(*group).name)).collect();
        let Self { shape, trigger, running: Some(running), .. } = self else { return Ok(into) };
        if let Some(trigger) = trigger {
            running.inner.enter_windows([key], [namespace(name)]);
            let merged = MergedWindows { into: namespace(name), from: &names, window: namespace(window) };
            let merged = guarded(|| trigger.work.on_merge(merged, &mut running.inner));
            merged.map_err(failed(&shape.uid, &trigger.declaration.name))?;
        }
        for group in from {
            self.held.iter_mut().for_each(|held| held.merge(into, group));
            self.forget(group);
        }
        self.groups.grow(into, window);
        self.schedule(into);
        Ok(into)
    }

    /// Takes rows into their groups, and does what the trigger answers, row by row.
    fn arrive(&mut self, arrival: &Arrival, entries: &Entries) -> Result<(), EngineError> {
        if entries.rows.is_empty() {
            return Ok(());
        }
        let (input, numbers) = (arrival.input, self.keep(arrival, entries)?);
        let over: Vec<bool> = entries.groups.iter().map(|group| self.is_over(*group)).collect();
        let answers = self.answers(arrival, entries, &over)?;
        for (at, (group, number)) in entries.groups.iter().zip(numbers).enumerate() {
            // Which of its rows stay is known when the evictor was asked.
            if self.evictor.is_some() && self.firing.has(*group) {
                self.flush()?;
            }
            self.held[input].append(*group, number);
            if answers[at] != TriggerResult::Continue {
                self.answer(*group, entries.windows[at], answers[at])?;
            }
        }
        Ok(())
    }

    /// Does with a group, whose window is this, what was answered.
    pub(super) fn answer(&mut self, group: u32, window: Window, answer: TriggerResult) -> Result<(), EngineError> {
        if answer.fires() {
            let Group { key, .. } = *self.groups.get(group);
            self.firing.push(group, key, window, &self.held);
        }
        if answer.purges() {
            if self.evictor.is_some() {
                self.flush()?;
            }
            self.held.iter_mut().for_each(|held| held.clear(group));
        }
        let rows_max = self.running().context.batch_rows_max;
        if self.firing.is_full(rows_max) { self.flush() } else { Ok(()) }
    }

    /// Keeps the rows, and answers their numbers.
    fn keep(&mut self, arrival: &Arrival, entries: &Entries) -> Result<Vec<u32>, EngineError> {
        let kept = &arrival.kept;
        let is_whole =
            entries.rows.len() == kept.num_rows() && entries.rows.iter().enumerate().all(|(at, row)| at == *row as usize);
        let mut columns = if is_whole {
            kept.columns().to_vec()
        } else {
            let rows = UInt32Array::from(entries.rows.clone());
            let columns = kept.columns().iter().map(|column| take(column, &rows, None));
            columns.collect::<Result<Vec<_>, _>>().map_err(|source| self.shape.kernel(source))?
        };
        if self.shape.series.is_some() {
            columns.push(window_column(&entries.windows));
        }
        let mut numbers = Vec::with_capacity(entries.rows.len());
        let kept = self.held[arrival.input].push(&columns, self.groups.numbers(), &mut numbers);
        kept.map_err(|source| self.shape.kernel(source))?;
        Ok(numbers)
    }

    /// What becomes of the group of each row: what the trigger says, and without one the last row of each window that is over gives it.
    fn answers(&mut self, arrival: &Arrival, entries: &Entries, over: &[bool]) -> Result<Vec<TriggerResult>, EngineError> {
        let mut answers = vec![TriggerResult::Continue; over.len()];
        if over.contains(&true) {
            let mut seen = HashSet::new();
            for (at, group) in entries.groups.iter().enumerate().rev() {
                if over[at] && seen.insert(*group) {
                    answers[at] = TriggerResult::Fire;
                }
            }
        }
        let Self { shape, trigger, groups, running: Some(running), .. } = self else { return Ok(answers) };
        if let Some(trigger) = trigger {
            let rows = trigger.rows(arrival.input, &arrival.batch, &entries.rows).map_err(|source| shape.kernel(source))?;
            let windows: Vec<Namespace> = entries.windows.iter().map(|window| namespace(*window)).collect();
            let names = entries.groups.iter().map(|group| namespace(groups.get(*group).name));
            running.inner.enter_windows(entries.keys.iter().copied(), names);
            let rows = TriggerRows { rows: Rows::new(&rows), windows: &windows, over, input: arrival.input };
            let answered = guarded(|| trigger.work.on_rows(rows, &mut running.inner, &mut answers));
            answered.map_err(failed(&shape.uid, &trigger.declaration.name))?;
        }
        Ok(answers)
    }
}

/// What both reach over.
fn hull(one: Window, other: Window) -> Window {
    Window { start: one.start.min(other.start), end: one.end.max(other.end) }
}

/// The windows of rows, as they are kept.
fn window_column(windows: &[Window]) -> ArrayRef {
    let times = |time: fn(&Window) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(windows.iter().map(time)))
    };
    namespace_column(times(|window| window.start), times(|window| window.end))
}
