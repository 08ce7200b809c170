//! Which row goes where.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use arrow::array::{ArrayRef, Int8Array, Int64Array};
use arrow::datatypes::{Int8Type, Int64Type};
use levada_common::plan::{BadRecordPolicy, OperatorKind, SideOutput};
use levada_common::types::RowKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{Closures, context, filter, ints, numbers, schema};

fn spec(branches: &[(&str, Option<&str>)], read: &[&str]) -> OperatorSpec {
    let branches = branches
        .iter()
        .map(|(output, predicate)| SplitBranch { output: (*output).into(), predicate: predicate.map(str::to_string) });
    let sides = read.iter().map(|name| SideOutput { name: (*name).into(), schema: schema() });
    let kind = OperatorKind::Split { branches: branches.collect(), parts_updates: false };
    OperatorSpec { kind, sides: sides.collect(), ..filter("s", "") }
}

fn mask(predicate: impl Fn(i64) -> Option<bool> + Send + Sync + 'static) -> impl Fn(&RecordBatch) -> Result<ArrayRef, String> {
    move |batch| Ok(Arc::new(numbers(batch).into_iter().map(&predicate).collect::<BooleanArray>()))
}

fn opened(spec: &OperatorSpec, closures: &Closures) -> Box<dyn Operator> {
    let OperatorKind::Split { branches, parts_updates } = &spec.kind else { panic!("it is a split") };
    let mut operator = build(spec, branches, *parts_updates, closures).unwrap();
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
    let OperatorKind::Split { branches, .. } = &bare.kind else { panic!("it is a split") };
    let mut operator = build(&bare, branches, false, &closures).unwrap();
    let context = context("s", 8);
    operator.open(&context, Vec::new()).unwrap();
    assert_eq!(split(operator.as_mut(), &[0, 2, 9], 1), [vec![9], vec![2]]);
    assert_eq!(context.metrics.bad_records.load(Ordering::Relaxed), 1);
}

/// What a batch of changes with the columns `k` and `n` does to a table by `k`: rows come where there are none, go where they stand, and
/// an update finds its row.
fn apply(table: &mut BTreeMap<i64, i64>, batch: &RecordBatch) {
    let ops = batch.column(0).as_primitive::<Int8Type>().values();
    let [keys, numbers] = [1, 2].map(|at| batch.column(at).as_primitive::<Int64Type>().values().to_vec());
    for (row, op) in ops.iter().enumerate() {
        let (key, number) = (keys[row], numbers[row]);
        match *op {
            op if op == RowKind::Insert as i8 => assert_eq!(table.insert(key, number), None, "{key} is there already"),
            op if op == RowKind::UpdateBefore as i8 => {
                assert_eq!(table.get(&key), Some(&number), "another row of {key} is replaced");
                let (after, next) = (ops.get(row + 1), keys.get(row + 1));
                assert_eq!((after, next), (Some(&(RowKind::UpdateAfter as i8)), Some(&key)), "an update without its new row");
            }
            op if op == RowKind::UpdateAfter as i8 => {
                assert!(row > 0 && ops[row - 1] == RowKind::UpdateBefore as i8, "an update without its old row");
                table.insert(key, number);
            }
            _ => assert_eq!(table.remove(&key), Some(number), "another row of {key} goes"),
        }
    }
}

/// The changes of each output add up to the rows of the table that belong there, whatever moves between them; rows of which no
/// condition can be computed belong nowhere.
#[test]
fn an_update_that_goes_to_another_output_is_a_delete_and_an_insert() {
    let test = |of: fn(i64) -> Result<bool, String>| {
        move |batch: &RecordBatch| {
            let numbers = batch.column(2).as_primitive::<Int64Type>().values().iter();
            let mask: BooleanArray = numbers.map(|n| of(*n).map(Some)).collect::<Result<_, _>>()?;
            Ok(Arc::new(mask) as ArrayRef)
        }
    };
    let closures = Closures::default()
        .with("a", test(|n| Ok(n % 3 == 0)))
        .with("b", test(|n| if n % 11 == 1 { Err("eleven".into()) } else { Ok(n % 2 == 0) }));
    let mut spec = spec(&[("three", Some("a")), ("even", Some("b"))], &["even", "three"]);
    spec.input.changelog = true;
    spec.bad_records = BadRecordPolicy::Drop;
    let OperatorKind::Split { branches, .. } = &spec.kind else { panic!("it is a split") };
    let place = |n: i64| match n {
        n if n % 3 == 0 => Some(2),
        n if n % 11 == 1 => None,
        n if n % 2 == 0 => Some(1),
        _ => Some(0),
    };
    let mut moved = 0;
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut operator = build(&spec, branches, true, &closures).unwrap();
        operator.open(&context("s", 8), Vec::new()).unwrap();
        let (mut table, mut outputs) = (BTreeMap::new(), [BTreeMap::new(), BTreeMap::new(), BTreeMap::new()]);
        for _ in 0..20 {
            let mut rows: Vec<(RowKind, i64, i64)> = Vec::new();
            for _ in 0..rng.random_range(1..12) {
                let (key, number) = (rng.random_range(0..6), rng.random_range(0..60));
                match table.get(&key).copied() {
                    Some(old) if rng.random_bool(0.3) => {
                        table.remove(&key);
                        rows.push((RowKind::Delete, key, old));
                    }
                    Some(old) => {
                        rows.extend([(RowKind::UpdateBefore, key, old), (RowKind::UpdateAfter, key, number)]);
                        table.insert(key, number);
                        moved += usize::from(place(old) != place(number));
                    }
                    None => {
                        rows.push((RowKind::Insert, key, number));
                        table.insert(key, number);
                    }
                }
            }
            let ops: ArrayRef = Arc::new(Int8Array::from_iter_values(rows.iter().map(|row| row.0 as i8)));
            let ints =
                |of: fn(&(RowKind, i64, i64)) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(rows.iter().map(of))) };
            let batch = RecordBatch::try_from_iter([("_op", ops), ("k", ints(|row| row.1)), ("n", ints(|row| row.2))]).unwrap();
            operator.process(0, batch).unwrap();
            if let Some(batch) = operator.poll().unwrap() {
                apply(&mut outputs[0], &batch);
            }
            while let Some((side, batch)) = operator.poll_side().unwrap() {
                apply(&mut outputs[side + 1], &batch);
            }
            for (at, output) in outputs.iter().enumerate() {
                let expected: BTreeMap<i64, i64> =
                    table.iter().filter(|(_, n)| place(**n) == Some(at)).map(|(key, n)| (*key, *n)).collect();
                assert_eq!(*output, expected, "seed {seed}: output {at}");
            }
        }
    }
    assert!(moved > 1_000, "the run is empty: {moved} moves");
}
