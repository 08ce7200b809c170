//! Tasks between doubles: their life, their snapshots, their silence.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, BooleanArray, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::record_batch::RecordBatch;
use levada_common::checkpoint::{CheckpointKind, StateKind};
use levada_common::plan::{
    BadRecordPolicy, OperatorKind, OperatorSpec, Partition, Plan, TimeFormat, WatermarkRule, WatermarkSpec,
};

use super::*;
use crate::element::{Barrier, Element};
use crate::operator::RestoredState;
use crate::source::SourcePoll;
use crate::testing::{Closures, TestTask, drain, edge, filter, ints, numbers, plan, schema, sink, source, vertex};

fn even() -> Closures {
    Closures::default().with("even", |batch| {
        let mask: BooleanArray = numbers(batch).into_iter().map(|n| Some(n % 2 == 0)).collect();
        Ok(Arc::new(mask) as ArrayRef)
    })
}

/// Watermarks of `n` itself.
fn watermark(idleness_ms: Option<u64>) -> OperatorSpec {
    let spec = WatermarkSpec {
        column: "n".into(),
        format: TimeFormat::Time,
        rule: WatermarkRule::Disorder { ms: 0 },
        step_ms: 100,
        idleness_ms,
        future: None,
        align: None,
    };
    OperatorSpec {
        uid: Uid::new("in"),
        clause: "watermark".into(),
        kind: OperatorKind::Watermark(spec),
        input: schema(),
        output: schema(),
        sides: Vec::new(),
        bad_records: BadRecordPolicy::Fail,
    }
}

/// in -> even -> out, one vertex.
fn lone() -> Plan {
    plan(vec![vertex(1, Some(source("in")), vec![filter("even", "even")], Some(sink("out")))], vec![])
}

/// in -> (by key) -> even -> out, two vertices, `readers` subtasks of the second.
fn pair(readers: u32, idleness_ms: Option<u64>) -> Plan {
    let partition = if readers == 1 { Partition::Rebalance } else { Partition::Hash { columns: vec!["n".into()] } };
    let from = vertex(1, Some(source("in")), vec![watermark(idleness_ms)], None);
    let to = vertex(readers, None, vec![filter("even", "even")], Some(sink("out")));
    plan(vec![from, to], vec![edge(0, 1, partition)])
}

fn barrier(id: u64) -> Element {
    Element::Barrier(Barrier::checkpoint(CheckpointId(id)))
}

fn state(uid: &str, name: &str, entry: &str) -> (String, String, Vec<String>) {
    (uid.into(), name.into(), vec![entry.into()])
}

const WAITING: Progress = Progress::Waiting { until: None };

#[test]
fn rows_flow_and_are_counted() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    assert_eq!(test.script.opened_with(), ["split 0"]);
    test.script.push(SourcePoll::Batch(ints(0..5)));
    assert_eq!(test.settle(), WAITING);
    assert_eq!(test.log.rows(), [0, 2, 4]);
    assert_eq!(test.log.flushes(), 1, "with nothing to read a sink's rows go out");
    let counts: Vec<(u64, u64)> =
        test.nodes.iter().map(|node| (node.rows_in.load(Ordering::Relaxed), node.rows_out.load(Ordering::Relaxed))).collect();
    assert_eq!(counts, [(5, 5), (5, 3), (3, 3)]);
}

#[test]
fn a_trigger_makes_one_snapshot_of_the_whole_chain() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints(0..5)));
    test.settle();
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.script.push(SourcePoll::Batch(ints(5..8)));
    test.settle();
    let states = vec![state("in", "splits", "rows 5"), state("out", "transactions", "rows 3")];
    assert_eq!(test.snapshots(), [(1, false, states)]);
    assert_eq!(test.log.rows(), [0, 2, 4, 6]);
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.settle();
    assert!(test.snapshots().is_empty(), "a checkpoint is taken once");
    test.task.notify(CheckpointId(1), true, false).unwrap();
    assert_eq!(test.log.committed(), [1]);
}

