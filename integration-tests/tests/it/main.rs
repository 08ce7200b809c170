//! Integration tests: real processes on loopback, one program so that it is linked once.

mod aggregates;
mod cases;
mod clocks;
mod databases;
mod exchange;
mod firings;
mod functions;
mod joins;
mod kill;
mod nexmark;
mod outputs;
mod python;
mod queries;
mod savepoints;
mod standstill;
mod state_tools;
mod storage;
mod streams;
mod structure;
mod windows;
