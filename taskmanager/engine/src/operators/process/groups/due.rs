//! Timers that are due, windows that are over, and windows that take no more late rows: by the time that windows go by, one after the
//! other.

use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::table::{NO_GROUP, namespace};
use super::{Contents, GroupWindows, over_at};
use crate::error::EngineError;
use crate::function::{FiredTimers, FunctionError, Namespace, Rows, TimerKind, TriggerResult};
use crate::operators::aggregate::Ends;
use crate::operators::process::failed;
use crate::operators::process::guard::guarded;
use crate::operators::window::Window;

/// Most timers that a trigger gets at once.
const TIMERS_MAX: usize = 1024;

/// Most windows that a trigger gets at once.
const WINDOWS_MAX: usize = 256;

/// Those of these groups of which it was answered that they fire.
fn that_fire(groups: &[u32], answers: &[TriggerResult]) -> Vec<u32> {
    groups.iter().zip(answers).filter(|(_, answer)| answer.fires()).map(|(group, _)| *group).collect()
}

impl<C: Contents> GroupWindows<C> {
    /// Takes the groups whose time has come.
    pub(super) fn collect_due(&mut self) {
        let until = match self.clock.now() {
            // Told before each batch: groups that are due at about one time are looked at once, when all of them are.
            Some(now) if now < i64::MAX => Ends::last_over(now),
            _ => self.clock.watermark(),
        };
        let mut due = Vec::new();
        let groups = &self.groups;
        self.ends.take_due(until, |group| groups.get(group).due, &mut due);
        if due.is_empty() {
            return;
        }
        self.due.extend(due.into_iter().map(|group| (groups.get(group).due, group)));
        let order = |(due, group): &(i64, u32)| {
            let Window { end, start } = groups.get(*group).window;
            (*due, end, start, *group)
        };
        self.due.make_contiguous().sort_unstable_by_key(order);
    }

    /// Does what is due next; whether there was anything.
    pub(super) fn fire_due(&mut self) -> Result<bool, EngineError> {
        let first = self.due.front().map(|(due, _)| *due);
        let (own, other) = match self.clock.is_processing() {
            false => (TimerKind::Event, TimerKind::Processing),
            true => (TimerKind::Processing, TimerKind::Event),
        };
        let timer = self.inner().next_due(own);
        match (timer, first) {
            (Some(timer), Some(first)) if timer <= first => self.fire_timers(own, first)?,
            (Some(_), None) => self.fire_timers(own, i64::MAX)?,
            (timer, Some(_)) => self.end_windows(timer)?,
            (None, None) if self.inner().next_due(other).is_some() => self.fire_timers(other, i64::MAX)?,
            (None, None) => return Ok(false),
        }
        self.end_batch()?;
        Ok(true)
    }

