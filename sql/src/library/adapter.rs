//! One of DataFusion's aggregates as functions of columns: accumulators are made for a batch, filled with the states of its groups,
//! and emptied again.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, BooleanArray, new_empty_array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion_common::Result;
use datafusion_expr::{EmitTo, GroupsAccumulator};
use datafusion_functions_aggregate_common::aggregate::groups_accumulator::GroupsAccumulatorAdapter;
use datafusion_physical_expr::PhysicalExpr;
use levada_common::keys::normalise_key_column;
use levada_common::types::Column;
use levada_engine::aggregate::{LibraryAggregate, OfGroups};

use super::call::Typed;
use crate::expression::reason;

/// An aggregate, ready to compute.
#[derive(Debug)]
pub(crate) struct Adapter {
    typed: Typed,
    /// The types of the state's columns, as they are kept.
    kept: Vec<DataType>,
    result: DataType,
}

impl Adapter {
    /// `state` are the columns in which its state is kept.
    pub(super) fn new(typed: Typed, state: &[Column], result: DataType) -> Self {
        Self { typed, kept: state.iter().map(|column| column.ty.to_arrow()).collect(), result }
    }

    /// Accumulators without groups.
    pub(super) fn groups(&self) -> Result<Box<dyn GroupsAccumulator>> {
        let expr = &self.typed.expr;
        if expr.groups_accumulator_supported() {
            return expr.create_groups_accumulator();
        }
        let made = expr.clone();
        expr.create_accumulator()?;
        Ok(Box::new(GroupsAccumulatorAdapter::new(move || made.create_accumulator())))
    }

    fn take_states(&self, groups: usize, part: OfGroups<'_>, accumulator: &mut dyn GroupsAccumulator) -> Result<()> {
        let columns = part.columns.iter().zip(&self.typed.state);
        let columns = columns.map(|(column, ty)| cast(column, ty)).collect::<std::result::Result<Vec<_>, _>>()?;
        accumulator.merge_batch(&columns, part.groups, groups)
    }

    fn take_rows(&self, groups: usize, rows: OfGroups<'_>, accumulator: &mut dyn GroupsAccumulator) -> Result<()> {
        let input = &self.typed.input;
        let columns = rows.columns.iter().zip(input.fields());
        // Floats have one zero and one NaN, as everywhere where they are ordered or told apart.
        let columns = columns.map(|(column, field)| cast(column, field.data_type()).map(normalise_key_column));
        let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
        let filter: Option<&BooleanArray> = rows.columns.get(input.fields().len()).map(|filter| filter.as_boolean());
        let options = RecordBatchOptions::new().with_row_count(Some(rows.groups.len()));
        let batch = RecordBatch::try_new_with_options(Arc::clone(input), columns, &options)?;
        let expr = &self.typed.expr;
        let order = expr.order_bys().iter().map(|by| Arc::clone(&by.expr));
        let values = expr.expressions().into_iter().chain(order);
        let value = |expr: Arc<dyn PhysicalExpr>| expr.evaluate(&batch)?.into_array(batch.num_rows());
        let values = values.map(value).collect::<Result<Vec<_>>>()?;
        accumulator.update_batch(&values, rows.groups, filter, groups)
    }

    fn states(&self, accumulator: &mut dyn GroupsAccumulator) -> Result<Vec<ArrayRef>> {
        let columns = accumulator.state(EmitTo::All)?;
        let kept = columns.iter().zip(&self.kept).map(|(column, ty)| cast(column, ty));
        Ok(kept.collect::<std::result::Result<_, _>>()?)
    }

    /// The states of no group, which not every aggregate of the library can say.
    fn no_states(&self) -> Vec<ArrayRef> {
        self.kept.iter().map(new_empty_array).collect()
    }
}

impl LibraryAggregate for Adapter {
    fn update(&self, groups: usize, known: OfGroups<'_>, rows: OfGroups<'_>) -> std::result::Result<Vec<ArrayRef>, String> {
        if groups == 0 {
            return Ok(self.no_states());
        }
        let update = || {
            let mut accumulator = self.groups()?;
            self.take_states(groups, known, accumulator.as_mut())?;
            self.take_rows(groups, rows, accumulator.as_mut())?;
            self.states(accumulator.as_mut())
        };
        update().map_err(reason)
    }

    fn merge(&self, groups: usize, parts: &[OfGroups<'_>]) -> std::result::Result<Vec<ArrayRef>, String> {
        if groups == 0 {
            return Ok(self.no_states());
        }
        let merge = || {
            let mut accumulator = self.groups()?;
            for part in parts {
                self.take_states(groups, *part, accumulator.as_mut())?;
            }
            self.states(accumulator.as_mut())
        };
        merge().map_err(reason)
    }

    fn read(&self, groups: usize, known: OfGroups<'_>) -> std::result::Result<ArrayRef, String> {
        if groups == 0 {
            return Ok(new_empty_array(&self.result));
        }
        let read = || {
            let mut accumulator = self.groups()?;
            self.take_states(groups, known, accumulator.as_mut())?;
            let column = accumulator.evaluate(EmitTo::All)?;
            Ok(cast(&column, &self.result)?)
        };
        read().map_err(reason)
    }
}
