//! Bad documents: every defect is reported at once, with line and path.

use super::{GOOD, errors};

/// The error of `GOOD` with `from` replaced.
fn after(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from}");
    errors(&GOOD.replacen(from, to, 1))
}

#[test]
fn all_defects_are_reported_in_the_order_of_lines() {
    let document = "\
version: 2
name: x
settngs: {}
settings: { parallelism: 0, state: { backend: rokcsdb }, checkpoint: { interval: 10 } }
sources:
  a: { generate: {}, watermrk: { column: t } }
  a/b: { generate: {} }
transforms:
  t: { inputs: [a, b], filter: x > 1, select: { y: [1] } }
  t2: { inputs: [t2] }
sinks:
  a: { inputs: [t], print: {} }
";
    let expected = "\
line 1: version: version 2 is not known; this release reads version 1
line 3: settngs: unknown key \"settngs\"; did you mean \"settings\"? keys: version, name, settings, sources, transforms, sinks
line 4: settings.parallelism: a whole number from 1 to 32768 is expected, found \"0\"
line 4: settings.state.backend: \"rokcsdb\" is not known; did you mean \"rocksdb\"?; there are: memory, fs, rocksdb, filesystem, hashmap
line 4: settings.checkpoint.interval: \"10\" has no unit; write a duration such as 10s or 10ms
line 6: sources.a.watermrk: unknown key \"watermrk\"; did you mean \"watermark\"? keys: watermark, bad_records, parallelism
line 7: sources.a/b: a name must not contain /
line 9: transforms.t.filter: unknown key \"filter\"; did you mean \"where\"? keys: inputs, where, join, key_by, window, aggregate, having, process, with, evict, broadcast, order_by, limit, rank, with_ties, deduplicate, ttl, select, split, changelog, bad_records, parallelism
line 9: transforms.t.select.y: an SQL expression is expected, found a list
line 12: sinks.a: the name \"a\" is taken: sources.a in line 6";
    assert_eq!(errors(document), expected);
}

#[test]
fn dangling_inputs_are_named_with_the_nearest_name() {
    assert_eq!(
        after("inputs: [words]", "inputs: [wrods, out, counts]"),
        "line 11: transforms.counts.inputs[0]: there is no source or transform \"wrods\"; did you mean \"words\"?\n\
         line 11: transforms.counts.inputs[1]: \"out\" is a sink, and a sink has no output\n\
         line 11: transforms.counts.inputs[2]: \"counts\" reads itself"
    );
    assert_eq!(
        after("inputs: [words]", "inputs: [words, words]"),
        "line 11: transforms.counts.inputs[1]: input \"words\" stands here twice"
    );
    assert!(after("inputs: [words]", "inputs: []").contains("at least one input is expected"));
    assert!(after("    inputs: [words]\n", "").contains("`inputs` is missing"));
}

#[test]
fn cycles_are_named() {
    let message = after("inputs: [text]", "inputs: [text, counts]");
    assert_eq!(message, "line 7: transforms.words: nodes read each other in a cycle: words -> counts -> words");
    let ring = "version: 1\nname: x\nsources: {s: {generate: {}}}\ntransforms:\n  a: {inputs: [s, c]}\n  b: {inputs: [a]}\n  c: {inputs: [b]}\nsinks: {k: {inputs: [c], print: {}}}\n";
    assert_eq!(errors(ring), "line 5: transforms.a: nodes read each other in a cycle: a -> b -> c -> a");
}

#[test]
fn nodes_without_effect_are_named() {
    let message = after("transforms:\n", "  idle:\n    generate: {}\ntransforms:\n  x: { inputs: [idle] }\n");
    assert_eq!(
        message,
        "line 6: sources.idle: \"idle\" has no effect: no sink is reached from it\nline 9: transforms.x: \"x\" has no effect: nothing reads it"
    );
    assert_eq!(errors("version: 1\nname: x\n"), "line 1: the job has no source\nline 1: the job has no sink");
    let empty = errors("version: 1\nname: x\nsources:\nsinks: {}\n");
    assert_eq!(empty, "line 3: sources: the job has no source\nline 4: sinks: the job has no sink");
}

