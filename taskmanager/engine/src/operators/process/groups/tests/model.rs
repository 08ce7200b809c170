//! The naive model: a list of windows for each key, each with its rows, its count and its timers.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::plan::{FiringSpec, SessionGap, WindowSpec};
use levada_common::time::{EVENT_TIME_MAX_MS, EVENT_TIME_MIN_MS};

use super::{at_end, said};
use crate::function::TriggerResult;

#[derive(Debug, Clone, Copy)]
pub(in crate::operators) struct Row {
    pub(in crate::operators) key: i64,
    pub(in crate::operators) time: i64,
    /// Greater than those of the rows that came before.
    pub(in crate::operators) id: i64,
    /// What the trigger is to do.
    pub(in crate::operators) say: i64,
    pub(in crate::operators) gap: i64,
}

#[derive(Debug, Clone)]
pub(in crate::operators) struct Setup {
    pub(in crate::operators) window: WindowSpec,
    pub(in crate::operators) lateness_ms: i64,
    /// Where results are given more than once, by no trigger of a user.
    pub(in crate::operators) results: Option<FiringSpec>,
    pub(in crate::operators) two_inputs: bool,
    pub(in crate::operators) has_trigger: bool,
    pub(in crate::operators) has_evictor: bool,
    /// 0 = none.
    pub(in crate::operators) evict_ms: i64,
    /// Whether windows, and timers of the trigger, go by processing time.
    pub(in crate::operators) by_clock: bool,
}

impl Setup {
    fn is_session(&self) -> bool {
        matches!(self.window, WindowSpec::Session { .. })
    }

    /// The watermark with which a window that ends then is over.
    fn over_at(&self, end: i64) -> i64 {
        if self.is_session() { end } else { end - 1 }
    }

    fn windows_of(&self, row: &Row) -> Vec<(i64, i64)> {
        let (time, grid) = (row.time, |time: i64, size: i64| time.div_euclid(size) * size);
        match &self.window {
            WindowSpec::Tumbling { size_ms, .. } => vec![(grid(time, *size_ms), grid(time, *size_ms) + size_ms)],
            WindowSpec::Sliding { size_ms, slide_ms, .. } => {
                let starts = (0..).map(|n| grid(time, *slide_ms) - n * slide_ms).take_while(|start| start + size_ms > time);
                starts.map(|start| (start, start + size_ms)).collect()
            }
            WindowSpec::Cumulate { size_ms, step_ms, .. } => {
                let start = grid(time, *size_ms);
                (1..=size_ms / step_ms).map(|n| (start, start + n * step_ms)).filter(|(_, end)| time < *end).collect()
            }
            WindowSpec::Session { gap: SessionGap::Fixed { gap_ms } } => vec![(time, time + gap_ms)],
            WindowSpec::Global => vec![(EVENT_TIME_MIN_MS, EVENT_TIME_MAX_MS + 1)],
            _ => vec![(time, time + row.gap)],
        }
    }
}

/// Something that a window gave, or is taken back of it.
#[derive(Debug, Clone)]
pub(in crate::operators) struct Change {
    /// As in a changelog: 0 the first of a window, 2 a further one, 3 taken back.
    pub(in crate::operators) op: u8,
    pub(in crate::operators) key: i64,
    pub(in crate::operators) start: i64,
    pub(in crate::operators) end: i64,
    /// Those of the first input that the window had.
    pub(in crate::operators) rows: Vec<Row>,
}

#[derive(Debug)]
struct Win {
    key: i64,
    start: i64,
    end: i64,
    rows: [Vec<Row>; 2],
    count: i64,
    timers: BTreeSet<i64>,
    /// Of processing time.
    alarms: BTreeSet<i64>,
    /// Whether its end is past.
    is_over: bool,
    is_given: bool,
}

impl Win {
    fn change(&self, op: u8) -> Change {
        Change { op, key: self.key, start: self.start, end: self.end, rows: self.rows[0].clone() }
    }
}

