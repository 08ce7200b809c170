//! One TaskManager's stream: its greeting, its heartbeats, what its tasks say.

use std::collections::BTreeSet;

use levada_common::config::HostPort;
use levada_common::ids::{AttemptId, JobId, TaskId};
use levada_common::time::Watermark;
use levada_jobmanager_core::alignment::SourceTime;
use levada_jobmanager_core::event::TaskState;
use levada_proto::convert::{self, ConvertError};
use levada_proto::{PROTOCOL, v1};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{debug, warn};

use super::{Introduction, Outgoing, Registration, TaskManagers};
use crate::dispatcher::Dispatcher;

/// Most slots that a TaskManager may have.
const SLOTS_MAX: u32 = 4096;

/// This release's version, which both sides must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Checks a greeting.
///
/// Errors: FAILED_PRECONDITION where versions do not fit, both named; INVALID_ARGUMENT where it makes no sense.
pub(crate) fn accept(hello: &v1::Hello) -> Result<Introduction, Status> {
    if hello.protocol != PROTOCOL || hello.version != VERSION {
        return Err(Status::failed_precondition(format!(
            "the TaskManager has version {} (protocol {}), the JobManager {VERSION} (protocol {PROTOCOL}); both must be the same",
            hello.version, hello.protocol
        )));
    }
    let invalid = |error: &dyn std::error::Error| Status::invalid_argument(error.to_string());
    let id = convert::task_manager_id(&hello.task_manager_id).map_err(|error| invalid(&error))?;
    if hello.slots == 0 || hello.slots > SLOTS_MAX {
        return Err(Status::invalid_argument(format!("a TaskManager has 1 to {SLOTS_MAX} slots, this one has {}", hello.slots)));
    }
    if let Err(error) = hello.data_address.parse::<HostPort>() {
        return Err(Status::invalid_argument(format!("the TaskManager's data address: {error} (taskmanager.advertise)")));
    }
    Ok(Introduction {
        id,
        version: hello.version.clone(),
        slots: hello.slots,
        data_address: hello.data_address.clone(),
        memory_total_bytes: hello.memory_total_bytes,
        network_memory_bytes: hello.network_memory_bytes,
        heap_state_bytes: hello.heap_state_bytes,
        sources: custom(&hello.custom_sources_json, "custom source")?,
        sinks: custom(&hello.custom_sinks_json, "custom sink")?,
        functions: custom(&hello.functions_json, "function")?,
    })
}

fn custom<T: serde::de::DeserializeOwned>(texts: &[String], what: &str) -> Result<Vec<T>, Status> {
    texts
        .iter()
        .map(|text| serde_json::from_str(text).map_err(|error| Status::invalid_argument(format!("{what}: {error}"))))
        .collect()
}

/// Reads a TaskManager's stream until it ends, breaks, makes no sense or `stop`; then the TaskManager is lost.
pub(crate) async fn serve(
    registration: Registration,
    mut messages: Streaming<v1::FromTaskManager>,
    outgoing: Outgoing,
    stop: CancellationToken,
    (task_managers, dispatcher): (TaskManagers, Dispatcher),
) {
    let reason = loop {
        let message = tokio::select! {
            () = stop.cancelled() => return,
            message = messages.message() => message,
        };
        match message {
            Ok(Some(message)) => {
                task_managers.heard(registration).await;
                if let Err(error) = take(message, &outgoing, &dispatcher).await {
                    warn!(task_manager = %registration.id, "{error}");
                    break format!("it sent what the protocol does not know: {error}");
                }
            }
            Ok(None) => break "it ended its connection".into(),
            Err(status) => break format!("its connection broke: {}", status.message()),
        }
    };
    task_managers.gone(registration, reason).await;
}

async fn take(message: v1::FromTaskManager, outgoing: &Outgoing, dispatcher: &Dispatcher) -> Result<(), ConvertError> {
    use v1::from_task_manager::Message;
    match message.message {
        Some(Message::Heartbeat(heartbeat)) => {
            let reply = v1::to_task_manager::Message::Heartbeat(v1::HeartbeatReply { sequence: heartbeat.sequence });
            // A full queue has commands in it, which tell the TaskManager as well that the JobManager lives.
            let _ = outgoing.try_send(Ok(v1::ToTaskManager { message: Some(reply) }));
            report(heartbeat.tasks, outgoing, dispatcher).await
        }
        Some(Message::SourceTimes(times)) => source_times(times.sources, dispatcher).await,
        Some(Message::TaskEvent(mut event)) => {
            let report = event.report.take();
            let (attempt, task, state) = task_event(event)?;
            debug!(%attempt, %task, ?state, "task event");
            if let Some(driver) = dispatcher.driver(attempt.job).await {
                driver.task(attempt, task, state, report).await;
            }
            Ok(())
        }
        Some(Message::Hello(_)) => Err(ConvertError::Bad { field: "message", found: "a second hello".into(), allowed: "one" }),
        None => Err(ConvertError::Missing { field: "message" }),
    }
}

