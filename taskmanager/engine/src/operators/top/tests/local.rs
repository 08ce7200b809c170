//! A top-N in two phases against sorted lists: however rows are spread over local halves, and whatever these forget.

use super::windows::{Row, Step, WindowRig, any_top, batch, expected, input, steps, top};
use super::*;
use levada_common::time::Watermark;

/// A local half, and the batches that went on.
struct Local {
    operator: Box<dyn Operator>,
}

impl Local {
    fn new(top: &TopSpec) -> Self {
        let top = TopSpec { local: true, ..top.clone() };
        let spec = OperatorSpec { output: input(), sides: Vec::new(), ..super::windows::spec(&top) };
        let mut operator = build(&spec, &top).expect("the plan is good");
        operator.open(&crate::testing::context("best", 7), Vec::new()).expect("it opens");
        Self { operator }
    }

    fn process(&mut self, rows: &[Row]) -> Vec<RecordBatch> {
        self.operator.process(0, batch(rows)).expect("rows are taken in");
        std::iter::from_fn(|| self.operator.poll().expect("output is polled")).collect()
    }
}

#[test]
fn two_phases_give_what_one_gives() {
    let (mut given, mut dropped) = (0, 0);
    for seed in 0..500 {
        let mut rng = StdRng::seed_from_u64(seed);
        let top = TopSpec { keys: Vec::new(), ..any_top(&mut rng) };
        let steps = steps(&mut rng, &mut 0, &mut 0);
        let mut locals: Vec<Local> = (0..rng.random_range(1..4)).map(|_| Local::new(&top)).collect();
        let (mut last, restarts) = (WindowRig::new(&top, Vec::new(), everything()), seed % 2 == 0);
        for step in &steps {
            match step {
                Step::Rows(rows) => {
                    let local = rng.random_range(0..locals.len());
                    if restarts && rng.random_bool(0.1) {
                        // As after a restore: nothing of it was in a snapshot.
                        let parts = locals[local].operator.snapshot(CheckpointId(1), false).expect("a snapshot is taken");
                        assert!(parts.is_empty());
                        locals[local] = Local::new(&top);
                    }
                    let batches = locals[local].process(rows);
                    dropped += rows.len() - batches.iter().map(RecordBatch::num_rows).sum::<usize>();
                    batches.into_iter().for_each(|batch| last.process(batch));
                }
                Step::Advance(to) => {
                    for local in &mut locals {
                        local.operator.advance(Watermark(*to)).expect("time goes on");
                        assert!(local.operator.poll().expect("output is polled").is_none(), "nothing waits");
                    }
                    last.run(std::slice::from_ref(step));
                }
            }
        }
        last.finish();
        given += last.given();
        let (found, expected) = (last.sorted(), expected(&top, &steps));
        assert_eq!(found.0, expected.0, "seed {seed}: {top:?}");
        assert!(found.1 == expected.1 || restarts, "seed {seed}: {top:?}");
    }
    assert!(given > 2_000 && dropped > 1_000, "the run is empty: {given} rows given, {dropped} held back");
}

#[test]
fn few_of_many_rows_go_on() {
    let top = TopSpec { limit: 3, with_ties: false, keys: Vec::new(), ..top(&mut StdRng::seed_from_u64(1)) };
    let mut local = Local::new(&top);
    let mut sent = 0;
    for step in 0..200 {
        let row = |id: i64| Row { key: id, time: 3, value: Some((id * 7_919 + step * 104_729) % 100_003), id: step * 100 + id };
        let rows: Vec<Row> = (0..100).map(row).collect();
        sent += local.process(&rows).iter().map(RecordBatch::num_rows).sum::<usize>();
    }
    assert!(sent < 200, "{sent} of 20000 rows went on");
}

/// What it remembers has a bound, however many windows are open.
#[test]
fn windows_without_number_are_forgotten() {
    let top = TopSpec { limit: 1, with_ties: false, keys: Vec::new(), ..top(&mut StdRng::seed_from_u64(1)) };
    let mut local = Local::new(&top);
    for step in 0..150 {
        let row = |id: i64| Row { key: 0, time: 10 * (step * 1_000 + id), value: Some(1), id };
        let rows: Vec<Row> = (0..1_000).map(row).collect();
        assert_eq!(local.process(&rows).iter().map(RecordBatch::num_rows).sum::<usize>(), 1_000);
    }
    // Those of the last windows are known still, those of the first ones go on once more.
    let again = |local: &mut Local, time| local.process(&[Row { key: 0, time, value: Some(1), id: 0 }]).len();
    assert_eq!([again(&mut local, 1_499_990), again(&mut local, 0), again(&mut local, 0)], [0, 1, 0]);
}