#[test]
fn a_newer_trigger_replaces_one_that_was_not_taken() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.task.trigger(Barrier::checkpoint(CheckpointId(2)));
    test.settle();
    let events = test.task.take_events();
    assert!(matches!(events[0], TaskEvent::SnapshotDeclined { checkpoint: CheckpointId(1), .. }));
    assert!(matches!(events[1], TaskEvent::Snapshot { checkpoint: CheckpointId(2), .. }));
    test.task.trigger(Barrier::checkpoint(CheckpointId(3)));
    test.task.notify(CheckpointId(3), false, false).unwrap();
    test.settle();
    assert!(test.snapshots().is_empty(), "a trigger that was given up is forgotten");
    assert_eq!(test.log.aborted(), [3]);
}

#[test]
fn a_sink_that_is_not_ready_blocks_the_task_but_not_its_notifications() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.log.set_ready(false);
    test.script.push(SourcePoll::Batch(ints([2])));
    test.script.push(SourcePoll::Batch(ints([4])));
    assert_eq!(test.settle(), Progress::Blocked { until: None });
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.task.notify(CheckpointId(0), true, false).unwrap();
    assert_eq!(test.settle(), Progress::Blocked { until: None });
    assert!(test.snapshots().is_empty());
    test.log.set_ready(true);
    test.settle();
    let states = vec![state("in", "splits", "rows 1"), state("out", "transactions", "rows 1")];
    assert_eq!(test.snapshots(), [(1, false, states)], "the checkpoint comes before the second batch, which was not read yet");
    assert_eq!(test.log.rows(), [2, 4]);
}

#[test]
fn the_end_of_data_ends_in_a_final_checkpoint() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints([2])));
    test.script.push(SourcePoll::End);
    assert_eq!(test.settle(), WAITING);
    assert!(matches!(test.task.take_events()[..], [TaskEvent::Finishing]));
    test.task.trigger(Barrier::checkpoint(CheckpointId(7)));
    assert_eq!(test.settle(), WAITING);
    let states = vec![state("in", "splits", "rows 1"), state("out", "transactions", "rows 1")];
    assert_eq!(test.snapshots(), [(7, true, states)]);
    test.task.notify(CheckpointId(7), true, true).unwrap();
    assert!(matches!(test.task.take_events()[..], [TaskEvent::Finished]));
    assert_eq!(test.settle(), Progress::Finished);
    assert_eq!((test.log.committed(), test.log.ends()), (vec![7], vec!["closed"]));
}

#[test]
fn a_running_task_is_not_finished_by_a_checkpoint() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    assert!(test.task.notify(CheckpointId(1), true, true).is_err());
}

#[test]
fn a_task_restored_as_finished_says_no_row_again() {
    let column: ArrayRef = Arc::new(StringArray::from(vec!["old"]));
    let schema = Arc::new(Schema::new(vec![Field::new("entry", DataType::Utf8, false)]));
    let entries = RecordBatch::try_new(schema, vec![column]).unwrap();
    let restored = |name: &str| {
        let state = RestoredState { name: name.into(), kind: StateKind::OperatorList, batches: vec![entries.clone()] };
        vec![state]
    };
    let states: BTreeMap<_, _> = [(Uid::new("in"), restored("splits")), (Uid::new("out"), restored("transactions"))].into();
    let mut test = TestTask::restore(lone(), 0, 0, even(), Some(4), true, states);
    test.script.push(SourcePoll::Batch(ints([2])));
    test.settle();
    assert_eq!((test.script.opened_with(), test.log.opened_with()), (vec!["old".into()], vec!["old".into()]));
    assert!(test.log.rows().is_empty());
    test.task.trigger(Barrier::checkpoint(CheckpointId(4)));
    test.task.trigger(Barrier::checkpoint(CheckpointId(5)));
    test.settle();
    let states = vec![state("in", "splits", "rows 0"), state("out", "transactions", "rows 0")];
    assert_eq!(test.snapshots(), [(5, true, states)]);

    let mut test = TestTask::restore(pair(2, None), 0, 0, even(), Some(4), true, BTreeMap::new());
    test.settle();
    for output in &test.outputs {
        assert_eq!(drain(output), ["watermark end", "end"]);
    }
}

