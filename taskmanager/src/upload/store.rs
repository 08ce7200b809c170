//! States to files: what stays inline, what shares a file, and the writing.
//!
//! Invariant: a file holds states of one task's snapshot only, so that all of it is deleted at once.

use std::path::PathBuf;
use std::sync::PoisonError;

use bytes::{Bytes, BytesMut};
use levada_common::checkpoint::{Handle, StateHandle};
use levada_common::ids::{SubtaskIndex, Uid};
use levada_common::storage::{Draft, LocalFile, Storage, StorageError, retried};
use tokio::time::Instant;
use uuid::Uuid;

use super::encode::{Body, Encoded, Stopped, not_stored};
use super::snapshot::Begun;

/// Largest file in which states are packed.
const SEGMENT_BYTES_MAX: usize = 32 << 20;

/// States above this have a file of their own: to pack one is to copy it.
pub(super) const PACKED_BYTES_MAX: usize = 4 << 20;

/// Letters of an operator's or a state's name that a file's name has.
const READABLE_LETTERS_MAX: usize = 40;

/// Where the states of one snapshot go that are not inline. Cheap to clone.
#[derive(Clone)]
pub(super) struct Store {
    pub storage: Storage,
    /// What the paths begin with.
    pub folder: String,
    /// Whether a state's own file is named after it.
    pub is_readable: bool,
    /// Where files are until they are uploaded, which cannot be written in their place.
    pub scratch: PathBuf,
    pub deadline: Instant,
    pub begun: Begun,
}

impl Store {
    /// Decides for each state whether it stays inline, smallest first so that most do, and writes the others.
    pub async fn place(&self, encoded: Vec<Encoded>, each_max: u64, sum_max: u64) -> Result<Vec<StateHandle>, Stopped> {
        let (small, large): (Vec<_>, Vec<_>) = encoded.into_iter().enumerate().partition(|(_, state)| state.is_in_memory());
        let (places, small): (Vec<_>, Vec<_>) = small.into_iter().unzip();
        let (large_places, large): (Vec<_>, Vec<_>) = large.into_iter().unzip();
        let (small, large) = futures::future::try_join(self.pack(small, each_max, sum_max), self.write_all(large)).await?;
        let mut states: Vec<(usize, StateHandle)> =
            places.into_iter().zip(small).chain(large_places.into_iter().zip(large)).collect();
        states.sort_by_key(|(place, _)| *place);
        Ok(states.into_iter().map(|(_, state)| state).collect())
    }

    async fn pack(&self, small: Vec<Encoded>, each_max: u64, sum_max: u64) -> Result<Vec<StateHandle>, Stopped> {
        let (mut states, bodies): (Vec<StateHandle>, Vec<Body>) =
            small.into_iter().map(|Encoded { state, body }| (state, body)).unzip();
        let bytes: Vec<Bytes> = bodies.into_iter().filter_map(Body::into_memory).collect();
        let sizes: Vec<usize> = bytes.iter().map(Bytes::len).collect();
        let segments = segments(&sizes, &inline(&sizes, each_max, sum_max));
        let written = segments.iter().map(|segment| self.write(segment, &bytes));
        for (place, handle) in futures::future::try_join_all(written).await?.into_iter().flatten() {
            states[place].handle = handle;
        }
        Ok(states)
    }

    /// Puts each state into a file of its own.
    pub async fn write_all(&self, encoded: Vec<Encoded>) -> Result<Vec<StateHandle>, Stopped> {
        let written = encoded.into_iter().map(|Encoded { mut state, body }| async move {
            match body {
                Body::Memory(bytes) => {
                    let path = self.name(&state.uid, &state.name, state.subtask);
                    state.handle = Handle::File { path: path.clone(), offset: 0, length: bytes.len() as u64 };
                    self.put(&path, bytes).await?;
                }
                Body::File(draft) => {
                    let path = draft.path().to_owned();
                    written(&path, self.storage.finish(draft, self.deadline).await)?;
                }
            }
            Ok(state)
        });
        futures::future::try_join_all(written).await
    }

    /// A new name for a state's own file.
    pub fn name(&self, uid: &Uid, state: &str, subtask: SubtaskIndex) -> String {
        match self.is_readable {
            true => format!("{}/{}", self.folder, readable_name(uid, state, subtask)),
            false => self.unique_name(),
        }
    }

    fn unique_name(&self) -> String {
        format!("{}-{}", self.folder, Uuid::new_v4().simple())
    }

    /// Writes the states of one file, and answers where each is.
    async fn write(&self, segment: &[usize], bytes: &[Bytes]) -> Result<Vec<(usize, Handle)>, Stopped> {
        let path = self.unique_name();
        let (mut handles, mut offset) = (Vec::new(), 0);
        for place in segment {
            let length = bytes[*place].len() as u64;
            handles.push((*place, Handle::File { path: path.clone(), offset, length }));
            offset += length;
        }
        let bytes = match segment {
            [alone] => bytes[*alone].clone(),
            many => joined(many.iter().map(|place| &bytes[*place]), offset as usize),
        };
        self.put(&path, bytes).await?;
        Ok(handles)
    }

