//! Every line once whatever is cut, stopped or restored; and files that appear exactly once whatever is lost.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::ids::CheckpointId;
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_engine::sink::{Prepared, Sink};
use proptest::prelude::*;

use super::{declaration, sink, source};
use crate::testing::{Node, sink_context, sink_spec, texts};
use crate::text::frame::RECORD_BYTES_MAX;

fn text_node(path: &Path, split_size: usize) -> Node {
    let json = format!(r#"{{"path": "{}", "format": "text", "split_size": {split_size}}}"#, path.display());
    Node::declared("file", declaration::source(), source::create, &json)
}

fn lines(batches: &[RecordBatch]) -> Vec<String> {
    texts(batches, "line")
}

/// The lines of a file, by the plain rule.
fn expected(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
    if lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    let unended = usize::from(!text.ends_with('\n'));
    let ended = lines.len().saturating_sub(unended);
    for line in &mut lines[..ended] {
        if line.ends_with('\r') {
            line.pop();
        }
    }
    lines
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_split_size_gives_each_line_once(
        text in "(a|bc|ä|\r|\n|\r\n|long line){0,40}", split_size in 1usize..30, parallelism in 1u32..4, rows_max in 1usize..6, stop_after in 0usize..4,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("in.txt");
        fs::write(&path, &text).expect("written");
        let node = text_node(&path, split_size);
        let mut expected = expected(&text);
        // One subtask reads splits in order, so lines come in order.
        prop_assert_eq!(&lines(&node.drain(rows_max)), &expected);
        let runs = node.drain_restored(parallelism, rows_max, stop_after);
        prop_assert!(runs.iter().flatten().all(|batch| batch.num_rows() <= rows_max));
        let mut all: Vec<String> = runs.iter().flat_map(|batches| lines(batches)).collect();
        all.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn splits_side_by_side_give_each_line_once(
        text in "(a|bc|\n|long line){0,40}", split_size in 1usize..30, side_by_side in 1usize..5, parallelism in 1u32..4, stop_after in 0usize..4,
    ) {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("in.txt");
        fs::write(&path, &text).expect("written");
        let json = format!(
            r#"{{"path": "{}", "format": "text", "split_size": {split_size}, "side_by_side": {side_by_side}}}"#,
            path.display()
        );
        let node = Node::declared("file", declaration::source(), source::create, &json);
        let mut all: Vec<String> = node.drain_restored(parallelism, 3, stop_after).iter().flat_map(|batches| lines(batches)).collect();
        all.sort_unstable();
        let mut expected = expected(&text);
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }
}

#[test]
fn splits_side_by_side_say_whose_rows_come() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["1.txt", "2.txt", "3.txt"] {
        fs::write(dir.path().join(name), name).expect("written");
    }
    let json = format!(r#"{{"path": "{}/*.txt", "format": "text", "side_by_side": 2}}"#, dir.path().display());
    let node = Node::declared("file", declaration::source(), source::create, &json);
    let mut said = node.open(&node.splits, 10).expect("opens").polls().expect("reads");
    assert_eq!(said.drain(..2).collect::<Vec<_>>(), ["begin 0", "begin 1"]);
    let of = |lane: &str| said.iter().filter(|text| text.ends_with(lane)).map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("0").last(), Some(&"end 0"));
    assert_eq!(of("1"), ["1 rows of 1", "end 1"]);
    let rows = |text: &&str| text.split(' ').next().and_then(|count| count.parse::<u32>().ok());
    assert_eq!(of("0").iter().filter_map(rows).sum::<u32>(), 2, "{said:?}");
}

#[test]
fn giants_are_skipped_and_their_neighbours_are_not() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("in.txt");
    let mut text = "before\n".to_owned();
    text.push_str(&"x".repeat(RECORD_BYTES_MAX));
    text.push_str("\nbetween\n");
    text.push_str(&"y".repeat(3 * RECORD_BYTES_MAX));
    text.push_str("\nafter\n");
    text.push_str(&"z".repeat(RECORD_BYTES_MAX + 1));
    fs::write(&path, &text).expect("written");
    for split_size in [1 << 20, 3 << 20, RECORD_BYTES_MAX + 16, 1 << 30] {
        let node = text_node(&path, split_size).drop_bad_records();
        let mut running = node.open(&node.splits, 100).expect("opens");
        let lines = lines(&running.drain().expect("reads"));
        let short: Vec<&str> = lines.iter().map(|line| if line.len() > 10 { "giant" } else { line.as_str() }).collect();
        assert_eq!(short, ["before", "giant", "between", "after"], "splits of {split_size}");
        assert_eq!(running.metrics.bad_records.load(std::sync::atomic::Ordering::Relaxed), 2);
        let entries = running.positions();
        assert!(node.open(&entries, 100).expect("opens").drain().expect("nothing is left").is_empty());
    }
    let node = text_node(&path, 1 << 30);
    let error = node.open(&node.splits, 100).expect("opens").drain().expect_err("a bad record fails the task");
    let text = error.to_string();
    assert!(text.contains("in.txt, byte 4194320") && text.contains("4194304"), "{text}");
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never));
}