#[test]
fn channels_get_rows_by_key_and_every_signal() {
    let mut test = TestTask::start(pair(2, None), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints(0..8)));
    test.settle();
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.settle();
    test.script.push(SourcePoll::End);
    test.settle();
    let said: Vec<Vec<String>> = test.outputs.iter().map(drain).collect();
    for channel in &said {
        assert_eq!(channel[1..], ["watermark 6", "barrier 1", "watermark end", "end"]);
    }
    assert_ne!(said[0][0], said[1][0]);
}

#[test]
fn a_full_channel_blocks_rows_but_no_end_is_lost() {
    let mut test = TestTask::start(pair(1, None), 0, 0, even());
    test.outputs[0].set_capacity(1);
    test.script.push(SourcePoll::Batch(ints([1])));
    test.script.push(SourcePoll::Batch(ints([500])));
    test.script.push(SourcePoll::End);
    let mut said = Vec::new();
    while matches!(test.settle(), Progress::Blocked { .. }) {
        assert_eq!(test.outputs[0].len(), 1);
        said.extend(drain(&test.outputs[0]));
    }
    said.extend(drain(&test.outputs[0]));
    assert_eq!(said, ["[1]", "watermark 0", "[500]", "watermark 499", "watermark end", "end"]);
}

/// Rows that are dropped need no room, but the watermarks that they leave behind do: a channel that no one reads, since it
/// waits for alignment, must not fill up with them. A checkpoint passes all the same.
#[test]
fn watermarks_do_not_pile_up_in_a_channel_that_no_one_reads() {
    let from = vertex(1, Some(source("in")), vec![watermark(None), filter("even", "even")], None);
    let to = vertex(1, None, vec![], Some(sink("out")));
    let mut test = TestTask::start(plan(vec![from, to], vec![edge(0, 1, Partition::Rebalance)]), 0, 0, even());
    test.outputs[0].set_capacity(0);
    for time in 0..50 {
        test.script.push(SourcePoll::Batch(ints([time * 1_000 + 1])));
    }
    assert!(matches!(test.settle(), Progress::Blocked { .. }));
    assert_eq!(test.outputs[0].len(), 0);

    let mut test = TestTask::start(pair(1, None), 0, 0, even());
    test.outputs[0].set_capacity(0);
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["barrier 1"]);
}

/// G21 and G24: a silent source is idle after its idleness, active with its next rows, and its end is never swallowed.
#[test]
fn a_silent_source_turns_idle_and_comes_back() {
    let mut test = TestTask::start(pair(1, Some(5_000)), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints([1_000])));
    test.script.push(SourcePoll::Batch(ints([1_050])));
    assert_eq!(test.settle(), Progress::Waiting { until: Some(Instant(100)) });
    assert_eq!(drain(&test.outputs[0]), ["[1000]", "watermark 999", "[1050]"]);
    test.now_ms = 100;
    assert_eq!(test.settle(), Progress::Waiting { until: Some(Instant(5_000)) });
    assert_eq!(drain(&test.outputs[0]), ["watermark 1049"], "the advance held back by the step");
    test.now_ms = 5_000;
    assert_eq!(test.settle(), WAITING);
    assert_eq!(drain(&test.outputs[0]), ["idle"]);
    test.script.push(SourcePoll::Batch(ints([1_060])));
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["watermark 1049", "[1060]"], "active again, for every channel");
    test.now_ms = 20_000;
    test.settle();
    test.now_ms = 30_000;
    test.settle();
    test.script.push(SourcePoll::End);
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["watermark 1059", "idle", "watermark end", "end"]);
}

/// The rows that end idleness wait behind the signal that says so; they were read, so a checkpoint comes after them.
#[test]
fn a_checkpoint_does_not_overtake_rows_that_were_read() {
    let mut test = TestTask::start(pair(1, Some(50)), 0, 0, even());
    test.settle();
    test.now_ms = 50;
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["idle"]);
    test.script.push(SourcePoll::Batch(ints([1_000])));
    while test.outputs[0].len() == 0 {
        test.task.step(Instant(50)).unwrap();
    }
    test.task.trigger(Barrier::checkpoint(CheckpointId(1)));
    test.settle();
    assert_eq!(drain(&test.outputs[0]), ["watermark none", "[1000]", "watermark 999", "barrier 1"]);
    assert_eq!(test.snapshots(), [(1, false, vec![state("in", "splits", "rows 1")])]);
}

