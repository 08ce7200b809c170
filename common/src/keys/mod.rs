//! Keys: their bytes, their hash, their group. Fixed for ever: snapshots and exchanges depend on it.
//!
//! Key columns become canonical bytes, those a 32-bit hash, that a key group, and ranges of groups belong to subtasks.
//! Must never know what is done with a key. Invariant: the golden vectors in the tests never change.

mod encode;
mod group;
mod hash;

pub use encode::{KeyEncoder, fixed_key_size, is_key_type, normalise_key_column};
pub use group::{KeyGroupRange, MAX_PARALLELISM_LIMIT, default_max_parallelism, key_group, owner_of_group};
pub use hash::{hash_keys, key_groups, key_groups_of_rows, key_hash};
