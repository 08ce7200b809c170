//! What is held in memory, and what of it is free for what is to come.

/// Bytes held, and those among them that are free for rows and keys to come.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::operators) struct Held {
    pub(in crate::operators) bytes: usize,
    pub(in crate::operators) idle_bytes: usize,
}

/// Entries from which on it says something what one of them takes.
const MEASURED: usize = 256;

/// The least that an entry of some tables took so far. Tables grow by doubling and never shrink: what they hold beyond it is free.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::operators) struct EntryBytes(Option<usize>);

impl EntryBytes {
    /// Tables with room for so many entries hold so many bytes.
    pub(in crate::operators) fn measure(&mut self, bytes: usize, entries: usize) {
        if entries >= MEASURED {
            let now = bytes / entries;
            self.0 = Some(self.0.map_or(now, |least| least.min(now)));
        }
    }

    /// What tables of so many bytes hold in which so many entries are.
    pub(in crate::operators) fn held(self, bytes: usize, live: usize) -> Held {
        let used = self.0.map_or(bytes, |entry| entry * live);
        Held { bytes, idle_bytes: bytes.saturating_sub(used) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tables_grew_by_is_free() {
        let mut entry = EntryBytes::default();
        entry.measure(100, 10);
        assert_eq!(entry.held(1000, 1).idle_bytes, 0, "of a few entries nothing is known");
        entry.measure(64_000, 1_000);
        entry.measure(128_000, 1_001);
        assert_eq!((entry.held(128_000, 1_001).idle_bytes, entry.held(128_000, 0).idle_bytes), (63_936, 128_000));
        assert_eq!(entry.held(1_000, 1_000).idle_bytes, 0);
    }
}
