//! Who gets which row of a batch.
//!
//! Invariant: rows of one key group go to its owner, in their order. Costs two passes over the rows and one `take` per
//! column, whatever the number of targets; nothing is allocated per row.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::keys::{key_groups, owner_of_group};
use levada_common::plan::{Edge, Partition};

/// Splits batches over the targets of one edge.
#[derive(Debug)]
pub struct Partitioner {
    way: Way,
}

#[derive(Debug)]
enum Way {
    /// All rows to the only target.
    Single,
    /// Whole batches in turn.
    Rebalance { targets: usize, next: usize },
    /// Rows by the owner of their key group.
    Hash(HashSplit),
    /// All rows to each.
    Broadcast { targets: usize },
}

#[derive(Debug)]
struct HashSplit {
    /// Places of the key columns in a batch.
    columns: Vec<usize>,
    max_parallelism: u32,
    /// The target of each key group.
    owners: Vec<u32>,
    keys: Vec<ArrayRef>,
    groups: Vec<u16>,
    /// Rows of each target in the batch, then the places where its next row goes.
    places: Vec<u32>,
}

impl Partitioner {
    /// Of `edge`, from sending subtask `subtask` to `targets` subtasks.
    ///
    /// Errors: the name of a key column that the edge's schema does not have.
    pub fn new(edge: &Edge, subtask: u32, targets: usize, max_parallelism: u32) -> Result<Self, String> {
        let way = match &edge.partition {
            _ if targets == 1 => Way::Single,
            Partition::Forward => Way::Single,
            Partition::Broadcast => Way::Broadcast { targets },
            Partition::Rebalance => Way::Rebalance { targets, next: subtask as usize % targets },
            Partition::Hash { columns } => {
                let columns = columns.iter().map(|name| edge.schema.batch_index(name).ok_or_else(|| name.clone()));
                let owner = |group| owner_of_group(group as u16, targets as u32, max_parallelism);
                Way::Hash(HashSplit {
                    columns: columns.collect::<Result<_, _>>()?,
                    max_parallelism,
                    owners: (0..max_parallelism).map(owner).collect(),
                    keys: Vec::new(),
                    groups: Vec::new(),
                    places: vec![0; targets],
                })
            }
        };
        Ok(Self { way })
    }

    /// Gives each target its rows: `send(target, rows)`, rows never empty.
    ///
    /// Shape: schema and order of rows kept; a split batch's parts are slices of the same arrays, a broadcast one's are shared.
    pub fn split(&mut self, batch: RecordBatch, mut send: impl FnMut(usize, RecordBatch)) -> Result<(), ArrowError> {
        match &mut self.way {
            Way::Single => send(0, batch),
            Way::Rebalance { targets, next } => {
                send(*next, batch);
                *next = (*next + 1) % *targets;
            }
            Way::Hash(split) => split.split(batch, send)?,
            Way::Broadcast { targets } => (0..*targets).for_each(|target| send(target, batch.clone())),
        }
        Ok(())
    }
}

impl HashSplit {
    fn split(&mut self, batch: RecordBatch, mut send: impl FnMut(usize, RecordBatch)) -> Result<(), ArrowError> {
        let rows = batch.num_rows();
        self.keys.clear();
        self.keys.extend(self.columns.iter().map(|column| batch.column(*column).clone()));
        self.groups.clear();
        key_groups(&self.keys, self.max_parallelism, &mut self.groups);
        self.keys.clear();

        self.places.fill(0);
        for group in &self.groups {
            self.places[self.owners[usize::from(*group)] as usize] += 1;
        }
        if let Some(only) = self.places.iter().position(|count| *count as usize == rows) {
            send(only, batch);
            return Ok(());
        }
        let mut start = 0;
        for place in &mut self.places {
            (start, *place) = (start + *place, start);
        }
        let mut order = vec![0_u32; rows];
        for (row, group) in self.groups.iter().enumerate() {
            let place = &mut self.places[self.owners[usize::from(*group)] as usize];
            order[*place as usize] = row as u32;
            *place += 1;
        }
        let sorted = take_record_batch(&batch, &UInt32Array::from(order))?;
        let mut start = 0;
        for (target, end) in self.places.iter().enumerate() {
            let end = *end as usize;
            if end > start {
                send(target, sorted.slice(start, end - start));
            }
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
