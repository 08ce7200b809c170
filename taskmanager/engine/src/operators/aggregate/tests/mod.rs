//! Operators driven as a chain drives them, against naive models.

mod partials;
mod restore;
mod rig;
mod running;
mod store;
mod windows;