#[test]
fn a_file_that_was_read_may_be_gone_and_another_may_not() {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["1.txt", "2.txt", "3.txt"] {
        fs::write(dir.path().join(name), format!("{name}\nx\n")).expect("written");
    }
    let node = text_node(&dir.path().join("*.txt"), 1000);
    let mut running = node.open(&node.splits, 2).expect("opens");
    assert_eq!(lines(&[running.next().expect("reads").expect("two lines")]), ["1.txt", "x"]);
    // The end of the first file is seen with the beginning of the second.
    assert_eq!(lines(&[running.next().expect("reads").expect("two lines")]), ["2.txt", "x"]);
    let entries = running.positions();
    fs::remove_file(dir.path().join("1.txt")).expect("removed");
    let rest = node.open(&entries, 10).expect("opens").drain().expect("the first file is not needed");
    assert_eq!(lines(&rest), ["3.txt", "x"]);
    fs::remove_file(dir.path().join("3.txt")).expect("removed");
    let error = node.open(&entries, 10).expect("opens").drain().expect_err("the third file is needed");
    assert!(error.to_string().contains("3.txt is missing"), "{error}");
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never));
    fs::write(dir.path().join("3.txt"), "3").expect("written");
    let error = node.open(&entries, 10).expect("opens").drain().expect_err("the third file is shorter");
    assert!(error.to_string().contains("3.txt has 1 bytes"), "{error}");
}

#[test]
fn bad_ndjson_is_counted_with_its_place() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("in.ndjson");
    fs::write(&path, b"{\"k\":\"a\"}\n\n{\"k\":\"\xFF\"}\r\n{}\n{\"k\":").expect("written");
    let json = format!(r#"{{"paths": ["{}"], "format": "ndjson", "columns": {{"k": "STRING"}}}}"#, path.display());
    let node = Node::declared("file", declaration::source(), source::create, &json).drop_bad_records();
    let mut running = node.open(&node.splits, 100).expect("opens");
    let rows: usize = running.drain().expect("reads").iter().map(RecordBatch::num_rows).sum();
    assert_eq!((rows, running.metrics.bad_records.load(std::sync::atomic::Ordering::Relaxed)), (2, 3));
    let last = running.metrics.last_bad().expect("one was bad");
    assert!(last.contains("in.ndjson, byte 25: field \"k\""), "{last}");
}

/// A sink of stream B in a folder.
struct Bench {
    dir: tempfile::TempDir,
    spec: levada_common::plan::SinkSpec,
    schema: StreamSchema,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let schema = StreamSchema::append(vec![Column::new("id", LogicalType::Int64, false)]);
        let json = format!(r#"{{"path": "{}/out/deep"}}"#, dir.path().display());
        Self { spec: sink_spec("out", "file", &json, schema.clone()), schema, dir }
    }

