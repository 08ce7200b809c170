//! G11: checkpoints that expire under back-pressure are shown, counted and tolerated, and leave nothing behind.

use std::fs;
use std::path::Path;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::streams::StreamB;
use levada_proto::v1::{JobState, JobStatus};

fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the TaskManager runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux shows it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

fn files_below(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path().display().to_string());
            }
        }
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn g11_checkpoints_expire_under_back_pressure_and_recover() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let (control, out, checkpoints) = (cluster.path("rate"), cluster.path("out"), cluster.path("checkpoints"));
    fs::write(&control, "0")?;
    let stream = StreamB {
        rows: 3_000_000,
        rate: None,
        settings: format!(
            "  parallelism: 4\n  state: {{ backend: fs, inline_threshold: 0 }}\n  checkpoint: {{ interval: 250ms, timeout: 1s, tolerable_failures: 1000, num_retained: 1, dir: \"file://{}\" }}",
            checkpoints.display()
        ),
    };
    let graph = stream.graph(&out) + &format!("  slow:\n    inputs: [ids]\n    slow: {{ control: \"{}\" }}\n", control.display());
    let job = cluster.submit(&graph).await?;
    let expired = |status: &JobStatus| {
        let all = status.checkpoints.as_ref();
        all.is_some_and(|all| {
            all.failed >= 3 && all.last_failed.as_ref().is_some_and(|last| last.failure.contains("expired after 1000 ms"))
        })
    };
    let status = cluster.wait_until(&job, "three expired checkpoints", expired).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Running, 0), "{}", status.failure);
    for number in cluster.running() {
        let resident = resident_bytes(cluster.task_manager_pid(number).expect("it runs"));
        assert!(resident < 400 << 20, "TaskManager {number} holds {resident} bytes");
    }
    let completed = status.checkpoints.map_or(0, |all| all.completed);
    fs::remove_file(&control)?;
    cluster.wait_for_checkpoints(&job, completed + 1).await?;
    let status = cluster.wait(&job).await?;
    assert_eq!((status.state(), status.restarts), (JobState::Finished, 0), "{}", status.failure);
    assert!(output_lines(&out)? == stream.expected(), "the ids differ");
    assert_eq!(leftovers(&out)?, Vec::<String>::new());
    let last = status.checkpoints.and_then(|all| all.last_completed).expect("the final checkpoint").id;
    let stray: Vec<String> =
        files_below(&checkpoints).into_iter().filter(|file| !file.contains(&format!("chk-{last}/"))).collect();
    assert_eq!(stray, Vec::<String>::new(), "files of checkpoints that were given up or replaced");
    Ok(())
}
