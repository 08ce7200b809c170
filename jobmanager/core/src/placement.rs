//! Where tasks run: which TaskManager gives each slot, and how much memory a channel between two of them may use.
//!
//! Slot i takes subtask i of every vertex, so a forward edge never leaves its TaskManager. Slots are spread evenly; the same
//! TaskManagers always give the same placement.

use levada_common::ids::{TaskId, TaskManagerId, VertexId};
use levada_common::plan::{Edge, Partition, Plan};

use crate::event::TaskManagerInfo;

/// Least memory of a channel between TaskManagers, in bytes.
pub const CHANNEL_WINDOW_BYTES_MIN: u64 = 128 * 1024;

/// Most memory of a channel between TaskManagers, in bytes; a longer queue makes nothing faster.
pub const CHANNEL_WINDOW_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The slots of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The TaskManager of each slot.
    pub slots: Vec<TaskManagerId>,
    /// Memory of each channel between TaskManagers, in bytes.
    pub channel_window_bytes: u64,
}

impl Placement {
    /// Where the task runs.
    pub fn of(&self, task: TaskId) -> TaskManagerId {
        self.slots[task.subtask.0 as usize]
    }
}

/// Why the job cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There are too few slots. More may come: the job waits.
    #[error("needs {needed} slots, {free} are free ({task_managers} TaskManager{})", if *task_managers == 1 { "" } else { "s" })]
    TooFewSlots {
        /// Slots that the job needs.
        needed: u32,
        /// Slots that it may use.
        free: u32,
        /// TaskManagers that there are.
        task_managers: usize,
    },
    /// The job's channels do not fit the memory of a TaskManager: it is refused.
    #[error(
        "{channels} channels from other TaskManagers need {needed_bytes} bytes of network memory ({} bytes each) on TaskManager {data_address}, which has {available_bytes} bytes; use less parallelism, fewer TaskManagers with more slots, or raise taskmanager.memory.total",
        CHANNEL_WINDOW_BYTES_MIN
    )]
    NetworkMemory {
        /// The TaskManager's data address.
        data_address: String,
        /// Channels that end there and begin elsewhere.
        channels: u64,
        /// The least that they need.
        needed_bytes: u64,
        /// What the TaskManager has.
        available_bytes: u64,
    },
}

/// Places the job's slots.
///
/// Errors: too few slots, or too little network memory for the least window of each channel. Nothing is changed by either.
pub fn place(plan: &Plan, task_managers: &[TaskManagerInfo]) -> Result<Placement, PlacementError> {
    let mut sorted: Vec<&TaskManagerInfo> = task_managers.iter().collect();
    sorted.sort_by_key(|info| info.id);
    let needed = plan.slots();
    let free = sorted.iter().fold(0u32, |sum, info| sum.saturating_add(info.slots));
    if free < needed {
        return Err(PlacementError::TooFewSlots { needed, free, task_managers: sorted.len() });
    }
    let hosts = spread(needed, &sorted);
    let channel_window_bytes = channel_window(plan, &sorted, &hosts)?;
    Ok(Placement { slots: hosts.iter().map(|&host| sorted[host].id).collect(), channel_window_bytes })
}

/// For each slot the place in `task_managers` of its TaskManager: one each in turn, as long as it has slots.
fn spread(slots: u32, task_managers: &[&TaskManagerInfo]) -> Vec<usize> {
    let mut hosts = Vec::with_capacity(slots as usize);
    let mut round = 0;
    while hosts.len() < slots as usize {
        let left = slots as usize - hosts.len();
        hosts.extend((0..task_managers.len()).filter(|&host| task_managers[host].slots > round).take(left));
        round += 1;
    }
    hosts
}

/// The memory that each channel gets. A channel's window is memory of its receiver.
fn channel_window(plan: &Plan, task_managers: &[&TaskManagerInfo], hosts: &[usize]) -> Result<u64, PlacementError> {
    let mut window_bytes = CHANNEL_WINDOW_BYTES_MAX;
    for (host, info) in task_managers.iter().enumerate() {
        let channels: u64 = plan.edges.iter().map(|edge| channels_into(plan, edge, hosts, host)).sum();
        if channels == 0 {
            continue;
        }
        let fair_bytes = info.network_memory_bytes / channels;
        if fair_bytes < CHANNEL_WINDOW_BYTES_MIN {
            return Err(PlacementError::NetworkMemory {
                data_address: info.data_address.clone(),
                channels,
                needed_bytes: channels.saturating_mul(CHANNEL_WINDOW_BYTES_MIN),
                available_bytes: info.network_memory_bytes,
            });
        }
        window_bytes = window_bytes.min(fair_bytes);
    }
    Ok(window_bytes)
}

/// Channels of `edge` that end on `host` and begin elsewhere.
fn channels_into(plan: &Plan, edge: &Edge, hosts: &[usize], host: usize) -> u64 {
    match edge.partition {
        Partition::Forward => 0,
        Partition::Hash { .. } | Partition::Rebalance | Partition::Broadcast => {
            let on_host = |vertex: VertexId| {
                let parallelism = plan.vertex(vertex).parallelism as usize;
                (hosts[..parallelism].iter().filter(|&&at| at == host).count() as u64, parallelism as u64)
            };
            let (senders_here, senders) = on_host(edge.from);
            let (receivers_here, _) = on_host(edge.to);
            receivers_here * (senders - senders_here)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{exchange, task_manager};

    fn hosts(placement: &Placement) -> Vec<TaskManagerId> {
        placement.slots.clone()
    }

    #[test]
    fn slots_are_spread_evenly_whatever_the_order_of_the_task_managers() {
        let (a, b) = (task_manager(1, 8), task_manager(2, 1));
        let placement = place(&exchange(4), &[b.clone(), a.clone()]).expect("fits");
        assert_eq!(hosts(&placement), [a.id, b.id, a.id, a.id]);
        assert_eq!(placement, place(&exchange(4), &[a, b]).expect("fits"));
    }

    #[test]
    fn too_few_slots_are_counted() {
        let error = place(&exchange(4), &[task_manager(1, 2)]).expect_err("2 < 4");
        assert_eq!(error.to_string(), "needs 4 slots, 2 are free (1 TaskManager)");
        let error = place(&exchange(4), &[]).expect_err("0 < 4");
        assert_eq!(error.to_string(), "needs 4 slots, 0 are free (0 TaskManagers)");
    }

    #[test]
    fn the_window_is_what_the_fullest_task_manager_can_give() {
        let with = |bytes| {
            let mut infos = [task_manager(1, 2), task_manager(2, 2)];
            infos[1].network_memory_bytes = bytes;
            place(&exchange(4), &infos)
        };
        // 2 receivers × 2 senders elsewhere = 4 channels into each.
        assert_eq!(with(1 << 40).expect("fits").channel_window_bytes, CHANNEL_WINDOW_BYTES_MAX);
        assert_eq!(with(4 << 20).expect("fits").channel_window_bytes, 1 << 20);
        assert_eq!(with(4 * CHANNEL_WINDOW_BYTES_MIN).expect("fits").channel_window_bytes, CHANNEL_WINDOW_BYTES_MIN);
        let text = with(4 * CHANNEL_WINDOW_BYTES_MIN - 1).expect_err("one byte short").to_string();
        assert!(text.starts_with("4 channels from other TaskManagers need 524288 bytes"), "{text}");
    }

    #[test]
    fn channels_inside_a_task_manager_need_no_network_memory() {
        let mut info = task_manager(1, 4);
        info.network_memory_bytes = 0;
        assert!(place(&exchange(4), &[info]).is_ok());
    }
}
