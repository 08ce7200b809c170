//! The one long-lived stream to the JobManager: registers, brings commands down, takes events and heartbeats up.
//!
//! Connects again for ever, with growing pauses; the host is resolved at each connect. Runs on the control runtime, which busy
//! tasks cannot delay. Must never know: what a command means. Invariant: a broken or silent stream ends the registration, and
//! the next one begins with `Event::Registered`.

use std::sync::Arc;
use std::time::Duration;

use levada_common::keep_alive::KeepAlive;
use levada_proto::v1::to_task_manager::Message;
use levada_proto::v1::{self, cluster_client::ClusterClient, from_task_manager};
use levada_proto::{COMMAND_BYTES_MAX, PROTOCOL, encoded_len};
use tokio::sync::mpsc::{Sender, UnboundedSender, channel};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Streaming;

use crate::board::Board;
use crate::manager::{Event, Uplink};
use crate::pace::SourceTimes;
use crate::portions::portions;
use crate::rpc::{Backoff, JobManager, endpoint, probed, status_text};

/// Heartbeats carry the tasks' counters, which people watch: they come at least this often (`heartbeat.interval` says so).
const REPORT_EVERY: Duration = Duration::from_millis(500);

/// Sources that keep pace with others wait for each other at most about this much longer than they must.
const SOURCE_TIMES_EVERY: Duration = Duration::from_millis(20);

/// First and last pause between tries to connect.
const RECONNECT_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Time for the answer to Hello.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that keeps failing for the same reason is mentioned this often.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Messages that wait for the stream; beyond that the stream is stuck, and given up.
const UPLINK_MESSAGES_MAX: usize = 16 * 1024;

/// What keeps a TaskManager registered.
pub struct Registration {
    /// host:port of the JobManager.
    pub address: String,
    /// What this TaskManager says of itself.
    pub hello: v1::Hello,
    /// The manager.
    pub events: UnboundedSender<Event>,
    /// The tasks, for heartbeats.
    pub board: Arc<Board>,
    /// Silence of the JobManager after which tasks cancel themselves.
    pub orphan_timeout: Duration,
    /// Time that a call to the JobManager may take.
    pub ask_timeout: Duration,
    /// Whether a registration stands, for health.
    pub registered: watch::Sender<bool>,
    /// How connections are probed, as the newest registration has it.
    pub keep_alive: watch::Sender<KeepAlive>,
    /// Ends it.
    pub shutdown: CancellationToken,
}

/// Why a registration ended, or did not begin.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error("\"{address}\" is no address of a JobManager (taskmanager.jobmanager)")]
    Address {
        address: String,
        #[source]
        source: tonic::transport::Error,
    },
    #[error("connecting failed")]
    Connect(#[source] tonic::transport::Error),
    #[error("{}", status_text(.0))]
    Refused(tonic::Status),
    #[error("the stream broke: {}", status_text(.0))]
    Broken(tonic::Status),
    #[error("the JobManager closed the stream")]
    Closed,
    #[error("the JobManager did not answer Hello within {} s", WELCOME_TIMEOUT.as_secs())]
    NoWelcome,
    #[error("the JobManager ({version}) speaks protocol {protocol}, this TaskManager ({}) {PROTOCOL}; run the same version everywhere", env!("CARGO_PKG_VERSION"))]
    Protocol { version: String, protocol: u32 },
    #[error("the JobManager has been silent for {timeout_ms} ms")]
    Silent { timeout_ms: u128 },
    #[error("{UPLINK_MESSAGES_MAX} messages wait for the stream")]
    Stuck,
}

impl Registration {
    /// Stays registered until `shutdown`.
    pub async fn run(self) {
        let (heard, last_heard) = watch::channel(Instant::now());
        let orphans = watch_for_silence(last_heard, self.orphan_timeout, self.events.clone());
        tokio::select! {
            () = self.reconnect(&heard) => {}
            () = orphans => {}
            () = self.shutdown.cancelled() => {}
        }
        self.registered.send_replace(false);
    }

    async fn reconnect(&self, heard: &watch::Sender<Instant>) {
        let mut backoff = Backoff::new(RECONNECT_PAUSE.0, RECONNECT_PAUSE.1);
        let mut quiet = QuietLog::default();
        loop {
            let ended = match self.connect().await {
                Ok(session) => {
                    backoff.reset();
                    quiet.reset();
                    tracing::info!(address = self.address, "registered at the JobManager");
                    self.registered.send_replace(true);
                    let ended = session.run(self, heard).await;
                    self.registered.send_replace(false);
                    ended
                }
                Err(ended) => ended,
            };
            quiet.warn(&self.address, &ended);
            tokio::time::sleep(backoff.pause()).await;
        }
    }

