//! Options and columns of `generate`.

use std::sync::Arc;

use levada_common::declaration::{OptionError, Options, SourceDeclaration, SourceShape};
use levada_common::types::{Column, LogicalType};

use crate::options::{OptionReader, joined};
use crate::stripes;

/// The column that all others are computed from.
pub(super) const BASE_COLUMN: &str = "n";

/// Neighbouring numbers are in different stripes, so that every subtask is at about the same number at any time.
pub(super) const BLOCK: u64 = 1;

/// `generate: { from, to, rate, columns }`
#[derive(Debug)]
pub(super) struct GenerateOptions {
    /// The first number.
    pub from: i64,
    /// How many numbers there are.
    pub count: u64,
    /// Whether they end for the user.
    pub bounded: bool,
    /// Rows per second, over all subtasks.
    pub rate: Option<f64>,
    /// Name and SQL over `n`.
    pub columns: Vec<(String, String)>,
}

impl GenerateOptions {
    pub(super) fn read(options: &Options) -> Result<Self, Vec<OptionError>> {
        let mut reader = OptionReader::new(options);
        let from = reader.integer("from", i64::MIN, i64::MAX);
        let to = reader.integer("to", i64::MIN, i64::MAX);
        let (first, bounded) = (from.unwrap_or(0), to.is_some());
        // Half open: `to` is the first number that is not given, so that `from: 0, to: 1000` is a thousand rows.
        let last = to.unwrap_or(i64::MAX);
        if last < first {
            reader.defect("to", format!("must not be less than `from`, which is {first}, found {last}"));
        }
        let rate = reader.rate("rate");
        let columns = reader.text_map("columns");
        reader.finish(|| Some(Self { from: first, count: last.wrapping_sub(first) as u64, bounded, rate, columns }))
    }
}

/// The declaration of `generate`.
pub fn source() -> SourceDeclaration {
    SourceDeclaration {
        options: ["from", "to", "rate", "columns"].map(String::from).to_vec(),
        path_options: Vec::new(),
        read: Arc::new(|options| {
            let options = GenerateOptions::read(options)?;
            Ok(SourceShape {
                columns: vec![Column::new(BASE_COLUMN, LogicalType::Int64, false)],
                computed: options.columns,
                event_time: None,
                bounded: options.bounded,
                replayable: true,
                parallelism_max: Some(stripes::STRIPES_MAX as u32),
            })
        }),
        splits: Arc::new(|options, _| {
            let options = GenerateOptions::read(options).map_err(|errors| joined(&errors))?;
            Ok(stripes::list(options.count, BLOCK))
        }),
    }
}
