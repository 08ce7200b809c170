//! Which job may use which slots. A slot belongs to one job at a time; a job gets all that it needs or none more.
//!
//! Pure. Invariant: what is granted of a TaskManager never exceeds its slots, and no job holds more than it needs.

use std::collections::BTreeMap;

use levada_common::ids::{JobId, TaskManagerId};

/// The slots of all TaskManagers and who holds them.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    capacity: BTreeMap<TaskManagerId, u32>,
    /// In the order in which they came: who came first is served first.
    jobs: Vec<JobSlots>,
}

#[derive(Debug)]
struct JobSlots {
    job: JobId,
    needed: u32,
    granted: BTreeMap<TaskManagerId, u32>,
}

impl JobSlots {
    fn missing(&self) -> u32 {
        self.needed - self.granted.values().sum::<u32>()
    }
}

impl Slots {
    /// A TaskManager came.
    pub(crate) fn add(&mut self, id: TaskManagerId, slots: u32) {
        self.capacity.insert(id, slots);
        self.settle();
    }

    /// A TaskManager is gone; what was granted of it is lost.
    pub(crate) fn remove(&mut self, id: TaskManagerId) {
        self.capacity.remove(&id);
        for job in &mut self.jobs {
            job.granted.remove(&id);
        }
        self.settle();
    }

    /// A job needs so many slots.
    pub(crate) fn join(&mut self, job: JobId, needed: u32) {
        self.jobs.push(JobSlots { job, needed, granted: BTreeMap::new() });
        self.settle();
    }

    /// A job gives its slots back and still needs as many; it stands behind all others now. One that has none stays where it is.
    pub(crate) fn release(&mut self, job: JobId) {
        if let Some(at) = self.jobs.iter().position(|entry| entry.job == job && !entry.granted.is_empty()) {
            let mut entry = self.jobs.remove(at);
            entry.granted.clear();
            self.jobs.push(entry);
            self.settle();
        }
    }

    /// A job has ended.
    pub(crate) fn leave(&mut self, job: JobId) {
        self.jobs.retain(|entry| entry.job != job);
        self.settle();
    }

    /// The slots of a TaskManager that no job holds.
    pub(crate) fn free(&self, id: TaskManagerId) -> u32 {
        let granted: u32 = self.jobs.iter().filter_map(|job| job.granted.get(&id)).sum();
        self.capacity.get(&id).copied().unwrap_or(0) - granted
    }

    /// The slots of a TaskManager that the job sees: those granted, and, where it lacks some, also those free, which then are
    /// too few for it in all.
    pub(crate) fn offered(&self, job: JobId, id: TaskManagerId) -> u32 {
        let Some(entry) = self.jobs.iter().find(|entry| entry.job == job) else { return 0 };
        let granted = entry.granted.get(&id).copied().unwrap_or(0);
        if entry.missing() == 0 { granted } else { granted + self.free(id) }
    }

    /// Grants free slots to jobs that lack some, where all that a job lacks is there, spread evenly.
    fn settle(&mut self) {
        let mut free: BTreeMap<TaskManagerId, u32> = self.capacity.keys().map(|id| (*id, self.free(*id))).collect();
        for job in &mut self.jobs {
            let missing = job.missing();
            if missing > free.values().sum() {
                continue;
            }
            for _ in 0..missing {
                let (id, slots) = free.iter_mut().max_by_key(|(id, slots)| (**slots, std::cmp::Reverse(**id))).expect("counted");
                *slots -= 1;
                *job.granted.entry(*id).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: TaskManagerId = TaskManagerId::from_u128(1);
    const B: TaskManagerId = TaskManagerId::from_u128(2);
    const X: JobId = JobId::from_u128(10);
    const Y: JobId = JobId::from_u128(11);

    fn offered(slots: &Slots, job: JobId) -> (u32, u32) {
        (slots.offered(job, A), slots.offered(job, B))
    }

    #[test]
    fn slots_are_spread_and_belong_to_one_job() {
        let mut slots = Slots::default();
        slots.add(A, 2);
        slots.add(B, 2);
        slots.join(X, 2);
        slots.join(Y, 3);
        assert_eq!(offered(&slots, X), (1, 1));
        assert_eq!(offered(&slots, Y), (1, 1), "two free, not enough for three");
        assert_eq!((slots.free(A), slots.free(B)), (1, 1));
        slots.leave(X);
        assert_eq!(offered(&slots, X), (0, 0));
        let (a, b) = offered(&slots, Y);
        assert_eq!(a + b, 3);
    }

    #[test]
    fn a_loss_is_filled_from_free_slots() {
        let mut slots = Slots::default();
        slots.add(A, 2);
        slots.add(B, 4);
        slots.join(X, 4);
        slots.remove(A);
        assert_eq!(offered(&slots, X), (0, 4));
        slots.remove(B);
        assert_eq!(offered(&slots, X), (0, 0));
        slots.add(A, 3);
        assert_eq!(offered(&slots, X), (3, 0), "seen, not granted");
        assert_eq!(slots.free(A), 3);
    }

    #[test]
    fn a_job_that_waits_keeps_nothing_from_others() {
        let mut slots = Slots::default();
        slots.add(A, 2);
        slots.add(B, 2);
        slots.join(X, 4);
        slots.join(Y, 1);
        slots.remove(B);
        assert_eq!(slots.offered(Y, A), 0, "X still holds A");
        slots.release(X);
        assert_eq!(slots.offered(Y, A), 1);
        assert_eq!(slots.free(A), 1);
        slots.join(JobId::from_u128(12), 4);
        slots.release(X);
        slots.add(B, 3);
        assert_eq!(offered(&slots, X), (1, 3), "it has nothing to give back, and its place is the second one");
    }
}