    /// Says Hello and hears Welcome.
    async fn connect(&self) -> Result<Session, Ended> {
        let endpoint = endpoint(&self.address).map_err(|source| Ended::Address { address: self.address.clone(), source })?;
        let connection = endpoint.connect().await.map_err(Ended::Connect)?;
        let mut client = ClusterClient::new(connection).max_decoding_message_size(COMMAND_BYTES_MAX as usize);
        let (messages, outgoing) = channel(UPLINK_MESSAGES_MAX);
        let hello = from_task_manager::Message::Hello(self.hello.clone());
        messages.try_send(v1::FromTaskManager { message: Some(hello) }).expect("the queue is new");
        let welcome = async {
            let answer = client.register(ReceiverStream::new(outgoing)).await.map_err(Ended::Refused)?;
            let mut commands = answer.into_inner();
            match commands.message().await.map_err(Ended::Refused)?.and_then(|answer| answer.message) {
                Some(Message::Welcome(welcome)) => Ok((welcome, commands)),
                _ => Err(Ended::Closed),
            }
        };
        let (welcome, commands) = tokio::time::timeout(WELCOME_TIMEOUT, welcome).await.map_err(|_| Ended::NoWelcome)??;
        if welcome.protocol != PROTOCOL {
            return Err(Ended::Protocol { version: welcome.version, protocol: welcome.protocol });
        }
        let keep_alive = KeepAlive::of(Duration::from_millis(welcome.heartbeat_timeout_ms));
        self.keep_alive.send_replace(keep_alive);
        let connection = probed(endpoint, keep_alive).connect_lazy();
        let job_manager = JobManager::new(connection, welcome.frame_size_bytes, self.ask_timeout);
        Ok(Session { messages, commands, welcome, job_manager })
    }
}

/// A registration that stands.
struct Session {
    messages: Sender<v1::FromTaskManager>,
    commands: Streaming<v1::ToTaskManager>,
    welcome: v1::Welcome,
    job_manager: JobManager,
}

impl Session {
    /// Sends these; whether the stream takes them.
    fn say(&self, messages: Vec<from_task_manager::Message>) -> bool {
        let mut messages = messages.into_iter().map(|message| v1::FromTaskManager { message: Some(message) });
        messages.all(|message| self.messages.try_send(message).is_ok())
    }

    /// Brings commands down and heartbeats up, until the stream breaks or falls silent.
    async fn run(mut self, registration: &Registration, heard: &watch::Sender<Instant>) -> Ended {
        heard.send_replace(Instant::now());
        let uplink = Uplink { messages: self.messages.clone(), job_manager: self.job_manager.clone() };
        let _ = registration.events.send(Event::Registered(uplink));
        let interval = beat_every(self.welcome.heartbeat_interval_ms);
        let timeout = Duration::from_millis(self.welcome.heartbeat_timeout_ms).max(interval);
        let mut beat = tokio::time::interval(interval);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look = tokio::time::interval(SOURCE_TIMES_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut source_times = SourceTimes::default();
        let mut sequence = 0;
        let mut looked = Instant::now();
        loop {
            // Who stood still does not take the other for dead: what was said meanwhile is yet to be read.
            let gap = std::mem::replace(&mut looked, Instant::now()).elapsed();
            if gap >= timeout / 2 {
                heard.send_modify(|at| *at += gap);
            }
            let silent_at = *heard.borrow() + timeout;
            tokio::select! {
                biased;
                _ = beat.tick() => {
                    let reports = registration.board.tasks().iter().map(|task| task.report()).collect();
                    if !self.say(heartbeats(&mut sequence, reports, self.welcome.frame_size_bytes)) {
                        return Ended::Stuck;
                    }
                }
                command = self.commands.message() => match command {
                    Ok(Some(command)) => {
                        heard.send_replace(Instant::now());
                        if let Some(command) = command.message {
                            let _ = registration.events.send(Event::Command(Box::new(command)));
                        }
                    }
                    Ok(None) => return Ended::Closed,
                    Err(status) => return Ended::Broken(status),
                },
                _ = look.tick() => {
                    if let Some(news) = source_times.news(&registration.board.tasks())
                        && !self.say(source_times_messages(news, self.welcome.frame_size_bytes))
                    {
                        return Ended::Stuck;
                    }
                }
                () = tokio::time::sleep_until(silent_at) => return Ended::Silent { timeout_ms: timeout.as_millis() },
            }
        }
    }
}

/// A heartbeat, or as many as it takes to tell every task's counters in messages of at most `frame_bytes`.
fn heartbeats(sequence: &mut u64, reports: Vec<v1::TaskReport>, frame_bytes: u64) -> Vec<from_task_manager::Message> {
    let portions = portions(reports, frame_bytes, encoded_len).into_iter();
    let heartbeat = |tasks| {
        *sequence += 1;
        from_task_manager::Message::Heartbeat(v1::Heartbeat { sequence: *sequence, tasks })
    };
    portions.map(heartbeat).collect()
}

/// The same for how far sources have come.
fn source_times_messages(news: v1::SourceTimes, frame_bytes: u64) -> Vec<from_task_manager::Message> {
    let portions = portions(news.sources, frame_bytes, encoded_len).into_iter();
    portions.map(|sources| from_task_manager::Message::SourceTimes(v1::SourceTimes { sources })).collect()
}

/// The time between two heartbeats, where the JobManager wants at most `interval_ms`.
fn beat_every(interval_ms: u64) -> Duration {
    Duration::from_millis(interval_ms.max(10)).min(REPORT_EVERY)
}

/// Says `Orphaned` whenever the JobManager has not been heard for `timeout`, once per silence.
async fn watch_for_silence(mut last_heard: watch::Receiver<Instant>, timeout: Duration, events: UnboundedSender<Event>) {
    loop {
        let heard = *last_heard.borrow_and_update();
        tokio::time::sleep_until(heard + timeout).await;
        if *last_heard.borrow() != heard {
            continue;
        }
        if events.send(Event::Orphaned).is_err() || last_heard.changed().await.is_err() {
            return;
        }
    }
}

/// Mentions a failure when it is new, and again only now and then.
#[derive(Default)]
struct QuietLog {
    last: Option<(String, Instant)>,
}

impl QuietLog {
    fn reset(&mut self) {
        self.last = None;
    }

