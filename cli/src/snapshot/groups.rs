//! The rows of a state by key group: all of one group at once, groups in ascending order.

use arrow::array::AsArray;
use arrow::datatypes::UInt16Type;
use arrow::record_batch::RecordBatch;
use levada_state::format::{KEY_GROUP_COLUMN, groups_by_key};

use super::rows::StateRows;
use super::{OperatorState, Snapshot, SnapshotError};

/// The key groups of a batch's rows: as noted in it, else by its key.
pub fn groups_of(batch: &RecordBatch, max_parallelism: u32) -> Vec<u16> {
    match batch.column_by_name(KEY_GROUP_COLUMN) {
        Some(column) => column.as_primitive::<UInt16Type>().values().to_vec(),
        None => groups_by_key(batch, max_parallelism),
    }
}

/// A state's rows, a group at a time. Operator state is one group.
pub struct GroupedRows<'a> {
    path: String,
    rows: StateRows<'a>,
    is_keyed: bool,
    max_parallelism: u32,
    /// Groups that are taken together.
    factor: u16,
    /// The rest of a batch, and the groups of its rows.
    pending: Option<(RecordBatch, Vec<u16>)>,
    before: u16,
}

impl<'a> GroupedRows<'a> {
    /// The rows of `state`, `factor` neighbouring groups together.
    pub fn new(snapshot: &'a Snapshot, state: &OperatorState, factor: u16) -> Self {
        Self {
            path: state.path(),
            rows: StateRows::new(snapshot, state, None),
            is_keyed: state.kind.is_keyed(),
            max_parallelism: snapshot.metadata.max_parallelism,
            factor: factor.max(1),
            pending: None,
            before: 0,
        }
    }

    /// The next group that has rows, and its rows; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<(u16, Vec<RecordBatch>)>, SnapshotError> {
        let mut rows: Vec<RecordBatch> = Vec::new();
        loop {
            if self.pending.is_none() {
                self.pending = self.rows.next().await?.map(|batch| {
                    let groups = if self.is_keyed { groups_of(&batch, self.max_parallelism) } else { vec![0; batch.num_rows()] };
                    let groups = groups.into_iter().map(|group| group / self.factor).collect();
                    (batch, groups)
                });
            }
            let Some((batch, groups)) = self.pending.take() else {
                return Ok((!rows.is_empty()).then_some((self.before, rows)));
            };
            let group = groups[0];
            if !rows.is_empty() && group != self.before {
                self.pending = Some((batch, groups));
                return Ok(Some((self.before, rows)));
            }
            if group < self.before {
                return Err(SnapshotError::Unsorted { path: self.path.clone(), found: group, before: self.before });
            }
            self.before = group;
            let count = groups.iter().take_while(|other| **other == group).count();
            rows.push(batch.slice(0, count));
            if count < batch.num_rows() {
                self.pending = Some((batch.slice(count, batch.num_rows() - count), groups[count..].to_vec()));
            }
        }
    }
}
