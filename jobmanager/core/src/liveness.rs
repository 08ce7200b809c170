//! Which TaskManagers are alive: heard from within the timeout. For the shell, which owns the streams.
//!
//! Never knows jobs. A broken stream is not its business either: the shell takes such a TaskManager for lost at once.
//!
//! *Who stood still does not take others for dead.* Where nothing was looked at for a good part of the timeout (the machine was
//! overloaded or paused), that time is taken from nobody: what was said meanwhile is yet to be read.

use std::collections::BTreeMap;

use levada_common::ids::TaskManagerId;
use levada_common::time::Instant;

/// Looks within a timeout, at least.
const LOOKS: u64 = 4;

/// When each TaskManager was last heard from.
#[derive(Debug)]
pub struct Liveness {
    timeout_ms: u64,
    heard: BTreeMap<TaskManagerId, Instant>,
    looked: Option<Instant>,
}

impl Liveness {
    /// Knows no TaskManager yet; takes one for lost after `timeout_ms` of silence.
    pub fn new(timeout_ms: u64) -> Self {
        Self { timeout_ms, heard: BTreeMap::new(), looked: None }
    }

    /// The TaskManager registered, at first or again.
    pub fn register(&mut self, id: TaskManagerId, now: Instant) {
        self.look(now);
        self.heard.insert(id, now);
    }

    /// Something came from the TaskManager. Answers false, and changes nothing, where it is not registered (any more).
    pub fn heard(&mut self, id: TaskManagerId, now: Instant) -> bool {
        self.look(now);
        self.heard.get_mut(&id).map(|at| *at = now.max(*at)).is_some()
    }

    /// The TaskManager is gone. Answers whether it was there.
    pub fn remove(&mut self, id: TaskManagerId) -> bool {
        self.heard.remove(&id).is_some()
    }

    /// Removes those that were silent for too long, each with the reason to give, in the order of their ids.
    ///
    /// Contract: called at `deadline`.
    pub fn expire(&mut self, now: Instant) -> Vec<(TaskManagerId, String)> {
        self.look(now);
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

    /// When `expire` is next to be called: at the end of a silence, and in between so that a standstill is told from one.
    pub fn deadline(&self) -> Option<Instant> {
        let silence_ends = self.heard.values().min()?.plus_ms(self.timeout_ms);
        let next_look = self.looked.map(|looked| looked.plus_ms(self.timeout_ms.div_ceil(LOOKS)));
        Some(next_look.map_or(silence_ends, |look| look.min(silence_ends)))
    }

    /// Notes that time is looked at, and gives back what passed in a standstill.
    fn look(&mut self, now: Instant) {
        let gap_ms = self.looked.replace(now).map_or(0, |looked| now.since(looked));
        if gap_ms >= self.timeout_ms / 2 {
            self.heard.values_mut().for_each(|at| *at = at.plus_ms(gap_ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskManagerId = TaskManagerId::from_u128(1);
    const B: TaskManagerId = TaskManagerId::from_u128(2);

    /// Calls `expire` at every deadline up to this time; answers who was lost, and when.
    fn run(liveness: &mut Liveness, until: u64) -> Vec<(TaskManagerId, u64)> {
        let mut lost = Vec::new();
        while let Some(at) = liveness.deadline().filter(|at| at.0 <= until) {
            lost.extend(liveness.expire(at).into_iter().map(|(id, _)| (id, at.0)));
        }
        lost
    }

    #[test]
    fn silence_is_loss_and_a_heartbeat_is_life() {
        let mut liveness = Liveness::new(50);
        liveness.register(A, Instant(0));
        liveness.register(B, Instant(0));
        assert_eq!(run(&mut liveness, 29), []);
        assert!(liveness.heard(B, Instant(30)));
        assert_eq!(run(&mut liveness, 49), []);
        let lost = liveness.expire(Instant(50));
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].0, A);
        assert!(lost[0].1.contains("50 ms"), "{}", lost[0].1);
        assert_eq!(run(&mut liveness, 200), [(B, 80)]);
        assert_eq!(liveness.deadline(), None);
    }

    #[test]
    fn a_standstill_of_ones_own_is_nobody_s_silence() {
        let mut liveness = Liveness::new(50);
        liveness.register(A, Instant(0));
        liveness.register(B, Instant(0));
        assert_eq!(run(&mut liveness, 10), []);
        // Nothing was looked at for ten timeouts; what comes first then is what was said meanwhile.
        assert!(liveness.heard(B, Instant(500)));
        assert_eq!(liveness.expire(Instant(501)), []);
        let lost = run(&mut liveness, 1_000);
        assert_eq!(lost, [(A, 550), (B, 550)], "A has the whole timeout after it, B after its own word");
    }

    #[test]
    fn a_heartbeat_of_one_that_was_lost_does_not_revive_it() {
        let mut liveness = Liveness::new(50);
        liveness.register(A, Instant(0));
        assert!(liveness.remove(A));
        assert!(!liveness.heard(A, Instant(10)));
        assert!(!liveness.remove(A));
        assert_eq!(liveness.deadline(), None);
    }
}
