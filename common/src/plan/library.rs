//! Calls of aggregates that the engine leaves to a library.

use serde::{Deserialize, Serialize};

use crate::types::Column;

/// An aggregate of a library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LibraryCall {
    /// Its name.
    pub function: String,
    /// Its arguments.
    pub arguments: Vec<LibraryArgument>,
    /// Whether equal values count once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distinct: bool,
    /// A BOOLEAN column of the input: rows count where it is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The columns of its state: `<call>.<library and major version>.<number>`, since the layout is the library's.
    pub state: Vec<Column>,
}

/// An argument of a library's aggregate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LibraryArgument {
    /// A column of the input.
    Column(Column),
    /// The same for every row: SQL without columns.
    Constant(String),
}

impl LibraryArgument {
    /// The column's name, or the SQL.
    pub fn text(&self) -> &str {
        match self {
            Self::Column(column) => &column.name,
            Self::Constant(sql) => sql,
        }
    }
}

impl LibraryCall {
    /// The name of a column of its state. `library` is the library with its major version.
    pub fn state_name(call: &str, library: &str, number: usize) -> String {
        format!("{call}.{library}.{number}")
    }

    /// The call and the library, with its version, that a column of a state is named after.
    pub fn of_state(column: &str) -> Option<(&str, &str)> {
        let (state, number) = column.rsplit_once('.')?;
        let (call, library) = state.rsplit_once('.')?;
        let is_version =
            library.ends_with(|c: char| c.is_ascii_digit()) && library.starts_with(|c: char| c.is_ascii_alphabetic());
        (number.parse::<usize>().is_ok() && is_version).then_some((call, library))
    }

    /// The columns among its arguments.
    pub fn columns(&self) -> impl Iterator<Item = &String> {
        self.arguments.iter().filter_map(|argument| match argument {
            LibraryArgument::Column(column) => Some(&column.name),
            LibraryArgument::Constant(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_says_which_library_made_it() {
        let name = LibraryCall::state_name("a.b", "library7", 12);
        assert_eq!(name, "a.b.library7.12");
        assert_eq!(LibraryCall::of_state(&name), Some(("a.b", "library7")));
        for other in ["total", "mean.sum", "mean.count", "first(a.b).1", "n.library.1", "n.7.1"] {
            assert_eq!(LibraryCall::of_state(other), None, "{other}");
        }
    }
}
