//! Files that appear exactly once, whatever is lost, refused or taken away.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::{ArrayRef, Int64Array};
use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::types::{Column, LogicalType, StreamSchema};

use super::*;
use crate::testing::{sink_context, sink_spec};

/// A sink of stream B in a folder.
struct Bench {
    dir: tempfile::TempDir,
    spec: SinkSpec,
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
        let mut sink = create(&self.spec).expect("made");
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

    /// Hidden files, but for what says that others were published.
    fn leftovers(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.starts_with('.') && !name.ends_with(".published")).collect()
    }

    /// How many say that a file was published.
    fn notes(&self) -> usize {
        self.names().iter().filter(|name| name.ends_with(".published")).count()
    }

    /// A reader takes all files away that it sees.
    fn take_away(&self) {
        for name in self.names().iter().filter(|name| !name.starts_with('.')) {
            fs::remove_file(self.dir.path().join("out/deep").join(name)).expect("removed");
        }
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
    assert_eq!(bench.leftovers(), Vec::<String>::new());
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
        assert_eq!(bench.leftovers(), Vec::<String>::new());
        // A second failure, before anything new is prepared.
        bench.write(&mut sink, from..from + 3);
        std::mem::forget(sink);
        let mut sink = bench.open(0, 1, 3, restored);
        bench.write(&mut sink, from..30);
        keep(sink.prepare(CheckpointId(3)).expect("prepared"));
        sink.commit(CheckpointId(3)).expect("committed");
        assert_eq!(bench.visible(), (0..30).collect::<Vec<_>>());
        assert_eq!(bench.leftovers(), Vec::<String>::new());
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
    assert_eq!(bench.leftovers(), Vec::<String>::new());
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
    assert_eq!(bench.leftovers(), Vec::<String>::new());
}

#[test]
fn a_reader_may_take_published_files_away() {
    let bench = Bench::new();
    let mut sink = bench.open(0, 1, 1, (None, vec![]));
    bench.write(&mut sink, 0..10);
    keep(sink.prepare(CheckpointId(1)).expect("prepared"));
    bench.write(&mut sink, 10..20);
    // The barrier of the second checkpoint comes before the first one is told complete: both files are in its snapshot.
    let second = keep(sink.prepare(CheckpointId(2)).expect("prepared"));
    sink.commit(CheckpointId(1)).expect("committed");
    bench.take_away();
    sink.commit(CheckpointId(2)).expect("committed");
    bench.take_away();
    assert_eq!(bench.notes(), 2, "a restore from the second checkpoint asks for both");
    for attempt in 2..4 {
        std::mem::forget(sink);
        sink = bench.open(0, 1, attempt, (Some(2), second.clone()));
        assert_eq!((bench.visible(), bench.notes()), (vec![], 2), "attempt {attempt}");
        bench.write(&mut sink, 20..30);
    }
    keep(sink.prepare(CheckpointId(3)).expect("prepared"));
    assert_eq!(bench.notes(), 2, "the third checkpoint is not complete");
    sink.commit(CheckpointId(3)).expect("committed");
    assert_eq!((bench.visible(), bench.notes()), ((20..30).collect(), 1));
    // What a task that is lost just then leaves goes at the next attempt's first checkpoint.
    std::mem::forget(sink);
    let mut sink = bench.open(0, 1, 4, (Some(4), vec![]));
    assert_eq!(bench.notes(), 1);
    keep(sink.prepare(CheckpointId(5)).expect("prepared"));
    sink.commit(CheckpointId(5)).expect("committed");
    assert_eq!(bench.notes(), 0);
}

/// The end of a job leaves nothing; a job that stops with a savepoint leaves what the one needs that goes on from there.
#[test]
fn files_of_a_stopped_job_may_be_taken_away_too() {
    for stops in [false, true] {
        let bench = Bench::new();
        let mut sink = bench.open(0, 1, 1, (None, vec![]));
        bench.write(&mut sink, 0..10);
        let entries = keep(sink.prepare(CheckpointId(1)).expect("prepared"));
        sink.commit(CheckpointId(1)).expect("committed");
        bench.take_away();
        if !stops {
            sink.close().expect("closed");
            assert_eq!(bench.names(), Vec::<String>::new());
            continue;
        }
        sink.stop().expect("stopped");
        let mut context = sink_context(&bench.spec, 0, 1, 1, Some(1));
        context.attempt.job = levada_common::ids::JobId::from_u128(9);
        let mut next = create(&bench.spec).expect("made");
        next.open(context, entries).expect("opens");
        next.prepare(CheckpointId(2)).expect("prepared");
        next.commit(CheckpointId(2)).expect("committed");
        assert_eq!(bench.names(), Vec::<String>::new());
    }
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
    let mut again = create(&bench.spec).expect("made");
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
    let error = create(&spec).expect("made").open(sink_context(&spec, 0, 1, 1, None), vec![]).expect_err("a file is no folder");
    assert!(error.to_string().contains(&file.display().to_string()) && error.to_string().contains("os error"), "{error}");
    assert_eq!((error.fault(), error.retry()), (Fault::User, Retry::Never));
}

