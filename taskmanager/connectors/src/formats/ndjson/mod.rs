//! NDJSON: a JSON object a line.
//!
//! **Reading**: a column that is absent or null is null, and makes the record bad where the column is NOT NULL; fields that are
//! no columns are skipped, but must be JSON; of fields of the same name the last counts. Nothing is rounded and nothing goes
//! through a double but FLOAT columns. What each type takes:
//!
//! | type | JSON |
//! |---|---|
//! | BOOLEAN | `true`, `false` |
//! | INT8 … INT64, UINT64 | a number that is whole and in range, however written (`1e3`, `2.0`) |
//! | FLOAT32, FLOAT64 | a number in range, rounded to the nearest; `"NaN"`, `"Infinity"`, `"-Infinity"` |
//! | DECIMAL(p,s) | a number with at most p digits, s of them after the point |
//! | STRING | a string |
//! | BINARY | a string in base64, padded |
//! | DATE | `"2026-01-31"` |
//! | TIMESTAMP | `"2026-01-31T12:00:00.5+01:00"` (`Z` or an offset; without one UTC; a space for the `T`; digits below a millisecond are cut off), or a whole number of milliseconds |
//! | LIST, STRUCT | an array, an object |
//!
//! Years beyond 0 to 9999 have a sign and 4 to 9 digits (`"+12026-01-31"`). Depth is limited to 128, the record itself included;
//! only types nest on the stack, and they are at most 16 deep.
//!
//! **Writing**: fields in the schema's order, nulls written; what is written is read back as the same value.
//!
//! Reading order: `scan` (JSON's grammar), `number` and `calendar` (texts to values and back), `column` (values to columns),
//! `read` and `write` (records to batches and back).

mod calendar;
mod column;
mod number;
pub mod read;
mod scan;
#[cfg(test)]
mod tests;
pub mod write;

/// A time as NDJSON has it: `2026-01-31T12:00:00.000Z`.
///
/// Units: milliseconds since 1970, UTC.
pub fn timestamp_text(ms: i64) -> String {
    let mut out = Vec::with_capacity(24);
    calendar::push_timestamp(&mut out, ms);
    String::from_utf8(out).expect("a time is written in ASCII")
}
