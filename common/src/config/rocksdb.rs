//! What RocksDB's options are tuned for.

use std::str::FromStr;

/// What RocksDB's options are tuned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RocksdbProfile {
    /// Any disk.
    #[default]
    Default,
    /// A disk on which seeks cost: larger blocks and files, a larger first level; small checkpoints upload more.
    SpinningDisk,
    /// A fast disk that takes several reads at once: smaller blocks, more threads.
    Flash,
}

impl RocksdbProfile {
    /// Names that are accepted, for messages.
    pub const ALLOWED: &str = "default, spinning-disk or flash";
}

impl FromStr for RocksdbProfile {
    type Err = ();

    /// Reads a name, or Flink's name for it.
    fn from_str(name: &str) -> Result<Self, ()> {
        match name.to_ascii_lowercase().replace('_', "-").as_str() {
            "default" => Ok(Self::Default),
            "spinning-disk" | "spinning-disk-optimized" | "spinning-disk-optimized-high-mem" => Ok(Self::SpinningDisk),
            "flash" | "flash-ssd-optimized" => Ok(Self::Flash),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_are_read() {
        assert_eq!("SPINNING_DISK_OPTIMIZED_HIGH_MEM".parse(), Ok(RocksdbProfile::SpinningDisk));
        assert_eq!("FLASH_SSD_OPTIMIZED".parse(), Ok(RocksdbProfile::Flash));
        assert_eq!("DEFAULT".parse(), Ok(RocksdbProfile::default()));
        assert_eq!("tape".parse::<RocksdbProfile>(), Err(()));
    }
}
