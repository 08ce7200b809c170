//! Why a submission is refused, and how a client hears of it.

use levada_common::graph::GraphErrors;
use levada_common::restore_check::BadDrop;
use tonic::{Code, Status};

/// Longest text of a status, counted as it travels (a gRPC message is a header, and clients take 8 KiB of them).
const STATUS_BYTES_MAX: usize = 6 * 1024;

/// Why a job is not started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The document has defects; a line each.
    #[error("{0}")]
    Document(String),
    #[error("the document has {bytes} bytes, the limit is {limit}")]
    DocumentSize { bytes: usize, limit: usize },
    #[error("the request id has {bytes} bytes, the limit is {limit}")]
    RequestId { bytes: usize, limit: usize },
    #[error("settings.checkpoint.dir: \"{dir}\" cannot be used: {cause}")]
    CheckpointDir { dir: String, cause: String },
    #[error("{0}")]
    DropState(#[from] BadDrop),
    /// The snapshot cannot be read.
    #[error("{0}")]
    Snapshot(String),
    /// The snapshot does not fit the job; a line for each mismatch.
    #[error("{0}")]
    Restore(String),
    #[error("sources.{uid}: {cause}")]
    Splits { uid: String, cause: String },
    #[error("{jobs} jobs are running, the limit is {limit}; cancel some")]
    TooManyJobs { jobs: usize, limit: usize },
    #[error("{0}")]
    NetworkMemory(String),
    #[error("the snapshot: {0}")]
    InlineBudget(String),
    #[error("planning the job panicked; this is a defect of Levada")]
    PlanningPanicked,
    #[error("the JobManager is stopping")]
    Stopping,
}

impl Refusal {
    /// Every defect of a document in one text, each line beginning with the document's name.
    pub(crate) fn document(name: &str, errors: &GraphErrors) -> Self {
        let prefix = if name.is_empty() { String::new() } else { format!("{name}: ") };
        let mut text = String::new();
        let mut room = STATUS_BYTES_MAX;
        for (index, error) in errors.0.iter().enumerate() {
            let line = clip(&format!("{prefix}{error}"), 2 * 1024);
            let bytes = encoded_bytes(&line) + 3;
            let last = index + 1 == errors.0.len();
            if bytes + if last { 0 } else { 64 } > room {
                text.push_str(&format!("\n... and {} more", errors.0.len() - index));
                break;
            }
            room -= bytes;
            if index > 0 {
                text.push('\n');
            }
            text.push_str(&line);
        }
        Self::Document(text)
    }
}

/// Bytes of a status message on the wire, where whatever is not plain ASCII is percent-encoded.
fn encoded_bytes(text: &str) -> usize {
    text.bytes().map(|byte| if byte.is_ascii_alphanumeric() || b" .,:;()[]_-/'=".contains(&byte) { 1 } else { 3 }).sum()
}

/// The beginning of `text` that travels in at most `bytes_max` bytes.
fn clip(text: &str, bytes_max: usize) -> String {
    if encoded_bytes(text) <= bytes_max {
        return text.into();
    }
    let mut room = bytes_max.saturating_sub(12);
    let mut clipped = String::new();
    for char in text.chars() {
        let bytes = encoded_bytes(char.encode_utf8(&mut [0; 4]));
        if bytes > room {
            break;
        }
        room -= bytes;
        clipped.push(char);
    }
    clipped + "..."
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::Document(_) | Refusal::DocumentSize { .. } | Refusal::RequestId { .. } | Refusal::DropState(_) => {
                Code::InvalidArgument
            }
            Refusal::CheckpointDir { .. } | Refusal::Splits { .. } | Refusal::Snapshot(_) | Refusal::Restore(_) => {
                Code::FailedPrecondition
            }
            Refusal::TooManyJobs { .. } | Refusal::NetworkMemory(_) | Refusal::InlineBudget(_) => Code::ResourceExhausted,
            Refusal::PlanningPanicked => Code::Internal,
            Refusal::Stopping => Code::Unavailable,
        };
        Status::new(code, clip(&refusal.to_string(), STATUS_BYTES_MAX + 128))
    }
}

#[cfg(test)]
mod tests {
    use levada_common::graph::GraphError;

    use super::*;

    fn errors(count: u32, message: &str) -> GraphErrors {
        let error = |line| GraphError { line, path: "transforms.words.select".into(), message: message.into() };
        GraphErrors((1..=count).map(error).collect())
    }

    #[test]
    fn every_error_has_a_line() {
        let refusal = Refusal::document("job.yaml", &errors(2, "column \"lin\" not found; columns: line"));
        let text = Status::from(refusal).message().to_string();
        let expected = "job.yaml: line 1: transforms.words.select: column \"lin\" not found; columns: line\n\
                        job.yaml: line 2: transforms.words.select: column \"lin\" not found; columns: line";
        assert_eq!(text, expected);
        let text = Refusal::document("", &errors(1, "bad")).to_string();
        assert_eq!(text, "line 1: transforms.words.select: bad");
    }

    #[test]
    fn ten_thousand_errors_still_fit_a_header() {
        for message in ["bad".to_string(), "ä\"\n".repeat(3_000)] {
            let status = Status::from(Refusal::document("job.yaml", &errors(10_000, &message)));
            assert!(encoded_bytes(status.message()) < 7 * 1024, "{}", encoded_bytes(status.message()));
            assert!(status.message().contains("more"), "{}", status.message());
        }
    }
}