    /// Asks the trigger about timers that were due at `until` or before. Those of windows that are gone say nothing, nor do those behind
    /// the end of a window of processing time.
    fn fire_timers(&mut self, kind: TimerKind, until: i64) -> Result<(), EngineError> {
        let of_function = self.failed();
        let (by_clock, sessions) = (self.clock.is_processing(), !self.sessions.is_empty());
        let Self { contents, trigger: Some(trigger), groups, running: Some(running), .. } = self else { return Ok(()) };
        let (frame, inner) = (contents.frame(), &mut running.inner);
        let mut times_ms = Vec::new();
        let at_once = TIMERS_MAX.min(contents.groups_at_once());
        inner.take_due_until(kind, until, at_once, &mut times_ms).map_err(of_function)?;
        let mut found = Vec::with_capacity(times_ms.len());
        groups.find(&inner.ids, &inner.windows, &mut found);
        if by_clock {
            let is_over = |group: u32, time: i64| time > over_at(sessions, groups.get(group).window);
            let timers = found.iter_mut().zip(&times_ms);
            timers
                .filter(|(group, time)| **group != NO_GROUP && is_over(**group, **time))
                .for_each(|(group, _)| *group = NO_GROUP);
        }
        let mut is_there = found.iter().map(|group| *group != NO_GROUP);
        times_ms.retain(|_| is_there.next().is_some_and(|is_there| is_there));
        found.retain(|group| *group != NO_GROUP);
        if found.is_empty() {
            return Ok(());
        }
        let windows: Vec<Window> = found.iter().map(|group| groups.get(*group).window).collect();
        let keys: Vec<u32> = found.iter().map(|group| groups.get(*group).key).collect();
        inner.enter_windows(keys.iter().copied(), found.iter().map(|group| namespace(groups.get(*group).name)));
        let failed = failed(&frame.uid, &trigger.declaration.name);
        let options = RecordBatchOptions::new().with_row_count(Some(keys.len()));
        let keys = RecordBatch::try_new_with_options(frame.key_schema.clone(), inner.keyed.key_columns(&keys), &options);
        let keys = keys.map_err(|error| failed(FunctionError::OutputColumns(error)))?;
        let reach: Vec<Namespace> = windows.iter().map(|window| namespace(*window)).collect();
        let timers = FiredTimers { kind, keys: Rows::new(&keys), times_ms: &times_ms, windows: &reach };
        let mut answers = vec![TriggerResult::Continue; found.len()];
        guarded(|| trigger.work.on_timers(timers, inner, &mut answers)).map_err(failed)?;
        let (contents, mut place) = self.contents();
        contents.bring_in(&mut place, &that_fire(&found, &answers))?;
        for ((group, window), answer) in found.into_iter().zip(windows).zip(answers) {
            contents.answer(&mut place, group, window, answer)?;
        }
        Ok(())
    }

    /// Gives windows whose end came before the timer that is due next, and forgets those that take no more rows in.
    fn end_windows(&mut self, timer: Option<i64>) -> Result<(), EngineError> {
        let (mut ended, mut gone) = (Vec::new(), Vec::new());
        let is_before = |(due, _): &(i64, u32)| timer.is_none_or(|timer| *due < timer);
        let at_once = WINDOWS_MAX.min(self.contents.groups_at_once());
        while ended.len() + gone.len() < 2 * at_once
            && let Some((due, group)) = self.due.front().copied().filter(is_before)
        {
            self.due.pop_front();
            let is_end = due == self.over_at(self.groups.get(group).window);
            if is_end {
                ended.push(group);
            }
            if !is_end || self.lateness_ms == 0 {
                gone.push(group);
            }
        }
        let answers = self.answers_at_end(&ended)?;
        let (contents, mut place) = self.contents();
        contents.bring_in(&mut place, &that_fire(&ended, &answers))?;
        for (group, answer) in ended.iter().zip(answers) {
            let window = place.groups.get(*group).window;
            contents.answer(&mut place, *group, window, answer)?;
        }
        contents.flush(&mut place)?;
        if self.lateness_ms > 0 {
            for group in ended {
                let over_at = self.over_at(self.groups.get(group).window);
                let due = over_at.saturating_add(self.lateness_ms);
                self.groups.set_due(group, due);
                self.ends.enter(group, due);
            }
            self.collect_due();
        }
        self.forget(&gone);
        Ok(())
    }

    /// What becomes of windows that are over: what the trigger says, and without one they give what they have.
    fn answers_at_end(&mut self, ended: &[u32]) -> Result<Vec<TriggerResult>, EngineError> {
        let mut answers = vec![TriggerResult::Fire; ended.len()];
        let Self { contents, trigger: Some(trigger), groups, running: Some(running), .. } = self else { return Ok(answers) };
        if !ended.is_empty() {
            let windows: Vec<Namespace> = ended.iter().map(|group| namespace(groups.get(*group).window)).collect();
            let keys = ended.iter().map(|group| groups.get(*group).key);
            running.inner.enter_windows(keys, ended.iter().map(|group| namespace(groups.get(*group).name)));
            let answered = guarded(|| trigger.work.on_end(&windows, &mut running.inner, &mut answers));
            answered.map_err(failed(&contents.frame().uid, &trigger.declaration.name))?;
        }
        Ok(answers)
    }
}
