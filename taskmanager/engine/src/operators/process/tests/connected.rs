//! Two inputs of one key against a naive model: what waits for the other, restored in the middle at any parallelism.

use std::collections::{BTreeMap, BTreeSet};

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_state::descriptor::{BindError, Binder, ListState, ListStateDescriptor};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::function::{FiredTimers, FunctionError, KeyedCoProcessFunction, KeyedContext, Output, RegisteredFunction, Rows};
use crate::harness::{Harness, HarnessError};

/// Gives each row of either input with each of the other that came before it, and at a row's time how many of each there are.
struct Meet;

type Sides = (ListState<i64>, ListState<i64>);

impl KeyedCoProcessFunction for Meet {
    type States = Sides;

    fn bind(binder: &mut dyn Binder) -> Result<Sides, BindError> {
        Ok((ListStateDescriptor::new("left").bind(binder)?, ListStateDescriptor::new("right").bind(binder)?))
    }

    fn process1(
        &mut self,
        (left, right): &Sides,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let id = rows.column::<i64>("id")?;
        for row in 0..rows.len() {
            ctx.enter(row);
            left.add(ctx, id.get(row))?;
            for other in right.get(ctx)?.to_vec() {
                out.push((id.get(row), other))?;
            }
        }
        Ok(())
    }

    fn process2(
        &mut self,
        (left, right): &Sides,
        rows: Rows<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        let (id, at) = (rows.column::<i64>("id")?, rows.column::<i64>("at")?);
        for row in 0..rows.len() {
            ctx.enter(row);
            right.add(ctx, id.get(row))?;
            ctx.set_event_timer(at.get(row))?;
            for other in left.get(ctx)?.to_vec() {
                out.push((other, id.get(row)))?;
            }
        }
        Ok(())
    }

    fn on_timers(
        &mut self,
        (left, right): &Sides,
        timers: FiredTimers<'_>,
        ctx: &mut KeyedContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        for timer in 0..timers.len() {
            ctx.enter(timer);
            let sizes = (left.get(ctx)?.len() as i64, right.get(ctx)?.len() as i64);
            out.side("sizes")?.push((timers.times_ms()[timer], sizes.0, sizes.1))?;
        }
        Ok(())
    }
}

fn harness() -> Harness {
    let declaration = FunctionDeclaration::new("meet", FunctionKind::KeyedCoProcess)
        .input("id", LogicalType::Int64)
        .second_input("id", LogicalType::Int64)
        .second_input("at", LogicalType::Int64)
        .output("left", LogicalType::Int64)
        .output("right", LogicalType::Int64)
        .side_output("sizes", "at", LogicalType::Int64)
        .side_output("sizes", "left", LogicalType::Int64)
        .side_output("sizes", "right", LogicalType::Int64)
        .event_timers();
    let function = RegisteredFunction::keyed_co_process(declaration, |_| Ok(Meet)).unwrap();
    Harness::new(function).key_pair("k", "key", LogicalType::Int64).second_event_time("at").batch_rows(5)
}

/// What the function gives, by hand.
#[derive(Default)]
struct Model {
    sides: BTreeMap<i64, [Vec<i64>; 2]>,
    timers: BTreeSet<(i64, i64)>,
    pairs: Vec<(i64, i64)>,
    sizes: Vec<(i64, i64, i64)>,
}

impl Model {
    fn push(&mut self, input: usize, key: i64, id: i64) {
        let sides = self.sides.entry(key).or_default();
        sides[input].push(id);
        let pair = |other: &i64| if input == 0 { (id, *other) } else { (*other, id) };
        self.pairs.extend(sides[1 - input].iter().map(pair));
    }

    fn advance(&mut self, time: i64) {
        while let Some((at, key)) = self.timers.first().copied().filter(|(at, _)| *at <= time) {
            self.timers.pop_first();
            let [left, right] = &self.sides[&key];
            self.sizes.push((at, left.len() as i64, right.len() as i64));
        }
    }
}

fn numbers<const N: usize>(rows: &[Value], names: [&str; N]) -> Vec<[i64; N]> {
    let mut rows: Vec<[i64; N]> = rows.iter().map(|row| names.map(|name| row[name].as_i64().unwrap())).collect();
    rows.sort_unstable();
    rows
}

#[test]
fn two_inputs_share_the_state_of_a_key() {
    for seed in 0..150 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut model, mut time, mut next) = (Model::default(), 0, 0);
        let start = |rng: &mut StdRng| harness().parallelism(rng.random_range(1..4));
        let mut run = start(&mut rng).start().unwrap();
        let (mut pairs, mut sizes) = (Vec::new(), Vec::new());
        for _ in 0..12 {
            match rng.random_range(0..5) {
                0 => {
                    time += rng.random_range(1..20);
                    run.watermark(time).unwrap();
                    model.advance(time);
                }
                1 => {
                    let snapshot = run.snapshot().unwrap();
                    pairs.extend(run.output().unwrap());
                    sizes.extend(run.side_output("sizes").unwrap());
                    run = start(&mut rng).restore(&snapshot).unwrap();
                    run.watermark(time).unwrap();
                }
                input => {
                    let input = usize::from(input % 2 == 0);
                    let mut rows = Vec::new();
                    for _ in 0..rng.random_range(1..12) {
                        next += 1;
                        let (key, at) = (rng.random_range(0..4), time + rng.random_range(1..30));
                        model.push(input, key, next);
                        if input == 1 {
                            model.timers.insert((at, key));
                        }
                        rows.push(if input == 0 {
                            json!({"k": key, "id": next})
                        } else {
                            json!({"key": key, "id": next, "at": at})
                        });
                    }
                    if input == 0 { run.push(&rows).unwrap() } else { run.push_second(&rows).unwrap() }
                }
            }
        }
        run.finish().unwrap();
        model.advance(i64::MAX);
        pairs.extend(run.output().unwrap());
        sizes.extend(run.side_output("sizes").unwrap());
        model.pairs.sort_unstable();
        model.sizes.sort_unstable();
        let expected: Vec<[i64; 2]> = model.pairs.iter().map(|(left, right)| [*left, *right]).collect();
        assert_eq!(numbers(&pairs, ["left", "right"]), expected, "seed {seed}");
        let expected: Vec<[i64; 3]> = model.sizes.iter().map(|(at, left, right)| [*at, *left, *right]).collect();
        assert_eq!(numbers(&sizes, ["at", "left", "right"]), expected, "seed {seed}");
    }
}

#[test]
fn what_a_function_does_not_have_is_said() {
    let mut run = harness().start().unwrap();
    assert!(matches!(run.side_output("late"), Err(HarnessError::NoSide { .. })));
    assert!(matches!(run.push_broadcast(&[]), Err(HarnessError::NoInput { input: "broadcast", .. })));
}
