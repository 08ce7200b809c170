//! Whole documents: good ones, bad ones with every defect reported, round trips, and random input.

mod defects;
mod documents;
mod fuzz;
mod paths;
mod round_trip;

/// A job that has nothing wrong.
const GOOD: &str = "\
version: 1
name: words
sources:
  text:
    file: { path: in.txt }
transforms:
  words:
    inputs: [text]
    select: { word: unnest(split(line)) }
  counts:
    inputs: [words]
    key_by: [word]
    aggregate: { n: count(*) }
sinks:
  out:
    inputs: [counts]
    file: { path: out/ }
";

/// The errors of a document, one a line.
fn errors(document: &str) -> String {
    super::parse(document).expect_err("the document is defective").to_string()
}
