//! How much memory this process may count on.

use std::fs;

/// Memory for a service whose `memory.total` is `auto`: the cgroup's limit, else half of the machine's memory.
///
/// Units: bytes. Where neither can be read, 1 GiB.
pub fn machine_memory_bytes() -> u64 {
    const FALLBACK: u64 = 1 << 30;
    let half = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total_of_meminfo(&text)).map(|total| total / 2);
    let limit = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .find_map(|text| text.trim().parse::<u64>().ok());
    match (limit, half) {
        // A limit above the machine's memory is no limit (cgroup v1 writes 2⁶³ where there is none).
        (Some(limit), Some(half)) if limit < half.saturating_mul(2) => limit,
        (_, Some(half)) => half,
        (Some(limit), None) => limit,
        (None, None) => FALLBACK,
    }
}

fn total_of_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(total_of_meminfo("MemTotal:       24581244 kB\nMemFree: 1 kB\n"), Some(24_581_244 * 1024));
        assert_eq!(total_of_meminfo(""), None);
        assert!(machine_memory_bytes() > 1 << 20);
    }
}
