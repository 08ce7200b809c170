//! A chain whose outflow stops anywhere says the same as one that never stops.

use std::collections::VecDeque;
use std::sync::Arc;

use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_state::snapshot::{StateMeta, ready};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::operator::{OperatorContext, RestoredState};
use crate::testing::{ints, numbers};

/// Says every number `times` times, a batch for each.
struct Repeat {
    times: usize,
    pending: VecDeque<i64>,
}

/// Holds numbers back until the time is past them, or a barrier, or its input is idle, or the end; says something of its own at the end.
#[derive(Default)]
struct HoldBack {
    held: Vec<i64>,
    due: VecDeque<i64>,
    flushes: bool,
}

impl Operator for Repeat {
    fn open(&mut self, _: &OperatorContext, _: Vec<RestoredState>) -> Result<(), EngineError> {
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        assert!(self.pending.is_empty(), "given rows before it was polled to the end");
        for number in numbers(&batch) {
            self.pending.extend(std::iter::repeat_n(number, self.times));
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.pending.pop_front().map(|number| ints([number])))
    }

    fn has_output(&self) -> bool {
        !self.pending.is_empty()
    }

    fn snapshot(&mut self, _: CheckpointId, _finished: bool) -> Result<Vec<StatePart>, EngineError> {
        assert!(self.pending.is_empty(), "a snapshot before it was polled to the end");
        let meta = StateMeta {
            uid: Uid::new("repeat"),
            name: format!("{}", self.times),
            kind: StateKind::OperatorList,
            schema: Arc::default(),
        };
        Ok(vec![StatePart { meta, contents: ready([]).into() }])
    }
}

impl Operator for HoldBack {
    fn open(&mut self, _: &OperatorContext, _: Vec<RestoredState>) -> Result<(), EngineError> {
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        assert!(self.due.is_empty(), "given rows before it was polled to the end");
        self.held.extend(numbers(&batch));
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.due.pop_front().map(|number| ints([number])))
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        assert!(self.due.is_empty(), "time before it was polled to the end");
        self.due = self.held.extract_if(.., |number| *number <= watermark.0).collect();
        Ok(Some(watermark))
    }

    fn before_barrier(&mut self) -> Result<(), EngineError> {
        if self.flushes {
            self.due.extend(self.held.drain(..));
        }
        Ok(())
    }

    fn idle(&mut self) -> Result<(), EngineError> {
        self.before_barrier()
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        assert!(self.due.is_empty() && self.held.is_empty(), "the end of data before the end of time");
        self.due.extend([-1, -2]);
        Ok(())
    }
}

/// Gives every number on, and odd ones to an output of their own, an even one negated to another.
#[derive(Default)]
struct Divert {
    main: VecDeque<i64>,
    sides: [VecDeque<i64>; 2],
}

impl Operator for Divert {
    fn open(&mut self, _: &OperatorContext, _: Vec<RestoredState>) -> Result<(), EngineError> {
        Ok(())
    }

