//! The test source `sluggish: {}`: one row a poll, and a poll takes a fifth of a second on the task's own thread, so that its
//! barriers come late and every other input of the same task waits for them.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arrow::array::Int64Array;
use arrow::record_batch::RecordBatch;
use levada_common::declaration::CustomSource;
use levada_common::ids::CheckpointId;
use levada_common::types::{Column, LogicalType};
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourceFactory, SourcePoll};

/// How long a poll takes.
const POLL: Duration = Duration::from_millis(200);

/// Rows of each subtask.
const ROWS: i64 = 20;

/// The source's declaration and factory.
pub fn source() -> (CustomSource, SourceFactory) {
    let declaration = CustomSource {
        name: "sluggish".into(),
        options: Vec::new(),
        columns: vec![Column::new("n", LogicalType::Int64, false)],
        event_time: None,
        bounded: true,
        replayable: true,
        parallelism_max: None,
        splits: (0..4).map(|_| "0".into()).collect(),
    };
    (declaration, Arc::new(|_| Ok(Box::new(Sluggish { context: None, positions: Vec::new() }) as Box<dyn Source>)))
}

struct Sluggish {
    context: Option<SourceContext>,
    positions: Vec<i64>,
}

impl Source for Sluggish {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        self.context = Some(context);
        self.positions = splits.iter().filter_map(|position| position.parse().ok()).collect();
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        let Some(position) = self.positions.iter_mut().find(|position| **position < ROWS) else { return Ok(SourcePoll::End) };
        thread::sleep(POLL);
        *position += 1;
        let schema = self.context.as_ref().expect("opened").spec.schema.to_arrow();
        let rows = Arc::new(Int64Array::from(vec![*position]));
        Ok(SourcePoll::Batch(RecordBatch::try_new(schema, vec![rows]).expect("the schema is one INT64")))
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(self.positions.iter().map(i64::to_string).collect())
    }
}