    /// Writes a file of this snapshot, which is deleted if the snapshot does not come about.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), Stopped> {
        self.note(path);
        written(path, retried(self.deadline, || self.storage.put(path, bytes.clone())).await)
    }

    /// As `put`, a copy of a local file.
    pub async fn put_file(&self, path: &str, file: &LocalFile) -> Result<(), Stopped> {
        self.note(path);
        written(path, retried(self.deadline, || self.storage.put_file(path, file)).await)
    }

    /// Begins such a file, to be finished in the storage. Blocks.
    pub fn begin(&self, path: &str) -> Result<Draft, StorageError> {
        self.note(path);
        self.storage.begin(path, &self.scratch)
    }

    fn note(&self, path: &str) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push((self.storage.clone(), path.into()));
    }
}

fn written(path: &str, written: Result<(), StorageError>) -> Result<(), Stopped> {
    written.map_err(|error| not_stored(path, &error))
}

/// The name of a state's file in a savepoint: operator, state and subtask for people to read, and something that no other has,
/// since what is not plain in names is left out.
fn readable_name(uid: &Uid, state: &str, subtask: SubtaskIndex) -> String {
    let plain = |text: &str| -> String {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        text.chars().take(READABLE_LETTERS_MAX).map(plain).collect()
    };
    let unique = &Uuid::new_v4().simple().to_string()[..8];
    format!("{}.{}.{subtask}-{unique}.arrow", plain(uid.as_str()), plain(state))
}

fn joined<'a>(pieces: impl Iterator<Item = &'a Bytes>, length: usize) -> Bytes {
    let mut all = BytesMut::with_capacity(length);
    pieces.for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}

/// Which states stay inline: smallest first, each at most `each_max` and all together `sum_max`.
fn inline(sizes: &[usize], each_max: u64, sum_max: u64) -> Vec<bool> {
    let mut by_size: Vec<usize> = (0..sizes.len()).collect();
    by_size.sort_by_key(|place| sizes[*place]);
    let (mut inline, mut sum) = (vec![false; sizes.len()], 0);
    for place in by_size {
        let bytes = sizes[place] as u64;
        if bytes <= each_max && sum + bytes <= sum_max {
            sum += bytes;
            inline[place] = true;
        }
    }
    inline
}

/// Which states share a file, in order: small ones up to a segment's size, each large one alone.
fn segments(sizes: &[usize], inline: &[bool]) -> Vec<Vec<usize>> {
    let (mut segments, mut open, mut open_bytes) = (Vec::new(), Vec::new(), 0);
    for (place, bytes) in sizes.iter().enumerate().filter(|(place, _)| !inline[*place]) {
        if *bytes > PACKED_BYTES_MAX {
            segments.push(vec![place]);
            continue;
        }
        if open_bytes + bytes > SEGMENT_BYTES_MAX {
            segments.push(std::mem::take(&mut open));
            open_bytes = 0;
        }
        open.push(place);
        open_bytes += bytes;
    }
    if !open.is_empty() {
        segments.push(open);
    }
    segments
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    #[test]
    fn small_states_share_files_and_large_ones_do_not() {
        let mib = |sizes: &[usize]| sizes.iter().map(|size| size << 20).collect::<Vec<_>>();
        let none = |count| vec![false; count];
        assert_eq!(segments(&mib(&[1, 2, 3]), &none(3)), [vec![0, 1, 2]]);
        assert_eq!(segments(&mib(&[1, 9, 3]), &none(3)), [vec![1], vec![0, 2]]);
        assert_eq!(segments(&mib(&[4; 9]), &none(9)), [vec![0, 1, 2, 3, 4, 5, 6, 7], vec![8]]);
        assert_eq!(segments(&mib(&[1, 1]), &[true, false]), [vec![1]]);
        assert!(segments(&[], &[]).is_empty());
    }

    #[test]
    fn both_limits_are_kept_to_the_byte() {
        for (each_max, sum_max, expected) in [
            (100, 1_000, [true, true]),
            (99, 1_000, [true, false]),
            (101, 1_000, [true, true]),
            (1_000, 150, [true, true]),
            (1_000, 149, [true, false]),
            (1_000, 151, [true, true]),
        ] {
            assert_eq!(inline(&[50, 100], each_max, sum_max), expected, "{each_max}, {sum_max}");
        }
    }

    #[test]
    fn every_state_is_inline_or_in_one_file() {
        let mut rng = StdRng::seed_from_u64(7);
        for _ in 0..500 {
            let count = rng.random_range(0..20);
            let sizes: Vec<usize> = (0..count)
                .map(|_| {
                    let magnitude = rng.random_range(0..23);
                    rng.random_range(0..8 << magnitude)
                })
                .collect();
            let (each_max, sum_max) = (rng.random_range(0..1 << 20), rng.random_range(0..1 << 21));
            let inline = inline(&sizes, each_max, sum_max);
            let kept: Vec<usize> = (0..sizes.len()).filter(|place| inline[*place]).collect();
            assert!(kept.iter().map(|place| sizes[*place] as u64).sum::<u64>() <= sum_max, "{sizes:?}");
            let segments = segments(&sizes, &inline);
            let mut placed: Vec<usize> = segments.iter().flatten().copied().chain(kept).collect();
            placed.sort_unstable();
            assert_eq!(placed, (0..sizes.len()).collect::<Vec<_>>());
            for segment in &segments {
                let bytes: usize = segment.iter().map(|place| sizes[*place]).sum();
                assert!(segment.len() == 1 || bytes <= SEGMENT_BYTES_MAX, "{sizes:?}: {segments:?}");
            }
        }
    }
}
