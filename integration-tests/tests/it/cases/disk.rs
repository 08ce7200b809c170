//! A disk without room: checkpoints are declined by name and the job goes on, until there is room again.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use levada_integration_tests::process::{Processes, Setup, leftovers, output_lines};
use levada_integration_tests::savepoint::uri;
use levada_integration_tests::streams::StreamA;
use levada_proto::v1::{JobState, JobStatus};

/// A small file system in memory; it is unmounted when this is dropped.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// Mounts one at `path`; `None` where this process may not.
    fn mount(path: &Path, bytes: u64) -> anyhow::Result<Option<Self>> {
        fs::create_dir(path)?;
        let options = format!("size={bytes}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).output();
        Ok(mounted.is_ok_and(|output| output.status.success()).then(|| Self(path.to_path_buf())))
    }

    /// Takes all the room that is left.
    fn fill(&self) {
        let ballast = fs::OpenOptions::new().create(true).append(true).open(self.ballast());
        let block = [0; 4096];
        while ballast.as_ref().is_ok_and(|mut file| file.write_all(&block).is_ok()) {}
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: a process that is being killed may still have a file open there.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

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
        fs::remove_file(disk.ballast())?;
        let completed = status.checkpoints.map_or(0, |all| all.completed);
        cluster.wait_for_checkpoints(&job, completed + 2).await?;
        let status = cluster.finish(&job).await?;
        assert_eq!(status.restarts, 0, "{}", status.failure);
        assert!(output_lines(&out)? == stream.expected(), "{backend}: the rows differ");
        assert_eq!(leftovers(&out)?, Vec::<String>::new());
    }
    Ok(())
}
