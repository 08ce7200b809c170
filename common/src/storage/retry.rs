//! Trying again: the one policy for whatever is done in a storage.
//!
//! A try that fails for a passing reason is made again after a pause, which doubles up to a limit and is drawn at random so that
//! many tasks do not come back together; a lasting failure ends it, and so does the caller's deadline.

use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::StorageError;
use crate::fault::{Faulty, Retry};

/// First and longest pause between tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The pauses between tries of one operation.
#[derive(Debug, Clone)]
pub struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: PAUSE.0 }
    }
}

impl Pauses {
    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next.mul_f64(0.5 + 0.5 * random());
        self.next = (self.next * 2).min(PAUSE.1);
        pause
    }
}

/// Tries `operation` until it works, cannot work, or `deadline`.
///
/// Errors: the lasting one; `OutOfTime` with the last one, at the latest when `deadline` is reached.
pub async fn retried<T, F>(deadline: Instant, operation: impl Fn() -> F) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    let (mut pauses, mut tries, mut last) = (Pauses::default(), 0, None);
    loop {
        tries += 1;
        match tokio::time::timeout_at(deadline, operation()).await {
            Ok(Err(error)) if error.retry() != Retry::Never => last = Some(Box::new(error)),
            Ok(result) => return result,
            Err(_) => return Err(StorageError::OutOfTime { tries, last }),
        }
        let pause = pauses.pause();
        if Instant::now() + pause >= deadline {
            return Err(StorageError::OutOfTime { tries, last });
        }
        tokio::time::sleep(pause).await;
    }
}

/// Tries `operation` at most `tries_max` times; for what somebody waits for.
pub(super) async fn tried<T, F>(tries_max: u32, operation: impl Fn() -> F) -> Result<T, StorageError>
where
    F: Future<Output = Result<T, StorageError>>,
{
    let mut pauses = Pauses::default();
    for _ in 1..tries_max {
        match operation().await {
            Err(error) if error.retry() != Retry::Never => tokio::time::sleep(pauses.pause()).await,
            result => return result,
        }
    }
    operation().await
}

/// At least 0, below 1.
fn random() -> f64 {
    f64::from(Uuid::new_v4().as_u128() as u32) / (f64::from(u32::MAX) + 1.0)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn passing() -> StorageError {
        StorageError::TimedOut { action: "write", path: "a".into(), after: Duration::from_secs(1) }
    }

    #[tokio::test]
    async fn a_passing_failure_is_tried_again_and_a_lasting_one_is_not() {
        let tries = AtomicU32::new(0);
        let deadline = Instant::now() + Duration::from_secs(3600);
        let third =
            retried(deadline, || async { if tries.fetch_add(1, Ordering::Relaxed) < 2 { Err(passing()) } else { Ok(7) } });
        assert_eq!(third.await.expect("the third one works"), 7);
        let lasting = || async { Err::<(), _>(StorageError::NotFound { path: "a".into() }) };
        assert!(retried(deadline, lasting).await.expect_err("lasting").is_not_found());
    }

    #[tokio::test]
    async fn the_deadline_ends_it_with_the_last_failure() {
        let deadline = Instant::now() + Duration::from_millis(300);
        let error = retried(deadline, || async { Err::<(), _>(passing()) }).await.expect_err("it never works");
        let StorageError::OutOfTime { tries, last: Some(last) } = error else { panic!("{error}") };
        assert!(tries >= 1 && matches!(*last, StorageError::TimedOut { .. }), "{tries} tries: {last}");
        let hanging = retried(deadline, std::future::pending::<Result<(), StorageError>>).await;
        assert!(matches!(hanging, Err(StorageError::OutOfTime { tries: 1, last: None })), "{hanging:?}");
    }
}
