//! What the allocator does with memory that is free.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// Number of the option that says after how many milliseconds free memory goes back to the system.
const PURGE_DELAY: mi_option_t = 15;

/// Longer than the time between two checkpoints.
const PURGE_DELAY_MS: c_long = 60_000;

/// Has free memory kept for a while, where nothing else is said (`MIMALLOC_PURGE_DELAY`): each snapshot needs what the one before it
/// gave back, and pages from the system are cleared first, on the thread of the task that touches them.
#[expect(unsafe_code, reason = "the crate has no safe function for it")]
pub fn keep_free_memory() {
    // SAFETY: sets an entry of a static table; the option's number is one of it.
    unsafe { mi_option_set_default(PURGE_DELAY, PURGE_DELAY_MS) }
}
