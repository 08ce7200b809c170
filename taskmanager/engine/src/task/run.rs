//! `Task::step`: pumps the chain, and takes new input only when nothing is under way.
//!
//! Life of a task: running until its input has ended and everything went out; finishing, answering triggers with operator
//! state only, until the last checkpoint is complete; finished. A savepoint that stops the job holds it where its barrier passed:
//! it takes no input until the savepoint is complete, and then it is finished, or given up, and then it goes on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use levada_common::ids::{CheckpointId, Uid};
use levada_common::time::{Instant, Watermark};
use levada_state::snapshot::StatePart;

use crate::element::{Barrier, Signal, SplitVoice};
use crate::error::EngineError;
use crate::metrics::TaskMetrics;
use crate::operators::chain::{Chain, Pump};
use crate::sink::Durable;
use crate::task::build::{Built, build};
use crate::task::head::{Head, Taken};
use crate::task::tail::Tail;
use crate::task::{Environment, Progress, TaskEvent, TaskParts};

/// Pieces of background work done at once when there is nothing else to do.
const BACKGROUND_PIECES_PER_STEP: usize = 8;

/// How long a task with background work left sleeps, in milliseconds: its reader may be what it waits for.
const BACKGROUND_PAUSE_MS: u64 = 1;

/// Why nothing moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    /// There is no input.
    Input,
    /// A savepoint that stops the job has passed: there may be input, but it is not looked at.
    Savepoint,
    /// The output has no room.
    Room,
    /// A store has too much to write.
    Store,
}

/// Where a task is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It takes input.
    Running,
    /// It was finished in the checkpoint that it is restored from, and has not said so yet.
    Over,
    /// A savepoint that stops the job has passed: nothing is taken in until it is known what became of it.
    Stopped(CheckpointId),
    /// Its input has ended and everything went out.
    Finishing,
    /// The last checkpoint is complete.
    Finished,
}

/// One parallel instance of a chain.
///
/// Contract: every method is called on the task's own thread, `new` included (sources and sinks are opened there, within the
/// shell's IO runtime). After an error only `discard` is called.
pub struct Task {
    /// For messages: the last node of the chain.
    uid: Uid,
    phase: Phase,
    head: Head,
    chain: Chain,
    tail: Tail,
    metrics: Arc<TaskMetrics>,
    events: Vec<TaskEvent>,
    /// The checkpoint to be taken by RPC.
    triggered: Option<Barrier>,
    /// The cut that is in the chain.
    under_way: Option<Barrier>,
    /// The newest checkpoint that there is a snapshot for.
    taken: Option<CheckpointId>,
    /// The newest checkpoint that was given up: its barrier may come to the end of the chain later.
    given_up: Option<CheckpointId>,
    /// Rows went into the chain and no watermark was asked for since.
    fed: bool,
    /// Processing time at `Instant(0)`.
    processing_time_zero_ms: i64,
    /// The next moment at which an operator wants to hear the time.
    next_tick: Option<Instant>,
}

impl Task {
    /// Builds and opens everything: source, operators, sink.
    ///
    /// Errors: as the connectors and operators have them; an unknown connector or an expression that does not compile is
    /// Internal (the plan was checked).
    pub fn new(env: &Environment, mut parts: TaskParts) -> Result<Task, EngineError> {
        let vertex = parts.plan.vertex(parts.vertex);
        let uid = vertex.uids().pop().unwrap_or_else(|| Uid::new(vertex.name.as_str()));
        let Built { head, chain, tail } = build(env, &mut parts)?;
        Ok(Task {
            uid,
            phase: if parts.finished { Phase::Over } else { Phase::Running },
            head,
            chain,
            tail,
            metrics: parts.metrics,
            events: Vec::new(),
            triggered: None,
            under_way: None,
            taken: parts.restored_from,
            given_up: None,
            fed: false,
            processing_time_zero_ms: env.processing_time_zero_ms,
            next_tick: None,
        })
    }

