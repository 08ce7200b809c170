//! A task's thread: control, step, park.
//!
//! The thread never awaits and parks in its inbox only. Invariant: it says exactly one end of the task, whatever happens on it;
//! a panic fails the task and nothing else.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant as StdInstant};

use levada_common::checkpoint::DeclineReason;
use levada_common::fault::{Failure, Faulty};
use levada_common::time::Instant;
use levada_engine::error::EngineError;
use levada_engine::task::{Environment, Progress, Task, TaskEvent, TaskParts};
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::inbox::{Control, Inbox};
use crate::observer::{Observer, Step};
use crate::task::{TaskHandle, TaskState, Voice};
use crate::upload::{Taken, Uploads};

/// Time after which a task that never parks brings its busy time up to date.
const BUSY_UPDATE: Duration = Duration::from_millis(100);

/// A thread's name has at most so many bytes on Linux; the rest would be cut off in the middle of the subtask.
const THREAD_NAME_BYTES: usize = 15;

/// What all tasks of a TaskManager share.
#[derive(Clone)]
pub struct Surroundings {
    /// Expressions and connectors.
    pub environment: Arc<Environment>,
    /// Where connectors do their IO.
    pub io: Handle,
    /// The process's clock.
    pub clock: Clock,
    /// A benchmark's view.
    pub observer: Option<Arc<dyn Observer>>,
}

/// What one task starts with.
pub struct TaskStart {
    /// The task from outside.
    pub handle: Arc<TaskHandle>,
    /// Its inbox.
    pub inbox: Inbox,
    /// What it is made of.
    pub parts: TaskParts,
    /// Where its snapshots go.
    pub uploads: Arc<Uploads>,
    /// How it says what becomes of it.
    pub voice: Voice,
}

/// Starts the task's thread.
///
/// Errors: as the operating system has them; the task has then not started, and says nothing.
pub fn start(start: TaskStart, surroundings: Surroundings) -> std::io::Result<()> {
    let name = thread_name(&start.handle.vertex_name, start.handle.task.subtask.0);
    thread::Builder::new().name(name).spawn(move || run(start, &surroundings)).map(drop)
}

fn thread_name(vertex_name: &str, subtask: u32) -> String {
    let number = format!(":{subtask}");
    let mut end = THREAD_NAME_BYTES.saturating_sub(number.len()).min(vertex_name.len());
    while !vertex_name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{number}", &vertex_name[..end])
}

fn run(start: TaskStart, surroundings: &Surroundings) {
    let TaskStart { handle, inbox, parts, uploads, voice } = start;
    let _io = surroundings.io.enter();
    let work = || Runner { handle: &handle, inbox: &inbox, uploads: &uploads, voice: &voice, surroundings }.run(parts);
    let end = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| TaskState::Failed(Failure::internal(format!("task {handle} panicked: {}", panic_text(&*panic)))));
    if let TaskState::Failed(failure) = &end {
        tracing::warn!(attempt = %handle.attempt, task = %handle, %failure, "a task failed");
    }
    voice.say(end);
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

struct Runner<'a> {
    handle: &'a Arc<TaskHandle>,
    inbox: &'a Inbox,
    uploads: &'a Arc<Uploads>,
    voice: &'a Voice,
    surroundings: &'a Surroundings,
}