#[test]
fn names_that_clash_or_are_bad_are_refused() {
    assert_eq!(after("  out:", "  words:"), "line 15: sinks.words: the name \"words\" is taken: transforms.words in line 7");
    let twice = after("  counts:", "  words:");
    assert!(twice.starts_with("line 10: transforms: the key \"words\" stands here twice, first in line 7"), "{twice}");
    let long = "x".repeat(1_000);
    for (name, defect) in [
        ("\"\"", "must not be empty"),
        ("\" \"", "must not be blank"),
        ("..", "cannot be a name"),
        (&*long, "at most 128 bytes"),
        ("\"a\\nb\"", "must not contain \\n"),
    ] {
        let message = after("  out:", &format!("  {name}:"));
        assert!(message.contains(defect), "{message}");
        assert!(message.len() < 1_000, "{message}");
    }
    let json =
        format!("{{\"version\": 1, \"name\": \"x\", \"sources\": {{ \"{}\": {{}} }}, \"sinks\": {{}} }}", "x".repeat(10_000));
    assert!(errors(&json).contains("a name has at most 128 bytes, this one has 10000"));
    assert!(errors(&json).lines().all(|line| line.len() < 1_000));
    assert!(after("name: words", "name: ''").contains("the job's name is expected, found nothing"));
    assert!(after("name: words\n", "").contains("the job has no name"));
    assert!(after("version: 1\n", "").contains("write `version: 1`"));
}

