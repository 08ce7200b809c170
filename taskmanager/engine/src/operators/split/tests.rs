//! Which row goes where.

use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use levada_common::plan::{BadRecordPolicy, OperatorKind, SideOutput};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{Closures, context, filter, ints, numbers, schema};

fn spec(branches: &[(&str, Option<&str>)], read: &[&str]) -> OperatorSpec {
    let branches = branches
        .iter()
        .map(|(output, predicate)| SplitBranch { output: (*output).into(), predicate: predicate.map(str::to_string) });
    let sides = read.iter().map(|name| SideOutput { name: (*name).into(), schema: schema() });
    let kind = OperatorKind::Split { branches: branches.collect() };
    OperatorSpec { kind, sides: sides.collect(), ..filter("s", "") }
}

fn mask(predicate: impl Fn(i64) -> Option<bool> + Send + Sync + 'static) -> impl Fn(&RecordBatch) -> Result<ArrayRef, String> {
    move |batch| Ok(Arc::new(numbers(batch).into_iter().map(&predicate).collect::<BooleanArray>()))
}

fn opened(spec: &OperatorSpec, closures: &Closures) -> Box<dyn Operator> {
    let OperatorKind::Split { branches } = &spec.kind else { panic!("it is a split") };
    let mut operator = build(spec, branches, closures).unwrap();
    operator.open(&context("s", 8), Vec::new()).unwrap();
    operator
}

/// What one batch gives: the main output, then the sides.
fn split(operator: &mut dyn Operator, rows: &[i64], sides: usize) -> Vec<Vec<i64>> {
    operator.process(0, ints(rows.iter().copied())).unwrap();
    let mut given = vec![Vec::new(); sides + 1];
    given[0] = operator.poll().unwrap().map_or(Vec::new(), |batch| numbers(&batch));
    assert!(operator.poll().unwrap().is_none());
    while let Some((side, batch)) = operator.poll_side().unwrap() {
        assert!(batch.num_rows() > 0);
        given[side + 1].extend(numbers(&batch));
    }
    assert!(!operator.has_output());
    given
}

/// Whatever the conditions are: each row is where the first true one says, in order, and nowhere else.
#[test]
fn each_row_goes_to_the_first_condition_that_is_true() {
    let tests: [fn(i64) -> Option<bool>; 3] = [|n| Some(n % 3 == 0), |n| (n % 5 != 0).then_some(n % 2 == 0), |n| Some(n > 40)];
    let closures = Closures::default().with("a", mask(tests[0])).with("b", mask(tests[1])).with("c", mask(tests[2]));
    let branches = [("x", Some("a")), ("y", Some("b")), ("z", Some("c"))];
    let mut split_of = opened(&spec(&branches, &["z", "x", "y"]), &closures);
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let rows: Vec<i64> = (0..rng.random_range(1..20)).map(|_| rng.random_range(0..80)).collect();
        let place = |n: &i64| tests.iter().position(|test| test(*n) == Some(true));
        let expected: [Vec<i64>; 4] =
            [None, Some(2), Some(0), Some(1)].map(|at| rows.iter().copied().filter(|n| place(n) == at).collect());
        assert_eq!(split(split_of.as_mut(), &rows, 3), expected, "seed {seed}: {rows:?}");
    }
}

#[test]
fn what_is_left_goes_to_else_and_what_nothing_reads_is_gone() {
    let closures = Closures::default().with("a", mask(|n| Some(n < 3)));
    let branches = [("low", Some("a")), ("high", None)];
    let mut read = opened(&spec(&branches, &["high"]), &closures);
    assert_eq!(split(read.as_mut(), &[1, 2, 3, 4], 1), [vec![], vec![3, 4]]);
    assert_eq!(split(read.as_mut(), &[1, 2], 1), [Vec::<i64>::new(), Vec::new()]);
    assert_eq!(split(read.as_mut(), &[7], 1), [vec![], vec![7]]);
}

/// A condition may rely on those before it being false, and its bad rows are the only ones that go.
#[test]
fn a_condition_sees_the_rows_that_are_left() {
    let divides = |batch: &RecordBatch| {
        let quotient = |n: i64| if n == 0 { Err("division by zero".to_string()) } else { Ok(Some(100 / n > 20)) };
        let mask = numbers(batch).into_iter().map(quotient).collect::<Result<BooleanArray, _>>()?;
        Ok(Arc::new(mask) as ArrayRef)
    };
    let closures = Closures::default().with("zero", mask(|n| Some(n == 0))).with("divides", divides);
    let guarded = spec(&[("zero", Some("zero")), ("low", Some("divides"))], &["zero", "low"]);
    assert_eq!(split(opened(&guarded, &closures).as_mut(), &[0, 2, 9, 0], 2), [vec![9], vec![0, 0], vec![2]]);
    let bare = OperatorSpec { bad_records: BadRecordPolicy::Drop, ..spec(&[("low", Some("divides"))], &["low"]) };
    let OperatorKind::Split { branches } = &bare.kind else { panic!("it is a split") };
    let mut operator = build(&bare, branches, &closures).unwrap();
    let context = context("s", 8);
    operator.open(&context, Vec::new()).unwrap();
    assert_eq!(split(operator.as_mut(), &[0, 2, 9], 1), [vec![9], vec![2]]);
    assert_eq!(context.metrics.bad_records.load(Ordering::Relaxed), 1);
}
