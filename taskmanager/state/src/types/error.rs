//! Why values and columns do not fit each other.

use std::any::type_name;

use arrow::array::Array;
use levada_common::fault::{Fault, Faulty, Retry};
use levada_common::types::LogicalType;

/// Why values cannot become columns, or columns values.
#[derive(Debug, thiserror::Error)]
pub enum TypeError {
    /// A column of another type.
    #[error("column \"{column}\" is {found}, but {rust} is stored as {expected}")]
    Column {
        /// The column.
        column: String,
        /// The Rust type of the value.
        rust: &'static str,
        /// The type that its column has.
        expected: LogicalType,
        /// The type found.
        found: String,
    },
    /// More or fewer columns.
    #[error("\"{column}\" has {found} columns, but {rust} is stored in {expected}")]
    Width {
        /// What the columns hold.
        column: String,
        /// The Rust type of the value.
        rust: &'static str,
        /// Columns that it has.
        expected: usize,
        /// Columns found.
        found: usize,
    },
    /// Nulls where none may be.
    #[error("column \"{column}\" has {nulls} nulls, which {rust} cannot be; Option of it can")]
    Nulls {
        /// The column.
        column: String,
        /// The Rust type of the value.
        rust: &'static str,
        /// Nulls found.
        nulls: usize,
    },
    /// A value that the Rust type does not have.
    #[error("column \"{column}\" has {value} in row {row}, which {rust} cannot be")]
    Value {
        /// The column.
        column: String,
        /// The Rust type of the value.
        rust: &'static str,
        /// The row.
        row: usize,
        /// The value found.
        value: String,
    },
    /// The columns of a piece would be too large for their offsets.
    #[error("values of {rust} have more than 2 GiB in one piece of {rows} rows")]
    Oversized {
        /// The Rust type of the value.
        rust: &'static str,
        /// Values in the piece.
        rows: usize,
    },
    /// A serde type that has no columns.
    #[error("{rust} has no columns: {reason}")]
    Untraceable {
        /// The type.
        rust: &'static str,
        /// Why, with the field where one is meant.
        reason: String,
    },
    /// A serde value that is not what its type said.
    #[error("a value of {rust} cannot be stored in the columns of its type")]
    Encode {
        /// The type.
        rust: &'static str,
        /// Why.
        #[source]
        source: serde_arrow::Error,
    },
    /// Columns from which serde makes no value.
    #[error("columns \"{column}\" give no value of {rust}")]
    Decode {
        /// The column.
        column: String,
        /// The type.
        rust: &'static str,
        /// Why.
        #[source]
        source: serde_arrow::Error,
    },
}

impl Faulty for TypeError {
    fn fault(&self) -> Fault {
        Fault::User
    }

    fn retry(&self) -> Retry {
        Retry::Never
    }
}

/// Refuses a column that is not what `T` is stored as.
pub(super) fn check_column<T>(column: &str, expected: LogicalType, array: &dyn Array) -> Result<(), TypeError> {
    if *array.data_type() == expected.to_arrow() {
        return Ok(());
    }
    let found = LogicalType::from_arrow(array.data_type()).filter(|found| found.to_arrow() == *array.data_type());
    let found = found.map_or_else(|| array.data_type().to_string(), |found| found.to_string());
    Err(TypeError::Column { column: column.into(), rust: type_name::<T>(), expected, found })
}

/// Refuses a column with nulls.
pub(super) fn check_no_nulls<T>(column: &str, array: &dyn Array) -> Result<(), TypeError> {
    match array.null_count() {
        0 => Ok(()),
        nulls => Err(TypeError::Nulls { column: column.into(), rust: type_name::<T>(), nulls }),
    }
}

/// Refuses another number of columns.
pub(super) fn check_width<T>(column: &str, expected: usize, found: usize) -> Result<(), TypeError> {
    if expected == found {
        return Ok(());
    }
    Err(TypeError::Width { column: column.into(), rust: type_name::<T>(), expected, found })
}
