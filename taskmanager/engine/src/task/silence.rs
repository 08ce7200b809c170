//! For how long a source itself has had nothing to read: when it is quiet, and when it is idle.
//!
//! Has no clock: it is told the time at each poll. Invariant: time in which the source was not polled, because the task was
//! blocked or busy with a signal, does not count.

use levada_common::time::Instant;

/// What a poll that found nothing means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet; ask again at this moment at the latest.
    Wait(Option<Instant>),
    /// Silent for the buffer timeout: a watermark held back is due. Said once per silence.
    Quiet,
    /// Silent for the idleness: said once per silence, after `Quiet`.
    Idle,
}

/// One source's silence.
#[derive(Debug)]
pub(crate) struct Silence {
    quiet_after_ms: u64,
    idle_after_ms: Option<u64>,
    spent_ms: u64,
    /// The last poll, where it found nothing and the task has waited since.
    since: Option<Instant>,
    quiet: bool,
    idle: bool,
}

impl Silence {
    /// Units: milliseconds; `idle_after_ms` `None` = never idle.
    pub(crate) fn new(quiet_after_ms: u64, idle_after_ms: Option<u64>) -> Self {
        Self { quiet_after_ms, idle_after_ms, spent_ms: 0, since: None, quiet: false, idle: false }
    }

    /// Rows came; whether the source had been idle.
    pub(crate) fn rows(&mut self) -> bool {
        let was_idle = self.idle;
        *self = Self::new(self.quiet_after_ms, self.idle_after_ms);
        was_idle
    }

    /// Whether `Idle` was said, and no rows came since.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle
    }

    /// The task is held up: time does not count until the next poll.
    pub(crate) fn interrupt(&mut self) {
        self.since = None;
    }

    /// The source was polled and has nothing.
    pub(crate) fn nothing(&mut self, now: Instant) -> Verdict {
        if let Some(since) = self.since.replace(now) {
            self.spent_ms += now.since(since);
        }
        let idle_due = !self.idle && self.idle_after_ms.is_some_and(|after| self.spent_ms >= after);
        if !self.quiet && (idle_due || self.spent_ms >= self.quiet_after_ms) {
            self.quiet = true;
            return Verdict::Quiet;
        }
        if idle_due {
            self.idle = true;
            return Verdict::Idle;
        }
        let quiet = (!self.quiet).then_some(self.quiet_after_ms);
        let idle = self.idle_after_ms.filter(|_| !self.idle);
        let next = quiet.into_iter().chain(idle).min();
        Verdict::Wait(next.map(|after| now.plus_ms(after - self.spent_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_and_idle_are_said_once_in_this_order() {
        let mut silence = Silence::new(100, Some(250));
        assert_eq!(silence.nothing(Instant(0)), Verdict::Wait(Some(Instant(100))));
        assert_eq!(silence.nothing(Instant(99)), Verdict::Wait(Some(Instant(100))));
        assert_eq!(silence.nothing(Instant(300)), Verdict::Quiet);
        assert_eq!(silence.nothing(Instant(300)), Verdict::Idle);
        assert_eq!(silence.nothing(Instant(9_000)), Verdict::Wait(None));
        assert!(silence.rows());
        assert_eq!(silence.nothing(Instant(9_000)), Verdict::Wait(Some(Instant(9_100))));
        assert!(!silence.rows());
    }

    #[test]
    fn time_under_back_pressure_does_not_count() {
        let mut silence = Silence::new(100, Some(100));
        silence.nothing(Instant(0));
        silence.nothing(Instant(60));
        silence.interrupt();
        assert_eq!(silence.nothing(Instant(10_000)), Verdict::Wait(Some(Instant(10_040))));
        assert_eq!(silence.nothing(Instant(10_040)), Verdict::Quiet);
    }

    #[test]
    fn a_short_idleness_still_says_quiet_first() {
        let mut silence = Silence::new(100, Some(10));
        silence.nothing(Instant(0));
        assert_eq!(silence.nothing(Instant(10)), Verdict::Quiet);
        assert_eq!(silence.nothing(Instant(10)), Verdict::Idle);
    }
}
