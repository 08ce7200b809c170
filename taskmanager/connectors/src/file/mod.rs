//! `file`: lines of files in, files of lines out, both exactly once; on this machine, in S3 or in HDFS.
//!
//! Reading order: `declaration`; `place` (paths and URIs), `split` (what is read), `ahead`, `input` and `reader` (bytes), `source`
//! (rows); `part` (names of output files), `run` (many of them in a snapshot), `durable` (what must survive a crash), `closed`
//! (whether it will), `sink`; `remote`, the sink on object stores.

mod ahead;
mod closed;
pub mod declaration;
mod durable;
mod input;
mod part;
mod place;
mod reader;
mod remote;
mod run;
pub mod sink;
pub mod source;
mod split;
#[cfg(test)]
mod tests;