    fn open(&self, subtask: u32, parallelism: u32, attempt: u32, restored: (Option<u64>, Vec<String>)) -> Box<dyn Sink> {
        let mut sink = sink::create(&self.spec).expect("made");
        sink.open(sink_context(&self.spec, subtask, parallelism, attempt, restored.0), restored.1).expect("opens");
        sink
    }

    fn write(&self, sink: &mut Box<dyn Sink>, ids: std::ops::Range<i64>) {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        sink.write(&RecordBatch::try_new(self.schema.to_arrow(), vec![column]).expect("a batch")).expect("written");
    }

    /// What a reader sees: ids out of files whose names do not begin with a dot.
    fn visible(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self
            .names()
            .iter()
            .filter(|name| !name.starts_with('.'))
            .flat_map(|name| {
                let text = fs::read_to_string(self.dir.path().join("out/deep").join(name)).expect("read");
                let ids =
                    text.lines().map(|line| line.trim_start_matches("{\"id\":").trim_end_matches('}').parse().expect("an id"));
                ids.collect::<Vec<_>>()
            })
            .collect();
        ids.sort_unstable();
        ids
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("out/deep")).expect("listed");
        let mut names: Vec<String> = entries.map(|entry| entry.expect("listed").file_name().to_string_lossy().into()).collect();
        names.sort();
        names
    }
}

/// Makes what was prepared durable, and answers its entries.
fn keep(prepared: Prepared) -> Vec<String> {
    if let Some(durable) = prepared.durable {
        durable().expect("synced");
    }
    prepared.entries
}

#[test]
fn rows_appear_when_their_checkpoint_is_complete() {
    let bench = Bench::new();
    let mut sink = bench.open(0, 1, 1, (None, vec![]));
    assert!(bench.names().is_empty(), "nothing for empty input");
    assert!(keep(sink.prepare(CheckpointId(1)).expect("prepared")).is_empty());
    sink.commit(CheckpointId(1)).expect("committed");
    assert!(bench.names().is_empty());
    bench.write(&mut sink, 0..100_000);
    assert!(bench.names()[0].ends_with(".inprogress"));
    assert_eq!(keep(sink.prepare(CheckpointId(2)).expect("prepared")).len(), 1);
    bench.write(&mut sink, 100_000..100_010);
    assert!(bench.visible().is_empty());
    sink.commit(CheckpointId(2)).expect("committed");
    sink.commit(CheckpointId(2)).expect("committed again");
    assert_eq!(bench.visible(), (0..100_000).collect::<Vec<_>>());
    let name = bench.names().into_iter().find(|name| !name.starts_with('.')).expect("visible");
    assert!(name.starts_with("part-01234567-") && name.ends_with("-0000000002-0.ndjson"), "{name}");
    // A checkpoint that is given up leaves its file to the next one.
    keep(sink.prepare(CheckpointId(3)).expect("prepared"));
    sink.abort(CheckpointId(3)).expect("aborted");
    bench.write(&mut sink, 100_010..100_020);
    assert_eq!(keep(sink.prepare(CheckpointId(4)).expect("prepared")).len(), 1, "one entry for both files");
    sink.commit(CheckpointId(4)).expect("committed");
    assert_eq!(bench.visible(), (0..100_020).collect::<Vec<_>>());
    bench.write(&mut sink, 0..5);
    sink.discard();
    assert!(bench.names().iter().all(|name| !name.starts_with('.')), "{:?}", bench.names());
}

