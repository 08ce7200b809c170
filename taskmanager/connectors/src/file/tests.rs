//! Every line once whatever is cut, stopped or restored.

use std::fs;
use std::path::Path;

use arrow::array::RecordBatch;
use levada_common::fault::{Fault, Faulty, Retry};
use proptest::prelude::*;

use super::{declaration, source};
use crate::testing::{Node, texts};
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
