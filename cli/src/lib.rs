//! The levada command line and the embedded cluster.