    /// Does a bounded piece of work: takes in about one batch, or sends on a few.
    pub fn step(&mut self, now: Instant) -> Result<Progress, EngineError> {
        match self.phase {
            Phase::Running => self.run(now),
            Phase::Over => {
                self.end()?;
                Ok(Progress::Worked)
            }
            // What the channels hold stays there: it is for the task to read, should the savepoint fail.
            Phase::Stopped(_) => self.hold(now, None, Held::Savepoint),
            Phase::Finishing => self.wait_for_the_end(now),
            Phase::Finished => Ok(Progress::Finished),
        }
    }

    /// The coordinator wants a snapshot of a task without live input: a source, or one that is finishing. The next steps take it.
    ///
    /// A checkpoint that the task has a snapshot of already, or a newer one of, is left alone.
    pub fn trigger(&mut self, barrier: Barrier) {
        let checkpoint = barrier.checkpoint;
        if self.taken.max(self.triggered()) >= Some(checkpoint) {
            return;
        }
        if let Some(older) = self.triggered.replace(barrier) {
            let reason = format!("checkpoint {checkpoint} was triggered before the task came to it");
            self.events.push(TaskEvent::SnapshotDeclined { checkpoint: older.checkpoint, reason });
        }
    }

    fn triggered(&self) -> Option<CheckpointId> {
        self.triggered.as_ref().map(|barrier| barrier.checkpoint)
    }

    /// The job is drained: the data of a source ends where it is, and with it event time. Without meaning for another task.
    pub fn end_source(&mut self) {
        self.head.end();
    }

    /// A source may go as far as `limit`: the others of its group are not further behind. Without meaning for another task.
    pub fn pace(&mut self, limit: Watermark) {
        self.head.limit(limit);
    }

    /// The checkpoint is complete (the sink commits) or was given up (its alignment is released). `last`: it was the job's last
    /// one, the task is finished.
    pub fn notify(&mut self, checkpoint: CheckpointId, completed: bool, last: bool) -> Result<(), EngineError> {
        if !completed {
            self.given_up = self.given_up.max(Some(checkpoint));
            self.triggered.take_if(|barrier| barrier.checkpoint <= checkpoint);
        }
        if let Phase::Stopped(stopped) = self.phase
            && !completed
            && stopped <= checkpoint
        {
            self.phase = Phase::Running;
        }
        self.head.notify(checkpoint, completed)?;
        self.chain.notify(checkpoint, completed)?;
        self.tail.notify(checkpoint, completed)?;
        if completed && last {
            if !matches!(self.phase, Phase::Finishing | Phase::Stopped(_)) {
                return Err(
                    self.broken(format!("checkpoint {checkpoint} is the job's last one, but the task is {:?}", self.phase))
                );
            }
            self.tail.close(matches!(self.phase, Phase::Stopped(_)))?;
            self.phase = Phase::Finished;
            self.events.push(TaskEvent::Finished);
        }
        Ok(())
    }

    /// What has to leave the task, in order. To be asked after each `step`, `trigger` and `notify`.
    pub fn take_events(&mut self) -> Vec<TaskEvent> {
        std::mem::take(&mut self.events)
    }

    /// The task was cancelled or failed: the sink removes what was never prepared.
    pub fn discard(&mut self) {
        self.tail.discard();
    }

