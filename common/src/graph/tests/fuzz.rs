//! Whatever the document, reading it ends soon, with a graph or with errors.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::super::*;
use super::GOOD;
use crate::declaration::Declarations;

fn read(document: &str) {
    if let Err(errors) = parse(document) {
        assert!(!errors.0.is_empty());
        assert!(errors.0.iter().all(|error| error.line >= 1 && !error.message.is_empty()));
    }
    let _ = absolute_paths(document, Path::new("/base"), &Declarations::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        read(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn random_structures_do_no_harm(text in "[a-c0-9:,\\-{}\\[\\]\"'#&*!|>%@`?~\\\\ \t\r\n\u{feff}\u{85}ä]{0,120}") {
        read(&text);
        read(&format!("{{{text}"));
        read(&format!("{{\"{text}"));
    }

    #[test]
    fn damaged_jobs_do_no_harm(at in 0..GOOD.len(), length in 0usize..40, insert in "[ -~\n\t]{0,6}") {
        let end = (at + length).min(GOOD.len());
        read(&format!("{}{insert}{}", &GOOD[..at], &GOOD[end..]));
    }

    #[test]
    fn shuffled_keys_do_no_harm(lines in prop::collection::vec(prop::sample::select(GOOD.lines().collect::<Vec<_>>()), 0..25)) {
        read(&lines.join("\n"));
    }
}

#[test]
fn big_nonsense_is_refused_soon() {
    // Work that grows with the square of a document takes many minutes of these; a busy machine takes seconds.
    let units = [
        "a", " ", "\n", "- ", "[", "{", "a: ", "? ", "a: {", "\"", "'", "# ", "a: |\n ", "&a ", "*a ", "!a ", "{\"a\":", "\t",
        "a,", ": ", "---\n", "%x\n",
    ];
    for unit in units {
        let document = unit.repeat((1 << 20) / unit.len());
        let start = Instant::now();
        read(&document);
        assert!(start.elapsed() < Duration::from_secs(60), "{unit:?} took {:?}", start.elapsed());
    }
}