impl Runner<'_> {
    /// Runs the task to its end, which is returned.
    fn run(&self, parts: TaskParts) -> TaskState {
        let is_source = parts.plan.vertex(parts.vertex).source.is_some();
        let mut task = match Task::new(&self.surroundings.environment, parts) {
            Ok(task) => task,
            Err(error) => return self.failed(&error),
        };
        self.voice.say(TaskState::Running);
        if let (true, Some(observer)) = (is_source, &self.surroundings.observer) {
            observer.first_step(&self.handle.vertex_name, self.handle.task.subtask.0);
        }
        match self.work(&mut task) {
            Ok(end) => {
                if end != TaskState::Finished {
                    task.discard();
                }
                end
            }
            Err(error) => {
                task.discard();
                self.failed(&error)
            }
        }
    }

    fn failed(&self, error: &EngineError) -> TaskState {
        let failure = error.to_failure();
        TaskState::Failed(Failure { message: format!("task {}: {}", self.handle, failure.message), ..failure })
    }

    fn work(&self, task: &mut Task) -> Result<TaskState, EngineError> {
        let mut meter = Meter::start(self.handle);
        loop {
            while let Some(control) = self.inbox.next_control() {
                match control {
                    Control::Trigger(barrier) => task.trigger(barrier),
                    Control::EndSource => task.end_source(),
                    Control::Pace(limit) => task.pace(limit),
                    Control::Notify { checkpoint, completed, last } => task.notify(checkpoint, completed, last)?,
                    Control::Cancel => return Ok(TaskState::Canceled),
                    Control::Fail(failure) => return Ok(TaskState::Failed(failure)),
                }
            }
            let now = meter.busy();
            let rows_before = self.rows_in();
            let progress = task.step(self.surroundings.clock.of(now))?;
            let events = task.take_events();
            if events.iter().any(|event| matches!(event, TaskEvent::Snapshot { .. })) {
                self.handle.metrics.snapshot_sync_ns.store(now.elapsed().as_nanos() as u64, Relaxed);
            }
            self.show_step(now, rows_before, &events);
            if self.hand_over(events) {
                return Ok(TaskState::Finished);
            }
            match progress {
                Progress::Worked => {}
                Progress::Waiting { until } => self.park(&mut meter, until, Rest::Idle),
                Progress::Blocked { until } => self.park(&mut meter, until, Rest::Blocked),
                Progress::Writing { until } => self.park(&mut meter, until, Rest::Writing),
                Progress::Finished => return Ok(TaskState::Finished),
            }
        }
    }

    /// Rows that the vertex's first node has taken in.
    fn rows_in(&self) -> u64 {
        self.handle.nodes.first().map_or(0, |node| node.rows_in.load(Relaxed))
    }

    /// Shows an observer the step that began at `began`, if it was one that is worth it.
    fn show_step(&self, began: StdInstant, rows_before: u64, events: &[TaskEvent]) {
        let Some(observer) = &self.surroundings.observer else { return };
        let took = began.elapsed();
        let rows = self.rows_in() - rows_before;
        let snapshot = events.iter().any(|event| matches!(event, TaskEvent::Snapshot { .. }));
        if rows > 0 || snapshot {
            let sync = || Duration::from_nanos(self.handle.metrics.snapshot_sync_ns.load(Relaxed));
            let (vertex, subtask) = (self.handle.vertex_name.as_str(), self.handle.task.subtask.0);
            observer.step(Step { vertex, subtask, began, took, rows, snapshot: snapshot.then(sync) });
        }
    }

    /// Takes what has to leave the task; whether it is finished.
    fn hand_over(&self, events: Vec<TaskEvent>) -> bool {
        let mut finished = false;
        for event in events {
            match event {
                TaskEvent::Snapshot { checkpoint, kind, finished, parts, durable } => {
                    let sync_ns = self.handle.metrics.snapshot_sync_ns.load(Relaxed);
                    let taken = Taken { task: self.handle.task, checkpoint, kind, finished, parts, durable, sync_ns };
                    self.uploads.submit(taken);
                }
                TaskEvent::SnapshotDeclined { checkpoint, reason } => {
                    self.uploads.decline(self.handle.task, checkpoint, DeclineReason::Declined(reason));
                }
                TaskEvent::Finishing => self.voice.say(TaskState::Finishing),
                TaskEvent::Finished => finished = true,
            }
        }
        finished
    }

    fn park(&self, meter: &mut Meter, until: Option<Instant>, rest: Rest) {
        let now = StdInstant::now();
        meter.count_busy(now);
        self.inbox.park(until.map(|moment| self.surroundings.clock.until(now, moment)));
        meter.rested(rest);
    }
}

/// What a task does while it is parked.
#[derive(Clone, Copy)]
enum Rest {
    Idle,
    Blocked,
    Writing,
}

/// Where a task's time goes.
struct Meter<'a> {
    handle: &'a TaskHandle,
    since: StdInstant,
}

impl<'a> Meter<'a> {
    fn start(handle: &'a TaskHandle) -> Self {
        Self { handle, since: StdInstant::now() }
    }

    /// Now; what passed since the last rest was work. Counted once it is worth it, or a rest begins.
    fn busy(&mut self) -> StdInstant {
        let now = StdInstant::now();
        if now.duration_since(self.since) >= BUSY_UPDATE {
            self.count_busy(now);
        }
        now
    }

    fn count_busy(&mut self, now: StdInstant) {
        let worked = now.duration_since(self.since).as_nanos() as u64;
        self.handle.metrics.busy_ns.fetch_add(worked, Relaxed);
        self.since = now;
    }

    fn rested(&mut self, rest: Rest) {
        let now = StdInstant::now();
        let rested = now.duration_since(self.since).as_nanos() as u64;
        let metrics = &self.handle.metrics;
        match rest {
            Rest::Idle => metrics.idle_ns.fetch_add(rested, Relaxed),
            Rest::Blocked => metrics.blocked_ns.fetch_add(rested, Relaxed),
            Rest::Writing => {
                metrics.writing_ns.fetch_add(rested, Relaxed);
                metrics.blocked_ns.fetch_add(rested, Relaxed)
            }
        };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threads_name_keeps_its_subtask() {
        assert_eq!(thread_name("lines", 3), "lines:3");
        assert_eq!(thread_name("lines -> words -> counts", 12), "lines -> wor:12");
        assert_eq!(thread_name("äääääääääää", 7), "ääääää:7");
    }
}
