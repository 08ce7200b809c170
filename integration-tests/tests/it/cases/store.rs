//! G05, G06, G08, G09, G81: checkpoints in a store that is missing, refuses, fails or is slow; and a job whose checkpoints are in S3.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use levada_common::storage::Storage;
use levada_integration_tests::http_proxy::{Fate, HttpProxy};
use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::services::{self, S3};
use levada_integration_tests::streams::{StreamA, StreamB};
use levada_proto::v1::{JobState, JobStatus};

/// A cluster whose store is reached through a proxy.
struct Rig {
    cluster: Processes,
    proxy: HttpProxy,
    s3: &'static S3,
    /// URI of the checkpoint directory.
    checkpoints: String,
}

impl Rig {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let s3 = services::s3().await?;
        let proxy = HttpProxy::start(s3.address).await?;
        let setup = Setup { task_managers: 2, slots: 2, environment: s3.environment(proxy.address), ..Setup::default() };
        Ok(Self { cluster: Processes::start(setup).await?, proxy, s3, checkpoints: s3.folder(name) })
    }

    /// Settings of a job whose state is in files of the store.
    fn settings(&self, checkpoint: &str) -> String {
        self.settings_on("fs", checkpoint)
    }

    fn settings_on(&self, backend: &str, checkpoint: &str) -> String {
        format!(
            "  parallelism: 4\n  state: {{ backend: {backend}, inline_threshold: 0 }}\n  checkpoint: {{ dir: \"{}\", {checkpoint} }}\n  restart: {{ strategy: fixed-delay, attempts: 1000, delay: 50ms }}",
            self.checkpoints
        )
    }

    /// What the store has, read past the proxy.
    fn storage(&self) -> anyhow::Result<Storage> {
        self.s3.storage(&self.checkpoints)
    }

    /// The checkpoints that have anything in the store.
    async fn folders(&self) -> anyhow::Result<BTreeSet<String>> {
        let files = self.storage()?.list("").await?;
        Ok(files.iter().filter_map(|file| file.path.split('/').nth(1).map(String::from)).collect())
    }
}

fn failed(status: &JobStatus) -> u64 {
    status.checkpoints.as_ref().map_or(0, |all| all.failed)
}

fn completed(status: &JobStatus) -> u64 {
    status.checkpoints.as_ref().map_or(0, |all| all.completed)
}

