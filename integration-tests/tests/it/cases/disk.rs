//! G82: a disk without room. Checkpoints are declined by name and the job goes on; where working files lie there its tasks fail by name
//! and come back; until there is room again.

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::uri;
use levada_integration_tests::small_disk::SmallDisk;
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{JobState, JobStatus};

fn failed_for_room(status: &JobStatus) -> u64 {
    let history = status.checkpoints.as_ref().map(|all| all.history.as_slice()).unwrap_or_default();
    history.iter().filter(|checkpoint| checkpoint.failure.contains("os error 28")).count() as u64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_declines_checkpoints_until_there_is_room() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 1, ..Setup::default() }).await?;
    let folder = cluster.path("checkpoints");
    let Some(disk) = SmallDisk::mount(&folder, 8 << 20)? else {
        // What writes there is tested on a disk of its own making all the same (upload/tests.rs, checkpoints/tests.rs).
        println!("not run: this process may not mount a file system");
        return Ok(());
    };
    for backend in ["fs", "rocksdb"] {
        let stream = StreamA {
            rows: 500_000,
            rate: Some(60_000),
            settings: format!(
                "  parallelism: 2\n  state: {{ backend: {backend}, inline_threshold: 0 }}\n  checkpoint: {{ interval: 100ms, timeout: 1m, num_retained: 1, tolerable_failures: 100000, dir: \"{}\" }}",
                uri(&folder)
            ),
        };
        let out = cluster.path(&format!("out-{backend}"));
        let job = cluster.submit(&stream.graph(&out)).await?;
        cluster.wait_for_checkpoints(&job, 2).await?;
        // Declined with the reason, long before their time is over; what older ones leave is taken as well.
        let declined = |status: &JobStatus| {
            disk.fill();
            failed_for_room(status) >= 3
        };
        let status = cluster.wait_until(&job, "checkpoints without room", declined).await?;
        let last = status.checkpoints.as_ref().and_then(|all| all.last_failed.clone()).expect("three failed");
        assert!(last.failure.contains("chk-") || last.failure.contains("shared/"), "the file is not named: {}", last.failure);
        assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "{}", status.failure);
        disk.free()?;
        let completed = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, completed + 2).await?;
        let status = cluster.finish(&job).await?;
        assert_eq!(status.restarts, 0, "{}", status.failure);
        assert!(output_lines(&out)? == stream.expected(), "{backend}: the rows differ");
        assert_eq!(leftovers(&out)?, Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_of_working_files_fails_tasks_by_name_until_there_is_room() -> anyhow::Result<()> {
    let mut setup = Setup { task_managers: 0, slots: 2, ..Setup::default() };
    // Little memory, so that databases are written all the time.
    setup.settings.extend(["taskmanager.memory.total=256MiB", "rocksdb.memory_fraction=0.005"].map(String::from));
    let mut cluster = Processes::start(setup).await?;
    let Some(disk) = SmallDisk::mount(&cluster.path("taskmanager-0"), 64 << 20)? else {
        println!("not run: this process may not mount a file system");
        return Ok(());
    };
    cluster.start_task_manager()?;
    let out = cluster.path("out");
    let graph = format!(
        "version: 1
name: full
settings:
  parallelism: 2
  state: {{ backend: rocksdb, inline_threshold: 0 }}
  checkpoint: {{ interval: 100ms, tolerable_failures: 100000, dir: \"{}\" }}
  restart: {{ strategy: fixed-delay, attempts: 100000, delay: 100ms }}
sources:
  numbers: {{ generate: {{ from: 0, to: 200000, rate: 40000, columns: {{ k: n % 40000, v: n }} }} }}
transforms:
  counts: {{ inputs: [numbers], key_by: [k], window: global, aggregate: {{ n: count(*), total: sum(v) }} }}
sinks:
  out: {{ inputs: [counts], file: {{ path: \"{}\", format: ndjson }} }}
",
        uri(&cluster.path("checkpoints")),
        out.display()
    );
    let job = cluster.submit(&graph).await?;
    cluster.wait_for_checkpoints(&job, 2).await?;
    let failed = |status: &JobStatus| {
        disk.fill();
        status.restarts >= 2 && status.failure.contains("No space left on device")
    };
    let status = cluster.wait_until(&job, "a task without room", failed).await?;
    assert!(status.failure.contains("taskmanager-0"), "the place is not named: {}", status.failure);
    disk.free()?;
    cluster.finish(&job).await?;
    let rows = output_lines(&out)?;
    let expected = |key: u64| format!("{{\"k\":{key},\"n\":5,\"total\":{}}}", 5 * key + 400_000);
    let mut expected: Vec<String> = (0..40_000).map(expected).collect();
    expected.sort_unstable();
    assert!(rows == expected, "{} rows", rows.len());
    drop(cluster);
    Ok(())
}
