//! What each service needs, with every default filled in and every range checked.

use std::path::PathBuf;
use std::time::Duration;

use super::HostPort;
use super::memory::machine_memory_bytes;
use super::rocksdb::RocksdbProfile;
use super::tree::{ConfigError, Configuration};
use crate::log;
use crate::storage::{S3Options, StorageOptions};

/// Least budget for inline state that `auto` gives.
const INLINE_BUDGET_MIN: u64 = 64 << 20;

/// Least silence that makes orphans: answers to heartbeats come each half second, and one or another may be late.
const ORPHAN_TIMEOUT_MS_MIN: u64 = 3_000;

/// What of a frame is kept for what is not state.
pub(super) const FRAME_RESERVE: u64 = 64 << 10;

/// How a service writes its log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or a filter by target.
    pub level: String,
    /// Its form.
    pub format: LogFormat,
}

/// The form of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// A JSON object a line.
    Json,
}

/// A JobManager's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobManagerConfig {
    /// Where it listens.
    pub bind: String,
    /// The name that others reach it by; its log says it.
    pub advertise: String,
    /// gRPC port; 0 = any free one.
    pub port: u16,
    /// HTTP port; 0 = any free one.
    pub http_port: u16,
    /// Memory of the process.
    pub memory_total_bytes: u64,
    /// Memory for inline state.
    pub inline_budget_bytes: u64,
    /// Largest control message.
    pub frame_size_bytes: u64,
    /// Between two heartbeats.
    pub heartbeat_interval: Duration,
    /// Silence after which a TaskManager is lost.
    pub heartbeat_timeout: Duration,
    /// How storages are reached.
    pub storage: StorageOptions,
    /// The log.
    pub log: LogConfig,
}

/// A TaskManager's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskManagerConfig {
    /// The JobManager.
    pub job_manager: HostPort,
    /// Where it listens.
    pub bind: String,
    /// The name that others reach it by.
    pub advertise: String,
    /// Data port; 0 = any free one.
    pub data_port: u16,
    /// HTTP port; 0 = any free one.
    pub http_port: u16,
    /// Slots.
    pub slots: u32,
    /// Silence of the JobManager after which tasks cancel themselves.
    pub orphan_timeout: Duration,
    /// Folders for working files, one a disk; at least one.
    pub data_dirs: Vec<PathBuf>,
    /// Memory of the process.
    pub memory_total_bytes: u64,
    /// Its share for channels between TaskManagers.
    pub network_memory_bytes: u64,
    /// Its share for state on the heap.
    pub heap_state_bytes: u64,
    /// Its share for databases, and for the changes that are not in them yet.
    pub rocksdb_bytes: u64,
    /// The part of that for the changes, and for rows that were used lately; the rest is for blocks of the databases.
    pub rocksdb_overlay_bytes: u64,
    /// What databases are tuned for.
    pub rocksdb_profile: RocksdbProfile,
    /// File descriptors of all databases; `None` = half of the process's limit.
    pub rocksdb_open_files: Option<u64>,
    /// Time that a call may take.
    pub ask_timeout: Duration,
    /// How storages are reached.
    pub storage: StorageOptions,
    /// The log.
    pub log: LogConfig,
}

impl JobManagerConfig {
    /// Largest state that may travel inline, whatever a job sets: a frame less what is kept for the rest.
    pub fn inline_state_max_bytes(&self) -> u64 {
        self.frame_size_bytes - FRAME_RESERVE
    }
}

