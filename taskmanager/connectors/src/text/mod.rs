//! Text in: bytes to records, records to rows, for every source that reads lines.

pub mod frame;
pub mod reader;
