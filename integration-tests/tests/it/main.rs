//! Integration tests: real processes on loopback, one program so that it is linked once.

mod cases;
mod exchange;
mod kill;
mod python;
<<<<<<< HEAD
mod savepoints;
mod storage;
=======
>>>>>>> c2fbe65 (Keep the containers' checkpoints in S3)
mod state_tools;
mod storage;
mod streams;
mod structure;
