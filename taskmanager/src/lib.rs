//! The TaskManager: slots, task threads, data exchange, snapshot uploads.
