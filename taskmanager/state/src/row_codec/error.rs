//! What can be wrong with columns and with bytes.

/// Columns that are not those of the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Another number, order or type.
    #[error("the entries have the columns ({found}), the state has ({expected})")]
    Columns {
        /// What came.
        found: String,
        /// What the state has.
        expected: String,
    },
    /// Several entries where there may be one.
    #[error("several entries belong to one key, which has one in the job; restore with the operator as it was")]
    Several,
    /// A null where none may be.
    #[error("column \"{column}\" is null in an entry, and may not be")]
    Null {
        /// The column.
        column: String,
    },
}

/// Bytes that are no entry of the state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRow {
    /// They end too early.
    #[error("column \"{column}\" needs {needed} bytes, {found} are left")]
    Short {
        /// The column.
        column: String,
        /// Bytes that it needs.
        needed: usize,
        /// Bytes that are left.
        found: usize,
    },
    /// A byte or a number that cannot be.
    #[error("column \"{column}\" has {found}, which its type does not allow")]
    Value {
        /// The column.
        column: String,
        /// What stands there.
        found: String,
    },
    /// Bytes are left over.
    #[error("{0} bytes follow the last column")]
    TooLong(usize),
}