pub(in crate::operators) struct Model {
    pub(in crate::operators) setup: Setup,
    windows: BTreeMap<i64, Vec<Win>>,
    watermark: i64,
    clock: i64,
    pub(in crate::operators) given: Vec<String>,
    pub(in crate::operators) late: Vec<i64>,
    /// The same as `given`, as changes by key and start.
    pub(in crate::operators) changes: Vec<Change>,
    /// Whether windows forget what they gave.
    pub(in crate::operators) in_parts: bool,
    /// Whether nothing is said of the order of a window's rows.
    pub(in crate::operators) in_any_order: bool,
}

impl Model {
    pub(in crate::operators) fn new(setup: Setup) -> Self {
        let (given, late, changes) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            setup,
            windows: BTreeMap::new(),
            watermark: i64::MIN,
            clock: 0,
            given,
            late,
            changes,
            in_parts: false,
            in_any_order: false,
        }
    }

    fn is_late(&self, end: i64) -> bool {
        !self.setup.by_clock && self.setup.over_at(end) + self.setup.lateness_ms <= self.watermark
    }

    /// Sets a timer of processing time.
    fn set_alarm(&self, win: &mut Win, at: i64) {
        if self.setup.by_clock {
            win.timers.insert(at)
        } else {
            win.alarms.insert(at)
        };
    }

    pub(in crate::operators) fn take(&mut self, input: usize, rows: &[Row]) {
        for row in rows {
            let row = &Row { time: if self.setup.by_clock { self.clock } else { row.time }, ..*row };
            let own = self.setup.windows_of(row);
            let mut is_late = true;
            for (start, end) in own {
                is_late &= !self.take_into(input, row, start, end);
            }
            if is_late {
                self.late.push(row.id);
            }
        }
        self.settle();
    }

    /// Takes a row into a window, unless it is late for it.
    fn take_into(&mut self, input: usize, row: &Row, start: i64, end: i64) -> bool {
        let is_late = self.is_late(end);
        let mut windows = self.windows.remove(&row.key).unwrap_or_default();
        let is_session = self.setup.is_session();
        let touches =
            |win: &Win| if is_session { win.start <= end && start <= win.end } else { (win.start, win.end) == (start, end) };
        let (mut touched, mut others): (Vec<Win>, Vec<Win>) = windows.drain(..).partition(touches);
        if touched.is_empty() && is_late {
            self.windows.insert(row.key, others);
            return false;
        }
        touched.sort_by_key(|win| win.start);
        let new = || Win {
            key: row.key,
            start,
            end,
            rows: Default::default(),
            count: 0,
            timers: BTreeSet::new(),
            alarms: BTreeSet::new(),
            is_over: false,
            is_given: false,
        };
        let merges = touched.len() > 1;
        let begins = touched.iter().map(|win| win.start).fold(start, i64::min);
        for win in touched.iter_mut().filter(|win| win.is_given && win.start != begins) {
            self.changes.push(win.change(3));
            win.is_given = false;
        }
        let mut touched = touched.into_iter();
        let mut win = touched.next().unwrap_or_else(new);
        for other in touched {
            (win.start, win.end, win.count) = (win.start.min(other.start), win.end.max(other.end), win.count + other.count);
            let [first, second] = other.rows;
            win.rows[0].extend(first);
            win.rows[1].extend(second);
        }
        let every_ms = self.setup.results.iter().flat_map(FiringSpec::triggers).filter_map(|trigger| trigger.every_ms).min();
        if let Some(every_ms) = every_ms.filter(|_| merges && win.count > 0) {
            self.set_alarm(&mut win, self.clock + every_ms);
        }
        (win.start, win.end) = (win.start.min(start), win.end.max(end));
        win.is_over = self.setup.over_at(win.end) <= self.watermark;
        win.rows[input].push(*row);
        if self.setup.has_trigger {
            win.count += 1;
            match row.say {
                4 => drop(win.timers.insert(win.start + 7)),
                5 => self.set_alarm(&mut win, self.clock + 5),
                _ => {}
            }
            self.answer(&mut win, said(row.say));
        } else if let Some(firing) = self.setup.results {
            win.count += 1;
            let trigger = if win.is_over { firing.late } else { firing.early };
            let gives = trigger.map_or(win.is_over, |trigger| trigger.rows.is_some_and(|rows| win.count >= i64::from(rows)));
            match trigger.and_then(|trigger| trigger.every_ms) {
                _ if gives => self.give_rest(&mut win),
                Some(every_ms) if win.count == 1 => self.set_alarm(&mut win, self.clock + every_ms),
                _ => {}
            }
        } else if win.is_over {
            self.answer(&mut win, TriggerResult::Fire);
        }
        others.push(win);
        self.windows.insert(row.key, others);
        true
    }

    /// Gives a window where something came.
    fn give_rest(&mut self, win: &mut Win) {
        let Some(firing) = self.setup.results.filter(|_| win.count > 0) else { return };
        win.count = 0;
        self.answer(win, if firing.accumulate { TriggerResult::Fire } else { TriggerResult::FireAndPurge });
    }

    fn answer(&mut self, win: &mut Win, answer: TriggerResult) {
        if answer.fires() && win.rows.iter().any(|rows| !rows.is_empty()) {
            let last = win.rows[0].iter().map(|row| row.time).max();
            let (has_evictor, ms) = (self.setup.has_evictor, self.setup.evict_ms);
            win.rows[0].retain(|row| !has_evictor || row.id % 3 != 0);
            win.rows[0].retain(|row| ms == 0 || Some(row.time) > last.map(|last| last - ms));
            if win.rows.iter().any(|rows| !rows.is_empty()) {
                let texts = win.rows.each_ref().map(|rows| {
                    let mut ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
                    // In the order in which they came.
                    ids.sort_unstable();
                    ids.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
                });
                self.given.push(format!("{} {}..{} [{}] [{}]", win.key, win.start, win.end, texts[0], texts[1]));
                self.changes.push(win.change(if win.is_given { 2 } else { 0 }));
                win.is_given = true;
                win.rows[0].retain(|row| !has_evictor || row.id % 5 != 0);
            }
        }
        if answer.purges() || (self.in_parts && answer.fires()) {
            win.rows = Default::default();
        }
    }

    pub(in crate::operators) fn advance(&mut self, to: i64) {
        self.watermark = to;
        self.settle();
    }

    pub(in crate::operators) fn tick(&mut self, to: i64) {
        self.clock = to;
        if self.setup.by_clock {
            self.watermark = to - 1;
        }
        self.settle();
    }

    /// Nothing comes any more.
    pub(in crate::operators) fn finish(&mut self) {
        self.advance(i64::MAX);
    }

    /// Does what is due, window by window.
    fn settle(&mut self) {
        for (key, windows) in std::mem::take(&mut self.windows) {
            let left: Vec<Win> = windows.into_iter().filter_map(|win| self.settle_window(win)).collect();
            self.windows.insert(key, left);
        }
    }

    fn settle_window(&mut self, mut win: Win) -> Option<Win> {
        loop {
            let over_at = self.setup.over_at(win.end);
            let end = if win.is_over { over_at + self.setup.lateness_ms } else { over_at };
            let reached = if self.setup.by_clock { self.clock } else { self.watermark };
            let timer = win.timers.first().copied().filter(|timer| *timer <= reached && *timer <= end);
            if let Some(timer) = timer {
                win.timers.pop_first();
                if self.setup.results.is_some() {
                    self.give_rest(&mut win);
                    continue;
                }
                if win.count % 2 == 1 {
                    win.timers.insert(timer + 11);
                }
                self.answer(&mut win, TriggerResult::Fire);
                continue;
            }
            if end > self.watermark {
                break;
            }
            if win.is_over {
                return None;
            }
            win.is_over = true;
            if self.setup.has_trigger {
                win.timers.insert(win.end + 3);
                let answer = at_end(win.count);
                self.answer(&mut win, answer);
            } else if self.setup.results.is_some() {
                self.give_rest(&mut win);
            } else {
                self.answer(&mut win, TriggerResult::Fire);
            }
            if self.setup.lateness_ms == 0 {
                return None;
            }
        }
        while win.alarms.first().is_some_and(|alarm| *alarm <= self.clock) {
            win.alarms.pop_first();
            if self.setup.results.is_some() {
                self.give_rest(&mut win);
            } else {
                self.answer(&mut win, TriggerResult::Fire);
            }
        }
        Some(win)
    }
}
