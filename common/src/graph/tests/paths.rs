//! Relative paths become absolute where they stand.

use std::path::Path;
use std::sync::Arc;

use super::super::*;
use super::GOOD;
use crate::declaration::{Declarations, SinkDeclaration, SourceDeclaration, SourceShape};

fn declarations() -> Declarations {
    let shape = SourceShape {
        columns: Vec::new(),
        computed: Vec::new(),
        event_time: None,
        bounded: true,
        replayable: true,
        parallelism_max: None,
    };
    let source = SourceDeclaration {
        options: vec!["path".into(), "paths".into()],
        path_options: vec!["path".into(), "paths".into()],
        read: Arc::new(move |_| Ok(shape.clone())),
        splits: Arc::new(|_, _| Ok(Vec::new())),
    };
    let sink = SinkDeclaration {
        options: vec!["path".into()],
        path_options: vec!["path".into()],
        changelog: true,
        exactly_once: true,
        read: Arc::new(|_, _| Ok(())),
    };
    let mut declarations = Declarations::default();
    declarations.sources.insert("file".into(), source);
    declarations.sinks.insert("file".into(), sink);
    declarations
}

fn absolute(document: &str) -> String {
    absolute_paths(document, Path::new("/home/ä b"), &declarations()).expect("a readable document")
}

#[test]
fn only_path_options_change_and_lines_stay() {
    let document = GOOD.replace("name: words", "name: 'wörds' # ./in.txt\nsettings: { checkpoint: { dir: ./ck } }");
    let changed = absolute(&document);
    let expected = document
        .replace("{ path: in.txt }", "{ path: \"/home/ä b/in.txt\" }")
        .replace("{ path: out/ }", "{ path: \"/home/ä b/out/\" }")
        .replace("dir: ./ck", "dir: \"file:///home/ä b/ck\"");
    assert_eq!(changed, expected);
    assert_eq!(absolute(&changed), changed, "absolute paths stay");
}

#[test]
fn each_way_to_write_a_path_is_read() {
    let node = |text: &str| {
        let changed = absolute(&GOOD.replace("file: { path: in.txt }", text));
        parse(&changed).expect(text).sources[0].options.clone()
    };
    assert_eq!(node("file: { path: 'it''s' }")["path"], "/home/ä b/it's");
    assert_eq!(node("file:\n      path: two words # comment")["path"], "/home/ä b/two words");
    assert_eq!(node("file:\n      path: \"\\u00fc\"")["path"], "/home/ä b/ü");
    assert_eq!(node("file: { path: . }")["path"], "/home/ä b/");
    assert_eq!(
        node("file:\n      paths: [a, /b,\n        file:///c]")["paths"],
        serde_json::json!(["/home/ä b/a", "/b", "file:///c"])
    );
    assert_eq!(
        node("file:\n      paths:\n        - x/*.txt\n        - ../y")["paths"],
        serde_json::json!(["/home/ä b/x/*.txt", "/home/ä b/../y"])
    );
    assert_eq!(node("file: { path: in.txt, format: ./not-a-path }")["format"], "./not-a-path");
    let windows = absolute(&GOOD.replace('\n', "\r\n"));
    assert!(windows.contains("{ path: \"/home/ä b/in.txt\" }\r\n"));
    let json = absolute("{\"sources\":{\"a\":{\"file\":{\"path\":\"x\"}}}}");
    assert_eq!(json, "{\"sources\":{\"a\":{\"file\":{\"path\":\"/home/ä b/x\"}}}}");
}

#[test]
fn a_folder_with_pattern_letters_matches_itself() {
    let document = GOOD.replace("in.txt", "'*.txt'");
    let changed = absolute_paths(&document, Path::new("/data[1]"), &declarations()).expect("a readable document");
    assert_eq!(parse(&changed).expect("a job").sources[0].options["path"], "/data[[]1[]]/*.txt");
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let folded = GOOD.replace("{ path: in.txt }", "\n      path: >\n        a\n        b\n");
    let error = absolute_paths(&folded, Path::new("/x"), &declarations()).expect_err("two lines").to_string();
    assert!(error.contains("sources.text.file.path: a relative path is written on one line"), "{error}");
    assert!(absolute_paths(GOOD, Path::new("relative"), &declarations()).is_err());
    assert!(absolute_paths("a: [", Path::new("/x"), &declarations()).is_err());
}
