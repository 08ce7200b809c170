//! The gate over random scripts: what is read before a checkpoint's cut is what stands before its barriers.

use levada_common::time::Watermark;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::element::Barrier;
use crate::testing::{Queue, channel, ints, numbers};

fn gate(channels: usize, mode: CheckpointMode) -> (InputGate, Vec<Queue>) {
    let (queues, readers) = (0..channels)
        .map(|_| {
            let (queue, _, reader) = channel(usize::MAX);
            (queue, reader)
        })
        .unzip();
    (InputGate::new(readers, mode), queues)
}

fn barrier(id: u64) -> Element {
    Element::Barrier(Barrier::checkpoint(CheckpointId(id)))
}

/// Rows are numbers of their own; of each channel the row numbers before each barrier are kept.
struct Scripts {
    elements: Vec<VecDeque<Element>>,
    /// Rows that belong to checkpoint `index + 1`, sorted.
    cuts: Vec<Vec<i64>>,
    rows: usize,
    /// By row, from 1.
    channel_of: Vec<usize>,
}

fn scripts(rng: &mut StdRng, channels: usize, checkpoints: u64) -> Scripts {
    let cuts = vec![Vec::new(); checkpoints as usize];
    let mut scripts = Scripts { elements: Vec::new(), cuts, rows: 0, channel_of: Vec::new() };
    let mut row = 0;
    for channel in 0..channels {
        let mut elements = VecDeque::new();
        let ends_before = if rng.random_bool(0.3) { rng.random_range(1..=checkpoints) } else { checkpoints + 1 };
        for id in 1..=ends_before {
            for _ in 0..rng.random_range(0..4) {
                row += 1;
                scripts.channel_of.push(channel);
                elements.push_back(Element::Batch(ints([row])));
                scripts.cuts.iter_mut().skip(id as usize - 1).for_each(|cut| cut.push(row));
            }
            if id < ends_before {
                elements.push_back(barrier(id));
            }
        }
        elements.push_back(Element::EndOfData);
        scripts.elements.push(elements);
    }
    scripts.rows = row as usize;
    scripts.cuts.iter_mut().for_each(|cut| cut.sort_unstable());
    scripts
}

#[test]
fn a_cut_has_exactly_the_rows_before_its_barriers() {
    let mut cuts = 0;
    for seed in 0..2_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (channels, checkpoints) = (rng.random_range(1..6), rng.random_range(1..5));
        let mut scripts = scripts(&mut rng, channels, checkpoints);
        let (mut gate, queues) = gate(channels, CheckpointMode::ExactlyOnce);
        let (mut read, mut ended) = (Vec::new(), false);
        while !ended {
            match gate.read() {
                Input::Batch(_, batch) => read.extend(numbers(&batch)),
                Input::Signal(Signal::Barrier(checkpoint)) => {
                    let mut so_far = read.clone();
                    so_far.sort_unstable();
                    assert_eq!(so_far, scripts.cuts[checkpoint.0 as usize - 1], "seed {seed}, checkpoint {checkpoint}");
                    cuts += 1;
                }
                Input::Signal(Signal::End) => ended = true,
                Input::Signal(signal) => panic!("seed {seed}: {signal:?} out of nothing"),
                Input::GivenUp(checkpoint) => panic!("seed {seed}: checkpoint {checkpoint} given up"),
                Input::Nothing => {}
                Input::Empty => {
                    let channel = rng.random_range(0..channels);
                    if let Some(element) = scripts.elements[channel].pop_front() {
                        queues[channel].push(element);
                    }
                }
            }
        }
        assert_eq!(read.len(), scripts.rows, "seed {seed}");
    }
    assert!(cuts > 2_000, "the run is empty: {cuts} cuts");
}