    fn warn(&mut self, address: &str, ended: &Ended) {
        let text = text_of(ended);
        if self.last.as_ref().is_some_and(|(last, at)| *last == text && at.elapsed() < LOG_EVERY) {
            return;
        }
        tracing::warn!(address, "not registered at the JobManager, trying again: {text}");
        self.last = Some((text, Instant::now()));
    }
}

fn text_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heartbeats_of_many_tasks_stay_within_the_frame() {
        let report = |subtask: u32| v1::TaskReport {
            task: Some(v1::TaskRef { subtask, ..Default::default() }),
            nodes: vec![v1::NodeReport { last_bad_record: "x".repeat(1_000), ..Default::default() }],
            ..Default::default()
        };
        let frame_bytes = 256 << 10;
        let (mut sequence, mut told) = (4, Vec::new());
        for message in heartbeats(&mut sequence, (0..1_000).map(report).collect(), frame_bytes) {
            assert!(encoded_len(&v1::FromTaskManager { message: Some(message.clone()) }) <= frame_bytes);
            let from_task_manager::Message::Heartbeat(beat) = message else { panic!("{message:?}") };
            told.push((beat.sequence, beat.tasks.iter().map(|task| task.task.as_ref().unwrap().subtask).collect::<Vec<_>>()));
        }
        assert_eq!(told.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [5, 6, 7, 8]);
        assert!(told.into_iter().flat_map(|(_, subtasks)| subtasks).eq(0..1_000));
        assert_eq!(heartbeats(&mut sequence, Vec::new(), frame_bytes).len(), 1, "a heartbeat comes without tasks, too");
    }

    #[test]
    fn heartbeats_come_as_the_reference_of_settings_says() {
        assert_eq!([20, 500, 501, 10_000].map(beat_every), [20, 500, 500, 500].map(Duration::from_millis));
        let reference = levada_common::config::reference_markdown();
        let interval = reference.lines().find(|line| line.contains("`heartbeat.interval`")).unwrap();
        assert!(interval.contains(&format!("each {}ms", REPORT_EVERY.as_millis())), "{interval}");
    }

    #[tokio::test]
    async fn silence_is_told_once_until_something_is_heard() {
        let (heard, last_heard) = watch::channel(Instant::now());
        let (tx, mut rx) = tokio::sync::mpsc::unbounded_channel();
        let (start, timeout) = (Instant::now(), Duration::from_millis(50));
        let watching = tokio::spawn(watch_for_silence(last_heard, timeout, tx));
        assert!(matches!(rx.recv().await, Some(Event::Orphaned)));
        assert!(start.elapsed() >= timeout);
        assert!(tokio::time::timeout(4 * timeout, rx.recv()).await.is_err(), "told twice of one silence");
        heard.send_replace(Instant::now());
        assert!(matches!(rx.recv().await, Some(Event::Orphaned)));
        drop(heard);
        watching.await.unwrap();
    }
}