#[test]
fn clauses_that_make_no_sense_are_refused() {
    let clause = |text: &str| after("select: { word: unnest(split(line)) }", text);
    for (text, expected) in [
        ("window: same", "words.window: a window needs an `aggregate`, a `join`, an `order_by` or a `process`"),
        ("evict: { rows: 1 }\n    process: f", "`evict` needs a `window` and a `process`"),
        (
            "window: { tumbling: { size: 1s }, trigger: t }\n    order_by: line\n    limit: 1",
            "words.window.trigger: a trigger is asked by the window of an `aggregate` or a `process`",
        ),
        ("evict: {}\n    process: f\n    window: same", "one of `rows`, `time` and `function` is expected"),
        ("key_by: [line]", "words.key_by: `key_by` needs an `aggregate`, a `process`, an `order_by` or a `deduplicate`"),
        ("having: x > 1", "a condition on rows is a `where`"),
        ("changelog: full", "only an `aggregate` whose results change"),
        ("order_by: x", "words.order_by: `limit` is missing"),
        ("order_by: [a + b]", "a column, and `desc` behind it or not, is expected, found \"a + b\""),
        ("limit: 3", "words.limit: `limit` needs an `order_by`"),
        ("rank: place", "words.rank: `rank` needs an `order_by`"),
        ("deduplicate: first", "words.deduplicate: `deduplicate` needs a `key_by`"),
        ("deduplicate: newest", "there are: first, last"),
        ("deduplicate: { by: arrival }", "`keep` is missing"),
        ("ttl: 1h", "words.ttl: `ttl` needs a `join`"),
        ("with_ties: true", "words.with_ties: `with_ties` needs an `order_by`"),
        ("with_ties: true\n    order_by: x\n    limit: 2", "`with_ties` needs a `window`"),
        ("ttl: 1h\n    order_by: x\n    limit: 2\n    rank: r", "words.ttl: `ttl` lets rows go without a word"),
        ("window: same\n    order_by: x\n    limit: 2\n    ttl: 1h", "leave `ttl` and `changelog` out"),
        ("window: same\n    deduplicate: first\n    key_by: [x]", "write `order_by` and `limit: 1`"),
        ("select: {}", "at least one column"),
        ("select: { _op: 1 }", "reserved for changelogs"),
        ("select: { x: }", "an SQL expression is expected, found nothing"),
        ("where: ''", "an SQL expression is expected, found nothing"),
        ("group_by: [x]", "did you mean \"key_by\""),
        ("wher: x", "did you mean \"where\""),
        ("broadcast: [text]", "`broadcast` needs a `process`"),
        ("with: [text]", "`with` needs a `process` whose function has a second input"),
        ("key_by: { a: b }\n    process: f", "pairs of columns are for a function `with` a second input"),
        ("with: [txt]\n    process: f\n    key_by: { a: b }", "words.with[0]: there is no source or transform \"txt\""),
        ("split: {}", "words.split: at least one output is expected"),
        ("split: { a: else, b: x > 1 }", "words.split.b: \"a\" before it is `else` and takes every row that is left"),
        ("split: { a/b: x > 1 }", "words.split.a/b: a name must not contain /"),
        ("split: { '': x > 1 }", "a name must not be empty"),
        ("route: { a: x > 1 }", "did you mean \"split\"?"),
        ("process: {}", "`function` is missing"),
        ("process: { function: f, option: {} }", "did you mean \"options\""),
        ("process: [f]", "a map is expected, found a list"),
        ("function: f", "did you mean \"process\""),
    ] {
        let message = clause(text);
        assert!(message.contains(expected) && message.starts_with("line 9:"), "{text}: {message}");
    }
    for (text, expected) in [
        ("join: {}", "words.join: `with` is missing"),
        ("join: { with: [text] }", "words.join: `on` is missing"),
        ("join: { with: [txt], on: [a], within: { to: 1s } }", "join.with[0]: there is no source or transform \"txt\""),
        ("join: { with: [text], on: [a], within: {} }", "join.within: `from` or `to` is expected"),
        ("join: { with: [text], on: [a], within: { from: 1s } }", "`from` must not be greater than `to`"),
        ("join: { with: [text], on: [a], within: { to: 1 } }", "within.to: \"1\" has no unit"),
        ("join: { with: [text], on: {}, within: { to: 1s } }", "join.on: at least one column"),
        ("join: { with: [text], on: [a], kind: outer, within: { to: 1s } }", "there are: inner, left, right, full, semi, anti"),
        ("join: { with: [text], on: [a], kind: semi, take: { b: b }, within: { to: 1s } }", "leave `take` out"),
        ("join: { right: [text], on: [a], within: { to: 1s } }", "did you mean \"with\""),
        ("join: { with: [text], on: [a], lookup: yes }", "join.lookup: \"yes\" is not known"),
        ("join: { with: [text], on: [a], lookup: true, within: { to: 1s } }", "a `lookup` or an interval `within`, not both"),
    ] {
        let message = clause(text);
        assert!(message.contains(expected) && message.starts_with("line 9:"), "{text}: {message}");
    }
    let joined = "join: { with: [text], on: [a], within: { to: 1s } }";
    assert!(clause(&format!("{joined}\n    window: same")).contains("a `window` or an interval `within`, not both"));
    assert!(clause(&format!("{joined}\n    key_by: [a]")).contains("the key of a join stands under `on`"));
    assert!(clause(&format!("{joined}\n    ttl: 1h")).contains("kept until time has passed them; leave `ttl` out"));
    let looked_up = "join: { with: [text], on: [a], lookup: true }";
    assert!(
        clause(&format!("{looked_up}\n    ttl: 1h"))
            .contains("words.ttl: a left row meets what the table has when the row comes")
    );
    assert!(clause(&format!("{looked_up}\n    window: same")).contains("words.window: a left row meets what the table has"));
    assert!(clause(&format!("{joined}\n    process: f")).contains("a `join` or a `process`, not both"));
    let window = |text: &str| after("key_by: [word]", &format!("window: {text}"));
    for (text, expected) in [
        ("{ sliding: { size: 10s } }", "window.sliding: `slide` is missing, such as `slide: 2s`"),
        ("{ sliding: { slide: 2s } }", "`size` is missing"),
        ("{ sliding: { size: 2s, slide: 10s } }", "sliding.slide: the slide must not be greater than the size"),
        ("{ sliding: { size: 10s, slide: 2s, offset: 2s } }", "the offset must be less than the slide"),
        ("{ sliding: { size: 10s, step: 2s } }", "did you mean \"slide\""),
        ("{ sliding: { size: 10s, slide: 0s } }", "0s is too short"),
        ("{ hop: { size: 10s } }", "did you mean \"sliding\""),
        ("{ cumulate: { size: 10s, step: 3s } }", "cumulate.step: the size must be a multiple of the step"),
        ("{ cumulate: { size: 10s, step: 2s, offset: 10s } }", "the offset must be less than the size"),
        ("{ cumulate: { size: 10s } }", "`step` is missing"),
        ("{ session: { } }", "window.session: `gap` is missing"),
        ("{ session: { gap: 0s } }", "0s is too short"),
        ("{ session: { gap: 10 } }", "\"10\" has no unit"),
        ("{ session: { gap: } }", "is expected, found nothing"),
        ("{ session: { timeout: 10s } }", "did you mean \"gap\""),
        ("session", "this window is a map, such as { session: { gap: 10s } }"),
        ("count", "this window is a map, such as { count: { size: 100 } }"),
        ("{ count: {} }", "window.count: `size` is missing"),
        ("{ count: { size: 0 } }", "a whole number from 1 to 4294967295"),
        ("{ count: { size: 10s } }", "a whole number from 1 to 4294967295"),
        ("{ count: { size: 3, slide: 4 } }", "count.slide: the slide must not be greater than the size"),
        ("{ count: { rows: 3 } }", "did you mean \"size\""),
        ("{ tumbling: { size: 10s }, session: { gap: 10s } }", "one window is expected, found 2"),
        ("{ tumbling: { size: 0s } }", "0s is too short; at least 1ms"),
        ("{ tumbling: { size: 10s, offset: 10s } }", "the offset must be less than the size"),
        ("{ tumbling: { size: 10s }, lateness: 1s }", "did you mean \"allowed_lateness\""),
        ("{ tumbling: { size: 10s }, trigger: {} }", "window.trigger: `function` is missing"),
        ("{ tumbling: { size: 10s }, early: {} }", "window.early: `every`, a duration, or `rows`, a number, is expected"),
        ("{ tumbling: { size: 10s }, early: { every: 0s } }", "0s is too short; at least 1ms"),
        ("{ tumbling: { size: 10s }, early: { rows: 0 } }", "a whole number from 1 to 4294967295 is expected, found \"0\""),
        ("{ tumbling: { size: 10s }, early: { count: 3 } }", "did you mean \"rows\""),
        ("{ tumbling: { size: 10s }, late: { every: 1s } }", "none are taken in without `allowed_lateness`"),
        ("{ tumbling: { size: 10s }, accumulate: false }", "there is nothing to accumulate"),
        ("{ global: {}, early: { every: 1s }, accumulate: no }", "`true` or `false` is expected, found \"no\""),
        ("{ global: { size: 1s } }", "window.global.size: unknown key"),
        ("{ early: { every: 1s } }", "a map such as { tumbling: { size: 10s } } is expected"),
        ("{ same: {}, global: {} }", "one window is expected, found 2"),
        ("{ tumbling: { } }", "`size` is missing"),
        ("{ tumbling: 10s }", "a map is expected, found a value"),
        ("{ }", "is expected"),
        ("hourly", "\"hourly\" is not known"),
        ("{ tumbling: { size: 1d }, time_zone: Europe/Berlln }", "window.time_zone: \"Europe/Berlln\" is no time zone"),
        ("{ tumbling: { size: 5h }, time_zone: UTC }", "window.tumbling.size: with a `time_zone` a window is of whole days, or"),
        ("{ cumulate: { size: 1d, step: 12h30m }, time_zone: UTC }", "the size must be a multiple of the step"),
        ("{ cumulate: { size: 2d, step: 16h }, time_zone: UTC }", "window.cumulate.step: with a `time_zone`"),
        (
            "{ sliding: { size: 1d, slide: 1h }, time_zone: UTC }",
            "window.sliding.slide: with a `time_zone` sliding windows are of",
        ),
        ("{ session: { gap: 1d }, time_zone: UTC }", "window.time_zone: a session begins with a row"),
        ("{ session: { gap: 1d }, time: wall }", "window.time: \"wall\" is not known"),
        ("{ time: processing }", "`same`, `global` or a map such as"),
        (
            "{ tumbling: { size: 1d }, time: processing, allowed_lateness: 1s }",
            "window.allowed_lateness: a row is in the window of processing time that is open when it comes, and none is late",
        ),
        (
            "{ tumbling: { size: 1d }, time: processing, early: { rows: 1 }, allowed_lateness: 0s, late: { rows: 1 } }",
            "window.allowed_lateness: a row is in the window of processing time",
        ),
        ("{ count: { size: 3 }, time: processing }", "window.time: a window of so many rows goes by no time"),
        ("{ same: {}, time_zone: UTC }", "window.time_zone: the window that rows came from has the time that it has"),
        ("{ tumbling: { size: 1d, timezone: UTC } }", "unknown key \"timezone\""),
        ("[same]", "a map is expected, found a list"),
        ("{ tumbling: { size: 10 } }", "\"10\" has no unit"),
        ("{ tumbling: { size: 400000d } }", "too long"),
    ] {
        let message = window(text);
        assert!(message.contains(expected) && message.starts_with("line 12:"), "{text}: {message}");
    }
    assert!(after("key_by: [word]", "window: same\n    changelog: full").contains("results of this window replace none"));
    let parts = "window: { same: {}, early: { rows: 1 }, accumulate: false }\n    changelog: full";
    assert!(after("key_by: [word]", parts).contains("results of this window replace none"));
    assert!(after("key_by: [word]", "key_by: []").contains("leave `key_by` out"));
    assert!(after("key_by: [word]", "key_by: [a, a]").contains("column \"a\" stands here twice"));
}

