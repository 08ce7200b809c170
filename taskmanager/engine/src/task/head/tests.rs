//! A source that reads splits side by side, and what a task says of its time.

use std::sync::atomic::Ordering;

use levada_common::plan::{
    BadRecordPolicy, OperatorKind, OperatorSpec, Partition, Plan, TimeFormat, WatermarkRule, WatermarkSpec,
};

use super::*;
use crate::element::Element;
use crate::testing::{Closures, TestTask, drain, edge, ints, plan, schema, sink, source, vertex};

/// in -> out, two vertices.
fn pair(idleness_ms: Option<u64>) -> Plan {
    let watermark = WatermarkSpec {
        column: "n".into(),
        format: TimeFormat::Time,
        rule: WatermarkRule::Disorder { ms: 0 },
        step_ms: 0,
        idleness_ms,
        future: None,
        align: None,
    };
    let operator = OperatorSpec {
        uid: Uid::new("in"),
        clause: "watermark".into(),
        kind: OperatorKind::Watermark(watermark),
        input: schema(),
        output: schema(),
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    };
    let from = vertex(1, Some(source("in")), vec![operator], None);
    plan(vec![from, vertex(1, None, vec![], Some(sink("out")))], vec![edge(0, 1, Partition::Rebalance)])
}

const A: SplitId = SplitId(0);
const B: SplitId = SplitId(1);

fn rows(split: SplitId, n: i64) -> SourcePoll {
    SourcePoll::Rows(split, ints([n]))
}

/// Both begin and give a row.
fn begin(test: &mut TestTask) {
    for poll in [SourcePoll::Begin(A), SourcePoll::Begin(B), rows(B, 10), rows(A, 20)] {
        test.script.push(poll);
    }
}

#[test]
fn the_slowest_split_holds_time_until_it_ends() {
    let mut test = TestTask::start(pair(None), 0, 0, Closures::default());
    for poll in [SourcePoll::Begin(A), SourcePoll::Begin(B), rows(A, 100), rows(B, 10), rows(A, 200), SourcePoll::Ended(B)] {
        test.script.push(poll);
    }
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["[100]", "[10]", "watermark 9", "[200]", "watermark 199"]);
    test.script.push(SourcePoll::Ended(A));
    test.script.push(SourcePoll::End);
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["watermark end", "end"]);
}

#[test]
fn a_split_that_is_silent_while_another_speaks_is_idle() {
    let mut test = TestTask::start(pair(Some(100)), 0, 0, Closures::default());
    begin(&mut test);
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["[10]", "[20]", "watermark 9"]);
    for step in 1..=5 {
        test.now_ms = step * 25;
        test.script.push(rows(A, 20 + step as i64));
        test.settle();
    }
    let said = drain(&test.outputs[0]);
    assert_eq!(said, ["[21]", "[22]", "[23]", "watermark 22", "[24]", "watermark 23", "[25]", "watermark 24"]);
    test.script.push(rows(B, 15));
    test.script.push(rows(A, 40));
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["[15]", "[40]"], "a split that speaks again holds time, which does not fall");
}

/// A watermark would end the idleness of the channel, which is not said again.
#[test]
fn no_watermark_follows_when_the_whole_source_is_idle() {
    let mut test = TestTask::start(pair(Some(100)), 0, 0, Closures::default());
    begin(&mut test);
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["[10]", "[20]", "watermark 9"]);
    for now_ms in [5_000, 9_000, 20_000] {
        test.now_ms = now_ms;
        test.settle();
    }
    assert_eq!(drain(&test.outputs[0]), ["watermark 19", "idle"]);
}

#[test]
fn a_task_says_which_channel_holds_its_time_back() {
    let mut test = TestTask::start(pair(None), 1, 2, Closures::default());
    let held = |test: &mut TestTask| {
        test.settle();
        test.metrics.held_back_by.load(Ordering::Relaxed)
    };
    assert_eq!(held(&mut test), 0);
    test.inputs[0].push(Element::Watermark(Watermark(10)));
    assert_eq!(held(&mut test), 1);
    test.inputs[1].push(Element::Watermark(Watermark(20)));
    assert_eq!(held(&mut test), 0);
    test.inputs[0].push(Element::Idle);
    assert_eq!(held(&mut test), 1);
    test.inputs[0].push(Element::EndOfData);
    test.inputs[1].push(Element::EndOfData);
    assert_eq!(held(&mut test), crate::metrics::TaskMetrics::NO_CHANNEL);
    assert_eq!(test.metrics.watermark_ms.load(Ordering::Relaxed), i64::MAX);
}
