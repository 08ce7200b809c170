//! File descriptors: a database may hold as many tables open as it was granted, and the process's limit bounds the sum.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Descriptors of a process whose limit cannot be read.
const LIMIT_UNKNOWN: u64 = 1024;

/// Least and most tables that a database holds open.
const TABLES: (u64, u64) = (20, 1024);

/// Descriptors of a database beside its tables: lock, log, manifest, what is being written.
const BESIDE: u64 = 8;

/// Which part of what is left a database is granted: some three hundred fit 65,536.
const SHARE: u64 = 64;

/// The descriptors of all databases of a process.
#[derive(Debug)]
pub struct Descriptors {
    total: u64,
    granted: AtomicU64,
}

/// Descriptors of one database, given back when this is dropped.
#[derive(Debug)]
pub struct Grant {
    from: Arc<Descriptors>,
    tables: u64,
}

/// The process may not open so many files.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the databases of this TaskManager hold {granted} of the {total} file descriptors that they may have, and one more needs {needed}; raise the process's limit of open files (ulimit -n) to at least {limit_needed}, or give it fewer slots"
)]
pub struct TooManyFiles {
    granted: u64,
    total: u64,
    needed: u64,
    limit_needed: u64,
}

impl Descriptors {
    /// So many, or half of the process's limit.
    pub fn new(total: Option<u64>) -> Arc<Self> {
        let total = total.unwrap_or_else(|| process_limit().unwrap_or(LIMIT_UNKNOWN) / 2);
        Arc::new(Self { total, granted: AtomicU64::new(0) })
    }

    /// Grants a database a part of what is left, and never less than it can work with.
    pub fn grant(self: &Arc<Self>) -> Result<Grant, TooManyFiles> {
        let least = TABLES.0 + BESIDE;
        let share = |granted: u64| (self.total.saturating_sub(granted) / SHARE).clamp(least, TABLES.1 + BESIDE);
        let grant = |granted: u64| (granted + least <= self.total).then(|| granted + share(granted));
        match self.granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grant) {
            Ok(before) => Ok(Grant { from: Arc::clone(self), tables: share(before) - BESIDE }),
            Err(granted) => {
                Err(TooManyFiles { granted, total: self.total, needed: least, limit_needed: 2 * (granted + 4 * least) })
            }
        }
    }
}

impl Grant {
    /// Tables that may be open at once.
    pub fn tables(&self) -> i32 {
        self.tables as i32
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.from.granted.fetch_sub(self.tables + BESIDE, Ordering::Relaxed);
    }
}

/// The soft limit of this process.
fn process_limit() -> Option<u64> {
    soft_limit(&io::read_to_string(std::fs::File::open("/proc/self/limits").ok()?).ok()?)
}

fn soft_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(1 << 20),
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_databases_fit_the_usual_limit_and_the_next_ones_are_refused_by_number() {
        let descriptors = Descriptors::new(Some(512));
        let mut grants = Vec::new();
        let refused = loop {
            match descriptors.grant() {
                Ok(grant) => grants.push(grant),
                Err(error) => break error,
            }
        };
        assert!((16..=18).contains(&grants.len()), "{}", grants.len());
        assert!(grants.iter().all(|grant| grant.tables() >= 20));
        let sum: u64 = grants.iter().map(|grant| grant.tables + BESIDE).sum();
        assert!(sum <= 512, "{sum}");
        assert!(refused.to_string().contains(&format!("hold {sum} of the 512")), "{refused}");
        grants.pop();
        assert!(descriptors.grant().is_ok(), "what was given back is granted again");
        drop(grants);
        assert_eq!(descriptors.granted.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_limit_is_read() {
        let text =
            "Limit Soft Limit Hard Limit Units\nMax open files            1024                 524288               files\n";
        assert_eq!(soft_limit(text), Some(1024));
        assert_eq!(soft_limit("Max open files  unlimited unlimited files"), Some(1 << 20));
        assert_eq!(soft_limit("nothing"), None);
        assert!(process_limit().is_some());
    }
}
