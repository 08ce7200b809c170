//! Failures and the reasons of declined checkpoints.

use levada_common::checkpoint::DeclineReason;
use levada_common::fault::{Failure, Fault, Retry};

use super::{ConvertError, required};
use crate::v1;

/// Longest message of a failure that travels, in bytes; the rest is cut off.
const FAILURE_BYTES_MAX: usize = 16 * 1024;

/// A failure as it travels.
pub fn failure_to_info(failure: &Failure) -> v1::FailureInfo {
    let mut message = failure.message.clone();
    if message.len() > FAILURE_BYTES_MAX {
        let end = (0..=FAILURE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
        message.truncate(end);
        message.push_str(" ... (cut off)");
    }
    let fault = match failure.fault {
        Fault::User => "user",
        Fault::External => "external",
        Fault::Internal => "internal",
    };
    let retry = match failure.retry {
        Retry::Never => "never",
        Retry::Backoff => "backoff",
        Retry::Now => "now",
    };
    v1::FailureInfo { message, fault: fault.into(), retry: retry.into() }
}

/// Reads a failure.
pub fn failure_from_info(info: Option<v1::FailureInfo>) -> Result<Failure, ConvertError> {
    let info = required(info, "failure")?;
    let fault = match info.fault.as_str() {
        "user" => Fault::User,
        "external" => Fault::External,
        "internal" => Fault::Internal,
        _ => return Err(ConvertError::Bad { field: "fault", found: info.fault, allowed: "user, external, internal" }),
    };
    let retry = match info.retry.as_str() {
        "never" => Retry::Never,
        "backoff" => Retry::Backoff,
        "now" => Retry::Now,
        _ => return Err(ConvertError::Bad { field: "retry", found: info.retry, allowed: "never, backoff, now" }),
    };
    Ok(Failure { message: info.message, fault, retry })
}

/// A reason as it travels.
pub fn decline_to_json(reason: &DeclineReason) -> String {
    serde_json::to_string(reason).expect("a reason has string keys only")
}

/// Reads a reason.
pub fn decline_from_json(json: &str) -> Result<DeclineReason, ConvertError> {
    serde_json::from_str(json).map_err(|source| ConvertError::Json { field: "reason_json", source })
}

#[cfg(test)]
mod tests {
    use levada_common::ids::{SubtaskIndex, Uid};

    use super::*;

    #[test]
    fn failures_come_back_as_they_went() {
        for failure in [Failure::user("a"), Failure::external("b"), Failure::internal("c")] {
            assert_eq!(failure_from_info(Some(failure_to_info(&failure))).unwrap(), failure);
        }
    }

    #[test]
    fn a_long_failure_is_cut_between_characters() {
        let info = failure_to_info(&Failure::user("ä".repeat(FAILURE_BYTES_MAX)));
        assert!(info.message.len() < FAILURE_BYTES_MAX + 32);
        assert!(info.message.ends_with("ä ... (cut off)"));
    }

    #[test]
    fn reasons_come_back_as_they_went() {
        let reason = DeclineReason::StateTooLarge {
            uid: Uid::new("top"),
            state: "max".into(),
            subtask: SubtaskIndex(3),
            size_bytes: 6_000_000,
            limit_bytes: 5_242_880,
        };
        assert_eq!(decline_from_json(&decline_to_json(&reason)).unwrap(), reason);
        assert!(decline_from_json("{").is_err());
    }
}
