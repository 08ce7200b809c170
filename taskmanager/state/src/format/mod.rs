//! The open format of a state in a snapshot: an Arrow IPC *file* per (operator, state, subtask).
//!
//! Shape of keyed state: `_key_group` (UInt16, not null), `key.<name>` ..., `namespace` (a struct of `start` and `end`) where it
//! has one, then the values' columns. Rows are sorted by group in runs: a small state is one run, of a large one each 32 MiB or more are; a
//! batch is of one run, and holds more than one group only where they are small.
//! Shape of operator state: `entry` (Utf8) where it is texts; else the columns of a map's key and those of the value, a row an
//! element, in order. The schema's metadata gives `levada.format-version`, `levada.uid`, `levada.state`,
//! `levada.kind`, `levada.max-parallelism` and `levada.schema` (`StateSchema` as JSON); the footer's metadata gives `levada.groups`, a JSON list of
//! `[group, batch, row, rows]`. Any Arrow reader opens it. Must never know where the bytes go.
//!
//! Invariant: the golden files of every version that was ever written are read by every later version.

mod decode;
mod encode;
mod groups;
mod index;
mod layout;
mod parts;
mod sorted;

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use levada_common::checkpoint::StateKind;
use levada_common::ids::Uid;
use levada_common::state_schema::{StateSchema, StateShape};
use levada_common::types::Column;

use crate::snapshot::StateMeta;

pub use decode::{Corrupt, DecodeError, DecodedState, decode, decode_range};
pub use encode::{EncodeError, EncodedState, SizeLimit, encode};
pub use groups::{groups_by_key, with_groups};
pub use index::GroupSpan;
pub use layout::{Layout, TRAILER_BYTES, WantedRows, footer_range};
pub use parts::FileBytes;
pub use sorted::encode_database;

/// Version of the format that is written.
pub const FORMAT_VERSION: u32 = 1;

/// The column before the key columns.
pub const KEY_GROUP_COLUMN: &str = "_key_group";

/// What the name of a key column begins with.
pub const KEY_PREFIX: &str = "key.";

/// The column of operator state.
pub const ENTRY_COLUMN: &str = "entry";

const VERSION_FIELD: &str = "levada.format-version";
const UID_FIELD: &str = "levada.uid";
const STATE_FIELD: &str = "levada.state";
const KIND_FIELD: &str = "levada.kind";
const MAX_PARALLELISM_FIELD: &str = "levada.max-parallelism";
const SCHEMA_FIELD: &str = "levada.schema";
const GROUPS_FIELD: &str = "levada.groups";

/// The columns of operator state in pieces and files.
pub(crate) fn operator_schema(schema: &StateSchema) -> SchemaRef {
    let entry = (schema.shape == StateShape::Entries).then(|| Field::new(ENTRY_COLUMN, DataType::Utf8, false));
    let columns = schema.map_key.iter().chain(&schema.values).map(Column::to_field);
    Arc::new(Schema::new(entry.into_iter().chain(columns).collect::<Vec<_>>()))
}

/// The schema's metadata of a state.
fn to_metadata(meta: &StateMeta, max_parallelism: u32) -> HashMap<String, String> {
    let mut metadata = HashMap::from([
        (VERSION_FIELD.into(), FORMAT_VERSION.to_string()),
        (UID_FIELD.into(), meta.uid.as_str().into()),
        (STATE_FIELD.into(), meta.name.clone()),
        (KIND_FIELD.into(), meta.kind.name().into()),
        (MAX_PARALLELISM_FIELD.into(), max_parallelism.to_string()),
    ]);
    if *meta.schema != StateSchema::default() {
        metadata.insert(SCHEMA_FIELD.into(), serde_json::to_string(&*meta.schema).expect("a schema is JSON"));
    }
    metadata
}

/// What the schema's metadata of a state says.
fn from_metadata(metadata: &HashMap<String, String>) -> Result<(StateMeta, u32), DecodeError> {
    let field = |name: &'static str| metadata.get(name).ok_or(DecodeError::Metadata { field: name, found: "nothing".into() });
    let bad = |field, found: &String| DecodeError::Metadata { field, found: format!("\"{found}\"") };
    let version = field(VERSION_FIELD)?;
    let version: u32 = version.parse().map_err(|_| bad(VERSION_FIELD, version))?;
    if version != FORMAT_VERSION {
        return Err(DecodeError::Version { found: version });
    }
    let kind = field(KIND_FIELD)?;
    let kind = StateKind::from_name(kind).ok_or_else(|| bad(KIND_FIELD, kind))?;
    let schema = match metadata.get(SCHEMA_FIELD) {
        None => Arc::default(),
        Some(json) => Arc::new(serde_json::from_str::<StateSchema>(json).map_err(|_| bad(SCHEMA_FIELD, json))?),
    };
    let max_parallelism = field(MAX_PARALLELISM_FIELD)?;
    let max_parallelism = max_parallelism.parse().map_err(|_| bad(MAX_PARALLELISM_FIELD, max_parallelism))?;
    let uid = Uid::new(field(UID_FIELD)?.as_str());
    Ok((StateMeta { uid, name: field(STATE_FIELD)?.clone(), kind, schema }, max_parallelism))
}

#[cfg(test)]
mod tests;
