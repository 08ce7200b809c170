//! Rows of an input that wait until they are given out together: joins, and functions over whole windows.

mod panes;
mod side;
mod state;
mod windows;

pub(super) use panes::{Panes, Place, ReadRows, Reading, StoredRows, Waiting, WaitingOwner};
pub(super) use side::{Meets, Side, SidePlan};
pub(super) use state::{RestoredRows, read, read_batch, save};
pub(super) use windows::WaitingWindows;