impl Configuration {
    /// Checks everything that a JobManager uses and fills in its defaults.
    pub fn job_manager(&self) -> Result<JobManagerConfig, ConfigError> {
        let section = &self.jobmanager;
        let memory_total_bytes = section.memory.total.map_or_else(machine_memory_bytes, |size| size.as_bytes());
        let inline_budget_bytes =
            section.inline_budget.map_or_else(|| (memory_total_bytes / 4).max(INLINE_BUDGET_MIN), |size| size.as_bytes());
        let frame = self.rpc.frame_size;
        check((256 << 10..=1 << 30).contains(&frame.as_bytes()), "rpc.frame_size", frame, "a frame has 256KiB to 1GiB")?;
        let (interval, timeout) = (self.heartbeat.interval, self.heartbeat.timeout);
        check(interval.as_ms() >= 10, "heartbeat.interval", interval, "at least 10ms")?;
        check(timeout.as_ms() >= 2 * interval.as_ms(), "heartbeat.timeout", timeout, "at least twice heartbeat.interval")?;
        Ok(JobManagerConfig {
            bind: host("jobmanager.bind", &section.bind)?,
            advertise: advertised("jobmanager.advertise", section.advertise.as_deref(), &section.bind)?,
            port: section.port,
            http_port: section.http_port,
            memory_total_bytes,
            inline_budget_bytes,
            frame_size_bytes: frame.as_bytes(),
            heartbeat_interval: interval.into(),
            heartbeat_timeout: timeout.into(),
            storage: self.storage()?,
            log: self.log()?,
        })
    }

    /// Checks everything that a TaskManager uses and fills in its defaults.
    pub fn task_manager(&self) -> Result<TaskManagerConfig, ConfigError> {
        self.task_manager_of(1)
    }

    /// The same for one of `count` TaskManagers of this process, which share the memory that `auto` finds.
    pub fn task_manager_of(&self, count: u32) -> Result<TaskManagerConfig, ConfigError> {
        let section = &self.taskmanager;
        let found = || machine_memory_bytes() / u64::from(count.max(1));
        let memory_total_bytes = section.memory.total.map_or_else(found, |size| size.as_bytes());
        let part = |of_bytes: u64, key: &'static str, fraction: f64, most: f64| -> Result<u64, ConfigError> {
            check(fraction > 0.0 && fraction <= most, key, fraction, &format!("above 0 and at most {most}"))?;
            Ok((of_bytes as f64 * fraction) as u64)
        };
        let share = |key: &'static str, fraction: f64, most: f64| part(memory_total_bytes, key, fraction, most);
        let network_memory_bytes = share("network.memory_fraction", self.network.memory_fraction, 0.8)?;
        let heap_state_bytes = share("state.memory_fraction", self.state.memory_fraction, 0.9)?;
        let rocksdb_bytes = share("rocksdb.memory_fraction", self.rocksdb.memory_fraction, 0.9)?;
        self.check_shares()?;
        check((1..=1024).contains(&section.slots), "taskmanager.slots", section.slots, "1 to 1024 slots")?;
        let orphan_timeout = section.orphan_timeout;
        check(orphan_timeout.as_ms() >= ORPHAN_TIMEOUT_MS_MIN, "taskmanager.orphan_timeout", orphan_timeout, "at least 3s")?;
        let job_manager = section.jobmanager.parse().map_err(|error: super::BadAddress| ConfigError::OutOfRange {
            key: "taskmanager.jobmanager",
            value: section.jobmanager.clone(),
            allowed: error.to_string(),
        })?;
        Ok(TaskManagerConfig {
            job_manager,
            bind: host("taskmanager.bind", &section.bind)?,
            advertise: advertised("taskmanager.advertise", section.advertise.as_deref(), &section.bind)?,
            data_port: section.data_port,
            http_port: section.http_port,
            slots: section.slots,
            orphan_timeout: orphan_timeout.into(),
            data_dirs: data_dirs(section.data_dir.as_deref())?,
            memory_total_bytes,
            network_memory_bytes,
            heap_state_bytes,
            rocksdb_bytes,
            rocksdb_overlay_bytes: part(rocksdb_bytes, "rocksdb.overlay_fraction", self.rocksdb.overlay_fraction, 0.9)?,
            rocksdb_profile: self.rocksdb_profile()?,
            rocksdb_open_files: self.rocksdb_open_files()?,
            ask_timeout: self.ask_timeout()?,
            storage: self.storage()?,
            log: self.log()?,
        })
    }

    /// No byte is promised twice.
    fn check_shares(&self) -> Result<(), ConfigError> {
        let sum = self.network.memory_fraction + self.state.memory_fraction + self.rocksdb.memory_fraction;
        // What is 1 as it was written may be a little more as a sum of floats.
        let fits = sum <= 1.0 + 1e-9;
        let keys = "network.memory_fraction + state.memory_fraction + rocksdb.memory_fraction";
        check(fits, keys, format!("{sum:.3}"), "at most 1, the whole of taskmanager.memory.total")
    }

    fn rocksdb_profile(&self) -> Result<RocksdbProfile, ConfigError> {
        let name = &self.rocksdb.profile;
        name.parse().map_err(|()| ConfigError::OutOfRange {
            key: "rocksdb.profile",
            value: name.clone(),
            allowed: RocksdbProfile::ALLOWED.into(),
        })
    }

    fn rocksdb_open_files(&self) -> Result<Option<u64>, ConfigError> {
        let files = self.rocksdb.open_files;
        check(files.is_none_or(|files| files >= 64), "rocksdb.open_files", files.unwrap_or(0), "at least 64, or auto")?;
        Ok(files)
    }

    fn storage(&self) -> Result<StorageOptions, ConfigError> {
        let section = &self.storage.s3;
        let endpoint = section.endpoint.clone();
        if let Some(text) = &endpoint {
            let fits = text.starts_with("http://") || text.starts_with("https://");
            check(fits, "storage.s3.endpoint", text, "an address that begins with http:// or https://")?;
        }
        Ok(StorageOptions {
            s3: S3Options { endpoint, region: section.region.clone(), path_style: section.path_style, keys: None },
        })
    }

    fn ask_timeout(&self) -> Result<Duration, ConfigError> {
        let timeout = self.rpc.ask_timeout;
        check(timeout.as_ms() >= 10, "rpc.ask_timeout", timeout, "at least 10ms")?;
        Ok(timeout.into())
    }

    fn log(&self) -> Result<LogConfig, ConfigError> {
        let format = match self.log.format.as_str() {
            "text" => LogFormat::Text,
            "json" => LogFormat::Json,
            other => {
                return Err(ConfigError::OutOfRange { key: "log.format", value: other.into(), allowed: "text or json".into() });
            }
        };
        log::filter(&self.log.level)?;
        Ok(LogConfig { level: self.log.level.clone(), format })
    }
}

