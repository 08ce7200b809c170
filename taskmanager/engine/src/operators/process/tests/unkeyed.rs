//! Two inputs without a key: the state of the instances, restored at any parallelism.

use levada_common::function::{FunctionDeclaration, FunctionKind};
use levada_common::types::LogicalType;
use levada_state::descriptor::{BindError, Binder, ListStateDescriptor, OperatorListDescriptor, OperatorListState};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use crate::function::{CoFlatMapFunction, FlatMapContext, FunctionContext, FunctionError, Output, RegisteredFunction, Rows};
use crate::harness::{Harness, HarnessError};

/// Adds both inputs up, the second one with another sign, and gives the sum at each row of either; what its field holds goes into its
/// state at a barrier.
#[derive(Default)]
struct Balance {
    sum: i64,
}

impl Balance {
    fn add(&mut self, rows: Rows<'_>, column: &str, sign: i64, out: &mut Output) -> Result<(), FunctionError> {
        let numbers = rows.column::<i64>(column)?;
        for row in 0..rows.len() {
            self.sum += sign * numbers.get(row);
            out.push((sign, self.sum))?;
        }
        Ok(())
    }
}

impl CoFlatMapFunction for Balance {
    type States = OperatorListState<i64>;

    fn bind(binder: &mut dyn Binder) -> Result<Self::States, BindError> {
        OperatorListDescriptor::split("sums").bind(binder)
    }

    fn open(
        &mut self,
        sums: &Self::States,
        ctx: &mut FlatMapContext<'_>,
        _context: &FunctionContext,
    ) -> Result<(), FunctionError> {
        self.sum = sums.get(ctx).iter().sum();
        Ok(())
    }

    fn flat_map1(
        &mut self,
        _sums: &Self::States,
        rows: Rows<'_>,
        _ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        self.add(rows, "income", 1, out)
    }

    fn flat_map2(
        &mut self,
        _sums: &Self::States,
        rows: Rows<'_>,
        _ctx: &mut FlatMapContext<'_>,
        out: &mut Output,
    ) -> Result<(), FunctionError> {
        self.add(rows, "expense", -1, out)
    }

    fn snapshot(&mut self, sums: &Self::States, ctx: &mut FlatMapContext<'_>) -> Result<(), FunctionError> {
        sums.update(ctx, vec![self.sum]);
        Ok(())
    }

    fn close(&mut self, _sums: &Self::States, _ctx: &mut FlatMapContext<'_>, out: &mut Output) -> Result<(), FunctionError> {
        out.push((0_i64, self.sum))
    }
}

fn declaration() -> FunctionDeclaration {
    FunctionDeclaration::new("balance", FunctionKind::CoFlatMap)
        .input("income", LogicalType::Int64)
        .second_input("expense", LogicalType::Int64)
        .output("sign", LogicalType::Int64)
        .output("sum", LogicalType::Int64)
}

fn harness() -> Harness {
    Harness::new(RegisteredFunction::co_flat_map(declaration(), |_| Ok(Balance::default())).unwrap())
}

fn pairs(rows: &[Value]) -> Vec<(i64, i64)> {
    rows.iter().map(|row| (row["sign"].as_i64().unwrap(), row["sum"].as_i64().unwrap())).collect()
}

#[test]
fn rows_of_either_input_come_to_one_function() {
    let mut run = harness().start().unwrap();
    run.push(&[json!({"income": 5}), json!({"income": 2})]).unwrap();
    run.push_second(&[json!({"expense": 4})]).unwrap();
    run.push(&[json!({"income": 1})]).unwrap();
    run.finish().unwrap();
    assert_eq!(pairs(&run.output().unwrap()), [(1, 5), (1, 7), (-1, 3), (1, 4), (0, 4)]);
    assert!(matches!(run.push_broadcast(&[json!({"expense": 4})]), Err(HarnessError::NoInput { input: "broadcast", .. })));
}

#[test]
fn what_instances_hold_is_neither_lost_nor_doubled_at_another_parallelism() {
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut run, mut balance) = (harness().start().unwrap(), 0);
        for _ in 0..6 {
            for _ in 0..rng.random_range(0..8) {
                let number = rng.random_range(0..100);
                if rng.random_bool(0.5) {
                    run.push(&[json!({"income": number})]).unwrap();
                    balance += number;
                } else {
                    run.push_second(&[json!({"expense": number})]).unwrap();
                    balance -= number;
                }
            }
            let snapshot = run.snapshot().unwrap();
            run = harness().parallelism(rng.random_range(1..5)).restore(&snapshot).unwrap();
        }
        run.finish().unwrap();
        assert_eq!(pairs(&run.output().unwrap()).iter().map(|(_, sum)| sum).sum::<i64>(), balance, "seed {seed}");
    }
}

/// Binds a state of keys, which it has not.
struct Keyed;

impl CoFlatMapFunction for Keyed {
    type States = ();

    fn bind(binder: &mut dyn Binder) -> Result<(), BindError> {
        ListStateDescriptor::<i64>::new("of keys").bind(binder).map(drop)
    }

    fn flat_map1(&mut self, (): &(), _: Rows<'_>, _: &mut FlatMapContext<'_>, _: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }

    fn flat_map2(&mut self, (): &(), _: Rows<'_>, _: &mut FlatMapContext<'_>, _: &mut Output) -> Result<(), FunctionError> {
        Ok(())
    }
}

#[test]
fn a_state_of_keys_and_timers_are_refused_at_registration() {
    let text = |declaration| RegisteredFunction::co_flat_map(declaration, |_| Ok(Keyed)).err().unwrap().to_string();
    assert!(text(declaration()).contains("its state \"of keys\" belongs to keys, and it has none"), "{}", text(declaration()));
    assert!(text(declaration().event_timers()).contains("timers belong to a key, and it has none"));
    assert!(
        text(FunctionDeclaration { kind: FunctionKind::FlatMap, second: None, ..declaration() })
            .contains("declared as a flat map")
    );
}
