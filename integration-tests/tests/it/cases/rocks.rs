//! The rocksdb backend among real processes: what a killed TaskManager leaves in its data directory; G48, G49: few file descriptors, and
//! files on several disks.

use std::sync::atomic::{AtomicUsize, Ordering};

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::uri;
use levada_integration_tests::small_disk::SmallDisk;
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{JobState, JobStatus};

use super::Job;

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_task_manager_leaves_nothing_and_its_job_goes_on() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 1, slots: 2, ..Setup::default() }).await?;
    let out = cluster.path("out");
    let settings = format!(
        "parallelism: 2, state: {{ backend: rocksdb, inline_threshold: 0 }}, restart: {{ strategy: fixed-delay, delay: 20ms, attempts: 5 }}, checkpoint: {{ interval: 50ms, dir: \"file://{}\" }}",
        cluster.path("checkpoints").display()
    );
    let source = "generate: { from: 0, to: 40000, rate: 20000, columns: { k: n % 1000 } }".into();
    let job =
        Job { settings: &settings, source, transform: "key_by: [k]\nwindow: global\naggregate: { n: count(*) }", out: &out };
    let id = cluster.submit(&job.graph()).await?;
    cluster.wait_for_checkpoints(&id, 2).await?;
    cluster.kill_task_manager(0)?;
    // The next one finds what the killed one had.
    std::fs::rename(cluster.path("taskmanager-0"), cluster.path("taskmanager-1"))?;
    let left = working_folders(&cluster)?;
    assert_eq!(left.len(), 1, "{left:?}");
    cluster.start_task_manager()?;
    let status = cluster.wait(&id).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 1), "{}\n{}", status.failure, cluster.logs());
    let rows = output_lines(&out)?;
    assert_eq!(rows.len(), 1_000);
    assert!(rows.iter().all(|row| row.ends_with("\"n\":40}")), "{}", rows[0]);
    let here = working_folders(&cluster)?;
    assert!(here.len() == 1 && here != left, "only the living one's is left: {here:?}, before {left:?}");
    Ok(())
}

/// Folders in the data directory of the second TaskManager.
fn working_folders(cluster: &Processes) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(cluster.path("taskmanager-1"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(names)
}

const OPEN_FILES: u32 = 256;

/// Counts 60,000 keys in so many operators, each with databases of its own.
fn counted_by(cluster: &Processes, operators: usize) -> String {
    let of = |text: &dyn Fn(usize) -> String| (0..operators).map(text).collect::<String>();
    format!(
        "version: 1
name: many-databases
settings:
  parallelism: 2
  state: {{ backend: rocksdb, inline_threshold: 0 }}
  checkpoint: {{ interval: 300ms, dir: \"{}\" }}
sources:
  numbers: {{ generate: {{ from: 0, to: 120000, columns: {{ k: n % 60000 }} }} }}
transforms:
{}sinks:
{}",
        uri(&cluster.path("checkpoints")),
        of(&|operator| format!(
            "  c{operator}: {{ inputs: [numbers], key_by: [k], window: global, aggregate: {{ n: count(*) }} }}\n"
        )),
        of(&|operator| format!(
            "  out{operator}: {{ inputs: [c{operator}], file: {{ path: \"{}\", format: ndjson }} }}\n",
            cluster.path(&format!("out-{operator}")).display()
        ))
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn g48_databases_keep_to_the_process_s_limit_of_open_files() -> anyhow::Result<()> {
    let mut setup = Setup { task_managers: 1, slots: 2, open_files: Some(OPEN_FILES), ..Setup::default() };
    setup.settings.extend(["taskmanager.memory.total=256MiB", "rocksdb.memory_fraction=0.005"].map(String::from));
    let cluster = Processes::start(setup).await?;
    let job = cluster.submit(&counted_by(&cluster, 2)).await?;
    let most = AtomicUsize::new(0);
    let pid = cluster.task_manager_pid(0).expect("it runs");
    let ended = |status: &JobStatus| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count);
        most.fetch_max(open, Ordering::Relaxed);
        status.state() == JobState::Finished
    };
    cluster.wait_until(&job, "the job's end", ended).await?;
    let most = most.into_inner();
    assert!(most > 40 && most < OPEN_FILES as usize, "{most} files were open at once");
    for operator in 0..2 {
        let rows = output_lines(&cluster.path(&format!("out-{operator}")))?;
        assert!(rows.len() == 60_000 && rows.iter().all(|row| row.ends_with("\"n\":2}")), "{} rows", rows.len());
    }

    let job = cluster.submit(&counted_by(&cluster, 5)).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Failed);
    for part in ["file descriptors", "ulimit -n", "at least"] {
        assert!(status.failure.contains(part), "\"{part}\" is missing in: {}", status.failure);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g49_working_files_temporary_files_and_checkpoints_lie_on_several_disks() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let mount = |name: &str| SmallDisk::mount(&folder.path().join(name), 64 << 20);
    let (Some(_checkpoints), Some(_temporary)) = (mount("checkpoints")?, mount("temporary")?) else {
        println!("not run: this process may not mount a file system");
        return Ok(());
    };
    let temporary = folder.path().join("temporary").display().to_string();
    let setup = Setup { task_managers: 0, slots: 2, environment: vec![("TMPDIR".into(), temporary)], ..Setup::default() };
    let mut cluster = Processes::start(setup).await?;
    let mut disks = Vec::new();
    for number in 0..6 {
        disks.extend(SmallDisk::mount(&cluster.path(&format!("taskmanager-{number}")), 64 << 20)?);
    }
    cluster.start_task_manager()?;
    let stream = StreamA {
        rows: 600_000,
        rate: Some(60_000),
        settings: format!(
            "  parallelism: 2\n  state: {{ backend: rocksdb, inline_threshold: 0 }}\n  checkpoint: {{ interval: 100ms, dir: \"{}\" }}\n  restart: {{ strategy: fixed-delay, attempts: 100, delay: 20ms }}",
            uri(&folder.path().join("checkpoints"))
        ),
    };
    let out = cluster.path("out");
    let job = cluster.submit(&stream.graph(&out)).await?;
    for round in 1..=5 {
        let completed = |status: &JobStatus| status.checkpoints.as_ref().map_or(0, |all| all.completed);
        let seen = completed(&cluster.describe(&job).await?);
        cluster.wait_for_checkpoints(&job, seen + 1).await?;
        cluster.kill_task_manager(cluster.running()[0])?;
        cluster.start_task_manager()?;
        let again = |status: &JobStatus| status.restarts >= round && status.state() == JobState::Running;
        cluster.wait_until(&job, "RUNNING again", again).await?;
    }
    cluster.finish(&job).await?;
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    drop(cluster);
    drop(disks);
    Ok(())
}