#[test]
fn time_under_back_pressure_is_no_idleness() {
    let mut test = TestTask::start(pair(1, Some(5_000)), 0, 0, even());
    test.outputs[0].set_capacity(0);
    test.script.push(SourcePoll::Batch(ints([1_000])));
    for now_ms in [0, 3_000, 60_000] {
        test.now_ms = now_ms;
        assert!(matches!(test.settle(), Progress::Blocked { .. }));
    }
    test.outputs[0].set_capacity(10);
    assert_eq!(test.settle(), Progress::Waiting { until: Some(Instant(60_100)) });
    assert_eq!(drain(&test.outputs[0]), ["[1000]", "watermark 999"]);
}

#[test]
fn barriers_of_all_channels_make_a_snapshot() {
    let mut test = TestTask::start(pair(1, None), 1, 2, even());
    test.inputs[0].push(Element::Batch(ints([2])));
    test.inputs[0].push(barrier(1));
    test.inputs[0].push(Element::Batch(ints([4])));
    test.settle();
    assert!(test.snapshots().is_empty());
    assert_eq!(test.log.rows(), [2]);
    test.inputs[1].push(Element::Batch(ints([6])));
    test.inputs[1].push(Element::EndOfData);
    test.settle();
    assert_eq!(test.snapshots(), [(1, false, vec![state("out", "transactions", "rows 2")])]);
    assert_eq!(test.log.rows(), [2, 6, 4]);
    test.inputs[0].push(Element::EndOfData);
    test.settle();
    test.task.trigger(Barrier::checkpoint(CheckpointId(2)));
    test.settle();
    assert_eq!(test.snapshots(), [(2, true, vec![state("out", "transactions", "rows 3")])]);
}

#[test]
fn an_aborted_checkpoint_releases_its_channels() {
    let mut test = TestTask::start(pair(1, None), 1, 2, even());
    test.inputs[0].push(barrier(1));
    test.inputs[0].push(Element::Batch(ints([4])));
    test.settle();
    assert!(test.log.rows().is_empty());
    test.task.notify(CheckpointId(1), false, false).unwrap();
    test.settle();
    assert_eq!(test.log.rows(), [4]);
    test.inputs[1].push(barrier(1));
    test.settle();
    assert!(test.snapshots().is_empty());
}

#[test]
fn a_superseded_checkpoint_is_declined() {
    let mut test = TestTask::start(pair(1, None), 1, 2, even());
    test.inputs[0].push(barrier(1));
    test.settle();
    test.inputs[1].push(barrier(2));
    test.settle();
    let events = test.task.take_events();
    assert!(matches!(events[..], [TaskEvent::SnapshotDeclined { checkpoint: CheckpointId(1), .. }]));
}

#[test]
fn a_discarded_task_discards_its_sink() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.task.discard();
    assert_eq!(test.log.discards(), 1);
}

/// A node that is spread over two vertices counts its rows in at the first and out at the last.
#[test]
fn a_node_in_two_vertices_counts_each_row_once() {
    let from = vertex(1, Some(source("in")), vec![filter("both", "even")], None);
    let to = vertex(1, None, vec![filter("both", "even")], Some(sink("out")));
    let plan = plan(vec![from, to], vec![edge(0, 1, Partition::Rebalance)]);
    let mut first = TestTask::start(plan.clone(), 0, 0, even());
    first.script.push(SourcePoll::Batch(ints(0..4)));
    first.settle();
    let mut second = TestTask::start(plan, 1, 1, even());
    second.inputs[0].push(first.outputs[0].pop().unwrap());
    second.settle();
    let of = |node: &crate::metrics::NodeMetrics| (node.rows_in.load(Ordering::Relaxed), node.rows_out.load(Ordering::Relaxed));
    assert_eq!((of(&first.nodes[1]), of(&second.nodes[0])), ((4, 0), (0, 2)));
}

/// A savepoint's cut, which stops the job.
fn stop(id: u64) -> Barrier {
    let directory = "file:///sp/savepoint-1".into();
    Barrier { checkpoint: CheckpointId(id), kind: CheckpointKind::Savepoint { directory, stops: true } }
}

