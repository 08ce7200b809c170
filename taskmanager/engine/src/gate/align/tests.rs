//! Alignment against a model that remembers everything and decides anew after each event.

use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Every barrier that came on each channel, every id that is over.
struct Model {
    mode: CheckpointMode,
    seen: Vec<BTreeSet<u64>>,
    ended: Vec<bool>,
    over: BTreeSet<u64>,
}

impl Model {
    fn current(&self) -> Option<u64> {
        let newest_over = self.over.last().copied().unwrap_or(0);
        self.seen.iter().flatten().copied().filter(|id| *id > newest_over).max()
    }

    fn after(&mut self, event: impl FnOnce(&mut Self)) -> Outcome {
        let before = self.current();
        event(self);
        let given_up = before.filter(|before| self.current() != Some(*before));
        self.over.extend(given_up);
        let all_have = |id: &u64| self.seen.iter().zip(&self.ended).all(|(seen, ended)| *ended || seen.contains(id));
        let complete = self.current().filter(all_have);
        self.over.extend(complete);
        Outcome { given_up: given_up.map(CheckpointId), complete: complete.map(CheckpointId) }
    }

    fn is_blocked(&self, channel: usize) -> bool {
        let has = |current| self.seen[channel].contains(&current);
        self.mode == CheckpointMode::ExactlyOnce && self.current().is_some_and(has)
    }
}

#[test]
fn alignment_is_as_the_model_says() {
    let (mut completed, mut given_up) = (0, 0);
    for seed in 0..3_000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let channels = rng.random_range(1..6);
        let mode = if rng.random_bool(0.7) { CheckpointMode::ExactlyOnce } else { CheckpointMode::AtLeastOnce };
        let mut alignment = Alignment::new(mode, channels);
        let mut model =
            Model { mode, seen: vec![BTreeSet::new(); channels], ended: vec![false; channels], over: BTreeSet::new() };
        let mut base = 1;
        for step in 0..60 {
            base += u64::from(rng.random_bool(0.2));
            let id = rng.random_range(base.saturating_sub(1).max(1)..=base + 1);
            let channel = rng.random_range(0..channels);
            if rng.random_bool(0.08) {
                alignment.abort(CheckpointId(id));
                model.over.insert(id);
            } else if !model.ended[channel] {
                let (got, expected) = if rng.random_bool(0.03) {
                    (alignment.end(channel), model.after(|model| model.ended[channel] = true))
                } else {
                    let expected = model.after(|model| {
                        model.seen[channel].insert(id);
                    });
                    (alignment.barrier(channel, CheckpointId(id)), expected)
                };
                assert_eq!(got, expected, "seed {seed}, step {step}");
                completed += usize::from(got.complete.is_some());
                given_up += usize::from(got.given_up.is_some());
            }
            assert_eq!(alignment.current(), model.current().map(CheckpointId), "seed {seed}, step {step}");
            for channel in 0..channels {
                let (got, expected) = (alignment.is_blocked(channel), model.is_blocked(channel));
                assert_eq!(got, expected, "seed {seed}, step {step}, channel {channel}");
            }
        }
    }
    assert!(completed > 1_000 && given_up > 1_000, "the run is empty: {completed} completed, {given_up} given up");
}

#[test]
fn an_end_completes_what_only_waited_for_it() {
    let mut alignment = Alignment::new(CheckpointMode::ExactlyOnce, 2);
    assert_eq!(alignment.barrier(0, CheckpointId(1)), Outcome::default());
    assert!(alignment.is_blocked(0) && !alignment.is_blocked(1));
    assert_eq!(alignment.end(1).complete, Some(CheckpointId(1)));
    assert!(!alignment.is_blocked(0));
    assert_eq!(alignment.barrier(0, CheckpointId(2)).complete, Some(CheckpointId(2)));
}

#[test]
fn an_aborted_checkpoint_blocks_no_one_afterwards() {
    let mut alignment = Alignment::new(CheckpointMode::ExactlyOnce, 2);
    alignment.abort(CheckpointId(7));
    assert_eq!(alignment.barrier(0, CheckpointId(7)), Outcome::default());
    assert!(!alignment.is_blocked(0));
    alignment.barrier(0, CheckpointId(8));
    alignment.abort(CheckpointId(8));
    assert!(!alignment.is_blocked(0));
    assert_eq!(alignment.current(), None);
}