#[test]
fn two_nodes_of_a_job_share_a_folder() {
    let bench = Bench::new();
    let mut other = bench.spec.clone();
    other.uid = Uid::new("other");
    for spec in [&bench.spec, &other] {
        let mut sink = create(spec).expect("made");
        sink.open(sink_context(spec, 0, 1, 1, None), vec![]).expect("opens");
        bench.write(&mut sink, 0..2);
        keep(sink.prepare(CheckpointId(1)).expect("prepared"));
        sink.commit(CheckpointId(1)).expect("committed");
    }
    assert_eq!(bench.visible(), [0, 0, 1, 1]);
}

/// An open sink, and the folder that it writes into.
fn open(folder: &Path, sync: SyncFile) -> FileSink {
    let schema = StreamSchema::append(vec![Column::new("id", LogicalType::Int64, false)]);
    let spec = sink_spec("out", "file", "{}", schema);
    let mut sink = FileSink::new(&spec, folder.to_path_buf(), sync);
    sink.open(sink_context(&spec, 0, 1, 1, None), vec![]).expect("opens");
    sink
}

fn write(sink: &mut FileSink) {
    let schema = StreamSchema::append(vec![Column::new("id", LogicalType::Int64, false)]).to_arrow();
    let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(vec![1]))]).expect("a batch");
    sink.write(&batch).expect("written");
}

fn durable(prepared: Prepared) -> Result<(), EngineError> {
    prepared.durable.expect("there is a file")()
}

/// A disk that refuses the first sync, as EIO is told, and takes all others.
fn refuses_once() -> SyncFile {
    let has_refused = AtomicBool::new(false);
    Arc::new(move |_| match has_refused.swap(true, Ordering::Relaxed) {
        false => Err(io::Error::from_raw_os_error(libc::EIO)),
        true => Ok(()),
    })
}

#[test]
fn a_file_that_could_not_be_synced_is_written_again_and_never_published() {
    for via_abort in [true, false] {
        let dir = tempfile::tempdir().expect("a folder");
        let mut sink = open(dir.path(), refuses_once());
        write(&mut sink);
        let first = sink.prepare(CheckpointId(1)).expect("prepared");
        write(&mut sink);
        let second = sink.prepare(CheckpointId(2)).expect("what became of the first one is not known");
        assert!(durable(first).expect_err("the disk refuses").to_string().contains("os error 5"));
        durable(second).expect_err("the rows of the first checkpoint are in the second too");
        let failed = match via_abort {
            true => sink.abort(CheckpointId(1)),
            false => sink.prepare(CheckpointId(3)).map(drop),
        };
        let error = failed.expect_err("rows were lost, whatever a later sync says");
        let text = error.to_string();
        assert!(text.contains(".prepared") && text.contains("os error 5") && text.contains("written again"), "{text}");
        assert_eq!((error.fault(), error.retry()), (Fault::External, Retry::Backoff));
    }
}

/// What was complete before is not held back by what was lost after.
#[test]
fn files_before_one_that_was_lost_are_published() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut sink = open(dir.path(), Arc::new(|_| Ok(())));
    write(&mut sink);
    durable(sink.prepare(CheckpointId(1)).expect("prepared")).expect("synced");
    sink.sync = refuses_once();
    write(&mut sink);
    durable(sink.prepare(CheckpointId(2)).expect("prepared")).expect_err("the disk refuses");
    sink.commit(CheckpointId(1)).expect_err("rows were lost");
    let entries = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("listed").file_name());
    let visible = entries.filter(|name| !name.to_string_lossy().starts_with('.'));
    assert_eq!(visible.count(), 1);
}

/// Files that have become durable are not written to disk again with each later one.
#[test]
fn a_file_becomes_durable_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let syncs = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&syncs);
    let mut sink = open(
        dir.path(),
        Arc::new(move |file| {
            counter.fetch_add(1, Ordering::Relaxed);
            file.sync_all()
        }),
    );
    for checkpoint in 1..=3 {
        write(&mut sink);
        durable(sink.prepare(CheckpointId(checkpoint)).expect("prepared")).expect("synced");
    }
    assert_eq!(syncs.load(Ordering::Relaxed), 3);
}
