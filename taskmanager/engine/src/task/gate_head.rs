//! A task's channels as its head, and the rows of them that wait until others have ended: their state, and the memory that they take.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::plan::OperatorSpec;
use levada_common::types::Column;
use levada_state::keyed::{HeapBudget, HeapShare};
use levada_state::snapshot::{StateMeta, StatePart, ready};

use crate::error::EngineError;
use crate::gate::input::{Input, InputGate};
use crate::operator::{RestoredState, restored_column};
use crate::operators::charge;
use crate::task::head::Taken;

/// What makes fewer rows wait.
const REMEDY: &str = "make the table that they wait for smaller, take checkpoints less often until it has been read";

/// A gate, and the state of the rows that it holds back.
pub(crate) struct GateHead {
    pub(crate) gate: InputGate,
    waiting: Option<WaitingRows>,
}

struct WaitingRows {
    meta: StateMeta,
    share: HeapShare,
}

impl GateHead {
    /// In front of `first`, the first operator, whose rows may wait; `restored` is what the snapshot had of its node.
    ///
    /// Errors: `Restore` where rows that waited have other columns than the node's input.
    pub(crate) fn new(
        mut gate: InputGate,
        first: Option<&OperatorSpec>,
        restored: &[RestoredState],
        budget: &Arc<HeapBudget>,
    ) -> Result<Self, EngineError> {
        let declared = first.and_then(|spec| Some((&spec.uid, spec.waiting()?)));
        let Some((uid, declaration)) = declared else { return Ok(Self { gate, waiting: None }) };
        let columns = declaration.schema.values.iter().map(Column::to_field).collect::<Vec<_>>();
        let schema = Arc::new(Schema::new(columns));
        let of_state = restored.iter().filter(|state| state.name == declaration.name).flat_map(|state| &state.batches);
        let batches = of_state.map(|batch| rows_of(uid, &declaration.name, &schema, batch)).collect::<Result<Vec<_>, _>>()?;
        gate = gate.with_waiting(batches.into_iter().filter(|batch| batch.num_rows() > 0).collect());
        let schema = Arc::new(declaration.schema);
        let meta = StateMeta { uid: uid.clone(), name: declaration.name, kind: declaration.kind, schema };
        let mut head = Self { gate, waiting: Some(WaitingRows { meta, share: HeapShare::new(Arc::clone(budget)) }) };
        head.charge()?;
        Ok(head)
    }

    /// The next thing, without waiting.
    ///
    /// Errors: `OverBudget`, where the rows that wait do not fit.
    pub(crate) fn next(&mut self) -> Result<Taken, EngineError> {
        let input = self.gate.read();
        self.charge()?;
        Ok(match input {
            Input::Batch(input, batch) => Taken::Batch(input, batch),
            Input::Signal(signal) => Taken::Signal(signal),
            Input::GivenUp(checkpoint) => Taken::GivenUp(checkpoint),
            Input::Nothing => Taken::Nothing,
            Input::Empty => Taken::Empty(None),
        })
    }

    /// The rows that wait; nothing where none do.
    pub(crate) fn snapshot(&self) -> Vec<StatePart> {
        let pieces: Vec<RecordBatch> = self.gate.waiting_rows().cloned().collect();
        let part = |waiting: &WaitingRows| StatePart { meta: waiting.meta.clone(), contents: ready(pieces.clone()).into() };
        self.waiting.iter().filter(|_| !pieces.is_empty()).map(part).collect()
    }

    fn charge(&mut self) -> Result<(), EngineError> {
        let Some(WaitingRows { meta, share }) = &mut self.waiting else { return Ok(()) };
        charge::charge(&meta.uid, share, &[(meta.name.as_str(), self.gate.waiting_bytes())], REMEDY)
    }
}

fn rows_of(uid: &Uid, state: &str, schema: &SchemaRef, batch: &RecordBatch) -> Result<RecordBatch, EngineError> {
    let columns = schema.fields().iter().map(|field| restored_column(batch, field).cloned()).collect::<Result<Vec<_>, _>>();
    let batch = columns.and_then(|columns| RecordBatch::try_new(Arc::clone(schema), columns).map_err(|error| error.to_string()));
    batch.map_err(|reason| EngineError::Restore { uid: uid.clone(), state: state.into(), reason })
}
