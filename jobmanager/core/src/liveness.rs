//! Which TaskManagers are alive: heard from within the timeout. For the shell, which owns the streams.
//!
//! Never knows jobs. A broken stream is not its business either: the shell takes such a TaskManager for lost at once.

use std::collections::BTreeMap;

use levada_common::ids::TaskManagerId;
use levada_common::time::Instant;

/// When each TaskManager was last heard from.
#[derive(Debug)]
pub struct Liveness {
    timeout_ms: u64,
    heard: BTreeMap<TaskManagerId, Instant>,
}

impl Liveness {
    /// Knows no TaskManager yet; takes one for lost after `timeout_ms` of silence.
    pub fn new(timeout_ms: u64) -> Self {
        Self { timeout_ms, heard: BTreeMap::new() }
    }

    /// The TaskManager registered, at first or again.
    pub fn register(&mut self, id: TaskManagerId, now: Instant) {
        self.heard.insert(id, now);
    }

    /// Something came from the TaskManager. Answers false, and changes nothing, where it is not registered (any more).
    pub fn heard(&mut self, id: TaskManagerId, now: Instant) -> bool {
        self.heard.get_mut(&id).map(|at| *at = now.max(*at)).is_some()
    }

    /// The TaskManager is gone. Answers whether it was there.
    pub fn remove(&mut self, id: TaskManagerId) -> bool {
        self.heard.remove(&id).is_some()
    }

    /// Removes those that were silent for too long, each with the reason to give, in the order of their ids.
    pub fn expire(&mut self, now: Instant) -> Vec<(TaskManagerId, String)> {
        let timeout_ms = self.timeout_ms;
        let mut lost = Vec::new();
        self.heard.retain(|id, at| {
            let silent_ms = now.since(*at);
            let alive = silent_ms < timeout_ms;
            if !alive {
                lost.push((*id, format!("no heartbeat for {silent_ms} ms, over the timeout of {timeout_ms} ms")));
            }
            alive
        });
        lost
    }

    /// When `expire` is next worth a call.
    pub fn deadline(&self) -> Option<Instant> {
        self.heard.values().min().map(|at| at.plus_ms(self.timeout_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_loss_and_a_heartbeat_is_life() {
        let (a, b) = (TaskManagerId::from_u128(1), TaskManagerId::from_u128(2));
        let mut liveness = Liveness::new(50);
        liveness.register(a, Instant(0));
        liveness.register(b, Instant(0));
        assert_eq!(liveness.deadline(), Some(Instant(50)));
        assert!(liveness.heard(b, Instant(30)));
        assert!(liveness.expire(Instant(49)).is_empty());

        let lost = liveness.expire(Instant(50));
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].0, a);
        assert!(lost[0].1.contains("50 ms"), "{}", lost[0].1);
        assert_eq!(liveness.deadline(), Some(Instant(80)));
    }

    #[test]
    fn a_heartbeat_of_one_that_was_lost_does_not_revive_it() {
        let a = TaskManagerId::from_u128(1);
        let mut liveness = Liveness::new(50);
        liveness.register(a, Instant(0));
        assert!(liveness.remove(a));
        assert!(!liveness.heard(a, Instant(10)));
        assert!(!liveness.remove(a));
        assert_eq!(liveness.deadline(), None);
    }
}