fn check(holds: bool, key: &'static str, value: impl ToString, allowed: &str) -> Result<(), ConfigError> {
    if holds { Ok(()) } else { Err(ConfigError::OutOfRange { key, value: value.to_string(), allowed: allowed.into() }) }
}

/// An address or a host's name, without brackets.
fn host(key: &'static str, text: &str) -> Result<String, ConfigError> {
    let host = text.trim_start_matches('[').trim_end_matches(']');
    let fits = !host.is_empty()
        && !host.contains(['/', ' ', '[', ']'])
        && (!host.contains(':') || host.parse::<std::net::Ipv6Addr>().is_ok());
    check(fits, key, text, "an address or a host's name without a port, such as 127.0.0.1, 0.0.0.0 or [::]")?;
    Ok(host.into())
}

/// Folders for working files, as written with commas between.
fn data_dirs(written: Option<&str>) -> Result<Vec<PathBuf>, ConfigError> {
    let Some(text) = written else { return Ok(vec![std::env::temp_dir().join("levada")]) };
    let dirs: Vec<PathBuf> = text.split(',').map(|dir| PathBuf::from(dir.trim())).collect();
    let sound = dirs.iter().all(|dir| !dir.as_os_str().is_empty());
    let distinct = dirs.iter().enumerate().all(|(at, dir)| !dirs[..at].contains(dir));
    check(sound && distinct, "taskmanager.data_dir", text, "a folder, or several different ones with commas between")?;
    Ok(dirs)
}

