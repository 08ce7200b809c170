//! Sources, sinks and formats.
