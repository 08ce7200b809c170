//! `socket`: lines from a TCP server. What was read cannot be read again.

mod connection;
pub mod declaration;
pub mod source;
