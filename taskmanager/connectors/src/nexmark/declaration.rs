//! Options and columns of `nexmark`.

use std::sync::Arc;

use levada_common::declaration::{OptionError, Options, SourceDeclaration, SourceShape};
use levada_common::types::{Column, LogicalType};

use super::{auction, bid, person};
use crate::options::{OptionReader, joined};
use crate::stripes;

/// Event numbers of a block.
pub(super) const BLOCK: u64 = 1000;

/// Most events: times stay far from year 9999, and products with 1000 in a word.
const EVENTS_MAX: i64 = 1_000_000_000_000_000;

/// Which of the three kinds of events a source gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    Bid,
    Auction,
    Person,
}

/// `nexmark: { events, table, rate }`
#[derive(Debug)]
pub(super) struct NexmarkOptions {
    /// Events of all three kinds.
    pub events: u64,
    /// The kind that becomes rows.
    pub table: Table,
    /// Events of all three kinds per second, over all subtasks.
    pub rate: Option<f64>,
}

impl NexmarkOptions {
    pub(super) fn read(options: &Options) -> Result<Self, Vec<OptionError>> {
        let mut reader = OptionReader::new(options);
        reader.require("events", "how many events of all three kinds there are");
        let events = reader.integer("events", 0, EVENTS_MAX);
        let table = match reader.choice("table", &["bid", "auction", "person"]) {
            Some("auction") => Table::Auction,
            Some("person") => Table::Person,
            _ => Table::Bid,
        };
        let rate = reader.rate("rate");
        reader.finish(|| Some(Self { events: events? as u64, table, rate }))
    }
}

/// The declaration of `nexmark`.
pub fn source() -> SourceDeclaration {
    SourceDeclaration {
        options: ["events", "table", "rate"].map(String::from).to_vec(),
        path_options: Vec::new(),
        read: Arc::new(|options| {
            let options = NexmarkOptions::read(options)?;
            Ok(SourceShape {
                columns: columns(options.table),
                computed: Vec::new(),
                event_time: Some(("dateTime".into(), 0)),
                bounded: true,
                replayable: true,
                parallelism_max: Some(stripes::STRIPES_MAX as u32),
            })
        }),
        splits: Arc::new(|options, _| {
            let options = NexmarkOptions::read(options).map_err(|errors| joined(&errors))?;
            Ok(stripes::list(options.events, BLOCK))
        }),
    }
}

/// The columns of a table: ids and prices INT64, times TIMESTAMP, the rest STRING; none is ever null.
fn columns(table: Table) -> Vec<Column> {
    let names: &[&str] = match table {
        Table::Bid => bid::COLUMNS,
        Table::Auction => auction::COLUMNS,
        Table::Person => person::COLUMNS,
    };
    let ty = |name: &str| match name {
        "dateTime" | "expires" => LogicalType::Timestamp,
        "extra" | "itemName" | "description" | "name" | "email" | "creditCard" | "city" | "state" => LogicalType::String,
        _ => LogicalType::Int64,
    };
    names.iter().map(|name| Column::new(*name, ty(name), false)).collect()
}
