//! What is told apart in sets: columns, states, calls. Resolved against the input.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_common::plan::{AggregateCall, AggregateSpec, DistinctSpec, OperatorSpec, WindowSpec};
use levada_common::state_schema::StateSchema;
use levada_common::types::StreamSchema;

use crate::aggregate::AggregatePlan;

/// What is told apart.
#[derive(Debug)]
pub(in super::super) struct SetsShape {
    pub(super) columns: Vec<SetColumn>,
    /// The calls over these columns, and nothing else.
    pub(super) plan: Arc<AggregatePlan>,
    /// Their places among all calls.
    pub(super) calls: Vec<usize>,
}

/// A column whose values are told apart.
#[derive(Debug)]
pub(super) struct SetColumn {
    /// Its place in the input's batches.
    place: usize,
    pub(super) data_type: DataType,
    /// The name of its state.
    pub(super) state: String,
    pub(super) schema: Arc<StateSchema>,
    /// Schema of a snapshot's pieces.
    pub(super) pieces: SchemaRef,
}

impl SetsShape {
    /// Of an aggregation, where it tells values apart; `pieces` makes the schema of a state's pieces.
    ///
    /// Errors: what the plan names and the input does not have, as text.
    pub(in super::super) fn of(
        spec: &OperatorSpec,
        aggregate: &AggregateSpec,
        pieces: impl Fn(&StateSchema) -> SchemaRef,
    ) -> Result<Option<Self>, String> {
        if aggregate.distinct.is_empty() {
            return Ok(None);
        }
        let names: Vec<String> = aggregate.distinct.iter().map(|value| DistinctSpec::output_name(value)).collect();
        let is_distinct = |call: &AggregateCall| call.argument.as_ref().is_some_and(|argument| names.contains(argument));
        let calls: Vec<usize> = (0..aggregate.calls.len()).filter(|call| is_distinct(&aggregate.calls[*call])).collect();
        let marked = DistinctSpec::marked(&aggregate.distinct, &spec.input);
        let marked = StreamSchema::append(marked.columns[spec.input.columns.len()..].to_vec());
        let of_values = AggregateSpec {
            calls: calls.iter().map(|call| aggregate.calls[*call].clone()).collect(),
            window: WindowSpec::Global,
            firing: None,
            distinct: Vec::new(),
            ..aggregate.clone()
        };
        let plan = AggregatePlan::new(&of_values, &marked, &|call| Err(format!("\"{}\" is over no values", call.name)))?;
        let columns = aggregate.counted().into_iter().map(|counted| {
            let name = &counted.value;
            let place = spec.input.batch_index(name).ok_or_else(|| format!("column \"{name}\" is not among the input's"))?;
            let schema = Arc::new(counted.state_schema(&spec.input));
            let data_type = spec.input.to_arrow().field(place).data_type().clone();
            Ok(SetColumn { place, data_type, state: counted.state, pieces: pieces(&schema), schema })
        });
        Ok(Some(Self { columns: columns.collect::<Result<_, String>>()?, plan: Arc::new(plan), calls }))
    }

    /// The columns of a batch whose values are told apart.
    pub(in super::super) fn values(&self, batch: &RecordBatch) -> Vec<ArrayRef> {
        self.columns.iter().map(|column| Arc::clone(batch.column(column.place))).collect()
    }

    /// Types of the columns.
    pub(in super::super) fn data_types(&self) -> impl Iterator<Item = &DataType> {
        self.columns.iter().map(|column| &column.data_type)
    }

    /// Whether a state of this name holds values.
    pub(in super::super) fn has_state(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column.state == name)
    }
}
