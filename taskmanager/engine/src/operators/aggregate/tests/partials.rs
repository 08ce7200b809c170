//! Partial and final together give what a single phase gives.

use levada_common::plan::{AggregatePhase, AggregateSpec, WindowSpec};
use levada_common::time::Watermark;
use proptest::prelude::*;

use super::rig::{Rig, Row, calls, spec, tumbling};
use super::sessions::session;
use super::slices::{cumulate, sliding};
use super::windows::{Step, run, sorted, steps};

fn phase(aggregate: &AggregateSpec, phase: AggregatePhase) -> AggregateSpec {
    AggregateSpec { phase, ..aggregate.clone() }
}

/// Runs two partials, each with its own share of the rows, into one final; its watermark is the lesser of theirs.
fn run_two_phases(aggregate: &AggregateSpec, steps: &[Step], barriers: bool) -> (Vec<String>, u64) {
    let mut partials: Vec<Rig> = (0..2).map(|_| Rig::new(&phase(aggregate, AggregatePhase::Partial))).collect();
    let mut last = Rig::new(&phase(aggregate, AggregatePhase::Final));
    let mut watermark = i64::MIN;
    for (at, step) in steps.iter().enumerate() {
        for (share, partial) in partials.iter_mut().enumerate() {
            match step {
                Step::Rows(rows) => {
                    let rows: Vec<_> = rows.iter().copied().filter(|row| (row.2 & 1) as usize == share).collect();
                    if !rows.is_empty() {
                        partial.process(&rows);
                    }
                }
                Step::Advance(to) => {
                    watermark = watermark.max(*to);
                    partial.advance(watermark);
                }
            }
            if barriers && at % 3 == 0 {
                assert!(partial.barrier(at as u64).is_empty(), "a partial keeps nothing across a barrier");
            }
            partial.out.drain(..).for_each(|batch| last.process_batch(batch));
        }
        if let Step::Advance(_) = step {
            last.advance(watermark);
        }
    }
    for partial in &mut partials {
        partial.advance(Watermark::MAX.0);
        partial.finish();
        partial.out.drain(..).for_each(|batch| last.process_batch(batch));
    }
    last.finish();
    let late = last.late_rows();
    (last.take_rows(), late)
}

/// The steps without rows whose own session would be over: whether such a row is late depends on the order of arrival.
fn without_late(steps: &[Step], gap: i64) -> Vec<Step> {
    let mut watermark = i64::MIN;
    let step = |step: &Step| match step {
        Step::Rows(rows) => {
            let rows: Vec<Row> = rows.iter().copied().filter(|row| row.1 + gap > watermark).collect();
            (!rows.is_empty()).then_some(Step::Rows(rows))
        }
        Step::Advance(to) => {
            watermark = watermark.max(*to);
            Some(Step::Advance(*to))
        }
    };
    steps.iter().filter_map(step).collect()
}

proptest! {
    #[test]
    fn two_phases_give_what_one_gives(steps in steps(), keyed in any::<bool>(), barriers in any::<bool>(), which in 0usize..5) {
        let windows = [WindowSpec::Global, tumbling(20), sliding(20, 8, 3), cumulate(40, 8, 3), session(9)];
        let window = windows[which].clone();
        let steps = if which == 4 { without_late(&steps, 9) } else { steps };
        // `first` and `last` keep the order of arrival among equal rows, which two partials do not have.
        let calls = calls().into_iter().filter(|call| call.name != "when").collect();
        let aggregate = spec(if keyed { &["k"] } else { &[] }, window, calls);
        let mut single = Rig::new(&aggregate);
        run(&mut single, &steps);
        single.finish();
        let (rows, late) = run_two_phases(&aggregate, &steps, barriers);
        let keep_text = |rows: Vec<String>| -> Vec<String> {
            // Without key the text of the last row by value has ties as well.
            rows.into_iter().map(|row| if keyed { row } else { row.rsplit_once(',').expect("a text").0.to_string() }).collect()
        };
        prop_assert_eq!(sorted(keep_text(rows)), sorted(keep_text(single.take_rows())));
        prop_assert_eq!(late, single.late_rows());
    }
}

#[test]
fn a_running_partial_sends_each_batch_on() {
    let aggregate = spec(&["k"], WindowSpec::Running, calls());
    let mut partial = Rig::new(&phase(&aggregate, AggregatePhase::Partial));
    let mut last = Rig::new(&phase(&aggregate, AggregatePhase::Final));
    for rows in [vec![(1, 0, 1), (2, 1, 5), (1, 2, 3)], vec![(2, 3, 1), (3, 4, 1)]] {
        partial.process(&rows);
        assert_eq!(partial.out.len(), 1);
        last.process_batch(partial.out.remove(0));
    }
    assert_eq!(last.take_rows(), ["0,1,2,4,3,2,key 1", "0,2,1,5,5,1,key 2", "2,2,2,6,5,1,key 2", "0,3,1,1,1,4,key 3"]);
}

#[test]
fn a_partial_sends_on_before_it_holds_too_much() {
    let mut partial = Rig::new(&phase(&spec(&["k"], WindowSpec::Global, calls()), AggregatePhase::Partial));
    for start in (0..70_000).step_by(10_000) {
        partial.process(&(start..start + 10_000).map(|n| (n, 0, 0)).collect::<Vec<_>>());
    }
    assert_eq!(partial.take_rows().len(), 70_000);
}

#[test]
fn a_partial_holds_nothing_back_while_its_input_is_idle() {
    let aggregate = spec(&["k"], tumbling(10), calls());
    let mut partial = Rig::new(&phase(&aggregate, AggregatePhase::Partial));
    let mut last = Rig::new(&phase(&aggregate, AggregatePhase::Final));
    partial.process(&[(1, 3, 1), (2, 4, 1)]);
    partial.advance(4);
    partial.idle();
    partial.out.drain(..).for_each(|batch| last.process_batch(batch));
    // Another input makes time now: nothing of the idle one may come after it.
    last.advance(9);
    assert_eq!(last.take_rows().len(), 2);
    partial.finish();
    partial.out.drain(..).for_each(|batch| last.process_batch(batch));
    assert_eq!(last.late_rows(), 0);
}
