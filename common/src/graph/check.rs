//! What no single node shows: names that clash, inputs that dangle, cycles, nodes that nothing reads.

use std::collections::{HashMap, HashSet};

use super::report::{At, Report};
use super::tree::{join, shown};
use super::{InputRef, JobGraph, Lines};
use crate::ids::Uid;
use crate::nearest::did_you_mean;

/// Checks the names of sources, transforms and sinks: good ones, and none used in two sections.
pub(super) fn names(sections: &[&Vec<(&str, At<'_>)>], report: &mut Report) {
    let mut seen: HashMap<&str, String> = HashMap::new();
    for (name, at) in sections.iter().copied().flatten() {
        if let Some(defect) = Uid::defect(name) {
            report.error(&at.path, defect);
        }
        if let Some(first) = seen.get(name) {
            let line = report.lines.of(first);
            report.error(&at.path, format!("the name \"{}\" is taken: {} in line {line}", shown(name), shown(first)));
        } else {
            seen.insert(name, at.path.clone());
        }
    }
}

/// Checks how nodes hang together. `written` counts the sources and sinks of the document; without `all_read`, nodes that were
/// too defective to read are missing from `graph` and would make others look wrong.
pub(super) fn structure(graph: &JobGraph, written: [usize; 2], all_read: bool, report: &mut Report) {
    let [sources, sinks] = written;
    if sources == 0 {
        report.error(section(&report.lines, "sources"), "the job has no source");
    }
    if sinks == 0 {
        report.error(section(&report.lines, "sinks"), "the job has no sink");
    }
    if !all_read {
        return;
    }
    let before = report.count();
    let readers = readers(graph);
    dangling(graph, &readers, report);
    cycles(graph, report);
    if before == report.count() && sinks > 0 {
        unread(graph, report);
    }
}

/// The section's path if it is written, else the document's.
fn section(lines: &Lines, name: &'static str) -> &'static str {
    if lines.0.contains_key(name) { name } else { "" }
}

/// A list of inputs: the section and name of the node that has it, its key, the inputs.
type Reader<'g> = (&'static str, &'g Uid, &'static str, &'g [InputRef]);

fn readers(graph: &JobGraph) -> Vec<Reader<'_>> {
    let transforms =
        graph.transforms.iter().flat_map(|node| node.input_lists().map(|(list, inputs)| ("transforms", &node.uid, list, inputs)));
    let sinks = graph.sinks.iter().map(|node| ("sinks", &node.uid, "inputs", node.inputs.as_slice()));
    transforms.chain(sinks).collect()
}

fn input_path(reader: &Reader<'_>, index: usize, report: &Report) -> String {
    let inputs = join(&join(reader.0, reader.1.as_str()), reader.2);
    let item = format!("{inputs}[{index}]");
    if report.lines.0.contains_key(&item) { item } else { inputs }
}

fn dangling(graph: &JobGraph, readers: &[Reader<'_>], report: &mut Report) {
    let outputs = graph.sources.iter().map(|node| &node.uid).chain(graph.transforms.iter().map(|node| &node.uid));
    let known: HashSet<&str> = outputs.map(Uid::as_str).collect();
    let sinks: HashSet<&str> = graph.sinks.iter().map(|node| node.uid.as_str()).collect();
    for reader in readers {
        for (index, input) in reader.3.iter().enumerate() {
            let name = input.node.as_str();
            let path = input_path(reader, index, report);
            if input.node == *reader.1 {
                report.error(&path, format!("\"{name}\" reads itself"));
            } else if known.contains(name) {
                continue;
            } else if sinks.contains(name) {
                report.error(&path, format!("\"{name}\" is a sink, and a sink has no output"));
            } else {
                let candidates = || {
                    let mut names: Vec<&str> = known.iter().copied().filter(|known| *known != reader.1.as_str()).collect();
                    names.sort_unstable();
                    names
                };
                let hint = if report.is_full() { String::new() } else { did_you_mean(name, candidates()) };
                report.error(&path, format!("there is no source or transform \"{}\"{hint}", shown(name)));
            }
        }
    }
}

/// Finds cycles by walking each transform's inputs, depth first; each way back into the walk is one.
fn cycles(graph: &JobGraph, report: &mut Report) {
    let places: HashMap<&str, usize> =
        graph.transforms.iter().enumerate().map(|(place, node)| (node.uid.as_str(), place)).collect();
    let inputs: Vec<Vec<usize>> = graph
        .transforms
        .iter()
        .enumerate()
        .map(|(place, node)| {
            node.reads().filter_map(|input| places.get(input.node.as_str()).copied()).filter(|input| *input != place).collect()
        })
        .collect();
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        OnTheWay,
        Done,
    }
    let mut seen = vec![Seen::No; inputs.len()];
    for start in 0..inputs.len() {
        if seen[start] != Seen::No {
            continue;
        }
        // The way from `start`, with the next input to look at of each node on it.
        let mut way = vec![(start, 0)];
        seen[start] = Seen::OnTheWay;
        while let Some((node, next)) = way.last_mut() {
            let Some(&input) = inputs[*node].get(*next) else {
                seen[*node] = Seen::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match seen[input] {
                Seen::Done => {}
                Seen::No => {
                    seen[input] = Seen::OnTheWay;
                    way.push((input, 0));
                }
                Seen::OnTheWay => {
                    let from = way.iter().position(|(node, _)| *node == input).expect("a node on the way stands in it");
                    report_cycle(graph, &way[from..], report);
                }
            }
        }
    }
}

/// `way` goes against the stream; the message goes with it.
fn report_cycle(graph: &JobGraph, way: &[(usize, usize)], report: &mut Report) {
    const SHOWN_MAX: usize = 10;
    let name = |place: usize| graph.transforms[place].uid.as_str();
    let first = way[0].0;
    let mut names: Vec<&str> = std::iter::once(first).chain(way[1..].iter().rev().map(|(place, _)| *place)).map(name).collect();
    if names.len() > SHOWN_MAX {
        names.truncate(SHOWN_MAX);
        names.push("...");
    }
    names.push(name(first));
    report.error(&join("transforms", name(first)), format!("nodes read each other in a cycle: {}", names.join(" -> ")));
}

/// Reports sources and transforms from which no sink is reached.
fn unread(graph: &JobGraph, report: &mut Report) {
    let inputs: HashMap<&str, Vec<&str>> = graph
        .transforms
        .iter()
        .map(|node| (node.uid.as_str(), node.reads().map(|input| input.node.as_str()).collect()))
        .collect();
    let mut reached: HashSet<&str> = HashSet::new();
    let mut open: Vec<&str> = graph.sinks.iter().flat_map(|sink| sink.inputs.iter().map(|input| input.node.as_str())).collect();
    let mut read: HashSet<&str> = open.iter().copied().collect();
    read.extend(graph.transforms.iter().flat_map(|node| node.reads().map(|input| input.node.as_str())));
    while let Some(name) = open.pop() {
        if reached.insert(name) {
            open.extend(inputs.get(name).into_iter().flatten().copied());
        }
    }
    let sources = graph.sources.iter().map(|node| ("sources", node.uid.as_str()));
    let transforms = graph.transforms.iter().map(|node| ("transforms", node.uid.as_str()));
    for (section, name) in sources.chain(transforms) {
        if !reached.contains(name) {
            let message = if read.contains(name) { "no sink is reached from it" } else { "nothing reads it" };
            report.error(&join(section, name), format!("\"{name}\" has no effect: {message}"));
        }
    }
}
