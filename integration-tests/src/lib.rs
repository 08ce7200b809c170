//! Integration tests, simulation and benchmark programs.
