//! `--key`: which rows are wanted.

use std::sync::Arc;

use arrow::array::{ArrayRef, Scalar};
use arrow::compute::kernels::cmp::not_distinct;
use arrow::compute::{and, cast, filter_record_batch};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use levada_common::keys::{KeyGroupRange, key_groups, normalise_key_column};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_connectors::formats::{Decoder, Format};
use levada_state::format::KEY_PREFIX;

use crate::command::Usage;
use crate::snapshot::OperatorState;

/// Values that columns of the key must have.
#[derive(Debug)]
pub struct KeyFilter {
    /// The column's name in files, and a value as an array of one.
    wanted: Vec<(String, ArrayRef)>,
    /// The key group, where the whole key is given.
    group: Option<u16>,
}

impl KeyFilter {
    /// Reads `VALUE` or `COLUMN=VALUE` of each text as NDJSON would be read, quotes being optional; no texts, no filter.
    pub fn read(state: &OperatorState, max_parallelism: u32, texts: &[String]) -> Result<Option<Self>, Usage> {
        let keys = &state.schema.keys;
        if texts.is_empty() {
            return Ok(None);
        }
        if keys.is_empty() {
            return Err(Usage(format!("state \"{}\" has no key columns; leave --key out", state.path())));
        }
        let mut wanted = Vec::new();
        for text in texts {
            let named = keys.iter().find_map(|key| Some((key, text.strip_prefix(&key.name)?.strip_prefix('=')?)));
            let (key, value) = match (named, &keys[..]) {
                (Some(named), _) => named,
                (None, [only]) => (only, text.as_str()),
                (None, _) => {
                    let names: Vec<&str> = keys.iter().map(|key| key.name.as_str()).collect();
                    return Err(Usage(format!("--key {text}: write COLUMN=VALUE, with one of the columns {}", names.join(", "))));
                }
            };
            wanted.push((key, normalise_key_column(value_of(key, value)?)));
        }
        let whole: Option<Vec<ArrayRef>> = keys
            .iter()
            .map(|key| wanted.iter().find(|(other, _)| other.name == key.name).map(|(_, value)| Arc::clone(value)))
            .collect();
        let group = whole.map(|columns| {
            let mut groups = Vec::new();
            key_groups(&columns, max_parallelism, &mut groups);
            groups[0]
        });
        let wanted = wanted.into_iter().map(|(key, value)| (format!("{KEY_PREFIX}{}", key.name), value)).collect();
        Ok(Some(Self { wanted, group }))
    }

    /// The key groups that rows can be in; `None` = any.
    pub fn key_groups(&self) -> Option<KeyGroupRange> {
        self.group.map(|group| KeyGroupRange { start: group, end: group })
    }

    /// The rows that have these values.
    pub fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let mut keep = None;
        for (name, value) in &self.wanted {
            let missing = || ArrowError::SchemaError(format!("the state's rows have no column \"{name}\""));
            let column = normalise_key_column(Arc::clone(batch.column_by_name(name).ok_or_else(missing)?));
            let same = not_distinct(&column, &Scalar::new(cast(value, column.data_type())?))?;
            keep = Some(match keep {
                None => same,
                Some(before) => and(&before, &same)?,
            });
        }
        keep.map_or_else(|| Ok(batch.clone()), |keep| filter_record_batch(batch, &keep))
    }
}