#[tokio::test(flavor = "multi_thread")]
async fn g05_a_directory_that_cannot_be_used_is_refused_at_submission() -> anyhow::Result<()> {
    let rig = Rig::start("g05a").await?;
    let file = rig.cluster.path("file");
    std::fs::write(&file, "")?;
    rig.proxy.set(|_, target| if target.contains("guarded") { Fate::Status(403) } else { Fate::Pass });
    for (dir, words) in [
        (format!("file://{}/below", file.display()), vec!["os error 20", "file/below"]),
        ("file:///proc/levada".into(), vec!["os error", "/proc/levada"]),
        ("s3://no-such-bucket/levada".into(), vec!["NoSuchBucket", "s3://no-such-bucket/levada"]),
        ("s3://levada/guarded".into(), vec!["access denied", "s3://levada/guarded"]),
        ("s3://levada/".into(), vec!["Cannot use the root directory for checkpoints"]),
        ("s3://levada".into(), vec!["The path to store the checkpoint data in is null"]),
        ("s3:///levada".into(), vec!["names no bucket"]),
        ("ftp://host/levada".into(), vec!["\"ftp\"", "file, s3 (s3a, s3n), hdfs"]),
        ("hdfs://127.0.0.1:1/levada".into(), vec!["cannot be reached", "hdfs://127.0.0.1:1/levada"]),
    ] {
        let settings = format!("  state: {{ backend: fs }}\n  checkpoint: {{ dir: \"{dir}\" }}");
        let stream = StreamB { rows: 10, rate: None, settings };
        let error = rig.cluster.submit(&stream.graph(&rig.cluster.path("out"))).await.expect_err(&dir);
        let text = format!("{error:#}");
        assert!(words.iter().all(|word| text.contains(word)), "{dir}: {text}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g05_a_store_that_refuses_for_a_while_declines_checkpoints_and_the_job_goes_on() -> anyhow::Result<()> {
    let rig = Rig::start("g05b").await?;
    let stream = StreamA {
        rows: 400_000,
        rate: Some(100_000),
        settings: rig.settings("interval: 50ms, timeout: 1s, tolerable_failures: 1000"),
    };
    let out = rig.cluster.path("out");
    let job = rig.cluster.submit(&stream.graph(&out)).await?;
    let mut before = completed(&rig.cluster.wait_for_checkpoints(&job, 2).await?);
    for fate in [Fate::Status(403), Fate::Status(500), Fate::Cut, Fate::Delay(Duration::from_secs(3))] {
        rig.proxy.set(move |method, _| if method == "PUT" { fate } else { Fate::Pass });
        let status = rig.cluster.wait_until(&job, "failed checkpoints", |status| failed(status) > before).await;
        let status = status.map_err(|error| error.context(format!("{fate:?}")))?;
        assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "{fate:?}: {}", status.failure);
        rig.proxy.set(|_, _| Fate::Pass);
        before = failed(&status).max(rig.cluster.wait_for_checkpoints(&job, completed(&status) + 1).await.map(|s| failed(&s))?);
    }
    let status = rig.cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g05_a_checkpoint_that_cannot_be_read_for_a_while_is_restored_all_the_same() -> anyhow::Result<()> {
    let mut rig = Rig::start("g05c").await?;
    let stream = StreamA { rows: 400_000, rate: Some(100_000), settings: rig.settings("interval: 100ms") };
    let out = rig.cluster.path("out");
    let job = rig.cluster.submit(&stream.graph(&out)).await?;
    rig.cluster.wait_for_checkpoints(&job, 2).await?;
    let refused = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&refused);
    rig.proxy.set(move |method, _| match method {
        "GET" if counted.fetch_add(1, Ordering::Relaxed) < 30 => Fate::Status(503),
        _ => Fate::Pass,
    });
    rig.cluster.kill_task_manager(0)?;
    rig.cluster.start_task_manager()?;
    let status = rig.cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
    assert!(status.restarts >= 1 && refused.load(Ordering::Relaxed) > 30, "the fault did not hit");
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g06_slow_deletions_are_bounded_and_caught_up_with() -> anyhow::Result<()> {
    let rig = Rig::start("g06").await?;
    let settings = rig.settings("interval: 20ms, num_retained: 1, tolerable_failures: 100000, timeout: 5s");
    let stream = StreamB { rows: 600_000, rate: Some(100_000), settings };
    let out = rig.cluster.path("out");
    let job = rig.cluster.submit(&stream.graph(&out)).await?;
    rig.cluster.wait_for_checkpoints(&job, 1).await?;
    // S3 deletes many objects at once by a POST.
    rig.proxy.set(|method, target| match method {
        "DELETE" => Fate::Delay(Duration::from_secs(1)),
        "POST" if target.contains("delete") => Fate::Delay(Duration::from_secs(1)),
        _ => Fate::Pass,
    });
    let status = rig.cluster.wait_for_checkpoints(&job, 40).await?;
    let folders = rig.folders().await?;
    // One that is retained, one under way, and as many as may be deleted at a time.
    assert!(folders.len() <= 24, "{} of {} checkpoints are left: {folders:?}", folders.len(), completed(&status));
    rig.proxy.set(|_, _| Fate::Pass);
    let status = rig.cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    let mut left = rig.folders().await?;
    let patience = std::time::Instant::now();
    while !left.is_empty() && patience.elapsed() < Duration::from_secs(60) {
        // Deletions go on after the job's end; nothing announces the last one.
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = rig.folders().await?;
    }
    assert!(left.is_empty(), "a job that has FINISHED keeps no checkpoint: {left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g08_two_jobs_of_one_name_keep_their_state_apart() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { slots: 4, ..Setup::default() }).await?;
    let checkpoints = cluster.path("checkpoints");
    let settings = format!(
        "  parallelism: 4\n  state: {{ backend: fs, inline_threshold: 0 }}\n  checkpoint: {{ dir: \"file://{}\", interval: 100ms }}\n  restart: {{ strategy: fixed-delay, attempts: 100, delay: 50ms }}",
        checkpoints.display()
    );
    let stream = StreamA { rows: 400_000, rate: Some(80_000), settings };
    let (single, double) = (cluster.path("single"), cluster.path("double"));
    let graphs = [stream.graph(&single), stream.graph(&double).replace("        v: n\n", "        v: n * 2\n")];
    let jobs = [cluster.submit(&graphs[0]).await?, cluster.submit(&graphs[1]).await?];
    for job in &jobs {
        cluster.wait_for_checkpoints(job, 3).await?;
    }
    for number in cluster.running() {
        cluster.kill_task_manager(number)?;
        cluster.start_task_manager()?;
    }
    for job in &jobs {
        let status = cluster.finish(job).await?;
        assert!(status.restarts >= 1 && status.restored_checkpoint > 0, "the kill did not hit");
    }
    let doubled = |line: String| {
        let (start, total) = line.rsplit_once(':').expect("the total is last");
        let total: u64 = total.trim_end_matches('}').parse().expect("a number");
        format!("{start}:{}}}", total * 2)
    };
    let mut expected: Vec<String> = stream.expected().into_iter().map(doubled).collect();
    expected.sort_unstable();
    assert!(output_lines(&single)? == stream.expected(), "the rows of the first differ");
    assert!(output_lines(&double)? == expected, "the rows of the second differ");
    Ok(())
}

/// G81: a store that asks to slow down, loses connections, and is away for a while.
#[tokio::test(flavor = "multi_thread")]
async fn g81_a_store_that_asks_to_slow_down_costs_no_row_and_no_restart() -> anyhow::Result<()> {
    let rig = Rig::start("g81").await?;
    let settings = rig.settings("interval: 100ms, timeout: 5s, num_retained: 1, tolerable_failures: 1000");
    let stream = StreamB { rows: 1_200_000, rate: Some(60_000), settings };
    let out = rig.cluster.path("out");
    let job = rig.cluster.submit(&stream.graph(&out)).await?;
    let mut status = rig.cluster.wait_for_checkpoints(&job, 1).await?;
    // Of ten requests so many meet this fate, by turns.
    for (of_ten, fate) in [(3, Fate::Status(503)), (1, Fate::CutAnswer), (1, Fate::Cut), (1, Fate::Delay(Duration::from_secs(2)))]
    {
        let mut requests = 0;
        rig.proxy.set(move |_, _| {
            requests += 1;
            if requests * 7 % 10 < of_ten { fate } else { Fate::Pass }
        });
        let wanted = completed(&status) + 3;
        status = rig.cluster.wait_for_checkpoints(&job, wanted).await.map_err(|error| error.context(format!("{fate:?}")))?;
    }
    let requests = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&requests);
    rig.proxy.set(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        Fate::Status(500)
    });
    let before = failed(&status);
    status = rig.cluster.wait_until(&job, "a failed checkpoint", |status| failed(status) > before).await?;
    // A checkpoint under way asks again, later each time: three tasks with a file each would come to thousands otherwise.
    let asked = requests.load(Ordering::Relaxed);
    assert!(asked < 500, "{asked} requests while the store was away");
    rig.proxy.set(|_, _| Fate::Pass);
    rig.cluster.wait_for_checkpoints(&job, completed(&status) + 1).await?;
    let status = rig.cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    let mut left = rig.storage()?.list("").await?;
    let patience = std::time::Instant::now();
    while !left.is_empty() && patience.elapsed() < Duration::from_secs(60) {
        // Deletions go on after the job's end; nothing announces the last one.
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = rig.storage()?.list("").await?;
    }
    assert_eq!(left, [], "objects of checkpoints that are gone");
    assert_eq!(rig.s3.open_uploads(&rig.checkpoints).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g09_failed_checkpoints_leave_nothing() -> anyhow::Result<()> {
    // A database has many files, of which each takes its time.
    for (backend, timeout) in [("fs", "300ms"), ("rocksdb", "3s")] {
        failed_checkpoints_leave_nothing(backend, timeout).await?;
    }
    Ok(())
}

async fn failed_checkpoints_leave_nothing(backend: &str, timeout: &str) -> anyhow::Result<()> {
    let rig = Rig::start(&format!("g09-{backend}")).await?;
    let checkpoint =
        format!("interval: 50ms, timeout: {timeout}, num_retained: 1, tolerable_failures: 100000, retention: delete");
    let settings = rig.settings_on(backend, &checkpoint);
    let stream = StreamA { rows: 100_000_000, rate: Some(50_000), settings };
    let job = rig.cluster.submit(&stream.graph(&rig.cluster.path("out"))).await?;
    rig.cluster.wait_for_checkpoints(&job, 1).await?;
    let mut puts = 0;
    rig.proxy.set(move |method, target| {
        puts += usize::from(method == "PUT");
        // The metadata come through, so that not every checkpoint is lost; of the states most do not.
        match (method, puts % 3) {
            ("PUT", 1 | 2) if !target.contains("_metadata") => Fate::Status(500),
            _ => Fate::Pass,
        }
    });
    rig.cluster.wait_until(&job, "five failed checkpoints", |status| failed(status) >= 5).await?;
    rig.proxy.set(|_, _| Fate::Pass);
    let status = rig.cluster.describe(&job).await?;
    rig.cluster.wait_for_checkpoints(&job, completed(&status) + 5).await?;
    rig.cluster.client().await?.cancel(&job).await?;
    let status = rig.cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Canceled, "{}", status.failure);
    let mut left = rig.storage()?.list("").await?;
    let patience = std::time::Instant::now();
    while !left.is_empty() && patience.elapsed() < Duration::from_secs(60) {
        // As above.
        tokio::time::sleep(Duration::from_millis(50)).await;
        left = rig.storage()?.list("").await?;
    }
    assert_eq!(left, [], "{backend}: files of failed or deleted checkpoints");
    assert_eq!(rig.s3.open_uploads(&rig.checkpoints).await?, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_the_same_with_checkpoints_on_s3_and_kills() -> anyhow::Result<()> {
    let mut rig = Rig::start("kill").await?;
    let stream = StreamA { rows: 600_000, rate: Some(150_000), settings: rig.settings("interval: 100ms") };
    let out = rig.cluster.path("out");
    let job = rig.cluster.submit(&stream.graph(&out)).await?;
    for kills in 1..=3 {
        let status = rig.cluster.describe(&job).await?;
        rig.cluster.wait_for_checkpoints(&job, completed(&status) + 2).await?;
        rig.cluster.kill_task_manager(rig.cluster.running()[0])?;
        rig.cluster.start_task_manager()?;
        rig.cluster
            .wait_until(&job, "a restart", |status| status.restarts >= kills && status.state() == JobState::Running)
            .await?;
    }
    let status = rig.cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, rig.cluster.logs());
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn checkpoints_on_hdfs_are_restored() -> anyhow::Result<()> {
    let checkpoints = services::hdfs().await?.folder("checkpoints");
    let mut cluster = Processes::start(Setup::default()).await?;
    let settings = format!(
        "  parallelism: 4\n  state: {{ backend: fs, inline_threshold: 0 }}\n  checkpoint: {{ dir: \"{checkpoints}\", interval: 200ms, num_retained: 1 }}\n  restart: {{ strategy: fixed-delay, attempts: 100, delay: 50ms }}"
    );
    let stream = StreamA { rows: 400_000, rate: Some(100_000), settings };
    let out = cluster.path("out");
    let job = cluster.submit(&stream.graph(&out)).await?;
    cluster.wait_for_checkpoints(&job, 2).await?;
    cluster.kill_task_manager(0)?;
    cluster.start_task_manager()?;
    let status = cluster.wait(&job).await?;
    assert_eq!(status.state(), JobState::Finished, "{}\n{}", status.failure, cluster.logs());
    assert!(status.restarts >= 1, "the kill did not hit");
    assert!(output_lines(&out)? == stream.expected(), "the rows differ");
    Ok(())
}