    fn run(&mut self, now: Instant) -> Result<Progress, EngineError> {
        let mut took = false;
        loop {
            match self.chain.pump(&mut self.tail)? {
                Pump::Blocked => return self.hold(now, None, Held::Room),
                Pump::Writing => return self.hold(now, None, Held::Store),
                Pump::More => return Ok(Progress::Worked),
                Pump::Passed(signal, parts) => {
                    self.pass(signal, parts)?;
                    if self.phase != Phase::Running {
                        return Ok(Progress::Worked);
                    }
                    continue;
                }
                Pump::Drained => {}
            }
            if std::mem::take(&mut self.fed) {
                self.chain.background()?;
                if self.make_time(false) {
                    continue;
                }
            }
            if took {
                return Ok(Progress::Worked);
            }
            if self.tick(now)? {
                took = true;
                continue;
            }
            match self.take(now)? {
                Taken::Empty(until) => return self.hold(now, until, Held::Input),
                Taken::Nothing => return Ok(Progress::Worked),
                Taken::Quiet => took = self.make_time(true),
                Taken::Split(split, voice) => {
                    self.chain.hear_split(split, voice);
                    took = self.make_time(true);
                }
                Taken::Rows(split, batch) => {
                    self.chain.hear_split(split, SplitVoice::Rows);
                    self.chain.feed(0, batch);
                    (self.fed, took) = (true, true);
                }
                Taken::Batch(input, batch) => {
                    self.chain.feed(input, batch);
                    (self.fed, took) = (true, true);
                }
                Taken::Signal(signal) => {
                    self.enter(signal)?;
                    took = true;
                }
                Taken::GivenUp(checkpoint) => {
                    let reason = "a newer checkpoint's barrier came before all of its own".to_string();
                    self.events.push(TaskEvent::SnapshotDeclined { checkpoint, reason });
                }
            }
        }
    }

    /// Tells the operators the time; whether one of them has output for it.
    fn tick(&mut self, now: Instant) -> Result<bool, EngineError> {
        let zero = self.processing_time_zero_ms;
        let time_ms = zero.saturating_add_unsigned(now.0);
        let next_ms = self.chain.tick(time_ms)?;
        self.next_tick = next_ms.map(|next| Instant(next.saturating_sub(zero).max(0) as u64));
        Ok(next_ms.is_some_and(|next| next <= time_ms))
    }

    /// The next input: a checkpoint that was triggered at a source comes before rows.
    fn take(&mut self, now: Instant) -> Result<Taken, EngineError> {
        if self.head.takes_barrier()
            && let Some(barrier) = self.triggered.take()
        {
            let signal = Signal::Barrier(barrier.checkpoint);
            self.under_way = Some(barrier);
            return Ok(Taken::Signal(signal));
        }
        let taken = self.head.next(now);
        self.head.show(&self.metrics);
        taken
    }

    /// A signal comes in at the head.
    fn enter(&mut self, signal: Signal) -> Result<(), EngineError> {
        let mut parts = Vec::new();
        match signal {
            Signal::Barrier(checkpoint) => {
                if self.under_way.as_ref().is_none_or(|barrier| barrier.checkpoint != checkpoint) {
                    self.under_way = Some(self.head.barrier(checkpoint));
                }
                parts = self.head.snapshot(checkpoint)?;
            }
            Signal::Watermark(watermark) => self.metrics.watermark_ms.store(watermark.0, Ordering::Relaxed),
            Signal::End => self.metrics.watermark_ms.store(Watermark::MAX.0, Ordering::Relaxed),
            Signal::Idle | Signal::Active => {}
        }
        self.chain.enter(signal, parts);
        Ok(())
    }

    /// Takes up the watermark that is due in the chain; whether there is one.
    fn make_time(&mut self, quiet: bool) -> bool {
        match self.chain.make_time(quiet) {
            Some(watermark) => {
                self.metrics.watermark_ms.store(watermark.0, Ordering::Relaxed);
                self.head.reached(watermark);
                true
            }
            None => false,
        }
    }

    /// A signal has passed every operator and goes on.
    fn pass(&mut self, signal: Signal, mut parts: Vec<StatePart>) -> Result<(), EngineError> {
        match signal {
            Signal::Barrier(checkpoint) => {
                let barrier = self.under_way.take().unwrap_or(Barrier::checkpoint(checkpoint));
                let (own, durable) = self.tail.prepare(checkpoint)?;
                self.tail.barrier(&barrier);
                parts.extend(own);
                if barrier.kind.stops() && self.given_up < Some(checkpoint) {
                    self.phase = Phase::Stopped(checkpoint);
                }
                self.snapshot(barrier, parts, durable)
            }
            Signal::End => self.end(),
            Signal::Watermark(_) | Signal::Idle | Signal::Active => self.tail.signal(signal),
        }
    }

