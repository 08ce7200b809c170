//! Operators driven as a chain drives them, against naive models.

mod counts;
mod firing_sessions;
mod firings;
mod memory;
mod partials;
mod processing;
mod restore;
mod rig;
mod running;
mod sessions;
mod slices;
mod standing;
mod store;
mod windows;
mod zones;
