use std::sync::Mutex;

use levada_common::ids::TaskManagerId;
use levada_common::keep_alive::KeepAlive;
use levada_common::plan::Plan;
use levada_proto::convert::{attempt_to_ref, failure_from_info, task_from_ref, task_index};
use levada_proto::v1::task_event::State;
use tokio::sync::mpsc::{Receiver, channel, unbounded_channel};

use super::*;
use crate::clock::Clock;
use crate::testing::{Gate, Seen, TestJobManager, Told, attempt, databases, environment, plan, settings, task};

/// Longest that a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A manager that runs, seen from the JobManager.
struct Fixture {
    events: UnboundedSender<Event>,
    up: Receiver<v1::FromTaskManager>,
    job_manager: TestJobManager,
    seen: Arc<Mutex<Seen>>,
    gate: Arc<Gate>,
    board: Arc<Board>,
}

impl Fixture {
    async fn start(slots: u32) -> Self {
        let job_manager = TestJobManager::start().await;
        let (seen, gate, board): (Arc<Mutex<Seen>>, Arc<Gate>, Arc<Board>) = Default::default();
        let (events, inbox) = unbounded_channel();
        let here = Handle::current();
        let environment = environment(&seen, &gate);
        let surroundings = Surroundings { environment, io: here.clone(), clock: Clock::default(), observer: None };
        let tools = Tools {
            slots,
            surroundings,
            data: here.clone(),
            snapshots: here,
            databases: Arc::new(databases()),
            registry: Arc::default(),
            peers: Arc::new(Peers::new(tokio::sync::watch::channel(KeepAlive::default()).1)),
            board: Arc::clone(&board),
            events: events.clone(),
        };
        tokio::spawn(Manager::new(tools).run(inbox));
        let (messages, up) = channel(1000);
        let uplink = Uplink { messages, job_manager: job_manager.calls(10 * 1024 * 1024) };
        events.send(Event::Registered(uplink)).ok().unwrap();
        Self { events, up, job_manager, seen, gate, board }
    }

    fn command(&self, command: Message) {
        self.events.send(Event::Command(Box::new(command))).ok().unwrap();
    }

    fn deploy(&self, number: u32, plan: &Plan) {
        self.command(Message::Deploy(deployment(number, plan)));
    }

    fn cancel(&self, number: u32) {
        self.command(Message::Cancel(v1::CancelAttempt { attempt: Some(attempt_to_ref(attempt(number))) }));
    }

    fn trigger(&self, number: u32, checkpoint: u64, tasks: &[TaskId]) {
        self.command(Message::Trigger(v1::TriggerCheckpoint {
            attempt: Some(attempt_to_ref(attempt(number))),
            checkpoint,
            tasks: tasks.iter().map(|task| task_index(*task)).collect(),
            directory: String::new(),
            savepoint: None,
        }));
    }