    fn process(&mut self, _input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        self.all_out("given rows");
        for number in numbers(&batch) {
            self.main.push_back(number);
            match number % 2 == 0 {
                true => self.sides[1].push_back(-number),
                false => self.sides[0].push_back(number),
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        Ok(self.main.pop_front().map(|number| ints([number])))
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        assert!(self.main.is_empty(), "asked for a side before the main output was polled to the end");
        let side = self.sides.iter().position(|side| !side.is_empty());
        Ok(side.and_then(|side| Some((side, ints([self.sides[side].pop_front()?])))))
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.all_out("time");
        Ok(Some(watermark))
    }

    fn snapshot(&mut self, _: CheckpointId, _finished: bool) -> Result<Vec<StatePart>, EngineError> {
        self.all_out("a snapshot");
        Ok(Vec::new())
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.all_out("the end");
        self.sides[0].push_back(-1);
        Ok(())
    }
}

impl Divert {
    fn all_out(&self, what: &str) {
        assert!(self.main.is_empty() && self.sides.iter().all(VecDeque::is_empty), "{what} before it was polled to the end");
    }
}

/// Is not ready when its coin says so, as one whose store has too much to write.
struct Storing<O> {
    operator: O,
    room: f64,
    rng: StdRng,
    promised: bool,
}

impl<O: Operator> Operator for Storing<O> {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        self.operator.open(context, restored)
    }

    fn is_ready(&mut self) -> Result<bool, EngineError> {
        self.promised = self.rng.random_bool(self.room);
        Ok(self.promised)
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        assert!(std::mem::take(&mut self.promised), "given rows while it is not ready");
        self.operator.process(input, batch)
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        assert!(std::mem::take(&mut self.promised), "polled while it is not ready");
        self.operator.poll()
    }

    fn poll_side(&mut self) -> Result<Option<(usize, RecordBatch)>, EngineError> {
        self.operator.poll_side()
    }

    fn has_output(&self) -> bool {
        self.operator.has_output()
    }

    fn advance(&mut self, watermark: Watermark) -> Result<Option<Watermark>, EngineError> {
        self.operator.advance(watermark)
    }

    fn before_barrier(&mut self) -> Result<(), EngineError> {
        self.operator.before_barrier()
    }

    fn idle(&mut self) -> Result<(), EngineError> {
        self.operator.idle()
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        self.operator.snapshot(checkpoint, finished)
    }

    fn finish(&mut self) -> Result<(), EngineError> {
        self.operator.finish()
    }
}

/// Writes down what leaves the chain; has room when its coin says so.
struct Record {
    said: Vec<String>,
    room: f64,
    rng: StdRng,
    promised: bool,
}

impl Outflow for Record {
    fn is_ready(&mut self) -> bool {
        self.promised = self.rng.random_bool(self.room);
        self.promised
    }

    fn write(&mut self, output: usize, batch: RecordBatch) -> Result<(), EngineError> {
        assert!(std::mem::take(&mut self.promised), "written without room");
        let output = if output == 0 { String::new() } else { format!("{output}: ") };
        self.said.push(format!("{output}{:?}", numbers(&batch)));
        Ok(())
    }
}

/// Longer chains end with an operator that has several outputs.
const WITHOUT_SIDES_MAX: usize = 5;

fn chain(operators: usize, room: f64) -> (Chain, Vec<Arc<NodeMetrics>>) {
    let (mut chain, mut nodes) = (Chain::default(), Vec::new());
    for index in 0..operators {
        let operator: Box<dyn Operator> = match index % 3 {
            _ if index + 1 == operators && operators > WITHOUT_SIDES_MAX => storing(Divert::default(), room),
            0 => storing(Repeat { times: index + 1, pending: VecDeque::new() }, room),
            1 => storing(HoldBack { flushes: true, ..HoldBack::default() }, room),
            _ => storing(HoldBack::default(), room),
        };
        let metrics = Arc::new(NodeMetrics::new(Uid::new(format!("node {index}"))));
        nodes.push(Arc::clone(&metrics));
        chain.push(operator, RowCount { metrics, rows_in: true, rows_out: true }, false);
    }
    if operators > WITHOUT_SIDES_MAX {
        chain.give_sides();
    }
    (chain, nodes)
}

fn storing(operator: impl Operator + 'static, room: f64) -> Box<dyn Operator> {
    Box::new(Storing { operator, room, rng: StdRng::seed_from_u64(7), promised: false })
}

/// What a script of numbers and signals makes a chain say, and how often it was blocked.
fn run(operators: usize, script: &[Result<i64, Signal>], room: f64, seed: u64) -> (Vec<String>, usize) {
    let (mut chain, nodes) = chain(operators, room);
    let mut record = Record { said: Vec::new(), room, rng: StdRng::seed_from_u64(seed), promised: false };
    let mut blocked = 0;
    for item in script {
        match item {
            Ok(number) => chain.feed(0, ints([*number, *number + 100])),
            Err(signal) => chain.enter(*signal, Vec::new()),
        }
        loop {
            match chain.pump(&mut record).unwrap() {
                Pump::Drained => break,
                Pump::More => {}
                Pump::Blocked | Pump::Writing => blocked += 1,
                Pump::Passed(signal, parts) => {
                    let names: Vec<String> = parts.into_iter().map(|part| part.meta.name).collect();
                    record.said.push(format!("{signal:?} {names:?}"));
                }
            }
        }
    }
    if let Some(first) = nodes.first() {
        let rows = script.iter().filter(|item| item.is_ok()).count() as u64 * 2;
        assert_eq!(first.rows_in.load(Ordering::Relaxed), rows);
    }
    (record.said, blocked)
}

#[test]
fn blocking_anywhere_changes_nothing() {
    let mut blocked = 0;
    for seed in 0..400 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (operators, mut time) = (rng.random_range(0..WITHOUT_SIDES_MAX + 3), 0);
        let mut script: Vec<Result<i64, Signal>> = (0..rng.random_range(0..30))
            .map(|step| match rng.random_range(0..10) {
                0 => Err(Signal::Barrier(CheckpointId(step + 1))),
                1 => Err(Signal::Idle),
                2 => Err(Signal::Active),
                3..5 => {
                    time += rng.random_range(1..60);
                    Err(Signal::Watermark(Watermark(time)))
                }
                _ => Ok(rng.random_range(0..200)),
            })
            .collect();
        script.push(Err(Signal::End));
        let (expected, never) = run(operators, &script, 1.0, seed);
        assert_eq!(never, 0);
        let (said, times) = run(operators, &script, 0.3, seed);
        assert_eq!(said, expected, "seed {seed}");
        blocked += times;
    }
    assert!(blocked > 1_000, "the run is empty: blocked {blocked} times");
}