#[test]
fn channels_take_turns() {
    let (mut gate, queues) = gate(3, CheckpointMode::ExactlyOnce);
    for (channel, queue) in queues.iter().enumerate() {
        for _ in 0..2 {
            queue.push(Element::Batch(ints([channel as i64])));
        }
    }
    let order: Vec<i64> = (0..6)
        .map(|_| match gate.read() {
            Input::Batch(_, batch) => numbers(&batch)[0],
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    assert!(matches!(gate.read(), Input::Empty));
}

#[test]
fn at_least_once_waits_for_no_one() {
    let (mut gate, queues) = gate(2, CheckpointMode::AtLeastOnce);
    queues[0].push(barrier(1));
    queues[0].push(Element::Batch(ints([1])));
    assert!(matches!(gate.read(), Input::Batch(..)));
    queues[1].push(barrier(1));
    assert!(matches!(gate.read(), Input::Signal(Signal::Barrier(CheckpointId(1)))));
}

#[test]
fn a_newer_barrier_and_an_abort_release_a_blocked_channel() {
    let (mut gate, queues) = gate(2, CheckpointMode::ExactlyOnce);
    queues[0].push(barrier(1));
    queues[0].push(Element::Batch(ints([1])));
    assert!(matches!(gate.read(), Input::Empty));
    queues[1].push(barrier(2));
    assert!(matches!(gate.read(), Input::GivenUp(CheckpointId(1))));
    assert!(matches!(gate.read(), Input::Batch(..)));
    queues[1].push(Element::Batch(ints([2])));
    assert!(matches!(gate.read(), Input::Empty));
    gate.abort(CheckpointId(2));
    assert!(matches!(gate.read(), Input::Batch(..)));
}

/// Signals that lead to nothing do not hold a task for ever, nor make it sleep.
#[test]
fn many_signals_are_read_in_pieces() {
    let (mut gate, queues) = gate(2, CheckpointMode::ExactlyOnce);
    for time in 0..200 {
        queues[0].push(Element::Watermark(levada_common::time::Watermark(time)));
    }
    assert!(matches!(gate.read(), Input::Nothing));
    assert_eq!(queues[0].len(), 200 - READS_PER_CALL);
}

#[test]
fn time_does_not_wait_for_what_is_broadcast_but_barriers_and_the_end_do() {
    let (gate, queues) = gate(2, CheckpointMode::ExactlyOnce);
    let roles = vec![ChannelRole::default(), ChannelRole { input: 1, is_broadcast: true, waits: false }];
    let mut gate = gate.with_roles(roles);
    queues[1].push(Element::Batch(ints([7])));
    assert!(matches!(gate.read(), Input::Batch(1, batch) if numbers(&batch) == [7]));
    queues[0].push(Element::Watermark(Watermark(5)));
    assert!(matches!(gate.read(), Input::Signal(Signal::Watermark(Watermark(5)))));
    queues[1].push(Element::Watermark(Watermark(3)));
    queues[1].push(Element::Idle);
    queues[0].push(barrier(1));
    queues[0].push(Element::Batch(ints([8])));
    assert!(matches!(gate.read(), Input::Empty), "the barrier waits for the second input");
    queues[1].push(barrier(1));
    assert!(matches!(gate.read(), Input::Signal(Signal::Barrier(_))));
    assert!(matches!(gate.read(), Input::Batch(0, batch) if numbers(&batch) == [8]));
    queues[0].push(Element::EndOfData);
    assert!(matches!(gate.read(), Input::Empty));
    queues[1].push(Element::EndOfData);
    assert!(matches!(gate.read(), Input::Signal(Signal::End)));
}

/// G25: whichever side of a join speaks first, its time alone moves nothing.
#[test]
fn time_is_the_least_of_both_inputs() {
    for first in [0, 1] {
        let (gate, queues) = gate(2, CheckpointMode::ExactlyOnce);
        let mut gate = gate.with_roles([0, 1].map(|input| ChannelRole { input, ..ChannelRole::default() }).to_vec());
        queues[first].push(Element::Batch(ints([7])));
        queues[first].push(Element::Watermark(Watermark(30)));
        assert!(matches!(gate.read(), Input::Batch(input, _) if input == first));
        assert!(matches!(gate.read(), Input::Empty));
        queues[1 - first].push(Element::Watermark(Watermark(10)));
        assert!(matches!(gate.read(), Input::Signal(Signal::Watermark(Watermark(10)))));
        queues[1 - first].push(Element::Watermark(Watermark(40)));
        assert!(matches!(gate.read(), Input::Signal(Signal::Watermark(Watermark(30)))));
    }
}

/// The first `table` channels are read whole before the others.
fn table_roles(table: usize, channels: usize) -> Vec<ChannelRole> {
    let role = |channel| match channel < table {
        true => ChannelRole { input: 1, is_broadcast: true, waits: false },
        false => ChannelRole { input: 0, is_broadcast: false, waits: true },
    };
    (0..channels).map(role).collect()
}

#[test]
fn rows_that_wait_go_out_behind_those_they_wait_for_and_belong_to_the_cut_that_they_came_before() {
    let (mut cuts, mut waited) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (table, rest, checkpoints) = (rng.random_range(1..3), rng.random_range(1..4), rng.random_range(1..5));
        let channels = table + rest;
        let mode = if rng.random_bool(0.8) { CheckpointMode::ExactlyOnce } else { CheckpointMode::AtLeastOnce };
        let mut scripts = scripts(&mut rng, channels, checkpoints);
        let (gate, queues) = gate(channels, mode);
        let mut gate = gate.with_roles(table_roles(table, channels));
        let (mut read, mut of_rest, mut ended) = (Vec::new(), Vec::new(), false);
        while !ended {
            match gate.read() {
                Input::Batch(input, batch) => {
                    read.extend(numbers(&batch));
                    if input == 0 {
                        assert!(!gate.is_waiting(), "seed {seed}: a row did not wait");
                        of_rest.extend(numbers(&batch));
                    }
                }
                Input::Signal(Signal::Barrier(checkpoint)) => {
                    let mut so_far = read.clone();
                    let waiting: Vec<i64> = gate.waiting_rows().flat_map(numbers).collect();
                    waited += waiting.len();
                    assert_eq!(gate.waiting_bytes() > 0, !waiting.is_empty());
                    so_far.extend(waiting);
                    so_far.sort_unstable();
                    let cut = &scripts.cuts[checkpoint.0 as usize - 1];
                    match mode {
                        CheckpointMode::ExactlyOnce => assert_eq!(so_far, *cut, "seed {seed}, checkpoint {checkpoint}"),
                        CheckpointMode::AtLeastOnce => assert!(cut.iter().all(|row| so_far.contains(row)), "seed {seed}"),
                    }
                    cuts += 1;
                }
                Input::Signal(Signal::End) => ended = true,
                Input::Signal(signal) => panic!("seed {seed}: {signal:?} out of nothing"),
                // Nothing waits at a barrier, so that a newer one may come before all of its own.
                Input::GivenUp(_) if mode == CheckpointMode::AtLeastOnce => {}
                Input::GivenUp(checkpoint) => panic!("seed {seed}: checkpoint {checkpoint} given up"),
                Input::Nothing => {}
                Input::Empty => {
                    let channel = rng.random_range(0..channels);
                    if let Some(element) = scripts.elements[channel].pop_front() {
                        queues[channel].push(element);
                    }
                }
            }
        }
        assert_eq!((read.len(), gate.waiting_rows().count()), (scripts.rows, 0), "seed {seed}");
        let numbered = |channel: usize, row: &i64| scripts.channel_of[*row as usize - 1] == channel;
        for channel in table..channels {
            assert!(of_rest.iter().filter(|row| numbered(channel, row)).is_sorted(), "seed {seed}: rows of a channel overtook");
        }
    }
    assert!(cuts > 3_000 && waited > 1_000, "the run is empty: {cuts} cuts, {waited} rows that waited");
}

#[test]
fn what_waits_stays_in_its_channel_until_a_barrier_asks_for_it_and_its_time_waits_too() {
    let (gate, queues) = gate(2, CheckpointMode::ExactlyOnce);
    let mut gate = gate.with_roles(table_roles(1, 2)).with_waiting(vec![ints([1])]);
    queues[1].push(Element::Batch(ints([2])));
    queues[1].push(Element::Watermark(Watermark(2)));
    queues[1].push(barrier(1));
    queues[1].push(Element::Batch(ints([3])));
    assert!(matches!(gate.read(), Input::Empty));
    assert_eq!(queues[1].len(), 4, "nothing is read");
    queues[0].push(barrier(1));
    assert!(matches!(gate.read(), Input::Signal(Signal::Barrier(_))));
    assert_eq!(gate.waiting_rows().flat_map(numbers).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(queues[1].len(), 1);
    queues[0].push(Element::EndOfData);
    for row in [1, 2] {
        assert!(matches!(gate.read(), Input::Batch(0, batch) if numbers(&batch) == [row]));
    }
    assert!(matches!(gate.read(), Input::Signal(Signal::Watermark(Watermark(2)))));
    assert!(matches!(gate.read(), Input::Batch(0, batch) if numbers(&batch) == [3]));
    assert_eq!(gate.waiting_bytes(), 0);
}
