//! All of a descriptor that can be compared.

use std::any::{TypeId, type_name};
use std::fmt;

use arrow::array::{Array, ArrayRef};
use arrow::util::display::array_value_to_string;
use levada_common::checkpoint::StateKind;
use levada_common::state_schema::{Stamps, StateDeclaration, StateSchema, StateShape};

use super::{BindError, MAP_KEY_COLUMN, Ttl, VALUE_COLUMN};
use crate::types::{StateType, TypeError};

/// A Rust type, as far as it can be compared and shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct RustType {
    id: TypeId,
    name: &'static str,
}

impl RustType {
    pub(super) fn of<T: 'static>() -> Self {
        Self { id: TypeId::of::<T>(), name: type_name::<T>() }
    }
}

impl PartialEq for RustType {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

/// All of a descriptor that can be compared: name, shape, kind, columns, Rust types, life, default, and which functions it has.
/// What a function has captured cannot be compared.
#[derive(Debug, Clone)]
pub struct Signature {
    declaration: StateDeclaration,
    types: Vec<RustType>,
    ttl: Option<Ttl>,
    default: Vec<ArrayRef>,
    function: Option<RustType>,
}

impl Signature {
    /// Of a state of this name and shape that holds a `V`.
    pub(super) fn new<V: StateType>(name: &str, kind: StateKind, shape: StateShape) -> Result<Self, BindError> {
        check_name(name)?;
        let values = V::columns(VALUE_COLUMN).map_err(|source| of_type(name, source))?;
        let schema = StateSchema { shape, values, ..StateSchema::default() };
        let declaration = StateDeclaration { name: name.into(), kind, schema };
        Ok(Self { declaration, types: vec![RustType::of::<V>()], ttl: None, default: Vec::new(), function: None })
    }

    /// With a map key `K`.
    pub(super) fn with_map_key<K: StateType>(mut self) -> Result<Self, BindError> {
        let name = &self.declaration.name;
        self.declaration.schema.map_key = K::columns(MAP_KEY_COLUMN).map_err(|source| of_type(name, source))?;
        self.types.insert(0, RustType::of::<K>());
        Ok(self)
    }

    /// With a life, and a value per window or not.
    pub(super) fn with_life(mut self, ttl: Option<Ttl>, windowed: bool) -> Result<Self, BindError> {
        self.declaration.schema.windowed = windowed;
        if ttl.is_some_and(|ttl| ttl.ttl_ms == 0) {
            return Err(BindError::Ttl { name: self.declaration.name });
        }
        self.declaration.schema.ttl = ttl.map_or(Stamps::None, |ttl| ttl.time.stamps());
        self.ttl = ttl;
        Ok(self)
    }

    /// With a default or initial value.
    pub(super) fn with_default<T: StateType>(mut self, default: Option<&T>) -> Result<Self, BindError> {
        self.default = match default {
            None => Vec::new(),
            Some(default) => T::gather([default]).map_err(|source| of_type(&self.declaration.name, source))?,
        };
        Ok(self)
    }

    /// With what is added, where that is not what is kept.
    pub(super) fn with_input(mut self, input: RustType) -> Self {
        self.types.insert(0, input);
        self
    }

    /// With a function.
    pub(super) fn with_function(mut self, function: RustType) -> Self {
        self.function = Some(function);
        self
    }

    /// The state as it is declared at registration.
    pub fn declaration(&self) -> &StateDeclaration {
        &self.declaration
    }

    /// How long its entries live.
    pub fn ttl(&self) -> Option<Ttl> {
        self.ttl
    }
}

/// Refuses a name that cannot be a state's: it stands in paths, listings and messages.
fn check_name(name: &str) -> Result<(), BindError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > NAME_BYTES_MAX {
        "it is too long"
    } else if name.chars().any(char::is_control) {
        "it has a control character"
    } else if name.contains('/') {
        "it has a \"/\""
    } else if name.starts_with('_') {
        "names that begin with \"_\" are Levada's own"
    } else {
        return Ok(());
    };
    Err(BindError::Name { name: name.into(), reason })
}

/// Longest name of a state.
const NAME_BYTES_MAX: usize = 128;

fn of_type(name: &str, source: TypeError) -> BindError {
    BindError::Type { name: name.into(), source }
}

impl PartialEq for Signature {
    fn eq(&self, other: &Self) -> bool {
        let defaults = |signature: &Self| signature.default.iter().map(Array::to_data).collect::<Vec<_>>();
        self.declaration == other.declaration
            && self.types == other.types
            && self.ttl == other.ttl
            && self.function == other.function
            && defaults(self) == defaults(other)
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateDeclaration { kind, schema, .. } = &self.declaration;
        let types: Vec<&str> = self.types.iter().map(|ty| ty.name).collect();
        if !kind.is_keyed() {
            write!(f, "{} ", kind.name())?;
        }
        write!(f, "{} state of {}", schema.shape, types.join(", "))?;
        let columns = schema.map_key.iter().chain(&schema.values);
        let columns: Vec<String> = columns.map(|column| format!("{} {}", column.name, column.ty)).collect();
        write!(f, " ({})", columns.join(", "))?;
        if schema.windowed {
            f.write_str(" per window")?;
        }
        if let Some(ttl) = &self.ttl {
            write!(f, " with {ttl}")?;
        }
        if !self.default.is_empty() {
            let values: Vec<String> =
                self.default.iter().map(|column| array_value_to_string(column, 0).unwrap_or_default()).collect();
            write!(f, ", starting from {}", values.join(", "))?;
        }
        match &self.function {
            Some(function) => write!(f, ", with the function {}", function.name),
            None => Ok(()),
        }
    }
}
