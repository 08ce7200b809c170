//! When results are due by processing time.

use levada_common::plan::{FiringSpec, Trigger};

/// Is due every so often, from the first moment that it hears of. Nothing of it is in a snapshot: after a restore it begins anew.
#[derive(Debug, Default)]
struct Timer {
    every_ms: Option<i64>,
    next_ms: Option<i64>,
}

impl Timer {
    /// Of a trigger, never due where that does not go by time.
    fn of(trigger: Option<Trigger>) -> Self {
        Self { every_ms: trigger.and_then(|trigger| trigger.every_ms), next_ms: None }
    }

    /// Whether it is ever due.
    fn is_set(&self) -> bool {
        self.every_ms.is_some()
    }

    /// Whether it is due at this time; once it was, it is due again so much later.
    fn is_due(&mut self, time_ms: i64) -> bool {
        let Some(every_ms) = self.every_ms else { return false };
        let is_due = self.next_ms.is_some_and(|next| next <= time_ms);
        if is_due || self.next_ms.is_none() {
            self.next_ms = Some(time_ms.saturating_add(every_ms));
        }
        is_due
    }

    /// When it is due next.
    fn next(&self) -> Option<i64> {
        self.next_ms
    }
}

/// When early and late results are due.
#[derive(Debug)]
pub(in super::super) struct Timers {
    early: Timer,
    late: Timer,
}

/// Which results are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Due {
    pub(in super::super) early: bool,
    pub(in super::super) late: bool,
}

impl Timers {
    pub(in super::super) fn of(firing: &FiringSpec) -> Self {
        Self { early: Timer::of(firing.early), late: Timer::of(firing.late) }
    }

    /// Whether any are ever due.
    pub(in super::super) fn are_set(&self) -> bool {
        self.early.is_set() || self.late.is_set()
    }

    /// Which are due at this time.
    pub(in super::super) fn due(&mut self, time_ms: i64) -> Due {
        Due { early: self.early.is_due(time_ms), late: self.late.is_due(time_ms) }
    }

    /// When any are due next.
    pub(in super::super) fn next(&self) -> Option<i64> {
        self.early.next().into_iter().chain(self.late.next()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_once_an_interval_and_never_catches_up() {
        let mut timer = Timer::of(Some(Trigger { every_ms: Some(10), rows: None }));
        let due: Vec<bool> = [100, 105, 109, 110, 111, 150, 151, 159, 160].map(|time| timer.is_due(time)).into();
        assert_eq!(due, [false, false, false, true, false, true, false, false, true]);
        assert_eq!(timer.next(), Some(170));
        let mut never = Timer::of(Some(Trigger { every_ms: None, rows: Some(1) }));
        assert_eq!((never.is_set(), never.is_due(5), never.next()), (false, false, None));
    }
}