#[test]
fn settings_are_checked() {
    let setting = |text: &str| after("name: words", &format!("name: words\nsettings: {{ {text} }}"));
    for (text, expected) in [
        ("parallelism: 200, max_parallelism: 100", "a whole number from 1 to 100"),
        ("max_parallelism: 40000", "a whole number from 1 to 32768"),
        ("state: { backend: disk }", "there are: memory, fs"),
        ("state: { backend: 7 }", "\"7\" is not known"),
        ("state: { inline_threshold: 2MiB }", "at most 1MiB"),
        ("state: { max-state-size: 5MiB }", "did you mean \"max_state_size\""),
        ("checkpoint: { interval: 5ms }", "at least 10ms"),
        ("checkpoint: { dir: /var/ck }", "Please specify the file system scheme explicitly"),
        ("checkpoint: { dir: 'file:///' }", "root directory"),
        ("checkpoint: { dir: 'gs://b/c' }", "not in this release"),
        ("checkpoint: { num_retained: 0 }", "from 1 to"),
        ("checkpoint: { max_concurrent: 2 }", "`max_concurrent` is not in this release"),
        ("checkpoint: { mode: exactly_once }", "did you mean \"exactly-once\""),
        ("checkpoint: 10s", "a map is expected"),
        ("restart: exponential-delay", "`exponential-delay` is not in this release; there are: none, fixed-delay"),
        ("restart: { attempts: 1 }", "`strategy` is missing"),
        ("restart: { strategy: none, attempts: 1 }", "means nothing with"),
        ("batch: { rows: 0 }", "from 1 to 65536"),
        ("batch: [1]", "a map is expected, found a list"),
    ] {
        let message = setting(text);
        assert!(message.contains(expected) && message.starts_with("line 3:"), "{text}: {message}");
    }
}

