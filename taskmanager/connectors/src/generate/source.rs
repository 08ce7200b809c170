//! Numbers to batches.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::SchemaRef;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SourceSpec;
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourcePoll};

use super::declaration::{BLOCK, GenerateOptions};
use crate::batch::record_batch;
use crate::error::ConnectorError;
use crate::options::checked;
use crate::stripes::Stripes;
use crate::throttle::Throttle;

/// Gives the numbers of its stripes, ascending.
pub struct GenerateSource {
    options: GenerateOptions,
    uid: Uid,
    opened: Option<Opened>,
}

struct Opened {
    stripes: Stripes,
    throttle: Option<Throttle>,
    schema: SchemaRef,
    rows_max: usize,
}

/// Makes a source of these options.
pub fn create(spec: &SourceSpec) -> Result<Box<dyn Source>, EngineError> {
    let options = checked(GenerateOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    Ok(Box::new(GenerateSource { options, uid: spec.uid.clone(), opened: None }))
}

impl GenerateSource {
    fn failed(&self, error: ConnectorError) -> EngineError {
        error.at(&self.uid, "generate")
    }

    fn next_batch(&mut self) -> Result<SourcePoll, ConnectorError> {
        let opened = self.opened.as_mut().expect("open comes before poll");
        if opened.stripes.peek().is_none() {
            return Ok(SourcePoll::End);
        }
        let due = opened.throttle.as_mut().map_or(u64::MAX, Throttle::due);
        if due == 0 {
            return Ok(SourcePoll::Pending);
        }
        let rows_max = opened.rows_max.min(usize::try_from(due).unwrap_or(usize::MAX));
        let mut numbers: Vec<i64> = Vec::with_capacity(rows_max);
        while numbers.len() < rows_max {
            let Some(range) = opened.stripes.peek() else { break };
            // Wrapping carries a start below zero: the sum is less than `to`.
            numbers.push(self.options.from.wrapping_add(range.start as i64));
            opened.stripes.advance(range.start + 1);
        }
        let rows = numbers.len();
        if let Some(throttle) = &mut opened.throttle {
            throttle.give(rows as u64);
        }
        // `n` is the only column; where nobody reads it, the rows still count.
        let columns: Vec<ArrayRef> = match opened.schema.fields().len() {
            0 => Vec::new(),
            _ => vec![Arc::new(Int64Array::from(numbers))],
        };
        record_batch(&opened.schema, columns, rows).map(SourcePoll::Batch)
    }
}

impl Source for GenerateSource {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        let stripes = Stripes::new(&splits, BLOCK, self.options.count).map_err(|error| self.failed(error))?;
        let throttle = Throttle::of(self.options.rate, stripes.share(), &context);
        self.opened =
            Some(Opened { stripes, throttle, schema: context.spec.schema.to_arrow(), rows_max: context.batch_rows_max.max(1) });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        self.next_batch().map_err(|error| self.failed(error))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(self.opened.as_ref().map(|opened| opened.stripes.snapshot()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::declaration;
    use crate::testing::{Node, options};
    use arrow::array::{AsArray, RecordBatch};
    use arrow::datatypes::Int64Type;

    fn node(json: &str) -> Node {
        Node::declared("generate", declaration::source(), create, json)
    }

    fn numbers(batches: &[RecordBatch]) -> Vec<i64> {
        batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    #[test]
    fn to_is_the_first_number_that_is_not_given() {
        assert_eq!(numbers(&node(r#"{"from": -3, "to": 4}"#).drain(2)), [-3, -2, -1, 0, 1, 2, 3]);
        assert!(numbers(&node(r#"{"to": 0}"#).drain(2)).is_empty());
        let (low, high) = (i64::MIN, i64::MIN + 3);
        assert_eq!(numbers(&node(&format!(r#"{{"from": {low}, "to": {high}}}"#)).drain(9)), [low, low + 1, low + 2]);
        let errors = (declaration::source().read)(&options(r#"{"from": 5, "to": 4, "rate": 0}"#)).expect_err("two defects");
        assert_eq!(errors.iter().map(|error| error.key.as_str()).collect::<Vec<_>>(), ["to", "rate"]);
    }

    #[test]
    fn it_has_no_end_without_one() {
        let mut running = node("{}").open(&node("{}").splits, 8192).expect("opens");
        let mut rows = 0;
        while rows < 100_000 {
            rows += running.next().expect("reads").expect("has no end").num_rows();
        }
    }

    #[test]
    fn a_restored_subtask_goes_on_where_its_stripes_stopped() {
        let node = node(r#"{"to": 5000}"#);
        for (parallelism, stop_after) in [(1, 3), (3, 2), (4, 0), (2, 100)] {
            let mut all = Vec::new();
            for batches in node.drain_restored(parallelism, 100, stop_after) {
                let part = numbers(&batches);
                assert!(part.is_sorted());
                all.extend(part);
            }
            all.sort_unstable();
            assert_eq!(all, (0..5000).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_throttled_source_wakes_its_task() {
        let start = std::time::Instant::now();
        assert_eq!(numbers(&node(r#"{"to": 200, "rate": 1000}"#).drain(8192)).len(), 200);
        assert!(start.elapsed().as_millis() >= 190, "{:?}", start.elapsed());
    }

    #[test]
    fn rows_count_where_no_column_is_read() {
        let node = node(r#"{"to": 10}"#).keep(&["nothing"]);
        let rows: usize = node.drain(4).iter().map(RecordBatch::num_rows).sum();
        assert_eq!(rows, 10);
    }
}
