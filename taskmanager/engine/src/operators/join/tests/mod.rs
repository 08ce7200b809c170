//! Joins against nested loops, whatever the order of rows and time, and across restores.

mod clock;
mod intervals;
mod restore;
mod rig;
mod standing;
mod stored;
mod stored_panes;
mod windows;
