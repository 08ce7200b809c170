//! Rows to standard output, as NDJSON after the node's name: `out> {"word":"a","n":1}`, `out:3> ...` in subtask 3 of several.
//!
//! Lines of several subtasks are never mixed: a batch is written in one piece under the lock of standard output.

use std::io::{self, Write, stdout};

use arrow::record_batch::RecordBatch;
use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SinkSpec;
use levada_engine::error::EngineError;
use levada_engine::sink::{Prepared, Sink, SinkContext};

use super::writer::Writer;
use crate::error::ConnectorError;
use crate::formats::ndjson::write::NdjsonEncoder;

/// Prints rows. After a failure rows since the last checkpoint are printed again.
pub struct PrintSink {
    uid: Uid,
    encoder: NdjsonEncoder,
    /// Where it will print; the writer's, once opened.
    output: Option<Box<dyn Write + Send>>,
    writer: Option<Writer>,
}

/// Makes a sink on standard output.
pub fn create(spec: &SinkSpec) -> Result<Box<dyn Sink>, EngineError> {
    Ok(Box::new(PrintSink::new(spec, Box::new(stdout()))))
}

impl PrintSink {
    fn new(spec: &SinkSpec, output: Box<dyn Write + Send>) -> Self {
        Self { uid: spec.uid.clone(), encoder: NdjsonEncoder::new(&spec.input), output: Some(output), writer: None }
    }

    fn writer(&self) -> &Writer {
        self.writer.as_ref().expect("a sink is opened first")
    }
}

fn written(uid: &Uid, result: io::Result<()>) -> Result<(), EngineError> {
    let attempt = "write to";
    result.map_err(|source| ConnectorError::Io { attempt, path: "standard output".into(), source }.at(uid, "print"))
}

impl Sink for PrintSink {
    fn open(&mut self, context: SinkContext, _restored: Vec<String>) -> Result<(), EngineError> {
        let prefix = match context.parallelism {
            1 => format!("{}> ", self.uid),
            _ => format!("{}:{}> ", self.uid, context.subtask),
        };
        self.encoder.set_line_prefix(&prefix);
        self.writer = self.output.take().map(|output| Writer::start(output, context.waker));
        Ok(())
    }

    fn is_ready(&mut self) -> bool {
        self.writer().is_ready()
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<(), EngineError> {
        let mut lines = Vec::new();
        self.encoder.encode(batch, &mut lines);
        written(&self.uid, self.writer().write(lines))
    }

    fn flush(&mut self) -> Result<(), EngineError> {
        written(&self.uid, self.writer().check())
    }

    fn prepare(&mut self, _checkpoint: CheckpointId) -> Result<Prepared, EngineError> {
        self.flush()?;
        let (mark, uid) = (self.writer().mark(), self.uid.clone());
        let durable = move || written(&uid, mark.wait());
        Ok(Prepared { durable: Some(Box::new(durable)), ..Prepared::default() })
    }

    fn commit(&mut self, _checkpoint: CheckpointId) -> Result<(), EngineError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Capture, sink_context, sink_spec};
    use arrow::array::{ArrayRef, Int8Array, Int64Array};
    use levada_common::types::{Column, LogicalType, StreamSchema};
    use std::sync::{Arc, Condvar, Mutex};

    fn spec() -> SinkSpec {
        let columns = vec![Column::new("n", LogicalType::Int64, true)];
        sink_spec("out", "print", "{}", StreamSchema { columns, event_time: None, changelog: true })
    }

    fn batch() -> RecordBatch {
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int8Array::from(vec![0, 1, 2, 3])), Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(4)]))];
        RecordBatch::try_new(spec().input.to_arrow(), columns).expect("batch")
    }

    fn opened(output: Box<dyn Write + Send>) -> PrintSink {
        let mut sink = PrintSink::new(&spec(), output);
        sink.open(sink_context(&spec(), 1, 2, 1, None), Vec::new()).expect("opens");
        sink
    }

    fn wait(sink: &mut PrintSink) -> Result<(), EngineError> {
        sink.prepare(CheckpointId(1)).expect("prepares").durable.expect("it waits")()
    }

    #[tokio::test]
    async fn a_changelog_is_printed_with_its_signs() {
        let capture = Capture::default();
        let mut sink = opened(Box::new(capture.clone()));
        sink.write(&batch()).expect("writes");
        wait(&mut sink).expect("it is written");
        assert_eq!(
            capture.text(),
            "out:1> {\"_op\":\"+I\",\"n\":1}\nout:1> {\"_op\":\"-U\",\"n\":2}\nout:1> {\"_op\":\"+U\",\"n\":null}\nout:1> {\"_op\":\"-D\",\"n\":4}\n"
        );
    }

    /// An output that stands still until it is let go, and then takes or refuses everything.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Option<bool>>, Condvar)>);

    impl Gate {
        fn open(&self, takes: bool) {
            *self.0.0.lock().expect("no panic") = Some(takes);
            self.0.1.notify_all();
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let waiting = self.0.0.lock().expect("no panic");
            let takes = self.0.1.wait_while(waiting, |takes| takes.is_none()).expect("no panic");
            if *takes == Some(true) { Ok(bytes.len()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_output_that_stands_still_holds_the_task_back_and_blocks_nothing() {
        let gate = Gate::default();
        let mut sink = opened(Box::new(gate.clone()));
        let mut written = 0;
        while sink.is_ready() {
            sink.write(&batch()).expect("writes");
            written += 1;
            assert!(written < 100, "it must say when it is full");
        }
        let marks: Vec<_> = (1..4).map(|id| sink.prepare(CheckpointId(id)).expect("prepares").durable.expect("waits")).collect();
        gate.open(true);
        // The waits are the background's; here another thread's.
        let waited = tokio::task::spawn_blocking(|| marks.into_iter().try_for_each(|mark| mark()));
        waited.await.expect("no panic").expect("all is written");
        assert!(sink.is_ready());
    }

    #[tokio::test]
    async fn a_refused_write_fails_the_task() {
        let gate = Gate::default();
        let mut sink = opened(Box::new(gate.clone()));
        sink.write(&batch()).expect("handed over");
        let mark = sink.prepare(CheckpointId(1)).expect("prepares").durable.expect("waits");
        gate.open(false);
        let error = mark().expect_err("refused");
        assert!(error.to_string().contains("standard output"), "{error}");
        assert!(sink.is_ready(), "so that the task comes and is told");
        assert!(sink.write(&batch()).is_err() && sink.flush().is_err());
    }
}
