//! `blackhole`: takes everything and keeps nothing.

pub mod declaration;
pub mod sink;