/// What happens to an attempt around its second checkpoint, and what a restart then finds.
#[test]
fn whatever_is_lost_every_row_appears_once() {
    // (is the checkpoint complete, are sinks told, is there a row after the barrier)
    for (is_complete, is_told, has_more) in
        [(false, false, true), (false, false, false), (true, false, true), (true, true, true), (true, true, false)]
    {
        let bench = Bench::new();
        let mut sink = bench.open(0, 1, 1, (None, vec![]));
        bench.write(&mut sink, 0..10);
        let first = keep(sink.prepare(CheckpointId(1)).expect("prepared"));
        sink.commit(CheckpointId(1)).expect("committed");
        bench.write(&mut sink, 10..20);
        let second = keep(sink.prepare(CheckpointId(2)).expect("prepared"));
        if is_told {
            sink.commit(CheckpointId(2)).expect("committed");
        }
        if has_more {
            bench.write(&mut sink, 20..100_000);
        }
        // The process is gone; nothing is discarded.
        std::mem::forget(sink);
        let (restored, from) = if is_complete { ((Some(2), second), 20) } else { ((Some(1), first), 10) };
        let mut sink = bench.open(0, 1, 2, restored.clone());
        assert_eq!(bench.visible(), (0..from).collect::<Vec<_>>());
        assert!(bench.names().iter().all(|name| !name.starts_with('.')), "leftovers: {:?}", bench.names());
        // A second failure, before anything new is prepared.
        bench.write(&mut sink, from..from + 3);
        std::mem::forget(sink);
        let mut sink = bench.open(0, 1, 3, restored);
        bench.write(&mut sink, from..30);
        keep(sink.prepare(CheckpointId(3)).expect("prepared"));
        sink.commit(CheckpointId(3)).expect("committed");
        assert_eq!(bench.visible(), (0..30).collect::<Vec<_>>());
        assert!(bench.names().iter().all(|name| !name.starts_with('.')), "leftovers: {:?}", bench.names());
    }
}

#[test]
fn entries_may_fall_to_other_subtasks() {
    let bench = Bench::new();
    let mut entries = Vec::new();
    for subtask in 0..3 {
        let mut sink = bench.open(subtask, 3, 1, (None, vec![]));
        bench.write(&mut sink, i64::from(subtask) * 10..i64::from(subtask) * 10 + 10);
        entries.extend(keep(sink.prepare(CheckpointId(5)).expect("prepared")));
        bench.write(&mut sink, 100..90_000);
        std::mem::forget(sink);
    }
    // Two subtasks take the place of three; each gets entries of others, and both clean up before the other has committed.
    let last = entries.pop().expect("three entries");
    let _zero = bench.open(0, 2, 2, (Some(5), vec![last]));
    assert_eq!(bench.visible(), (20..30).collect::<Vec<_>>());
    let _one = bench.open(1, 2, 2, (Some(5), entries));
    assert_eq!(bench.visible(), (0..30).collect::<Vec<_>>());
    assert!(bench.names().iter().all(|name| !name.starts_with('.')), "leftovers: {:?}", bench.names());
}

#[test]
fn a_zombie_and_its_successor_may_publish_the_same_file() {
    let bench = Bench::new();
    let mut zombie = bench.open(0, 1, 1, (None, vec![]));
    bench.write(&mut zombie, 0..10);
    let entries = keep(zombie.prepare(CheckpointId(1)).expect("prepared"));
    let mut sink = bench.open(0, 1, 2, (Some(1), entries));
    zombie.commit(CheckpointId(1)).expect("published already");
    bench.write(&mut zombie, 10..20);
    keep(zombie.prepare(CheckpointId(2)).expect("prepared"));
    bench.write(&mut sink, 10..20);
    keep(sink.prepare(CheckpointId(3)).expect("prepared"));
    sink.commit(CheckpointId(3)).expect("committed");
    assert_eq!(bench.visible(), (0..20).collect::<Vec<_>>(), "checkpoint 2 never completes");
}

