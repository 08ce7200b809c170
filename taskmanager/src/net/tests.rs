//! Channels over a real loopback connection.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{Int64Type, SchemaRef};
use arrow::record_batch::RecordBatch;
use levada_common::ids::{Attempt, AttemptId, CheckpointId, Epoch, JobId};
use levada_common::keep_alive::KeepAlive;
use levada_engine::channel::{ChannelReader, ChannelWriter};
use levada_engine::element::{Barrier, Element};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::client::{OutboundChannel, Peers};
use super::queue::Queue;
use super::registry::{Inbound, Registry};
use super::remote::{ChannelKey, ChannelName, QUEUE_BYTES_MAX, RemoteReader, RemoteWriter};
use super::server;
use crate::inbox::{Control, Inbox, inbox};

/// Longest that a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A data port, and the way to it.
struct Port {
    registry: Arc<Registry>,
    peers: Arc<Peers>,
    address: String,
    shutdown: CancellationToken,
}

/// Both ends of a channel, each with its task's inbox.
struct Pair {
    writer: RemoteWriter,
    sender: Inbox,
    reader: RemoteReader,
    receiver: Inbox,
    cancelled: CancellationToken,
}

fn attempt(number: u32) -> AttemptId {
    AttemptId { job: JobId::from_u128(1), attempt: Attempt(number), epoch: Epoch(1) }
}

impl Port {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (registry, shutdown) = (Arc::new(Registry::default()), CancellationToken::new());
        let (_, keep_alive) = watch::channel(KeepAlive::default());
        tokio::spawn(server::serve(listener, Arc::clone(&registry), keep_alive.clone(), shutdown.clone()));
        Self { registry, peers: Arc::new(Peers::new(keep_alive)), address, shutdown }
    }

    /// Channels of one attempt, connected with this window.
    fn connect(&self, attempt: AttemptId, count: u32, schema: &SchemaRef, window_bytes: u64) -> Vec<Pair> {
        let pairs: Vec<(Pair, Inbound)> = (0..count).map(|to| self.pair(attempt, to, schema, window_bytes)).collect();
        let (pairs, inbound): (Vec<Pair>, Vec<Inbound>) = pairs.into_iter().unzip();
        self.registry.register(attempt, inbound);
        pairs
    }

    fn pair(&self, attempt: AttemptId, to_subtask: u32, schema: &SchemaRef, window_bytes: u64) -> (Pair, Inbound) {
        let ((send_inbox, sender), (receive_inbox, receiver)) = (inbox(), inbox());
        let key = ChannelKey { attempt, edge: 0, from_subtask: 0, to_subtask };
        let name = ChannelName { from: "\"a\" subtask 0".into(), to: "\"b\" subtask 0".into(), peer: self.address.clone() };
        let (name, cancelled) = (Arc::new(name), CancellationToken::new());
        let outgoing = Queue::new(QUEUE_BYTES_MAX, send_inbox.waker());
        let incoming = Queue::new(QUEUE_BYTES_MAX, receive_inbox.waker());
        let writer = RemoteWriter::new(Arc::clone(&outgoing), schema, send_inbox.clone(), Arc::clone(&name)).unwrap();
        let reader = RemoteReader::new(Arc::clone(&incoming), schema.clone(), receive_inbox.clone(), Arc::clone(&name));
        let inbound =
            Inbound { key, queue: incoming, inbox: receive_inbox, name: Arc::clone(&name), cancelled: cancelled.clone() };
        let outbound =
            OutboundChannel { key, queue: outgoing, inbox: send_inbox, name, cancelled: cancelled.clone(), window_bytes };
        tokio::spawn(Arc::clone(&self.peers).push(outbound));
        (Pair { writer, sender, reader, receiver, cancelled }, inbound)
    }
}

/// What a task's thread does with its output: sends, parking while there is no room.
fn send_all(writer: &mut RemoteWriter, inbox: &Inbox, elements: impl IntoIterator<Item = Element>) {
    for element in elements {
        while !writer.is_ready() {
            assert_eq!(inbox.next_control(), None);
            inbox.park(Some(PATIENCE));
        }
        writer.send(element);
    }
}

