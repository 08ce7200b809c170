//! Rows on their way into their groups: which windows they are in, what the trigger says of them, and sessions that become one.

use std::collections::HashSet;

use arrow::array::UInt32Array;
use arrow::record_batch::RecordBatch;

use super::table::{Group, namespace};
use super::{Arrival, Contents, Entries, GroupWindows, Place};
use crate::error::EngineError;
use crate::function::{MergedWindows, Namespace, Rows, TriggerResult, TriggerRows};
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;
use crate::operators::window::{Split, Window};

impl<C: Contents> GroupWindows<C> {
    /// Takes rows of an input in.
    pub(super) fn take_in(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        let now = self.clock.now();
        let (batch, bounds) = match self.sessions.get(input) {
            Some(source) => source.read(batch, now).map(|(batch, bounds)| (batch, Some(bounds)))?,
            None => (batch, None),
        };
        if batch.num_rows() == 0 {
            return Ok(());
        }
        let kept = self.contents.kept(input, &batch, now)?;
        let (keys, failed) = (self.contents.keys(input, &kept), self.failed());
        let inner = self.inner();
        inner.enter(&keys, batch.num_rows()).map_err(failed)?;
        let ids = std::mem::take(&mut inner.ids);
        let arrival = Arrival { input, batch, kept };
        let late = match bounds {
            None => self.take_into_windows(&arrival, &ids, now)?,
            Some(bounds) => self.take_into_sessions(&arrival, &ids, &bounds.starts, &bounds.ends)?,
        };
        for split in late {
            self.late[input].take(&arrival.batch, &split).map_err(|source| self.contents.frame().kernel(source))?;
        }
        Ok(())
    }

    /// Takes rows with these keys into the windows of their times; answers which are late.
    fn take_into_windows(&mut self, arrival: &Arrival, ids: &[u32], now: Option<i64>) -> Result<Vec<Split>, EngineError> {
        let (mut entries, mut late) = (Entries::default(), Vec::new());
        let fired = self.clock.watermark().saturating_sub(self.lateness_ms);
        let (series, mut alternates) = (self.contents.frame().series, false);
        for (pane, split) in self.contents.split(arrival.input, &arrival.kept, now)? {
            let rows = split.numbers(ids.len());
            let mut enter = |window: Window| {
                entries.keys.extend(rows.iter().map(|row| ids[*row as usize]));
                entries.windows.extend(std::iter::repeat_n(window, rows.len()));
                entries.rows.extend_from_slice(&rows);
            };
            let next = |window: &Window| series?.first_after(pane, window.end.saturating_sub(1));
            let first = match series {
                Some(series) => series.first_after(pane, fired),
                None => Some(pane).filter(|pane| !self.is_late(*pane)),
            };
            if first.is_none() {
                late.push(split);
                continue;
            }
            std::iter::successors(first, next).for_each(&mut enter);
            alternates |= matches!(split, Split::Rows(_));
        }
        if series.is_some() && alternates {
            // They stand slice by slice, and those of a window in several slices.
            entries.sort_by_row();
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
                    let (group, before) = (*group, self.groups.get(*group).window);
                    if C::TAKES_BACK && own.start < before.start {
                        entries.restarts.push((entries.rows.len(), before));
                    }
                    self.groups.grow(group, hull(before, own));
                    self.schedule(group);
                    group
                }
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
        let moved: Vec<u32> = sessions.iter().copied().filter(|group| start(group) != window.start).collect();
        let Group { key, name, .. } = *self.groups.get(into);
        let names: Vec<Namespace> = from.iter().map(|group| namespace(self.groups.get(*group).name)).collect();
        let Self { contents, groups, trigger, running: Some(running), .. } = self else { return Ok(into) };
        let mut place = Place { groups, inner: &mut running.inner };
        if C::TAKES_BACK {
            for group in moved {
                let window = place.groups.get(group).window;
                contents.take_back(&mut place, group, window)?;
            }
        }
        if let Some(trigger) = trigger {
            place.inner.enter_windows([key], [namespace(name)]);
            let merged = MergedWindows { into: namespace(name), from: &names, window: namespace(window) };
            let merged = guarded(|| trigger.work.on_merge(merged, place.inner));
            merged.map_err(failed(&contents.frame().uid, &trigger.declaration.name))?;
        }
        from.iter().try_for_each(|group| contents.merge(&mut place, into, *group))?;
        self.forget(&from);
        self.groups.grow(into, window);
        self.schedule(into);
        Ok(into)
    }

    /// Takes rows into their groups, and does what the trigger answers, row by row.
    fn arrive(&mut self, arrival: &Arrival, entries: &Entries) -> Result<(), EngineError> {
        if entries.rows.is_empty() {
            return Ok(());
        }
        let over: Vec<bool> = entries.groups.iter().map(|group| self.is_over(*group)).collect();
        let answers = self.answers(arrival, entries, &over)?;
        let (contents, mut place) = self.contents();
        contents.take_in(&mut place, arrival, entries, &answers)
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
        let Self { contents, trigger, groups, running: Some(running), .. } = self else { return Ok(answers) };
        if let Some(trigger) = trigger {
            let frame = contents.frame();
            let rows = trigger.rows(arrival.input, &arrival.batch, &entries.rows).map_err(|source| frame.kernel(source))?;
            let windows: Vec<Namespace> = entries.windows.iter().map(|window| namespace(*window)).collect();
            let names = entries.groups.iter().map(|group| namespace(groups.get(*group).name));
            running.inner.enter_windows(entries.keys.iter().copied(), names);
            let rows = TriggerRows { rows: Rows::new(&rows), windows: &windows, over, input: arrival.input };
            let answered = guarded(|| trigger.work.on_rows(rows, &mut running.inner, &mut answers));
            answered.map_err(failed(&frame.uid, &trigger.declaration.name))?;
        }
        Ok(answers)
    }
}

/// What both reach over.
fn hull(one: Window, other: Window) -> Window {
    Window { start: one.start.min(other.start), end: one.end.max(other.end) }
}
