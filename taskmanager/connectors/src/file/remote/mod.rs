//! Rows to an object store or to HDFS: files that appear exactly once, in two phases.
//!
//! A file is staged while it is written (an upload that is not completed, or a file of another name); a barrier closes it; its
//! parts are in the snapshot; when the checkpoint is complete it is published. The task never waits for the store: it hands
//! parts over, in bounded number, and the background does the rest, however long the store is slow or away.
//!
//! | name | what it is |
//! |---|---|
//! | `part-<job>-<node>-<after>-<subtask>-<epoch>-<attempt>-<file>.ndjson` | final: the checkpoint that covers it is complete |
//!
//! `<after>` is the last checkpoint whose barrier came before its first row: a restore from checkpoint n covers exactly the files
//! with an `<after>` below n.

mod names;
mod part;
mod queue;
mod sink;
mod uploader;

pub(super) use sink::RemoteSink;