fn task_event(event: v1::TaskEvent) -> Result<(AttemptId, TaskId, TaskState), ConvertError> {
    use v1::task_event::State;
    let (attempt, task) = convert::task_from_ref(event.task.as_ref())?;
    let state = match event.state() {
        State::Running => TaskState::Running,
        State::Finishing => TaskState::Finishing,
        State::Finished => TaskState::Finished,
        State::Failed => TaskState::Failed(convert::failure_from_info(event.failure)?),
        State::Canceled => TaskState::Canceled,
        State::Unspecified => {
            return Err(ConvertError::Bad { field: "state", found: event.state.to_string(), allowed: "1 to 5" });
        }
    };
    Ok((attempt, task, state))
}

/// Whose counters, and what they are.
type Report = (AttemptId, TaskId, v1::TaskReport);

/// Hands each job's reports to its driver. Tasks of a job that has none (a JobManager before this one started them, or the job
/// has ended) are told to end.
async fn report(reports: Vec<v1::TaskReport>, outgoing: &Outgoing, dispatcher: &Dispatcher) -> Result<(), ConvertError> {
    let mut by_job: Vec<(JobId, Vec<Report>)> = Vec::new();
    for report in reports {
        let (attempt, task) = convert::task_from_ref(report.task.as_ref())?;
        match by_job.iter_mut().find(|(job, _)| *job == attempt.job) {
            Some((_, reports)) => reports.push((attempt, task, report)),
            None => by_job.push((attempt.job, vec![(attempt, task, report)])),
        }
    }
    for (job, reports) in by_job {
        match dispatcher.driver(job).await {
            Some(driver) => driver.report(reports),
            None => {
                let attempts: BTreeSet<AttemptId> = reports.iter().map(|(attempt, _, _)| *attempt).collect();
                for attempt in attempts {
                    let cancel = v1::CancelAttempt { attempt: Some(convert::attempt_to_ref(attempt)) };
                    let message = Some(v1::to_task_manager::Message::Cancel(cancel));
                    // Where the queue is full the next heartbeat brings it.
                    let _ = outgoing.try_send(Ok(v1::ToTaskManager { message }));
                }
            }
        }
    }
    Ok(())
}

/// Tells each job's driver how far its sources have come. Where a job has none the next heartbeat ends its tasks.
async fn source_times(sources: Vec<v1::SourceTime>, dispatcher: &Dispatcher) -> Result<(), ConvertError> {
    for source in sources {
        let (attempt, task) = convert::task_from_ref(source.task.as_ref())?;
        if let Some(driver) = dispatcher.driver(attempt.job).await {
            driver.source_time(attempt, task, SourceTime { watermark: Watermark(source.watermark_ms), idle: source.idle });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use levada_common::ids::TaskManagerId;
    use tonic::Code;

    use super::*;

    fn hello() -> v1::Hello {
        v1::Hello {
            task_manager_id: TaskManagerId::from_u128(1).to_string(),
            version: VERSION.into(),
            protocol: PROTOCOL,
            slots: 2,
            data_address: "127.0.0.1:6121".into(),
            ..Default::default()
        }
    }

    #[test]
    fn another_version_is_refused_naming_both() {
        accept(&hello()).unwrap();
        for other in [v1::Hello { version: "0.0.9".into(), ..hello() }, v1::Hello { protocol: 77, ..hello() }] {
            let status = accept(&other).unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition);
            let text = status.message();
            assert!(text.contains(&other.version) && text.contains(VERSION), "{text}");
            assert!(text.contains(&format!("protocol {}", other.protocol)) && text.contains(&format!("protocol {PROTOCOL}")));
        }
    }

    #[test]
    fn a_greeting_that_makes_no_sense_is_refused() {
        let bad = [
            v1::Hello { task_manager_id: String::new(), ..hello() },
            v1::Hello { slots: 0, ..hello() },
            v1::Hello { slots: u32::MAX, ..hello() },
            v1::Hello { data_address: String::new(), ..hello() },
            v1::Hello { custom_sinks_json: vec!["{".into()], ..hello() },
        ];
        for hello in bad {
            assert_eq!(accept(&hello).unwrap_err().code(), Code::InvalidArgument, "{hello:?}");
        }
    }

    #[test]
    fn a_data_address_that_none_can_connect_to_is_refused_by_name() {
        for address in ["[tm1:6121]:6121", ":6121", "tm1"] {
            let status = accept(&v1::Hello { data_address: address.into(), ..hello() }).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(&format!("\"{address}\" is not host:port")), "{status}");
        }
    }
}
