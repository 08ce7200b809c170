//! How storages outside this machine are reached.

use std::fmt;
use std::sync::OnceLock;

/// What a process sets about its storages; what is not set comes from the environment (`AWS_...`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageOptions {
    /// `s3://`.
    pub s3: S3Options,
}

/// How `s3://` is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Options {
    /// The server's address, such as `http://127.0.0.1:9000`; none = `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, or Amazon's own.
    pub endpoint: Option<String>,
    /// The region; none = `AWS_REGION`, `AWS_DEFAULT_REGION`, or us-east-1.
    pub region: Option<String>,
    /// Whether the bucket stands in the path of a request (`endpoint/bucket`) and not before its host (`bucket.endpoint`).
    pub path_style: bool,
    /// Who asks; none = `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or the role of the machine or the container.
    pub keys: Option<S3Keys>,
}

/// An access key and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Keys {
    /// The access key's id.
    pub id: String,
    /// Its secret.
    pub secret: String,
}

impl fmt::Debug for S3Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Default for S3Options {
    fn default() -> Self {
        Self { endpoint: None, region: None, path_style: true, keys: None }
    }
}

/// Those of this process. The one setting that is not handed down: a URI is opened in many places, by connectors among them,
/// and the environment, which holds the rest of what is needed, is the process's too.
static OF_PROCESS: OnceLock<StorageOptions> = OnceLock::new();

impl StorageOptions {
    /// Makes these the ones of this process. Those of the first call stay: services of one process share them.
    pub fn install(&self) {
        let _ = OF_PROCESS.set(self.clone());
    }

    /// Those of this process.
    pub fn of_process() -> Self {
        OF_PROCESS.get().cloned().unwrap_or_default()
    }
}