    /// Everything went out: event time and data end downstream.
    fn end(&mut self) -> Result<(), EngineError> {
        self.metrics.watermark_ms.store(Watermark::MAX.0, Ordering::Relaxed);
        self.metrics.held_back_by.store(TaskMetrics::NO_CHANNEL, Ordering::Relaxed);
        self.tail.signal(Signal::End)?;
        self.phase = Phase::Finishing;
        self.events.push(TaskEvent::Finishing);
        Ok(())
    }

    /// Takes a triggered snapshot; else nothing is left to do but to wait, and to save the rest of a snapshot that was taken
    /// before the end.
    fn wait_for_the_end(&mut self, now: Instant) -> Result<Progress, EngineError> {
        if let Head::Gate(head) = &mut self.head
            && let Err(rows) = head.gate.drop_all()
        {
            return Err(self.broken(format!("{rows} rows came after the end of the task's data")));
        }
        let Some(barrier) = self.triggered.take() else { return Ok(Progress::Waiting { until: self.work_beside_rows(now)? }) };
        let checkpoint = barrier.checkpoint;
        let mut parts = self.head.snapshot(checkpoint)?;
        parts.extend(self.chain.snapshot_finished(checkpoint)?);
        let (own, durable) = self.tail.prepare(checkpoint)?;
        parts.extend(own);
        self.snapshot(barrier, parts, durable)?;
        Ok(Progress::Worked)
    }

    fn snapshot(&mut self, barrier: Barrier, parts: Vec<StatePart>, durable: Option<Durable>) -> Result<(), EngineError> {
        let Barrier { checkpoint, kind } = barrier;
        for (index, part) in parts.iter().enumerate() {
            if parts[..index].iter().any(|other| (&other.meta.uid, &other.meta.name) == (&part.meta.uid, &part.meta.name)) {
                let (uid, message) = (part.meta.uid.clone(), format!("two states are called \"{}\"", part.meta.name));
                return Err(EngineError::Invariant { uid, message });
            }
        }
        self.taken = Some(checkpoint);
        self.triggered.take_if(|triggered| triggered.checkpoint <= checkpoint);
        let finished = self.phase == Phase::Finishing;
        self.events.push(TaskEvent::Snapshot { checkpoint, kind, finished, parts, durable: durable.into_iter().collect() });
        Ok(())
    }

    /// Nothing moves for now: uses the time for work beside the rows.
    fn hold(&mut self, now: Instant, until: Option<Instant>, held: Held) -> Result<Progress, EngineError> {
        match held {
            Held::Input => self.tail.flush()?,
            Held::Savepoint => {
                self.head.interrupt();
                self.tail.flush()?;
            }
            Held::Room | Held::Store => self.head.interrupt(),
        }
        let pause = self.work_beside_rows(now)?;
        let tick = self.next_tick.filter(|_| held == Held::Input);
        let until = until.into_iter().chain(pause).chain(tick).min();
        Ok(match held {
            Held::Input | Held::Savepoint => Progress::Waiting { until },
            Held::Room => Progress::Blocked { until },
            Held::Store => Progress::Writing { until },
        })
    }

    /// A few pieces of what waits beside the rows; when to go on with the rest, if there is one.
    fn work_beside_rows(&mut self, now: Instant) -> Result<Option<Instant>, EngineError> {
        let mut more = true;
        for _ in 0..BACKGROUND_PIECES_PER_STEP {
            more = more && self.chain.background()?;
        }
        Ok(more.then(|| now.plus_ms(BACKGROUND_PAUSE_MS)))
    }

    fn broken(&self, message: String) -> EngineError {
        EngineError::Invariant { uid: self.uid.clone(), message }
    }
}

#[cfg(test)]
mod tests;