/// What a task's thread does with its input: takes everything up to the end of data.
fn receive_all(reader: &mut RemoteReader, inbox: &Inbox) -> Vec<Element> {
    let mut elements = Vec::new();
    loop {
        match reader.try_recv() {
            Some(Element::EndOfData) => return elements,
            Some(element) => elements.push(element),
            None => {
                assert_eq!(inbox.next_control(), None);
                inbox.park(Some(PATIENCE));
            }
        }
    }
}

/// The first thing that a task is told.
async fn told(inbox: Inbox) -> Control {
    let waiting = tokio::task::spawn_blocking(move || {
        loop {
            match inbox.next_control() {
                Some(control) => return control,
                None => inbox.park(Some(PATIENCE)),
            }
        }
    });
    waiting.await.unwrap()
}

fn failure(control: Control) -> String {
    match control {
        Control::Fail(failure) => failure.message,
        other => panic!("not a failure: {other:?}"),
    }
}

fn numbers(from: i64, rows: i64) -> RecordBatch {
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(from..from + rows));
    RecordBatch::try_from_iter([("n", column)]).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_of_four_mib_passes_a_window_of_128_kib() {
    let port = Port::open().await;
    let text = "x".repeat(4 * 1024 * 1024);
    let column: ArrayRef = Arc::new(StringArray::from(vec!["before", &text, "after"]));
    let batch = RecordBatch::try_from_iter([("text", column)]).unwrap();
    let mut pair = port.connect(attempt(1), 1, &batch.schema(), 128 * 1024).remove(0);
    let sending = std::thread::spawn(move || {
        send_all(&mut pair.writer, &pair.sender, [Element::Batch(batch), Element::EndOfData]);
    });
    let received = tokio::task::spawn_blocking(move || receive_all(&mut pair.reader, &pair.receiver)).await.unwrap();
    sending.join().unwrap();
    let lengths: Vec<usize> = received
        .iter()
        .flat_map(|element| match element {
            Element::Batch(batch) => batch.column(0).as_string::<i32>().iter().map(|text| text.unwrap().len()).collect(),
            _ => Vec::new(),
        })
        .collect();
    assert_eq!(lengths, ["before".len(), text.len(), "after".len()]);
}

