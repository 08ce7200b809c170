//! Rows to standard output, as NDJSON after the node's name: `out> {"word":"a","n":1}`, `out:3> ...` in subtask 3 of several.
//!
//! Lines of several subtasks are never mixed: a batch is written in one piece under the lock of standard output.

use std::io::{Write, stdout};

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

use crate::error::ConnectorError;
use crate::formats::ndjson::write::NdjsonEncoder;

/// Prints rows. After a failure rows since the last checkpoint are printed again.
pub struct PrintSink {
    uid: Uid,
    encoder: NdjsonEncoder,
    lines: Vec<u8>,
    output: Box<dyn Write + Send>,
}

/// Makes a sink on standard output.
pub fn create(spec: &SinkSpec) -> Result<Box<dyn Sink>, EngineError> {
    Ok(Box::new(PrintSink::new(spec, Box::new(stdout()))))
}

impl PrintSink {
    fn new(spec: &SinkSpec, output: Box<dyn Write + Send>) -> Self {
        Self { uid: spec.uid.clone(), encoder: NdjsonEncoder::new(&spec.input), lines: Vec::new(), output }
    }

    fn written(&self, result: std::io::Result<()>) -> Result<(), EngineError> {
        let attempt = "write to";
        result.map_err(|source| ConnectorError::Io { attempt, path: "standard output".into(), source }.at(&self.uid, "print"))
    }
}

impl Sink for PrintSink {
    fn open(&mut self, context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        let prefix = match context.parallelism {
            1 => format!("{}> ", self.uid),
            _ => format!("{}:{}> ", self.uid, context.subtask),
        };
        self.encoder.set_line_prefix(&prefix);
        Ok(())
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        self.lines.clear();
        self.encoder.encode(batch, &mut self.lines);
        let result = self.output.write_all(&self.lines);
        self.written(result)
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        let result = self.output.flush();
        self.written(result)
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        self.flush()?;
        Ok(Prepared::default())
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Capture, sink_context, sink_spec};
    use arrow::array::{Int8Array, Int64Array};
    use levada_common::types::{Column, LogicalType, StreamSchema};
    use std::sync::Arc;

    #[test]
    fn a_changelog_is_printed_with_its_signs() {
        let schema =
            StreamSchema { columns: vec![Column::new("n", LogicalType::Int64, true)], event_time: None, changelog: true };
        let spec = sink_spec("out", "print", "{}", schema.clone());
        let capture = Capture::default();
        let mut sink = PrintSink::new(&spec, Box::new(capture.clone()));
        sink.open(sink_context(&spec, 1, 2, 1, None), Vec::new()).expect("opens");
        let columns: Vec<arrow::array::ArrayRef> =
            vec![Arc::new(Int8Array::from(vec![0, 1, 2, 3])), Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)]))];
        sink.write(&RecordBatch::try_new(schema.to_arrow(), columns).expect("batch")).expect("writes");
        assert_eq!(
            capture.text(),
            "out:1> {\"_op\":\"+I\",\"n\":1}\nout:1> {\"_op\":\"-U\",\"n\":2}\nout:1> {\"_op\":\"+U\",\"n\":null}\nout:1> {\"_op\":\"-D\",\"n\":4}\n"
        );
    }
}
