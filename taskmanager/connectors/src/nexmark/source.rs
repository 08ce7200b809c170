//! Runs of event numbers to batches of one table.

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SourceSpec;
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourcePoll};

use super::declaration::{BLOCK, NexmarkOptions, Table};
use super::event::{GROUP, Run};
use super::{auction, bid, person};
use crate::batch::{BATCH_BYTES_MAX, record_batch};
use crate::error::ConnectorError;
use crate::options::checked;
use crate::stripes::Stripes;
use crate::throttle::Throttle;

/// Makes the events of its stripes.
pub struct NexmarkSource {
    options: NexmarkOptions,
    uid: Uid,
    opened: Option<Opened>,
}

struct Opened {
    stripes: Stripes,
    throttle: Option<Throttle>,
    schema: SchemaRef,
    rows_max: usize,
    runs: Vec<Run>,
}

/// Makes a source of these options.
pub fn create(spec: &SourceSpec) -> Result<Box<dyn Source>, EngineError> {
    let options = checked(NexmarkOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    Ok(Box::new(NexmarkSource { options, uid: spec.uid.clone(), opened: None }))
}

impl NexmarkSource {
    fn failed(&self, error: ConnectorError) -> EngineError {
        error.at(&self.uid, "nexmark")
    }

    fn next_batch(&mut self) -> Result<SourcePoll, ConnectorError> {
        let table = self.options.table;
        let opened = self.opened.as_mut().expect("open comes before poll");
        // Again where the events due were all of other kinds: `Pending` needs a wake-up, which only the throttle arms.
        loop {
            if opened.stripes.peek().is_none() {
                return Ok(SourcePoll::End);
            }
            let due = opened.throttle.as_mut().map_or(u64::MAX, Throttle::due);
            if due == 0 {
                return Ok(SourcePoll::Pending);
            }
            let (rows, events) = opened.take(table, due);
            if let Some(throttle) = &mut opened.throttle {
                throttle.give(events);
            }
            if rows > 0 {
                return opened.batch(table, rows).map(SourcePoll::Batch);
            }
        }
    }
}

impl Opened {
    /// Reads at most `due` events into `runs`; answers the rows and the events.
    fn take(&mut self, table: Table, due: u64) -> (usize, u64) {
        let (kind_start, kind_end) = match table {
            Table::Person => (0, 1),
            Table::Auction => (1, 4),
            Table::Bid => (4, GROUP),
        };
        self.runs.clear();
        let mut left = self.rows_max as u64;
        let mut events = 0;
        while left > 0 && events < due {
            let Some(range) = self.stripes.peek() else { break };
            let end = range.end.min(range.start.saturating_add(due - events));
            let mut n = range.start;
            while n < end && left > 0 {
                let group = n / GROUP;
                let group_start = group * GROUP;
                let low = (n - group_start).max(kind_start);
                let high = (end - group_start).min(kind_end);
                let rows = high.saturating_sub(low).min(left);
                if rows > 0 {
                    self.runs.push(Run { group, offset: low, rows });
                    left -= rows;
                }
                let is_cut = rows > 0 && low + rows < high;
                n = if is_cut { group_start + low + rows } else { end.min(group_start + GROUP) };
            }
            events += n - range.start;
            self.stripes.advance(n);
        }
        (self.rows_max - left as usize, events)
    }

    /// The planned columns of the runs taken.
    fn batch(&self, table: Table, rows: usize) -> Result<RecordBatch, ConnectorError> {
        let names = self.schema.fields().iter().map(|field| field.name().as_str());
        let columns: Vec<ArrayRef> = names
            .map(|name| match table {
                Table::Bid => bid::column(name, &self.runs, rows),
                Table::Auction => auction::column(name, &self.runs, rows),
                Table::Person => person::column(name, &self.runs, rows),
            })
            .collect();
        record_batch(&self.schema, columns, rows)
    }
}

impl Source for NexmarkSource {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        let stripes = Stripes::new(&splits, BLOCK, self.options.events).map_err(|error| self.failed(error))?;
        let throttle = Throttle::of(self.options.rate, stripes.share(), &context);
        let schema = context.spec.schema.to_arrow();
        let row_bytes: usize = schema.fields().iter().map(|field| row_bytes(self.options.table, field.data_type())).sum();
        let rows_max = context.batch_rows_max.min(BATCH_BYTES_MAX / row_bytes.max(1)).max(1);
        self.opened = Some(Opened { stripes, throttle, schema, rows_max, runs: Vec::new() });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        self.next_batch().map_err(|error| self.failed(error))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(self.opened.as_ref().map(|opened| opened.stripes.snapshot()).unwrap_or_default())
    }
}

/// About how many bytes a value of this type has.
fn row_bytes(table: Table, data_type: &DataType) -> usize {
    match (data_type, table) {
        (DataType::Utf8, Table::Auction) => 200,
        (DataType::Utf8, _) => 84,
        _ => 8,
    }
}
