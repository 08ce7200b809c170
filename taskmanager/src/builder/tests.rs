use levada_common::config::{Configuration, Layers};
use levada_proto::v1::{from_task_manager, to_task_manager};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::testing::{TestJobManager, Told};

fn config(job_manager: &str, settings: &[&str]) -> TaskManagerConfig {
    let own =
        [format!("taskmanager.jobmanager={job_manager}"), "taskmanager.data_port=0".into(), "taskmanager.http_port=0".into()];
    let set = own.into_iter().chain(settings.iter().map(|setting| (*setting).into())).collect();
    Configuration::load(&Layers { set, ..Layers::default() }).unwrap().task_manager().unwrap()
}

fn welcome(protocol: u32) -> v1::ToTaskManager {
    let welcome = v1::Welcome {
        version: "0.1.0".into(),
        protocol,
        epoch: 1,
        heartbeat_interval_ms: 20,
        heartbeat_timeout_ms: 60_000,
        frame_size_bytes: 10 * 1024 * 1024,
    };
    v1::ToTaskManager { message: Some(to_task_manager::Message::Welcome(welcome)) }
}

async fn up(job_manager: &mut TestJobManager) -> from_task_manager::Message {
    match job_manager.told.recv().await.unwrap() {
        Told::Up(message) => message.message.unwrap(),
        other => panic!("{other:?}"),
    }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_registers_beats_and_registers_again() {
    let mut job_manager = TestJobManager::start().await;
    let sink = CustomSink { name: "tally".into(), options: vec!["hash".into()], changelog: true, exactly_once: false };
    let factory: SinkFactory = Arc::new(|_| unreachable!("no job runs"));
    let builder = Builder::new(config(&job_manager.address, &["taskmanager.slots=3"])).sink(sink.clone(), factory);
    let task_manager = builder.start().await.unwrap();
    let from_task_manager::Message::Hello(hello) = up(&mut job_manager).await else { panic!("the first message is Hello") };
    assert_eq!((hello.slots, hello.protocol, hello.data_address.as_str()), (3, PROTOCOL, task_manager.data_address()));
    assert_eq!(serde_json::from_str::<CustomSink>(&hello.custom_sinks_json[0]).unwrap(), sink);
    assert!(hello.memory_total_bytes > hello.network_memory_bytes && hello.heap_state_bytes > 0);
    assert!(get(task_manager.http_address(), "/health").await.starts_with("HTTP/1.1 503"));
    let down = job_manager.registered.recv().await.unwrap();
    down.send(Ok(welcome(PROTOCOL))).unwrap();
    for sequence in 1..3 {
        match up(&mut job_manager).await {
            from_task_manager::Message::Heartbeat(beat) => assert_eq!(beat.sequence, sequence),
            other => panic!("{other:?}"),
        }
    }
    assert!(get(task_manager.http_address(), "/health").await.starts_with("HTTP/1.1 200"));
    let metrics = get(task_manager.http_address(), "/metrics").await;
    assert!(metrics.contains("\nlevada_taskmanager_slots 3\n") && metrics.contains("\nlevada_taskmanager_registered 1\n"));
    drop(down);
    let again = job_manager.registered.recv().await.unwrap();
    again.send(Ok(welcome(PROTOCOL))).unwrap();
    task_manager.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_manager_of_another_protocol_is_not_worked_for() {
    let mut job_manager = TestJobManager::start().await;
    let task_manager = Builder::new(config(&job_manager.address, &[])).start().await.unwrap();
    for _ in 0..2 {
        assert!(matches!(up(&mut job_manager).await, from_task_manager::Message::Hello(_)), "no heartbeat is sent");
        job_manager.registered.recv().await.unwrap().send(Ok(welcome(PROTOCOL + 1))).unwrap();
    }
    assert!(get(task_manager.http_address(), "/health").await.starts_with("HTTP/1.1 503"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_port_answers_health() {
    let job_manager = TestJobManager::start().await;
    let task_manager = Builder::new(config(&job_manager.address, &[])).start().await.unwrap();
    let endpoint = Endpoint::from_shared(format!("http://{}", task_manager.data_address())).unwrap();
    let mut client = HealthClient::new(endpoint.connect().await.unwrap());
    let answer = client.check(HealthCheckRequest { service: String::new() }).await.unwrap();
    assert_eq!(answer.into_inner().status(), ServingStatus::Serving);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_that_is_taken_is_named() {
    let taken = StdListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let config = config("127.0.0.1:1", &[&format!("taskmanager.data_port={port}")]);
    let error = Builder::new(config).start().await.err().unwrap().to_string();
    assert!(error.contains(&port.to_string()) && error.contains("taskmanager.data_port"), "{error}");
}
