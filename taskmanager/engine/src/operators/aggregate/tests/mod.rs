//! Operators driven as a chain drives them, against naive models.

mod partials;
mod restore;
mod rig;
mod running;
mod sessions;
mod slices;
mod store;
mod windows;
