//! When open sessions end: found without touching anything where a session grows.
//!
//! Sessions stand in buckets by the end that they had when they were entered. It only ever grows, so that a session whose bucket is
//! due fires, or is entered anew by the end that it has by then. Must never know what a session is.

use std::collections::BTreeMap;

/// Ends of one bucket, in milliseconds: what a watermark advances by, unless it is set otherwise.
const BUCKET_MS: i64 = 100;

/// The bucket of none.
const NEVER: i64 = i64::MIN;

/// Sessions by the bucket of their end.
#[derive(Debug, Default)]
pub(in crate::operators) struct Ends {
    buckets: BTreeMap<i64, Vec<u32>>,
    /// By session: the bucket in which it is looked for; entries in others are left from sessions of the same number before it.
    bucket_of: Vec<i64>,
    entries: usize,
}

impl Ends {
    /// Enters a session that is in no bucket.
    pub(in crate::operators) fn enter(&mut self, session: u32, end: i64) {
        if self.bucket_of.len() <= session as usize {
            self.bucket_of.resize(session as usize + 1, NEVER);
        }
        let bucket = end.div_euclid(BUCKET_MS);
        self.bucket_of[session as usize] = bucket;
        self.buckets.entry(bucket).or_default().push(session);
        self.entries += 1;
    }

    /// Forgets a session, if it is in a bucket.
    pub(in crate::operators) fn leave(&mut self, session: u32) {
        if let Some(bucket) = self.bucket_of.get_mut(session as usize) {
            *bucket = NEVER;
        }
    }

    /// Whether the session is in a bucket.
    pub(in crate::operators) fn has(&self, session: u32) -> bool {
        self.bucket_of.get(session as usize).is_some_and(|bucket| *bucket != NEVER)
    }

    /// Takes out the sessions that end at `time` or before, and appends them to `due`. `end_of` is a session's end, not before
    /// the one that it was entered with.
    pub(in crate::operators) fn take_due(&mut self, time: i64, end_of: impl Fn(u32) -> i64, due: &mut Vec<u32>) {
        while let Some(first) = self.buckets.first_entry().filter(|first| first.key().saturating_mul(BUCKET_MS) <= time) {
            let bucket = *first.key();
            let mut sessions = first.remove();
            self.entries -= sessions.len();
            let mut grown = Vec::new();
            sessions.retain(|session| {
                let place = &mut self.bucket_of[*session as usize];
                if *place != bucket {
                    return false;
                }
                let end = end_of(*session);
                let stays = end > time && end.div_euclid(BUCKET_MS) == bucket;
                if end <= time {
                    *place = NEVER;
                    due.push(*session);
                } else if !stays {
                    grown.push((*session, end));
                }
                stays
            });
            grown.into_iter().for_each(|(session, end)| self.enter(session, end));
            if !sessions.is_empty() {
                // One of its sessions ends after `time`, so every later bucket does.
                self.entries += sessions.len();
                self.buckets.insert(bucket, sessions);
                return;
            }
        }
    }

    /// When the first bucket will be over.
    pub(in crate::operators) fn first_over(&self) -> Option<i64> {
        self.buckets.keys().next().map(|bucket| bucket.saturating_add(1).saturating_mul(BUCKET_MS))
    }

    /// The last time of the last bucket that is over at `now`: none whose sessions are looked at is looked at again.
    pub(in crate::operators) fn last_over(now: i64) -> i64 {
        now.saturating_sub(now.rem_euclid(BUCKET_MS)).saturating_sub(1)
    }

    /// Bytes held.
    pub(in crate::operators) fn memory_bytes(&self) -> usize {
        self.entries * size_of::<u32>()
            + self.buckets.len() * size_of::<(i64, Vec<u32>)>()
            + self.bucket_of.capacity() * size_of::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_session_is_due_once_at_its_last_end(
            steps in prop::collection::vec((0u32..20, -500i64..1500, -500i64..2000), 1..80),
        ) {
            let (mut ends, mut open, mut now) = (Ends::default(), BTreeMap::<u32, i64>::new(), i64::MIN);
            for (session, end, time) in steps {
                match open.get_mut(&session) {
                    Some(known) if end < 0 => {
                        ends.leave(session);
                        let _ = known;
                        open.remove(&session);
                    }
                    Some(known) => *known = end.max(*known),
                    None if end > now => {
                        ends.enter(session, end);
                        open.insert(session, end);
                    }
                    None => {}
                }
                now = now.max(time);
                let mut due = Vec::new();
                ends.take_due(now, |session| open[&session], &mut due);
                let mut expected: Vec<u32> = open.iter().filter(|(_, end)| **end <= now).map(|(session, _)| *session).collect();
                open.retain(|_, end| *end > now);
                due.sort_unstable();
                expected.sort_unstable();
                prop_assert_eq!(due, expected);
            }
        }
    }
}