/// One value of a column, from the text of a command line.
fn value_of(column: &Column, text: &str) -> Result<ArrayRef, Usage> {
    let column = Column::new(&column.name, column.ty.clone(), true);
    let json = serde_json::from_str::<serde_json::Value>(text);
    let is_text = matches!(column.ty, LogicalType::String | LogicalType::Binary | LogicalType::Date | LogicalType::Timestamp);
    let as_is = match &json {
        Ok(value) => !is_text || value.is_null() || value.is_string(),
        Err(_) => false,
    };
    let value = if as_is { text.to_owned() } else { serde_json::Value::from(text).to_string() };
    let record = format!("{{{}:{value}}}", serde_json::Value::from(column.name.as_str()));
    let schema = StreamSchema::append(vec![column.clone()]);
    let mut decoder = Decoder::new(&Format::Ndjson(vec![column.clone()]), &schema, 1);
    decoder.push(record.as_bytes()).map_err(|reason| Usage(format!("--key {}={text}: {reason}", column.name)))?;
    let batch = decoder.take().map_err(|error| Usage(format!("--key {}={text}: {error}", column.name)))?;
    Ok(Arc::clone(batch.column(0)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Float64Array, Int64Array, StringArray};
    use levada_common::checkpoint::StateKind;
    use levada_common::ids::Uid;
    use levada_common::state_schema::StateSchema;

    use super::*;

    fn state(keys: &[(&str, LogicalType)]) -> OperatorState {
        let keys = keys.iter().map(|(name, ty)| Column::new(*name, ty.clone(), true)).collect();
        let schema = Arc::new(StateSchema { keys, ..StateSchema::default() });
        OperatorState { uid: Uid::new("o"), name: "s".into(), kind: StateKind::Keyed, schema, handles: Vec::new() }
    }

    fn rows(state: &OperatorState, batch: &RecordBatch, texts: &[&str]) -> usize {
        let texts: Vec<String> = texts.iter().map(|text| (*text).into()).collect();
        let filter = KeyFilter::read(state, 128, &texts).expect("it is a key").expect("there are texts");
        filter.apply(batch).expect("it is applied").num_rows()
    }

    #[test]
    fn a_key_is_found_however_it_is_written() {
        let state = state(&[("k", LogicalType::String), ("f", LogicalType::Float64)]);
        let k: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), Some("null"), None, Some("7"), Some("f=1")]));
        let f: ArrayRef = Arc::new(Float64Array::from(vec![0.0, f64::NAN, 1.5, 1.5, 1.5]));
        let batch = RecordBatch::try_from_iter_with_nullable([("key.k", k, true), ("key.f", f, true)]).expect("columns");
        for (texts, found) in [
            (&["k=a"][..], 1),
            (&["k=a", "f=-0.0"], 1),
            (&["k=a", "f=1"], 0),
            (&["k=null"], 1),
            (&["k=null", "f=1.5"], 1),
            (&["k=\"null\"", "f=NaN"], 1),
            (&["k=7"], 1),
            (&["k=f=1"], 1),
            (&["f=1.5"], 3),
        ] {
            assert_eq!(rows(&state, &batch, texts), found, "{texts:?}");
        }
    }

    #[test]
    fn one_column_needs_no_name_and_a_whole_key_has_a_group() {
        let state = state(&[("id", LogicalType::Int64)]);
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![17, -3]));
        let batch = RecordBatch::try_from_iter([("key.id", ids.clone())]).expect("a column");
        assert_eq!((rows(&state, &batch, &["17"]), rows(&state, &batch, &["id=-3"])), (1, 1));
        let filter = KeyFilter::read(&state, 128, &["17".into()]).expect("a key").expect("a filter");
        let mut groups = Vec::new();
        key_groups(&[ids], 128, &mut groups);
        assert_eq!(filter.key_groups(), Some(KeyGroupRange { start: groups[0], end: groups[0] }));
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_columns() {
        let two = state(&[("a", LogicalType::Int64), ("b", LogicalType::Int64)]);
        let error = KeyFilter::read(&two, 128, &["7".into()]).expect_err("no column").to_string();
        assert!(error.contains("COLUMN=VALUE") && error.contains("a, b"), "{error}");
        let error = KeyFilter::read(&two, 128, &["a=x".into()]).expect_err("no number").to_string();
        assert!(error.contains("--key a=x") && error.contains("\"a\""), "{error}");
        assert!(KeyFilter::read(&state(&[]), 128, &["7".into()]).is_err());
        assert!(KeyFilter::read(&two, 128, &[]).expect("no filter").is_none());
    }
}
