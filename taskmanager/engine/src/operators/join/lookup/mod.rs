//! The lookup join: a left row meets the row of its key that the table has when it comes.
//!
//! The table is the same in every instance, and is broadcast state. What a row found it keeps: nothing is taken back when the table
//! changes. That left rows wait until a table has been read whole is the gate's business.

mod table;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::AsArray;
use arrow::datatypes::Int8Type;
use arrow::record_batch::RecordBatch;
use levada_common::ids::CheckpointId;
use levada_common::plan::{JoinKind, JoinSide};
use levada_common::planned_state::WAITING;
use levada_common::state_schema::StateDeclaration;
use levada_state::keyed::HeapShare;
use levada_state::snapshot::{StateMeta, StatePart};

use super::shape::Shape;
use crate::error::{EngineError, Remedy};
use crate::operator::{Operator, OperatorContext, RestoredState};
use crate::operators::charge::charge;
use crate::operators::pending::Pending;
use crate::operators::rows::{NO_ROW, Part};
use table::Table;

/// A join with a table.
///
/// Shape of the output: as planned; rows in the order of the left ones, at most one for each.
pub(super) struct LookupJoin {
    shape: Arc<Shape>,
    table: Table,
    state: StateMeta,
    pending: Pending,
    /// The table's row of each row of the batch.
    found: Vec<u32>,
    running: Option<(OperatorContext, HeapShare)>,
}

impl LookupJoin {
    /// `moves`: an update of the table may give a row another key.
    pub(super) fn new(shape: Arc<Shape>, declaration: StateDeclaration, moves: bool) -> Self {
        let table = Table::new(&shape.sides[JoinSide::Right as usize].key_types, &declaration.schema, moves);
        let schema = Arc::new(declaration.schema);
        let state = StateMeta { uid: shape.uid.clone(), name: declaration.name, kind: declaration.kind, schema };
        Self { shape, table, state, pending: Pending::default(), found: Vec::new(), running: None }
    }

    fn look_up(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let (shape, rows) = (Arc::clone(&self.shape), batch.num_rows());
        let side = &shape.sides[JoinSide::Left as usize];
        let (_, columns) = side.split(batch);
        let mut found = std::mem::take(&mut self.found);
        self.table.find(&side.keys(&columns), rows, &mut found);
        let misses = found.iter().filter(|row| **row == NO_ROW).count();
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        context.metrics.lookup_misses.fetch_add(misses as u64, Ordering::Relaxed);
        let goes = |row: u32| match shape.kind {
            JoinKind::Left => true,
            JoinKind::Anti => row == NO_ROW,
            JoinKind::Inner | JoinKind::Semi | JoinKind::Right | JoinKind::Full => row != NO_ROW,
        };
        let left: Vec<u32> = (0..rows as u32).filter(|row| goes(found[*row as usize])).collect();
        found.retain(|row| goes(*row));
        if !left.is_empty() {
            let right = if shape.kind.gives_pairs() { self.table.rows(&found) } else { Part::Nothing };
            self.pending.push(shape.output(left.len(), [&Part::of(&columns, &left), &right], None)?);
        }
        self.found = found;
        Ok(())
    }

    /// Counts what is held.
    fn count(&mut self) -> Result<(), EngineError> {
        let bytes = self.table.memory_bytes();
        let (context, share) = self.running.as_mut().expect("an operator is opened first");
        context.metrics.state_keys.store(self.table.len() as u64, Ordering::Relaxed);
        context.metrics.state_bytes.store(bytes as u64, Ordering::Relaxed);
        charge(&self.shape.uid, share, &[(self.state.name.as_str(), bytes)], Remedy::Whole(self.shape.remedy))
    }

    fn restore(&mut self, state: &RestoredState) -> Result<(), EngineError> {
        let refuse = |reason: String| EngineError::Restore { uid: self.shape.uid.clone(), state: state.name.clone(), reason };
        if state.name != self.state.name {
            return Err(refuse(format!("the rows of this operator are in \"{}\"", self.state.name)));
        }
        let side = &self.shape.sides[JoinSide::Right as usize];
        for batch in &state.batches {
            let columns = self.table.restored(batch, &side.saved).map_err(refuse)?;
            self.table.apply(None, &side.keys(&columns), &columns).map_err(|source| self.shape.kernel(source))?;
        }
        Ok(())
    }
}

impl Operator for LookupJoin {
    fn open(&mut self, context: &OperatorContext, restored: Vec<RestoredState>) -> Result<(), EngineError> {
        for state in restored.iter().filter(|state| state.name != WAITING) {
            self.restore(state)?;
        }
        self.running = Some((context.clone(), HeapShare::new(Arc::clone(&context.heap_budget))));
        self.count()
    }

    fn process(&mut self, input: usize, batch: RecordBatch) -> Result<(), EngineError> {
        if input == JoinSide::Left as usize {
            return self.look_up(&batch);
        }
        let side = &self.shape.sides[JoinSide::Right as usize];
        let (ops, columns) = side.split(&batch);
        let ops = ops.as_ref().map(|ops| &**ops.as_primitive::<Int8Type>().values());
        self.table.apply(ops, &side.keys(&columns), &columns).map_err(|source| self.shape.kernel(source))?;
        self.count()
    }

    fn poll(&mut self) -> Result<Option<RecordBatch>, EngineError> {
        let (context, _) = self.running.as_ref().expect("an operator is opened first");
        Ok(self.pending.pop(context.batch_rows_max))
    }

    fn has_output(&self) -> bool {
        !self.pending.is_empty()
    }

    fn snapshot(&mut self, checkpoint: CheckpointId, finished: bool) -> Result<Vec<StatePart>, EngineError> {
        if finished || self.table.len() == 0 {
            return Ok(Vec::new());
        }
        let saved = &self.shape.sides[JoinSide::Right as usize].saved;
        Ok(vec![StatePart { meta: self.state.clone(), contents: self.table.snapshot(checkpoint, saved).into() }])
    }

    fn background(&mut self) -> Result<bool, EngineError> {
        Ok(self.table.save_next())
    }

    fn notify(&mut self, checkpoint: CheckpointId, completed: bool) -> Result<(), EngineError> {
        if !completed {
            self.table.abandon(checkpoint);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