#[test]
fn connectors_are_one_key() {
    let node = |text: &str| after("file: { path: in.txt }", text);
    assert!(node("parallelism: 1").contains("a source names its connector"));
    let two = node("file: { path: x }\n    nexmark: {}");
    assert!(two.contains("line 4: sources.text: a source has one connector, found file, nexmark"), "{two}");
    assert!(node("file: x.txt").contains("sources.text.file: a map is expected, found a value"));
    assert!(node("file: { n: 99999999999999999999 }").contains("too large; write it in quotes"));
    assert!(node("file: {}\n    bad_records: ignore").contains("there are: fail, drop"));
    assert!(node("file: {}\n    bad_records: dead_letter").contains("not in this release"));
    assert!(node("file: {}\n    parallelism: x").contains("a whole number from 1 to 32768 is expected, found \"x\""));
    assert!(node("file: {}\n    watermark: 5s").contains("`none` or a map"));
    assert!(node("file: {}\n    watermark: { delay: 5s }").contains("did you mean \"disorder\""));
    for (written, expected) in [
        ("{ unit: min }", ".watermark.unit: \"min\" is not known"),
        ("{ time_zone: Europe/Berlln }", ".watermark.time_zone: \"Europe/Berlln\" is no time zone"),
        ("{ disorder: 1s, expression: t }", ".watermark.expression: a watermark comes of a `disorder` or of an `expression`"),
        ("{ unit: s, time_zone: UTC }", ".watermark.time_zone: whole numbers of a `unit` have no time zone"),
        ("{ max_future: off, future_rows: pass }", ".watermark.future_rows: no row is from the future"),
        ("{ max_future: 5 }", ".watermark.max_future: \"5\" has no unit"),
        ("{ align: { group: g } }", ".watermark.align: `max_drift` is missing"),
        ("{ align: { group: g, max_drift: 0s } }", ".watermark.align.max_drift: 0s is too short"),
        ("{ align: { group: g, drift: 1s } }", "did you mean \"max_drift\""),
    ] {
        let found = node(&format!("file: {{}}\n    watermark: {written}"));
        assert!(found.contains(expected), "{written}: {found}");
    }
}

