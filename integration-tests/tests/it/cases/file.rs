//! File input: line ends across reads, gigantic lines.

use std::fs::File;
use std::io::Write;

use levada_integration_tests::process::{Processes, Setup, output_lines};
use levada_proto::v1::JobState;

use super::{Job, finish, node};

/// Where a CR stands: at the edges of the buffers that readers use.
const EDGES: [usize; 5] = [4095, 4096, 8191, 65_535, 1_048_575];

/// A text whose line ends are CRLF with a CR at each edge and one byte beside it; answers its lines.
fn mixed(path: &std::path::Path) -> anyhow::Result<Vec<String>> {
    let (mut text, mut lines) = (Vec::new(), Vec::new());
    let mut number = 0;
    let mut line = |text: &mut Vec<u8>, body: String, end: &[u8]| {
        text.extend_from_slice(body.as_bytes());
        text.extend_from_slice(end);
        lines.push(body);
    };
    for edge in EDGES {
        for shift in [-1i64, 0, 1] {
            let at = (edge as i64 + shift) as usize;
            while text.len() + 40 < at {
                number += 1;
                let end: &[u8] = if number % 2 == 0 { b"\n" } else { b"\r\n" };
                line(&mut text, format!("x{number}"), end);
            }
            if text.len() < at {
                number += 1;
                let body = format!("{:0<width$}", format!("x{number}"), width = at - text.len());
                line(&mut text, body, b"\r\n");
            }
        }
    }
    line(&mut text, "lone\rcr".into(), b"\n");
    line(&mut text, "last".into(), b"");
    File::create(path)?.write_all(&text)?;
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn g63_crlf_across_reads() -> anyhow::Result<()> {
    let mut cluster = Processes::start(Setup { task_managers: 2, slots: 2, ..Setup::default() }).await?;
    let path = cluster.path("mixed.txt");
    let mut expected: Vec<String> =
        mixed(&path)?.into_iter().map(|line| serde_json::json!({ "line": line }).to_string()).collect();
    expected.sort_unstable();
    for (round, (parallelism, split)) in [(1, "64MiB"), (4, "64KiB"), (4, "4097")].into_iter().enumerate() {
        let out = cluster.path(&format!("out-{round}"));
        let settings = format!(
            "parallelism: {parallelism}, checkpoint: {{ interval: 20ms }}, restart: {{ strategy: fixed-delay, delay: 20ms, attempts: 5 }}"
        );
        let source = format!("file: {{ path: \"{}\", format: text, split_size: {split} }}", path.display());
        let job = Job { settings: &settings, source, transform: "where: line is not null", out: &out };
        let id = cluster.submit(&job.graph()).await?;
        if round > 0 {
            let running = cluster.running()[0];
            cluster.kill_task_manager(running)?;
            cluster.start_task_manager()?;
        }
        let status = cluster.wait(&id).await?;
        assert_eq!(status.state(), JobState::Finished, "{}", status.failure);
        assert!(output_lines(&out)? == expected, "parallelism {parallelism}, splits of {split}: the lines differ");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn g66_gigantic_lines_are_bad_records_and_the_others_arrive() -> anyhow::Result<()> {
    let cluster = Processes::start(Setup { task_managers: 1, slots: 4, ..Setup::default() }).await?;
    let path = cluster.path("giant.txt");
    let mut file = File::create(&path)?;
    for (number, megabytes) in [1usize, 16, 100].into_iter().enumerate() {
        writeln!(file, "before {number}")?;
        file.write_all(&vec![b'a' + number as u8; megabytes << 20])?;
        file.write_all(b"\n")?;
    }
    writeln!(file, "after")?;
    let sparse = file.metadata()?.len() + (3 << 30);
    file.set_len(sparse)?;
    drop(file);
    let out = cluster.path("out");
    let source = format!("file: {{ path: \"{}\", format: text }}\nbad_records: drop", path.display());
    let job = Job {
        settings: "parallelism: 4",
        source,
        transform: "select: { size: character_length(line), head: \"substr(line, 1, 8)\" }",
        out: &out,
    };
    let (status, rows) = finish(&cluster, &job).await?;
    assert_eq!(node(&status, "input").bad_records, 3, "16 MiB, 100 MiB and the 3 GiB without an end");
    assert_eq!(
        rows,
        [
            r#"{"size":1048576,"head":"aaaaaaaa"}"#,
            r#"{"size":5,"head":"after"}"#,
            r#"{"size":8,"head":"before 0"}"#,
            r#"{"size":8,"head":"before 1"}"#,
            r#"{"size":8,"head":"before 2"}"#
        ]
    );
    let pid = cluster.task_manager_pid(0).expect("it runs");
    let memory = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let peak = memory
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .and_then(|line| line.split_whitespace().nth(1))
        .expect("Linux shows it");
    assert!(peak.parse::<u64>()? < 512 << 10, "the TaskManager held {peak} KiB");
    Ok(())
}
