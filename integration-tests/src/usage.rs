//! What this process has used: CPU time and memory, as the operating system counts them.

use std::fs;

/// CPU time of the whole process so far, user and system, in seconds.
///
/// Units: read from `/proc/self/stat`, so in steps of 10 ms.
pub fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux shows a process its own usage");
    let after_name = stat.rsplit_once(')').expect("the second field is in brackets").1;
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks are numbers")).sum();
    ticks as f64 / 100.0
}

/// A figure of `/proc/self/status`, in bytes.
fn status_bytes(key: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux shows a process its own status");
    let line = status.lines().find(|line| line.starts_with(key)).expect("the figure is there");
    let kib: u64 = line.split_whitespace().nth(1).expect("a value follows").parse().expect("it is a number");
    kib * 1024
}

/// Most memory that was resident so far, in bytes.
pub fn peak_rss_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Memory that is resident now, in bytes.
pub fn rss_bytes() -> u64 {
    status_bytes("VmRSS:")
}

/// Begins to count the most memory anew.
///
/// Errors: as the operating system has them.
pub fn forget_peak_rss() -> std::io::Result<()> {
    fs::write("/proc/self/clear_refs", "5")
}