/// Sends rows into a channel that nobody reads until nothing more goes in, as one that waits for alignment; how many bytes.
fn fill(pair: &mut Pair) -> usize {
    const ROWS: i64 = 8192;
    let mut batches = 0;
    while batches < 1000 && pair.writer.is_ready() {
        pair.writer.send(Element::Batch(numbers(0, ROWS)));
        batches += 1;
        if !pair.writer.is_ready() {
            pair.sender.park(Some(Duration::from_millis(200)));
        }
    }
    assert!((1..1000).contains(&batches), "{batches} batches went into a channel that nobody reads");
    batches * ROWS as usize * 8
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_channel_takes_what_was_planned_for_it() {
    let port = Port::open().await;
    let schema = numbers(0, 1).schema();
    let mut narrow = port.connect(attempt(1), 1, &schema, 128 * 1024).remove(0);
    let mut wide = port.connect(attempt(2), 1, &schema, 4 * 1024 * 1024).remove(0);
    let filling = tokio::task::spawn_blocking(move || (fill(&mut narrow), fill(&mut wide)));
    let (narrow, wide) = filling.await.unwrap();
    assert!(narrow < 2 * 1024 * 1024, "{narrow} bytes went into a channel of 128 KiB");
    assert!(wide > 4 * 1024 * 1024, "{wide} bytes went into a channel of 4 MiB");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_channel_that_is_not_read_stops_no_other() {
    const CHANNELS: u32 = 16;
    const BATCHES: i64 = 200;
    const ROWS: i64 = 8192;
    let port = Port::open().await;
    let mut pairs = port.connect(attempt(1), CHANNELS, &numbers(0, 1).schema(), 4 * 1024 * 1024);
    let mut unread = pairs.remove(0);
    let unread = tokio::task::spawn_blocking(move || {
        fill(&mut unread);
        unread
    });
    let unread = unread.await.unwrap();
    let mut threads = Vec::new();
    for pair in pairs {
        let Pair { mut writer, sender, mut reader, receiver, .. } = pair;
        threads.push(std::thread::spawn(move || {
            let batches = (0..BATCHES).map(|batch| Element::Batch(numbers(batch * ROWS, ROWS)));
            let barrier = Element::Barrier(Barrier::checkpoint(CheckpointId(7)));
            send_all(&mut writer, &sender, batches.chain([barrier, Element::EndOfData]));
        }));
        threads.push(std::thread::spawn(move || {
            let mut next = 0;
            let received = receive_all(&mut reader, &receiver);
            assert!(matches!(received.last(), Some(Element::Barrier(barrier)) if barrier.checkpoint == CheckpointId(7)));
            for element in received {
                if let Element::Batch(batch) = element {
                    for value in batch.column(0).as_primitive::<Int64Type>().values() {
                        assert_eq!(*value, next);
                        next += 1;
                    }
                }
            }
            assert_eq!(next, BATCHES * ROWS);
        }));
    }
    let joined = tokio::task::spawn_blocking(move || threads.into_iter().map(|thread| thread.join().is_ok()).collect::<Vec<_>>());
    let joined = tokio::time::timeout(PATIENCE, joined).await.expect("the other channels are held up").unwrap();
    assert!(joined.into_iter().all(|ok| ok));
    drop(unread);
    port.shutdown.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_that_vanishes_fails_the_receiver() {
    let port = Port::open().await;
    let schema = numbers(0, 1).schema();
    let (pair, mut inbound) = port.pair(attempt(1), 0, &schema, 128 * 1024);
    let Pair { mut writer, mut reader, receiver, cancelled: sender_gone, .. } = pair;
    inbound.cancelled = CancellationToken::new();
    port.registry.register(attempt(1), vec![inbound]);
    writer.send(Element::Batch(numbers(0, 1)));
    let arrived = tokio::task::spawn_blocking(move || {
        while reader.try_recv().is_none() {
            receiver.park(Some(PATIENCE));
        }
        receiver
    });
    let receiver = arrived.await.unwrap();
    sender_gone.cancel();
    let text = failure(told(receiver).await);
    assert!(text.contains("\"a\" subtask 0") && text.contains("\"b\" subtask 0") && text.contains("broke"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_breaks_while_the_attempt_is_cancelled_is_no_failure() {
    let port = Port::open().await;
    let schema = numbers(0, 1).schema();
    let pairs = port.connect(attempt(1), 2, &schema, 128 * 1024);
    let [mut first, second] = <[Pair; 2]>::try_from(pairs).ok().unwrap();
    first.writer.send(Element::EndOfData);
    second.cancelled.cancel();
    let Pair { sender, receiver, .. } = second;
    // The first channel's end comes after everything that the second could have said on the same connection.
    let first = tokio::task::spawn_blocking(move || receive_all(&mut first.reader, &first.receiver));
    assert!(first.await.unwrap().is_empty());
    assert_eq!((sender.next_control(), receiver.next_control()), (None, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_without_end_of_data_is_a_failure() {
    let port = Port::open().await;
    let schema = numbers(0, 1).schema();
    let (pair, inbound) = port.pair(attempt(1), 0, &schema, 128 * 1024);
    port.registry.register(attempt(1), vec![inbound]);
    let Pair { writer, sender, receiver, .. } = pair;
    writer.close_early();
    let at_receiver = failure(told(receiver).await);
    assert!(at_receiver.contains("\"a\" subtask 0") && at_receiver.contains("\"b\" subtask 0"), "{at_receiver}");
    assert!(at_receiver.contains(&port.address) && at_receiver.contains("before the end of data"), "{at_receiver}");
    let at_sender = failure(told(sender).await);
    assert!(at_sender.contains(&port.address), "{at_sender}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_sender_is_refused_and_fails() {
    let port = Port::open().await;
    let schema = numbers(0, 1).schema();
    port.registry.register(attempt(2), Vec::new());
    let (pair, _) = port.pair(attempt(1), 0, &schema, 128 * 1024);
    let text = failure(told(pair.sender).await);
    assert!(text.contains("attempt 1 has ended here"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_cannot_be_reached_fails_the_sender() {
    let mut port = Port::open().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    port.address = closed.to_string();
    let (pair, _) = port.pair(attempt(1), 0, &numbers(0, 1).schema(), 128 * 1024);
    let text = failure(told(pair.sender).await);
    assert!(text.contains(&port.address) && text.contains("broke"), "{text}");
}