#[test]
fn a_checkpoint_may_be_told_complete_while_the_next_becomes_durable() {
    let bench = Bench::new();
    let mut sink = bench.open(0, 1, 1, (None, vec![]));
    bench.write(&mut sink, 0..10);
    keep(sink.prepare(CheckpointId(1)).expect("prepared"));
    bench.write(&mut sink, 10..20);
    let second = sink.prepare(CheckpointId(2)).expect("prepared");
    sink.commit(CheckpointId(1)).expect("committed");
    assert_eq!(bench.visible(), (0..10).collect::<Vec<_>>());
    let entries = keep(second);
    assert!(entries.len() == 1 && entries[0].contains("[[1,2]]"), "{entries:?}");
    std::mem::forget(sink);
    let _sink = bench.open(0, 1, 2, (Some(2), entries));
    assert_eq!(bench.visible(), (0..20).collect::<Vec<_>>());
}

/// Nothing is committed for a savepoint: where a job takes no checkpoints its files wait for the end, and the state must not grow.
#[test]
fn many_savepoints_without_a_checkpoint_are_one_entry() {
    let bench = Bench::new();
    let mut sink = bench.open(0, 1, 1, (None, vec![]));
    let mut entries = Vec::new();
    for savepoint in 1..=300 {
        bench.write(&mut sink, savepoint - 1..savepoint);
        entries = keep(sink.prepare(CheckpointId(savepoint as u64)).expect("prepared"));
        assert!(entries.len() == 1 && entries[0].len() < 400, "savepoint {savepoint}: {entries:?}");
    }
    assert!(bench.visible().is_empty());
    std::mem::forget(sink);
    let _sink = bench.open(0, 1, 2, (Some(300), entries));
    assert_eq!(bench.visible(), (0..300).collect::<Vec<_>>());
    assert!(bench.names().iter().all(|name| !name.starts_with('.')), "leftovers: {:?}", bench.names());
}

#[test]
fn a_lost_or_foreign_file_is_said() {
    let bench = Bench::new();
    let mut sink = bench.open(0, 1, 1, (None, vec![]));
    bench.write(&mut sink, 0..10);
    let entries = keep(sink.prepare(CheckpointId(1)).expect("prepared"));
    let folder = bench.dir.path().join("out/deep");
    let hidden = folder.join(&bench.names()[0]);
    let name = sink_entry_name(&entries[0]);
    fs::write(folder.join(&name), "not ours").expect("written");
    let error = sink.commit(CheckpointId(1)).expect_err("the name is taken");
    assert!(error.to_string().contains("exists already"), "{error}");
    fs::remove_file(folder.join(&name)).expect("removed");
    fs::remove_file(hidden).expect("removed");
    let mut again = sink::create(&bench.spec).expect("made");
    let error = again.open(sink_context(&bench.spec, 0, 1, 2, Some(1)), entries).expect_err("the file is gone");
    assert!(error.to_string().contains("may be lost") && error.retry() == Retry::Never, "{error}");
}

fn sink_entry_name(entry: &str) -> String {
    let entry: serde_json::Value = serde_json::from_str(entry).expect("JSON");
    entry["name"].as_str().expect("a name").to_owned()
}

#[test]
fn a_folder_that_cannot_be_written_is_named_at_open() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let json = format!(r#"{{"path": "{}/out"}}"#, file.display());
    let spec = sink_spec("out", "file", &json, StreamSchema::append(vec![]));
    let error =
        sink::create(&spec).expect("made").open(sink_context(&spec, 0, 1, 1, None), vec![]).expect_err("a file is no folder");
    assert!(error.to_string().contains(&file.display().to_string()) && error.to_string().contains("os error"), "{error}");
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never));
}

#[test]
fn two_nodes_of_a_job_share_a_folder() {
    let bench = Bench::new();
    let mut other = bench.spec.clone();
    other.uid = levada_common::ids::Uid::new("other");
    for spec in [&bench.spec, &other] {
        let mut sink = sink::create(spec).expect("made");
        sink.open(sink_context(spec, 0, 1, 1, None), vec![]).expect("opens");
        bench.write(&mut sink, 0..2);
        keep(sink.prepare(CheckpointId(1)).expect("prepared"));
        sink.commit(CheckpointId(1)).expect("committed");
    }
    assert_eq!(bench.visible(), [0, 0, 1, 1]);
}