    fn notify(&self, number: u32, checkpoint: u64, last: bool) {
        let attempt = Some(attempt_to_ref(attempt(number)));
        self.command(Message::Notify(v1::NotifyCheckpoint { attempt, checkpoint, completed: true, r#final: last }));
    }

    /// The next thing that a task says: attempt, task, state, and its failure.
    async fn said(&mut self) -> (u32, TaskId, State, Option<Failure>) {
        let message = tokio::time::timeout(PATIENCE, self.up.recv()).await.expect("no task says anything").unwrap();
        let Some(v1::from_task_manager::Message::TaskEvent(event)) = message.message else { panic!("{message:?}") };
        let (attempt, task) = task_from_ref(event.task.as_ref()).unwrap();
        let failure = event.failure.clone().map(|info| failure_from_info(Some(info)).unwrap());
        (attempt.attempt.0, task, event.state(), failure)
    }

    /// The next `count` things that tasks of this attempt say, sorted.
    async fn all_said(&mut self, number: u32, count: usize) -> Vec<(TaskId, State)> {
        let mut said = Vec::new();
        for _ in 0..count {
            let (attempt, task, state, _) = self.said().await;
            assert_eq!(attempt, number);
            said.push((task, state));
        }
        said.sort_by_key(|(task, state)| (*task, *state as i32));
        said
    }

    /// Whether nothing is left of any attempt.
    async fn is_empty(&self) -> bool {
        let (answer, ended) = oneshot::channel();
        self.events.send(Event::Shutdown(answer)).ok().unwrap();
        tokio::time::timeout(PATIENCE, ended).await.is_ok() && self.board.tasks().is_empty()
    }
}

fn deployment(number: u32, plan: &Plan) -> v1::Deploy {
    let tasks: Vec<(u32, u32)> =
        plan.vertices.iter().flat_map(|vertex| (0..vertex.parallelism).map(|subtask| (vertex.id.0, subtask))).collect();
    v1::Deploy {
        attempt: Some(attempt_to_ref(attempt(number))),
        plan_json: serde_json::to_vec(plan).unwrap().into(),
        tasks: tasks
            .iter()
            .map(|(vertex, subtask)| v1::DeployTask {
                vertex: *vertex,
                subtask: *subtask,
                finished: false,
                states: Vec::new(),
                splits: vec!["all".into()],
            })
            .collect(),
        locations: tasks
            .iter()
            .map(|(vertex, subtask)| v1::TaskLocation {
                vertex: *vertex,
                subtask: *subtask,
                task_manager_id: TaskManagerId::from_u128(1).to_string(),
                data_address: "127.0.0.1:1".into(),
            })
            .collect(),
        restored_checkpoint: 0,
        channel_window_bytes: 128 * 1024,
    }
}

const BOTH_RUN: fn() -> Vec<(TaskId, State)> = || vec![(task(0, 0), State::Running), (task(1, 0), State::Running)];
const BOTH_CANCELED: fn() -> Vec<(TaskId, State)> = || vec![(task(0, 0), State::Canceled), (task(1, 0), State::Canceled)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bounded_job_runs_to_its_final_checkpoint() {
    let mut fixture = Fixture::start(1).await;
    fixture.deploy(1, &plan(settings(), "end", "collect"));
    let said = fixture.all_said(1, 4).await;
    let both = [task(0, 0), task(1, 0)].map(|task| [(task, State::Running), (task, State::Finishing)]).concat();
    assert_eq!(said, both);
    fixture.trigger(1, 1, &[task(0, 0), task(1, 0)]);
    for _ in 0..2 {
        match fixture.job_manager.told.recv().await.unwrap() {
            Told::Acknowledged(request) => assert!(request.finished && request.checkpoint == 1),
            other => panic!("{other:?}"),
        }
    }
    fixture.notify(1, 1, true);
    assert_eq!(fixture.all_said(1, 2).await, [(task(0, 0), State::Finished), (task(1, 0), State::Finished)]);
    {
        let seen = fixture.seen.lock().unwrap();
        assert_eq!((seen.rows, seen.commits.as_slice(), seen.discards), (30, [CheckpointId(1)].as_slice(), 0));
    }
    assert!(fixture.is_empty().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_for_another_attempt_are_dropped() {
    let mut fixture = Fixture::start(1).await;
    fixture.deploy(2, &plan(settings(), "wait", "collect"));
    assert_eq!(fixture.all_said(2, 2).await, BOTH_RUN());
    fixture.cancel(1);
    fixture.trigger(1, 1, &[task(0, 0)]);
    fixture.deploy(1, &plan(settings(), "wait", "collect"));
    fixture.deploy(2, &plan(settings(), "wait", "collect"));
    let other_epoch = v1::AttemptRef { epoch: 2, ..attempt_to_ref(attempt(2)) };
    fixture.command(Message::Cancel(v1::CancelAttempt { attempt: Some(other_epoch) }));
    fixture.trigger(2, 7, &[task(0, 0)]);
    for _ in 0..2 {
        match fixture.job_manager.told.recv().await.unwrap() {
            Told::Acknowledged(request) => assert!(request.checkpoint == 7 && !request.finished),
            other => panic!("{other:?}"),
        }
    }
    fixture.cancel(2);
    assert_eq!(fixture.all_said(2, 2).await, BOTH_CANCELED());
    assert_eq!(fixture.seen.lock().unwrap().discards, 1);
    assert!(fixture.is_empty().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_attempt_takes_the_slots_of_the_older() {
    let mut fixture = Fixture::start(1).await;
    fixture.deploy(1, &plan(settings(), "wait", "collect"));
    assert_eq!(fixture.all_said(1, 2).await, BOTH_RUN());
    fixture.deploy(2, &plan(settings(), "wait", "collect"));
    let (mut older, mut newer) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        let (attempt, task, state, _) = fixture.said().await;
        if attempt == 1 { older.push((task, state)) } else { newer.push((task, state)) }
    }
    older.sort_by_key(|(task, _)| *task);
    newer.sort_by_key(|(task, _)| *task);
    assert_eq!((older, newer), (BOTH_CANCELED(), BOTH_RUN()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_that_cannot_be_is_refused_for_each_of_its_tasks() {
    let mut fixture = Fixture::start(1).await;
    let mut wide = plan(settings(), "wait", "collect");
    wide.vertices[1].parallelism = 2;
    let strange = Plan { version: 99, ..plan(settings(), "wait", "collect") };
    for (number, plan, tasks, text) in [(1, wide, 3, "needs 2 slots, 1 of 1 are free"), (2, strange, 2, "version 99")] {
        fixture.deploy(number, &plan);
        for _ in 0..tasks {
            let (attempt, _, state, failure) = fixture.said().await;
            assert_eq!((attempt, state), (number, State::Failed));
            let failure = failure.unwrap();
            assert!(failure.message.contains(text), "{failure}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deployed_to_a_task_manager_that_shuts_down_fails_at_once() {
    let mut fixture = Fixture::start(1).await;
    fixture.gate.set_closed(true);
    fixture.deploy(1, &plan(settings(), "wait", "stuck"));
    assert_eq!(fixture.all_said(1, 2).await, BOTH_RUN());
    let (answer, ended) = oneshot::channel();
    fixture.events.send(Event::Shutdown(answer)).ok().unwrap();
    fixture.deploy(2, &plan(settings(), "wait", "collect"));
    let mut failed = Vec::new();
    while failed.len() < 2 {
        match fixture.said().await {
            (1, _, State::Canceled, _) => {}
            (2, task, State::Failed, Some(failure)) => {
                assert_eq!(failure, Failure::external("the TaskManager is shutting down"));
                failed.push(task);
            }
            other => panic!("{other:?}"),
        }
    }
    failed.sort();
    assert_eq!(failed, [task(0, 0), task(1, 0)]);
    fixture.gate.set_closed(false);
    tokio::time::timeout(PATIENCE, ended).await.expect("the manager ends").unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_fails_its_task_with_its_message() {
    let mut fixture = Fixture::start(1).await;
    fixture.deploy(1, &plan(settings(), "panic", "collect"));
    let failure = loop {
        if let (1, task, State::Failed, failure) = fixture.said().await {
            assert_eq!(task, self::task(0, 0));
            break failure.unwrap();
        }
    };
    assert!(failure.message.contains("the test source is out of batches"), "{failure}");
    assert_eq!(failure.fault, levada_common::fault::Fault::Internal);
    fixture.cancel(1);
    let (_, task, state, _) = fixture.said().await;
    assert_eq!((task, state), (self::task(1, 0), State::Canceled));
    assert!(fixture.is_empty().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_takes_less_than_a_second_or_two_whatever_tasks_do() {
    let mut fixture = Fixture::start(1).await;
    fixture.gate.set_closed(true);
    for (number, sink) in [(1, "full"), (2, "stuck")] {
        fixture.deploy(number, &plan(settings(), "wait", sink));
        assert_eq!(fixture.all_said(number, 2).await, BOTH_RUN());
        let start = std::time::Instant::now();
        fixture.cancel(number);
        assert_eq!(fixture.all_said(number, 2).await, BOTH_CANCELED());
        assert!(start.elapsed() < Duration::from_secs(2), "cancelling at the sink {sink} took {:?}", start.elapsed());
    }
    fixture.gate.set_closed(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_registration_and_a_silent_job_manager_cancel_everything() {
    let mut fixture = Fixture::start(1).await;
    fixture.deploy(1, &plan(settings(), "wait", "collect"));
    assert_eq!(fixture.all_said(1, 2).await, BOTH_RUN());
    fixture.events.send(Event::Orphaned).ok().unwrap();
    assert_eq!(fixture.all_said(1, 2).await, BOTH_CANCELED());
    fixture.deploy(2, &plan(settings(), "wait", "collect"));
    assert_eq!(fixture.all_said(2, 2).await, BOTH_RUN());
    let (messages, up) = channel(1000);
    let uplink = Uplink { messages, job_manager: fixture.job_manager.calls(10 * 1024 * 1024) };
    fixture.events.send(Event::Registered(uplink)).ok().unwrap();
    fixture.up = up;
    assert_eq!(fixture.all_said(2, 2).await, BOTH_CANCELED());
    assert!(fixture.is_empty().await);
}
