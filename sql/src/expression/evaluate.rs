//! Evaluating a compiled expression over a batch.
//!
//! Invariant: the column has exactly the Arrow type that the plan promised: views, dictionaries and large arrays that
//! DataFusion's functions like are cast away here.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, new_empty_array};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType, Decimal128Type};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::FormatOptions;
use datafusion_physical_expr::PhysicalExpr;
use levada_engine::expr::Expression;

use super::compiler::{plain, reason};

/// An expression that is a column: no copy.
pub(super) struct ColumnReference {
    /// Its place in the batch.
    pub(super) index: usize,
    /// The type to cast to, where it is another one.
    pub(super) cast: Option<DataType>,
}

impl Expression for ColumnReference {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        let column = batch.column(self.index);
        self.cast.as_ref().map_or_else(|| Ok(Arc::clone(column)), |target| checked_cast(column, target))
    }
}

/// An expression that is computed.
pub(super) struct Computed {
    physical: Arc<dyn PhysicalExpr>,
    target: DataType,
    is_cast: bool,
    digits_may_overflow: bool,
}

impl Computed {
    /// `physical` gives `given`, the result is to have `target`.
    pub(super) fn new(physical: Arc<dyn PhysicalExpr>, given: &DataType, target: DataType) -> Self {
        let digits_may_overflow = matches!(target, DataType::Decimal128(DECIMAL128_MAX_PRECISION, _));
        Self { physical, is_cast: *given != target, target, digits_may_overflow }
    }
}

impl Expression for Computed {
    fn evaluate(&self, batch: &RecordBatch) -> Result<ArrayRef, String> {
        // What is the same for every row (`1 / 0`) would fail over no rows, too.
        if batch.num_rows() == 0 {
            return Ok(new_empty_array(&self.target));
        }
        let value = self.physical.evaluate(batch).map_err(reason)?;
        let mut array = value.into_array(batch.num_rows()).map_err(reason)?;
        if self.is_cast {
            array = checked_cast(&array, &self.target)?;
        }
        // 128 bits hold a little more than the 38 digits that the type promises.
        if self.digits_may_overflow {
            let decimals = array.as_primitive::<Decimal128Type>();
            decimals.validate_decimal_precision(DECIMAL128_MAX_PRECISION).map_err(|error| arrow_reason(&error))?;
        }
        Ok(array)
    }
}

fn checked_cast(array: &dyn Array, target: &DataType) -> Result<ArrayRef, String> {
    let options = CastOptions { safe: false, format_options: FormatOptions::default() };
    cast_with_options(array, target, &options).map_err(|error| arrow_reason(&error))
}

/// What an Arrow kernel found wrong, without its framing.
pub(super) fn arrow_reason(error: &ArrowError) -> String {
    match error {
        ArrowError::DivideByZero => "division by zero".into(),
        ArrowError::ArithmeticOverflow(text)
        | ArrowError::ComputeError(text)
        | ArrowError::CastError(text)
        | ArrowError::ParseError(text)
        | ArrowError::InvalidArgumentError(text) => plain(text),
        other => plain(&other.to_string()),
    }
}
