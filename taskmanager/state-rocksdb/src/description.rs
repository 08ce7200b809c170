//! What a database says of itself, so that it can be read without the job: an entry of its default column family.

use std::sync::Arc;

use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;
use levada_state::cold::RowLayout;
use serde::{Deserialize, Serialize};

/// The key of the description.
pub const DESCRIPTION_KEY: &[u8] = b"levada";

/// The version of the format that this release writes.
const VERSION: u32 = 1;

/// What a database says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    version: u32,
    /// Number of key groups of the job.
    pub max_parallelism: u32,
    /// The key groups in it.
    pub key_groups: KeyGroupRange,
    /// Its states.
    pub states: Vec<DescribedState>,
}

/// A state in a database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DescribedState {
    /// Its name.
    pub name: String,
    /// The column family that it is in.
    pub family: String,
    /// What it holds.
    pub schema: Arc<StateSchema>,
    /// Entries that were touched last at this time or before have expired. Some may be there until compaction comes past them, and
    /// whoever reads the database leaves them out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expired_until_ms: Option<i64>,
}

impl DescribedState {
    /// Whether its entries lie below their keys by as many columns as those of this schema do.
    pub fn has_places_of(&self, schema: &StateSchema) -> bool {
        self.schema.map_key.len() == schema.map_key.len()
    }

    /// Whether the entry with this value has expired.
    #[inline]
    pub fn has_expired(&self, value: &[u8]) -> bool {
        self.expired_until_ms.is_some_and(|until| RowLayout::touched_at(value).is_some_and(|touched| touched <= until))
    }
}

/// A description that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDescription {
    /// There is none.
    #[error("the database does not say what it holds: it is not Levada's, or its files are incomplete")]
    Missing,
    /// It cannot be read.
    #[error("what the database says of itself cannot be read: {0}")]
    Unreadable(String),
    /// Another version.
    #[error("the database has format version {found}, this is version {VERSION}; restore it with a release that reads {found}")]
    Version {
        /// The version found.
        found: u32,
    },
}

impl Description {
    /// Of an empty database.
    pub fn new(max_parallelism: u32, key_groups: KeyGroupRange) -> Self {
        Self { version: VERSION, max_parallelism, key_groups, states: Vec::new() }
    }

    /// Reads one.
    pub fn from_json(json: Option<&[u8]>) -> Result<Self, BadDescription> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let json = json.ok_or(BadDescription::Missing)?;
        let unreadable = |error: serde_json::Error| BadDescription::Unreadable(error.to_string());
        let Versioned { version } = serde_json::from_slice(json).map_err(unreadable)?;
        if version != VERSION {
            return Err(BadDescription::Version { found: version });
        }
        serde_json::from_slice(json).map_err(unreadable)
    }

    /// As it is kept.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a description is JSON")
    }

    /// The state of this name.
    pub fn state(&self, name: &str) -> Option<&DescribedState> {
        self.states.iter().find(|state| state.name == name)
    }
}

#[cfg(test)]
mod tests {
    use levada_common::state_schema::StateShape;
    use levada_common::types::{Column, LogicalType};

    use super::*;

    /// What version 1 writes: never to change.
    const GOLDEN: &str = r#"{"version":1,"max_parallelism":128,"key_groups":{"start":0,"end":63},"states":[{"name":"count","family":"count","schema":{"shape":"value","keys":[{"name":"k","type":"STRING","nullable":true}],"windowed":false,"map_key":[],"values":[{"name":"value","type":"INT64","nullable":false}],"ttl":false}}]}"#;

    #[test]
    fn it_is_golden() {
        let mut description = Description::new(128, KeyGroupRange { start: 0, end: 63 });
        let schema = StateSchema {
            shape: StateShape::Value,
            keys: vec![Column::new("k", LogicalType::String, true)],
            values: vec![Column::new("value", LogicalType::Int64, false)],
            ..StateSchema::default()
        };
        let (name, family) = ("count".to_owned(), "count".to_owned());
        description.states.push(DescribedState { name, family, schema: Arc::new(schema), expired_until_ms: None });
        assert_eq!(String::from_utf8(description.to_json()).unwrap(), GOLDEN);
        assert_eq!(Description::from_json(Some(GOLDEN.as_bytes())).unwrap(), description);
        description.states[0].expired_until_ms = Some(-5);
        let golden = GOLDEN.replace(r#""ttl":false}}"#, r#""ttl":false},"expired_until_ms":-5}"#);
        assert_eq!(String::from_utf8(description.to_json()).unwrap(), golden);
        assert_eq!(Description::from_json(Some(golden.as_bytes())).unwrap(), description);
    }

    #[test]
    fn what_is_none_is_said() {
        assert_eq!(Description::from_json(None), Err(BadDescription::Missing));
        assert_eq!(Description::from_json(Some(br#"{"version":2,"more":1}"#)), Err(BadDescription::Version { found: 2 }));
        assert!(matches!(Description::from_json(Some(b"{")), Err(BadDescription::Unreadable(_))));
    }
}