#[test]
fn what_yaml_has_and_a_job_does_not_need_is_refused() {
    for (document, expected) in [
        ("", "the document is empty"),
        ("# nothing\n", "the document is empty"),
        ("~", "the document is empty"),
        ("[1, 2]", "a map is expected, found a list"),
        ("just text", "a map is expected, found a value"),
        ("a: &x 1\nb: *x", "line 2: b: aliases (`*name`) are not supported"),
        ("a: &x 1", "line 1: a: anchors (`&name`) are not supported"),
        ("<<: {a: 1}", "merge keys"),
        ("a: !!str 1", "tags"),
        ("a: 1\n---\nb: 2", "a second document starts here"),
        ("a: [", "this is not YAML"),
        ("a: 1\n b: 2\n", "this is not YAML"),
        ("{\"a\": 1,,}", "line 1: this is not JSON"),
        ("{\"version\": 1,\n \"name\" \"x\"}", "line 2: this is not JSON: `:` is missing"),
        ("{\"version\": 1} x", "this is not JSON: something follows"),
        ("? [a]\n: 1", "a key is a text"),
    ] {
        let message = errors(document);
        assert!(message.contains(expected), "{document:?}: {message}");
    }
}

#[test]
fn limits_hold() {
    let job_of = |count: usize| {
        let nodes: String = (0..count).map(|n| format!("  n{n}: {{inputs: [a]}}\n")).collect();
        format!("version: 1\nname: x\nsources: {{a: {{generate: {{}}}}}}\ntransforms:\n{nodes}")
    };
    assert!(errors(&job_of(50_000)).contains("at most 1048576 are allowed"));
    assert!(errors(&job_of(30_000)).contains("more than 100000 values"));
    assert!(errors(&job_of(15_000)).contains("the job has 15001 nodes; at most 1000 are allowed"));
    let nodes: String = (0..998).map(|n| format!("  n{n}: {{inputs: [missing{n}]}}\n")).collect();
    let many = errors(&format!(
        "version: 1\nname: x\nsources: {{a: {{generate: {{}}}}}}\ntransforms:\n{nodes}sinks: {{k: {{inputs: [n1], print:}}}}\n"
    ));
    assert_eq!(many.lines().count(), 201);
    assert!(many.ends_with("798 further errors are not shown"), "{many}");
    for deep in
        [format!("a: {}{}", "[".repeat(200), "]".repeat(200)), format!("{{\"a\": {}1{}}}", "[".repeat(200), "]".repeat(200))]
    {
        assert!(errors(&deep).contains("nested more than 128 deep"), "{}", errors(&deep));
    }
    assert!(errors(&"- ".repeat(10_000)).contains("nested more than 128 deep"));
    assert!(errors(&" ".repeat(2 << 20)).contains("at most 1048576 are allowed"));
    assert!(errors(&format!("[{}]", "1,".repeat(200_000))).contains("more than 100000 values"));
}