#[test]
fn rows_leave_before_the_signals_that_came_after_them() {
    let script = [Ok(1), Err(Signal::Watermark(Watermark(50))), Ok(2), Err(Signal::Barrier(CheckpointId(1)))];
    let (said, _) = run(2, &script, 1.0, 0);
    assert_eq!(said, ["[1]", "Watermark(Watermark(50)) []", "[101]", "[2]", "[102]", "Barrier(CheckpointId(1)) [\"1\"]"]);
}

/// What an operator says at its end reaches the next one before that one's own end, and all of it before the end of time.
#[test]
fn the_end_drains_one_operator_after_the_other() {
    let (said, _) = run(3, &[Ok(300), Err(Signal::End)], 1.0, 0);
    assert_eq!(said, ["[300]", "[400]", "[-1]", "[-2]", "[-1]", "[-2]", "End []"]);
}

/// A signal goes on when the rows before it have left by every output.
#[test]
fn rows_of_every_output_leave_before_the_signals_that_came_after_them() {
    let mut chain = Chain::default();
    let metrics = Arc::new(NodeMetrics::new(Uid::new("divert")));
    chain.push(Box::new(Divert::default()), RowCount { metrics: Arc::clone(&metrics), rows_in: true, rows_out: true }, false);
    chain.give_sides();
    let mut record = Record { said: Vec::new(), room: 1.0, rng: StdRng::seed_from_u64(0), promised: false };
    let mut pump = |chain: &mut Chain| loop {
        match chain.pump(&mut record).unwrap() {
            Pump::Drained => return std::mem::take(&mut record.said),
            Pump::Passed(signal, _) => record.said.push(format!("{signal:?}")),
            _ => {}
        }
    };
    chain.feed(0, ints([1, 2]));
    assert_eq!(pump(&mut chain), ["[1]", "[2]", "1: [1]", "2: [-2]"]);
    chain.feed(0, ints([3]));
    chain.pump(&mut Record { said: Vec::new(), room: 0.0, rng: StdRng::seed_from_u64(0), promised: false }).map(drop).unwrap();
    assert_eq!(pump(&mut chain), ["[3]", "1: [3]"]);
    chain.enter(Signal::End, Vec::new());
    assert_eq!(pump(&mut chain), ["1: [-1]", "End"]);
    assert_eq!((metrics.rows_in.load(Ordering::Relaxed), metrics.rows_out.load(Ordering::Relaxed)), (3, 7));
}

#[test]
fn what_was_held_back_leaves_before_the_input_counts_as_idle() {
    let (said, _) = run(2, &[Ok(1), Err(Signal::Idle), Err(Signal::Active)], 1.0, 0);
    assert_eq!(said, ["[1]", "[101]", "Idle []", "Active []"]);
}