/// The name to be reached by: as written; else the bind address, or where that is every interface the host's name.
fn advertised(key: &'static str, written: Option<&str>, bind: &str) -> Result<String, ConfigError> {
    let bind = bind.trim_start_matches('[').trim_end_matches(']');
    match written {
        Some(name) => host(key, name),
        None if matches!(bind, "0.0.0.0" | "::") => Ok(host_name()),
        None => Ok(bind.into()),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".into() } else { name.trim().into() }
}

#[cfg(test)]
mod tests {
    use super::super::Layers;
    use super::*;

    fn load(set: &[&str]) -> Configuration {
        let set = set.iter().map(|text| (*text).into()).collect();
        Configuration::load(&Layers { set, ..Layers::default() }).expect("of the right form")
    }

    #[test]
    fn defaults_are_resolved() {
        let config = load(&["jobmanager.memory.total=8GiB", "taskmanager.memory.total=10GiB"]);
        let (job_manager, task_manager) = (config.job_manager().expect("valid"), config.task_manager().expect("valid"));
        assert_eq!(job_manager.inline_budget_bytes, 2 << 30);
        assert_eq!(job_manager.inline_state_max_bytes(), (10 << 20) - (64 << 10));
        assert_eq!(task_manager.network_memory_bytes, 1 << 30);
        assert_eq!((job_manager.bind.as_str(), task_manager.advertise.as_str()), ("127.0.0.1", "127.0.0.1"));
        assert_eq!((task_manager.rocksdb_bytes, task_manager.rocksdb_overlay_bytes), (4 << 30, 2 << 30));
        let small = load(&["taskmanager.memory.total=10GiB", "rocksdb.overlay_fraction=0.125"]).task_manager().expect("valid");
        assert_eq!((small.rocksdb_bytes, small.rocksdb_overlay_bytes), (4 << 30, 512 << 20));
        let disks = load(&["taskmanager.data_dir=/a, /b"]).task_manager().expect("valid").data_dirs;
        assert_eq!(disks, [PathBuf::from("/a"), PathBuf::from("/b")]);
        for (written, host) in [("tm1", "tm1"), ("10.0.0.1", "10.0.0.1"), ("[fd00::10]", "fd00::10"), ("fd00::10", "fd00::10")] {
            let named = load(&[&format!("taskmanager.advertise={written}")]).task_manager().expect("valid");
            assert_eq!(named.advertise, host);
        }
        assert_ne!(load(&["taskmanager.bind=0.0.0.0"]).task_manager().expect("valid").advertise, "0.0.0.0");
    }

    #[test]
    fn memory_is_promised_once() {
        let fractions = |network: &str, state: &str, rocksdb: &str| {
            let key = |section: &str, value: &str| format!("{section}.memory_fraction={value}");
            let set = [key("network", network), key("state", state), key("rocksdb", rocksdb)];
            load(&set.each_ref().map(String::as_str)).task_manager()
        };
        assert!(fractions("0.1", "0.2", "0.7").is_ok() && fractions("0.1", "0.1", "0.8").is_ok(), "1, though not as a float");
        let text = fractions("0.3", "0.4", "0.4").expect_err("too much").to_string();
        let keys = "network.memory_fraction + state.memory_fraction + rocksdb.memory_fraction=1.100";
        assert!(text.starts_with(keys) && text.contains("at most 1"), "{text}");
        let total = |set: &[&str], count| load(set).task_manager_of(count).expect("valid").memory_total_bytes;
        assert_eq!(total(&[], 4), machine_memory_bytes() / 4);
        assert_eq!(total(&["taskmanager.memory.total=1GiB"], 4), 1 << 30, "what is written is meant");
    }

    #[test]
    fn ranges_are_checked() {
        for bad in [
            "heartbeat.timeout=15s",
            "rpc.frame_size=2GiB",
            "jobmanager.bind=host:1",
            "jobmanager.advertise=jm:6123",
            "jobmanager.advertise=",
            "log.format=xml",
            "log.level=info,levada=loud",
            "storage.s3.endpoint=minio:9000",
        ] {
            assert!(load(&[bad]).job_manager().is_err(), "{bad}");
        }
        for bad in [
            "taskmanager.slots=0",
            "taskmanager.orphan_timeout=0s",
            "taskmanager.orphan_timeout=900ms",
            "taskmanager.jobmanager=nowhere",
            "taskmanager.advertise=tm1:6121",
            "taskmanager.advertise=[tm1]:6121",
            "taskmanager.advertise=",
            "network.memory_fraction=0.9",
            "rocksdb.overlay_fraction=0",
            "rocksdb.overlay_fraction=0.95",
            "rocksdb.profile=tape",
            "rocksdb.open_files=3",
            "taskmanager.data_dir=/a,,/b",
            "log.level=info,levada=loud",
        ] {
            let error = load(&[bad]).task_manager().expect_err(bad).to_string();
            assert!(error.starts_with(bad), "{error}");
        }
    }
}
