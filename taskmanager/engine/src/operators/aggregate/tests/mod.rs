//! Operators driven as a chain drives them, against naive models.

mod changes;
mod counts;
mod distinct;
mod firing_by_clock;
mod firing_sessions;
mod firings;
mod firings_full;
mod library;
mod linked;
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
mod told_apart;
mod triggered;
mod windows;
mod zones;
