//! Why a function fails.

use levada_common::fault::{Fault, Faulty, Retry};
use levada_state::keyed::StateError;
use levada_state::operator_state::OperatorStateError;
use levada_state::types::TypeError;

/// A failure of a user's function. Node and function are added by the operator that runs it.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// It asked for a column that its input does not have.
    #[error("it reads a column \"{column}\", and its input has: {columns}; declare it with `input`")]
    NoColumn {
        /// The column.
        column: String,
        /// The columns that there are.
        columns: String,
    },
    /// It asked for a column as another type.
    #[error("it reads column \"{column}\" as {wanted}, and the column is {found}")]
    ColumnType {
        /// The column.
        column: String,
        /// The type asked for.
        wanted: &'static str,
        /// The column's Arrow type.
        found: String,
    },
    /// It gave a value that does not fit its declared output.
    #[error("it gives {found} for output column \"{column}\", which is declared {expected}")]
    OutputType {
        /// The output column.
        column: String,
        /// What the declaration says.
        expected: String,
        /// What was given.
        found: &'static str,
    },
    /// It gave a row of another width.
    #[error("it gives a row of {found} columns, and its declaration has {expected}")]
    OutputWidth {
        /// Columns declared.
        expected: usize,
        /// Columns given.
        found: usize,
    },
    /// It gave columns that do not make a batch of its declared output.
    #[error("the columns that it gives are not those of its declaration")]
    OutputColumns(#[source] arrow::error::ArrowError),
    /// It writes to an output that its declaration does not have.
    #[error(
        "it gives rows to an output \"{side}\", and its declaration has beside the main one: {known}; declare it with `side_output`"
    )]
    NoSide {
        /// The output.
        side: String,
        /// Those that there are.
        known: String,
    },
    /// It sets a timer of a kind that its declaration does not have.
    #[error("it sets a timer of {kind} time, which its declaration does not have; declare it with `{method}`")]
    UndeclaredTimer {
        /// event or processing
        kind: &'static str,
        /// The declaration's method.
        method: &'static str,
    },
    /// It uses state or timers before it has entered a row.
    #[error("it uses keyed state or a timer before it has entered a row; call `enter(row)` first")]
    NoKey,
    /// Its timers belong to windows and it sets one without.
    #[error("it sets or deletes a timer outside of a window, and its timers belong to windows; call `set_namespace` first")]
    NoWindow,
    /// An option is missing or wrong.
    #[error("option \"{option}\": {reason}")]
    Option {
        /// The option.
        option: String,
        /// What is wrong, what is allowed.
        reason: String,
    },
    /// A state refuses.
    #[error(transparent)]
    State(#[from] Box<StateError>),
    /// A state of the operator refuses.
    #[error(transparent)]
    OperatorState(#[from] OperatorStateError),
    /// Values do not fit columns.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// It says itself that it cannot go on.
    #[error("{message}")]
    Failed {
        /// Its words.
        message: String,
        /// Whether the same rows may succeed another time.
        retry: Retry,
    },
    /// It panicked.
    #[error("it panicked: {message}")]
    Panicked {
        /// The panic's words.
        message: String,
    },
}

impl FunctionError {
    /// The same rows would fail again: the job fails and is not restarted for it.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), retry: Retry::Never }
    }

    /// Trying again may help: the job is restarted as its settings say.
    pub fn transient(message: impl Into<String>) -> Self {
        Self::Failed { message: message.into(), retry: Retry::Backoff }
    }

    /// A defect of an option.
    pub fn option(option: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Option { option: option.into(), reason: reason.into() }
    }
}

impl Faulty for FunctionError {
    fn fault(&self) -> Fault {
        match self {
            Self::State(error) => error.fault(),
            _ => Fault::User,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Failed { retry, .. } => *retry,
            Self::State(error) => error.retry(),
            // A panic may come of anything the function does beside its rows.
            Self::Panicked { .. } => Retry::Backoff,
            _ => Retry::Never,
        }
    }
}
