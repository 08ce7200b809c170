//! A connection's bytes to batches.
//!
//! A line without an end is a row when the server closes the connection, and dropped when the connection is lost.

use std::task::{Context, Poll};

use levada_common::ids::{CheckpointId, Uid};
use levada_common::plan::SourceSpec;
use levada_engine::error::EngineError;
use levada_engine::source::{Source, SourceContext, SourcePoll};

use super::connection::{self, Connection, Event};
use super::declaration::SocketOptions;
use crate::options::checked;
use crate::text::reader::{Filled, RecordReader};

/// Chunks looked at in one `poll`, so that bad records alone cannot keep the task.
const EVENTS_PER_POLL_MAX: usize = 64;

/// Reads one connection.
pub struct SocketSource {
    options: SocketOptions,
    uid: Uid,
    opened: Option<Opened>,
}

struct Opened {
    context: SourceContext,
    /// Host and port, for messages.
    place: String,
    splits: Vec<String>,
    /// `None` in a subtask that has no split.
    connection: Option<Connection>,
    records: RecordReader,
}

/// Makes a source of these options.
pub fn create(spec: &SourceSpec) -> Result<Box<dyn Source>, EngineError> {
    let options = checked(SocketOptions::read(&spec.options)).map_err(|error| error.at(&spec.uid, &spec.connector))?;
    Ok(Box::new(SocketSource { options, uid: spec.uid.clone(), opened: None }))
}

impl Opened {
    fn next_batch(&mut self) -> Result<SourcePoll, EngineError> {
        let Some(connection) = &mut self.connection else { return Ok(SourcePoll::End) };
        for _ in 0..EVENTS_PER_POLL_MAX {
            if self.records.fill(&self.context, &self.place)? == Filled::Full {
                return self.take();
            }
            match connection.events.poll_recv(&mut Context::from_waker(&self.context.waker)) {
                Poll::Ready(Some(Event::Chunk(chunk))) => drop(self.records.push(chunk)),
                Poll::Ready(Some(Event::Closed)) => {
                    self.records.finish(&self.context, &self.place)?;
                    self.records.start(0);
                }
                Poll::Ready(Some(Event::Lost)) => self.records.start(0),
                Poll::Ready(None) | Poll::Pending if self.records.has_rows() => return self.take(),
                // The connection's work ends only with this source, or with the process.
                Poll::Ready(None) | Poll::Pending => return Ok(SourcePoll::Pending),
            }
        }
        if self.records.has_rows() {
            return self.take();
        }
        self.context.waker.wake_by_ref();
        Ok(SourcePoll::Pending)
    }

    fn take(&mut self) -> Result<SourcePoll, EngineError> {
        self.records.take().map(SourcePoll::Batch).map_err(|error| error.at(&self.context.spec.uid, "socket"))
    }
}

impl Source for SocketSource {
    fn open(&mut self, context: SourceContext, splits: Vec<String>) -> Result<(), EngineError> {
        let SocketOptions { host, port, format } = &self.options;
        let connection = (!splits.is_empty()).then(|| connection::start(self.uid.to_string(), host.clone(), *port));
        let records = RecordReader::new(format, &context);
        self.opened = Some(Opened { context, place: format!("{host}:{port}"), splits, connection, records });
        Ok(())
    }

    fn poll(&mut self) -> Result<SourcePoll, EngineError> {
        self.opened.as_mut().expect("open comes before poll").next_batch()
    }

    fn snapshot(&mut self, _checkpoint: CheckpointId) -> Result<Vec<String>, EngineError> {
        Ok(self.opened.as_ref().map(|opened| opened.splits.clone()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::declaration;
    use crate::testing::{Node, options, texts};
    use std::io::{Read, Write};
    use std::net::TcpListener;

    fn node(port: u16) -> Node {
        let json = format!(r#"{{"host": "127.0.0.1", "port": {port}, "format": "text"}}"#);
        Node::declared("socket", declaration::source(), create, &json)
    }

    #[test]
    fn a_connection_that_is_closed_or_lost_is_opened_again() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let node = node(listener.local_addr().expect("bound").port());
        let mut running = node.open(&node.splits, 3).expect("opens");
        let mut lines = Vec::new();
        let mut read = |running: &mut crate::testing::Running, until: &str| {
            while lines.last().map(String::as_str) != Some(until) {
                let batch = running.next().expect("reads").expect("has no end");
                assert!(batch.num_rows() <= 3);
                lines.extend(texts(&[batch], "line"));
            }
        };
        let (mut first, _) = listener.accept().expect("a connection");
        first.write_all(b"a\r\nb\nc").expect("sent");
        read(&mut running, "b");
        // A line may come in pieces, and the last one needs no end where the server closes the connection.
        first.write_all(b"c\nlast").expect("sent");
        drop(first);
        read(&mut running, "last");
        let (mut second, _) = listener.accept().expect("a second connection");
        second.write_all(b"d\nlost").expect("sent");
        read(&mut running, "d");
        // Unread bytes in the receive queue make a reset of the close: the connection is lost.
        reset(second);
        let (mut third, _) = listener.accept().expect("a third connection");
        third.write_all(b"e\n").expect("sent");
        read(&mut running, "e");
        assert_eq!(lines, ["a", "b", "cc", "last", "d", "e"]);
        assert_eq!(running.positions(), node.splits);
        drop(running);
        assert_eq!(third.read(&mut [0]).expect("closed by the source"), 0);
    }

    /// Closes a connection with a reset.
    fn reset(stream: std::net::TcpStream) {
        let stream = {
            let _runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
            let _entered = _runtime.enter();
            stream.set_nonblocking(true).expect("set");
            let stream = tokio::net::TcpStream::from_std(stream).expect("registered");
            stream.set_zero_linger().expect("set");
            stream
        };
        drop(stream);
    }

    #[test]
    fn a_subtask_without_the_split_ends() {
        assert!(node(9).open(&[], 8).expect("opens").next().expect("polls").is_none());
    }

    #[test]
    fn options_are_checked() {
        let read = |json: &str| (declaration::source().read)(&options(json));
        let errors = read(r#"{"port": 0, "format": "csv"}"#).expect_err("three defects");
        assert_eq!(errors.iter().map(|error| error.key.as_str()).collect::<Vec<_>>(), ["host", "port", "format"]);
        let shape = read(r#"{"host": "h", "port": 1, "format": "ndjson", "columns": {"a": "INT64"}}"#).expect("good");
        assert!(!shape.replayable && !shape.bounded && shape.parallelism_max == Some(1));
    }
}
