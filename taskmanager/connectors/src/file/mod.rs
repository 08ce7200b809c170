//! `file`: lines of local files in, files of lines out, both exactly once.
//!
//! Reading order: `declaration`; `split` (what is read), `reader` (bytes), `source` (rows); `part` (names of output files),
//! `durable` (what must survive a crash), `sink`.

pub mod declaration;
mod durable;
mod part;
mod reader;
pub mod sink;
pub mod source;
mod split;
#[cfg(test)]
mod tests;
