//! A wall-clock throttle for sources that make their rows: so many a second, never by sleeping on the task's thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use levada_engine::source::SourceContext;
use tokio::time::{Instant, Sleep};

/// Rows may bunch up for this long; less where the buffer timeout is shorter.
const QUANTUM: Duration = Duration::from_millis(10);

/// What a source that was held up may catch up at once, as time.
const CATCH_UP: Duration = Duration::from_secs(1);

/// How many rows are due by a rate.
///
/// Units: rows and rows per second. Pure: time is handed in.
#[derive(Debug)]
struct Budget {
    rate: f64,
    quantum: Duration,
    /// Since when `given` rows count.
    since: Duration,
    given: f64,
}

impl Budget {
    fn new(rate: f64, quantum: Duration, now: Duration) -> Self {
        Self { rate, quantum, since: now, given: 0.0 }
    }

    /// Rows that may be given now, or the moment at which some may.
    fn due(&mut self, now: Duration) -> Result<u64, Duration> {
        let elapsed = now.saturating_sub(self.since);
        let mut allowed = elapsed.as_secs_f64() * self.rate - self.given;
        let bound = (CATCH_UP.as_secs_f64() * self.rate).max(1.0);
        if allowed > bound {
            self.given += allowed - bound;
            allowed = bound;
        }
        if allowed >= 1.0 {
            return Ok(allowed as u64);
        }
        let wanted = (self.quantum.as_secs_f64() * self.rate).floor().max(1.0);
        let wait = (wanted + self.given) / self.rate;
        // A nanosecond more, so that rounding does not wake the task just before the row is due.
        Err(self.since + Duration::from_secs_f64(wait) + Duration::from_nanos(1000))
    }

    fn give(&mut self, rows: u64) {
        self.given += rows as f64;
    }
}

/// A throttle that wakes its task.
///
/// Contract: made and used on the task's thread, within the shell's IO runtime.
pub struct Throttle {
    budget: Budget,
    start: Instant,
    waker: Waker,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Throttle {
    /// The throttle of a subtask that has this share of a source's rows, where the source has a rate.
    pub fn of(rate: Option<f64>, share: f64, context: &SourceContext) -> Option<Self> {
        let rate = rate.map(|rate| rate * share).filter(|rate| *rate > 0.0);
        rate.map(|rate| Self::new(rate, context.buffer_timeout_ms, context.waker.clone()))
    }

    /// A throttle at `rate` rows a second; `waker` is woken when rows are due.
    pub fn new(rate: f64, buffer_timeout_ms: u64, waker: Waker) -> Self {
        let quantum = QUANTUM.min(Duration::from_millis(buffer_timeout_ms));
        Self { budget: Budget::new(rate, quantum, Duration::ZERO), start: Instant::now(), waker, pause: None }
    }

    /// Rows that may be given now; with 0 the task is woken when there are some.
    pub fn due(&mut self) -> u64 {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(&mut Context::from_waker(&self.waker)).is_pending() {
                return 0;
            }
            self.pause = None;
        }
        loop {
            match self.budget.due(self.start.elapsed()) {
                Ok(rows) => return rows,
                Err(moment) => {
                    let mut pause = Box::pin(tokio::time::sleep_until(self.start + moment));
                    match pause.as_mut().poll(&mut Context::from_waker(&self.waker)) {
                        Poll::Pending => {
                            self.pause = Some(pause);
                            return 0;
                        }
                        Poll::Ready(()) => continue,
                    }
                }
            }
        }
    }

    /// `rows` of those due are given.
    pub fn give(&mut self, rows: u64) {
        self.budget.give(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows given in `time` by a source that takes what is due whenever it is woken.
    fn run(rate: f64, time: Duration) -> (u64, u64) {
        let mut budget = Budget::new(rate, QUANTUM, Duration::ZERO);
        let (mut now, mut rows, mut wakes) = (Duration::ZERO, 0, 0);
        while now < time {
            match budget.due(now) {
                Ok(due) => {
                    budget.give(due);
                    rows += due;
                }
                Err(moment) => {
                    assert!(moment > now, "a wake-up that lies behind spins");
                    now = moment;
                    wakes += 1;
                }
            }
        }
        (rows, wakes)
    }

    #[test]
    fn the_rate_is_kept_with_few_wake_ups() {
        for rate in [0.5, 1.0, 3.0, 100.0, 5_000.0, 1_000_000.0, 3e7] {
            let (rows, wakes) = run(rate, Duration::from_secs(100));
            let expected = rate * 100.0;
            assert!((rows as f64 - expected).abs() <= 1.0 + rate * 0.02, "{rate}: {rows}");
            assert!(wakes <= 10_001.min(rows + 1), "{rate}: {wakes} wake-ups");
        }
    }

    #[test]
    fn a_source_that_was_held_up_catches_up_one_second() {
        let mut budget = Budget::new(100.0, QUANTUM, Duration::ZERO);
        assert_eq!(budget.due(Duration::from_secs(60)), Ok(100));
        budget.give(100);
        assert!(budget.due(Duration::from_secs(60)).is_err());
        assert_eq!(budget.due(Duration::from_millis(60_500)), Ok(50));
    }
}
