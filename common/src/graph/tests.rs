//! Whole documents.