#[test]
fn a_source_that_is_stopped_gives_nothing_until_the_savepoint_has_failed() {
    let mut test = TestTask::start(pair(1, None), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints(0..2)));
    test.settle();
    test.task.trigger(stop(1));
    test.script.push(SourcePoll::Batch(ints(2..4)));
    assert_eq!(test.settle(), WAITING);
    let events = test.task.take_events();
    assert!(
        matches!(&events[..], [TaskEvent::Snapshot { kind, finished: false, .. }] if *kind == stop(1).kind),
        "the savepoint is taken before the rows behind it"
    );
    let sent: Vec<String> = drain(&test.outputs[0]);
    assert_eq!(sent.last().map(String::as_str), Some("barrier 1"), "{sent:?}");
    test.task.notify(CheckpointId(1), false, false).unwrap();
    test.settle();
    assert_eq!(drain(&test.outputs[0])[0], "[2, 3]", "it goes on where it was");
}

#[test]
fn time_under_a_stop_savepoint_that_fails_is_no_idleness() {
    let mut test = TestTask::start(pair(1, Some(5_000)), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints([1_000])));
    assert_eq!(test.settle(), Progress::Waiting { until: Some(Instant(100)) });
    test.task.trigger(stop(1));
    // No operator hears the time until the task goes on, so that none may wake it for that.
    test.task.next_tick = Some(Instant(50));
    assert_eq!(test.settle(), WAITING);
    assert_eq!(drain(&test.outputs[0]), ["[1000]", "watermark 999", "barrier 1"]);
    test.now_ms = 60_000;
    test.task.notify(CheckpointId(1), false, false).unwrap();
    assert_eq!(test.settle(), Progress::Waiting { until: Some(Instant(60_100)) });
    assert_eq!(test.outputs[0].len(), 0, "neither quiet nor idle");
}

#[test]
fn a_barrier_of_a_savepoint_that_has_failed_meanwhile_stops_nothing() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.settle();
    test.task.trigger(stop(1));
    let Taken::Signal(barrier) = test.task.take(Instant(0)).unwrap() else { panic!("the barrier comes before rows") };
    // As where an operator has rows to give before it lets the barrier pass, and these have no room.
    test.task.notify(CheckpointId(1), false, false).unwrap();
    test.task.pass(barrier, Vec::new()).unwrap();
    test.script.push(SourcePoll::Batch(ints(0..4)));
    test.settle();
    assert_eq!(test.log.rows(), [0, 2]);
}

#[test]
fn a_stopped_task_leaves_its_channels_alone_and_finishes_with_the_savepoint() {
    let mut test = TestTask::start(pair(1, None), 1, 1, even());
    test.inputs[0].push(Element::Batch(ints(0..5)));
    test.inputs[0].push(Element::Barrier(stop(1)));
    test.inputs[0].push(Element::Batch(ints(10..12)));
    assert_eq!(test.settle(), WAITING);
    let events = test.task.take_events();
    assert!(matches!(&events[..], [TaskEvent::Snapshot { kind, finished: false, .. }] if *kind == stop(1).kind));
    assert_eq!(test.log.rows(), [0, 2, 4]);
    test.task.notify(CheckpointId(1), true, true).unwrap();
    assert_eq!((test.log.committed(), test.log.ends()), (vec![1], vec!["stopped"]));
    assert!(matches!(test.task.take_events()[..], [TaskEvent::Finished]));
    assert_eq!(test.settle(), Progress::Finished);
}

#[test]
fn a_drained_source_ends_where_it_is() {
    let mut test = TestTask::start(lone(), 0, 0, even());
    test.script.push(SourcePoll::Batch(ints(0..2)));
    test.settle();
    test.task.end_source();
    test.script.push(SourcePoll::Batch(ints(2..4)));
    test.settle();
    assert!(matches!(test.task.take_events()[..], [TaskEvent::Finishing]));
    assert_eq!(test.log.rows(), [0]);
    test.task.trigger(stop(1));
    test.settle();
    let states = vec![state("in", "splits", "rows 2"), state("out", "transactions", "rows 1")];
    assert_eq!(test.snapshots(), [(1, true, states)]);
}
