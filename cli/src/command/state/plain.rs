//! Rows of a state in the types of streams, so that they are written as every sink writes them.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use levada_common::types::{Column, LogicalType, StreamSchema};
use levada_connectors::formats::ndjson::write::NdjsonEncoder;

/// Letters of a cell in a table.
const CELL_CHARS_MAX: usize = 80;

/// The batch with columns of the types of streams only: what has none becomes text.
pub fn plain(batch: &RecordBatch) -> Result<(StreamSchema, RecordBatch), ArrowError> {
    let (mut columns, mut arrays) = (Vec::new(), Vec::<ArrayRef>::new());
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let ty = LogicalType::from_arrow(field.data_type());
        let (ty, array) = match ty {
            Some(ty) => {
                let array = cast(array, &ty.to_arrow())?;
                (ty, array)
            }
            None => (LogicalType::String, Arc::new(texts(array)?) as ArrayRef),
        };
        columns.push(Column::new(field.name(), ty, true));
        arrays.push(array);
    }
    let schema = StreamSchema::append(columns);
    let batch = RecordBatch::try_new(schema.to_arrow(), arrays)?;
    Ok((schema, batch))
}

fn texts(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    let formatter = ArrayFormatter::try_new(array.as_ref(), &FormatOptions::default())?;
    let nulls = array.logical_nulls();
    let is_null = |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    (0..array.len()).map(|row| (!is_null(row)).then(|| formatter.value(row).try_to_string()).transpose()).collect()
}

/// Appends a line of NDJSON per row.
pub fn ndjson(batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), ArrowError> {
    let (schema, batch) = plain(batch)?;
    NdjsonEncoder::new(&schema).encode(&batch, out);
    Ok(())
}

/// The cells of a batch, by row: values as in NDJSON, texts without quotes, long ones cut.
pub fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, ArrowError> {
    let (schema, batch) = plain(batch)?;
    let mut rows = vec![Vec::with_capacity(schema.columns.len()); batch.num_rows()];
    let mut line = Vec::new();
    for (place, column) in schema.columns.iter().enumerate() {
        let one = StreamSchema::append(vec![Column::new("", column.ty.clone(), true)]);
        let values = RecordBatch::try_new(one.to_arrow(), vec![Arc::clone(batch.column(place))])?;
        let encoder = NdjsonEncoder::new(&one);
        for (row, cells) in rows.iter_mut().enumerate() {
            line.clear();
            encoder.encode(&values.slice(row, 1), &mut line);
            cells.push(cell(&String::from_utf8_lossy(&line)));
        }
    }
    Ok(rows)
}

/// The value out of `{"":VALUE}`.
fn cell(line: &str) -> String {
    let value = line.trim_end().strip_prefix("{\"\":").and_then(|rest| rest.strip_suffix('}')).unwrap_or(line);
    let text = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value);
    if text.chars().count() <= CELL_CHARS_MAX {
        return text.into();
    }
    text.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect()
}

/// Whether values of a column are shown as numbers.
pub fn is_number(column: &arrow::datatypes::Field) -> bool {
    column.data_type().is_numeric()
}

#[cfg(test)]
mod tests {
    use arrow::array::{FixedSizeBinaryArray, Float64Array, NullArray, UInt16Array, UInt32Array};

    use super::*;

    #[test]
    fn every_type_that_a_state_may_have_is_written() {
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("_key_group", Arc::new(UInt16Array::from(vec![65_535, 0]))),
            ("wide", Arc::new(UInt32Array::from(vec![Some(u32::MAX), None]))),
            ("raw", Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8, 2], [3, 4]].iter()).expect("two bytes each"))),
            ("f", Arc::new(Float64Array::from(vec![0.5, f64::NAN]))),
            ("unit", Arc::new(NullArray::new(2))),
        ];
        let batch = RecordBatch::try_from_iter(columns).expect("columns of one length");
        let mut out = Vec::new();
        ndjson(&batch, &mut out).expect("it is written");
        let lines = [
            r#"{"_key_group":65535,"wide":4294967295,"raw":"AQI=","f":0.5,"unit":null}"#,
            r#"{"_key_group":0,"wide":null,"raw":"AwQ=","f":"NaN","unit":null}"#,
        ];
        assert_eq!(String::from_utf8_lossy(&out).lines().collect::<Vec<_>>(), lines);
        assert_eq!(cells(&batch).expect("cells")[1], ["0", "null", "AwQ=", "NaN", "null"]);
    }

    #[test]
    fn long_cells_are_cut_between_letters() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["ä".repeat(81), "b\n".into()]));
        let cells = cells(&RecordBatch::try_from_iter([("t", text)]).expect("a column")).expect("cells");
        assert_eq!((cells[0][0].chars().count(), cells[0][0].chars().last()), (80, Some('…')));
        assert_eq!(cells[1][0], "b\\n");
    }
}
