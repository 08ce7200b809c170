//! From backend to backend by savepoints, each time at another width: no step loses or changes anything.

use levada_common::plan::BackendKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::rig::{Place, Rig};
use super::run::{Feed, feeds};
use super::{WIDTHS, difference};

/// Feeds of a leg.
const FEEDS: i64 = 4;

/// The backends in the order of one seed: some have the state twice, and every one comes after every other.
fn backends(rng: &mut StdRng) -> Vec<BackendKind> {
    use BackendKind::{Fs, Memory, Rocksdb};
    let mut all = vec![Memory, Rocksdb, Fs, Rocksdb];
    (0..2).for_each(|_| all.push([Memory, Fs, Rocksdb][rng.random_range(0..3)]));
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn state_goes_from_backend_to_backend_and_from_width_to_width() {
    for seed in 0xBAC0..0xBAC2 {
        println!("seed {seed:#x}");
        let mut rng = StdRng::seed_from_u64(seed);
        let backends = backends(&mut rng);
        let legs: Vec<Vec<Feed>> = (0..backends.len() as i64).map(|leg| feeds(&mut rng, leg * FEEDS, FEEDS)).collect();
        let mut twin = Rig::new(BackendKind::Memory, Place::Files).await.start(1, None).await.unwrap();
        let mut rig = Rig::new(backends[0], Place::Savepoint).await;
        let (mut snapshot, mut width) = (None, 0);
        for (leg, (backend, feeds)) in backends.iter().zip(&legs).enumerate() {
            let others: Vec<u32> = WIDTHS.into_iter().filter(|other| *other != width).collect();
            (rig.backend, width) = (*backend, others[rng.random_range(0..others.len())]);
            let what = format!("seed {seed:#x}, leg {leg} on {} at {width}", backend.name());
            let mut run = rig.start(width, snapshot.as_ref()).await.unwrap();
            for feed in feeds {
                twin.feed(feed);
                run.feed(feed);
            }
            if leg + 1 == legs.len() {
                twin.finish();
                run.finish();
            } else {
                snapshot = Some(rig.snapshot(&mut run, &[]).await);
            }
            let (given, expected) = (run.take(), twin.take());
            assert!(given == expected, "{what}: {}", difference(&given, &expected));
        }
    }
}
