//! Watches the steps of the task that has one node in it, for the checkpoint benchmark.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use levada_taskmanager::{Observer, Step};

/// The steps of a vertex that took rows in or handled a barrier.
#[derive(Debug)]
pub struct Steps {
    node: String,
    rows: AtomicU64,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    began: Instant,
    took: Duration,
    rows: u64,
    snapshot: Option<Duration>,
}

/// How long things took about the barriers.
#[derive(Debug, Default)]
pub struct AroundBarriers {
    /// The synchronous part of each snapshot.
    pub sync: Vec<Duration>,
    /// Steps in the time before a barrier.
    pub before: Vec<Duration>,
    /// Steps in the time after, that of the barrier among them.
    pub after: Vec<Duration>,
}

impl Steps {
    /// Watches the vertex that this node is in, wherever it stands there.
    pub fn of(node: &str) -> Self {
        Self { node: node.into(), rows: AtomicU64::new(0), seen: Mutex::default() }
    }

    /// Rows that it has taken in.
    pub fn rows(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no holder panics").clone()
    }

    /// The end of the first step that began after this moment and took rows in.
    pub fn first_after(&self, moment: Instant) -> Option<Instant> {
        self.seen().iter().find(|seen| seen.began >= moment && seen.rows > 0).map(|seen| seen.began + seen.took)
    }

    /// The steps within `window` before and after each barrier.
    pub fn around_barriers(&self, window: Duration) -> AroundBarriers {
        let (seen, mut around) = (self.seen(), AroundBarriers::default());
        for barrier in seen.iter().filter(|seen| seen.snapshot.is_some()) {
            around.sync.extend(barrier.snapshot);
            for step in &seen {
                if step.began >= barrier.began && step.began < barrier.began + window {
                    around.after.push(step.took);
                } else if step.began < barrier.began && step.began + window >= barrier.began {
                    around.before.push(step.took);
                }
            }
        }
        around
    }
}

impl Observer for Steps {
    fn first_step(&self, _vertex: &str, _subtask: u32) {}

    fn step(&self, step: Step<'_>) {
        if !step.vertex.split(" -> ").any(|node| node == self.node) {
            return;
        }
        self.rows.fetch_add(step.rows, Relaxed);
        let Step { began, took, rows, snapshot, .. } = step;
        self.seen.lock().expect("no holder panics").push(Seen { began, took, rows, snapshot });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_told_by_the_barrier_that_they_are_near() {
        let (steps, start) = (Steps::of("states"), Instant::now());
        let step = |vertex, at_ms, snapshot| {
            let (began, took) = (start + Duration::from_millis(at_ms), Duration::from_millis(at_ms));
            steps.step(Step { vertex, subtask: 0, began, took, rows: 1, snapshot });
        };
        [0, 10, 20].into_iter().for_each(|at_ms| step("states -> out", at_ms, None));
        step("input -> states2", 25, None);
        step("input -> states -> out", 30, Some(Duration::from_millis(3)));
        [40, 55].into_iter().for_each(|at_ms| step("states -> out", at_ms, None));
        let around = steps.around_barriers(Duration::from_millis(20));
        let ms = |durations: &[Duration]| durations.iter().map(Duration::as_millis).collect::<Vec<_>>();
        assert_eq!((ms(&around.sync), ms(&around.before), ms(&around.after)), (vec![3], vec![10, 20], vec![30, 40]));
        assert_eq!(steps.rows(), 6);
        assert_eq!(steps.first_after(start + Duration::from_millis(35)), Some(start + Duration::from_millis(80)));
    }
}
