//! The JobManager: gRPC and HTTP services, timers, checkpoint storage around the pure core.
