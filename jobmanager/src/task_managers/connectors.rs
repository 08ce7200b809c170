//! The connectors that TaskManagers bring, beside those built in. A name means one thing in the whole cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::declaration::{CustomSink, CustomSource, Declarations};

use super::{Introduction, Registration};

/// Two connectors share a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    #[error("{kind} connector \"{name}\" is built in; the TaskManager's own must have another name")]
    BuiltIn { kind: &'static str, name: String },
    #[error("{kind} connector \"{name}\" is declared otherwise by another TaskManager; all of them must run the same binary")]
    Differs { kind: &'static str, name: String },
}

/// A custom connector and who brings it.
#[derive(Debug)]
struct Brought<T> {
    custom: T,
    by: BTreeSet<Registration>,
}

/// All connectors.
pub(crate) struct Connectors {
    built_in: Declarations,
    sources: BTreeMap<String, Brought<CustomSource>>,
    sinks: BTreeMap<String, Brought<CustomSink>>,
}

impl Connectors {
    pub(crate) fn new(built_in: Declarations) -> Self {
        Self { built_in, sources: BTreeMap::new(), sinks: BTreeMap::new() }
    }

    /// Checks what a TaskManager brings against what is known. A declaration that no registered TaskManager brings any more
    /// may be replaced.
    pub(crate) fn check(&self, introduction: &Introduction) -> Result<(), Conflict> {
        for source in &introduction.sources {
            let built_in = self.built_in.sources.contains_key(&source.name);
            check_one("source", &source.name, source, built_in, &self.sources)?;
        }
        for sink in &introduction.sinks {
            let built_in = self.built_in.sinks.contains_key(&sink.name);
            check_one("sink", &sink.name, sink, built_in, &self.sinks)?;
        }
        Ok(())
    }

    /// Takes what a TaskManager brings, after `check`.
    pub(crate) fn add(&mut self, by: Registration, introduction: &Introduction) {
        for source in &introduction.sources {
            add_one(&mut self.sources, &source.name, source, by);
        }
        for sink in &introduction.sinks {
            add_one(&mut self.sinks, &sink.name, sink, by);
        }
    }

    /// A TaskManager is gone. Its connectors stay known: a job that waits for it is planned already.
    pub(crate) fn remove(&mut self, registration: Registration) {
        for brought in self.sources.values_mut() {
            brought.by.remove(&registration);
        }
        for brought in self.sinks.values_mut() {
            brought.by.remove(&registration);
        }
    }

    /// The table for the planner.
    pub(crate) fn table(&self) -> Arc<Declarations> {
        let mut table = self.built_in.clone();
        table.sources.extend(self.sources.iter().map(|(name, brought)| (name.clone(), brought.custom.clone().into())));
        table.sinks.extend(self.sinks.iter().map(|(name, brought)| (name.clone(), brought.custom.clone().into())));
        Arc::new(table)
    }
}

fn check_one<T: PartialEq>(
    kind: &'static str,
    name: &str,
    custom: &T,
    built_in: bool,
    known: &BTreeMap<String, Brought<T>>,
) -> Result<(), Conflict> {
    if built_in {
        return Err(Conflict::BuiltIn { kind, name: name.into() });
    }
    match known.get(name) {
        Some(brought) if brought.custom != *custom && !brought.by.is_empty() => {
            Err(Conflict::Differs { kind, name: name.into() })
        }
        _ => Ok(()),
    }
}

fn add_one<T: Clone>(known: &mut BTreeMap<String, Brought<T>>, name: &str, custom: &T, by: Registration) {
    let brought = known.entry(name.into()).or_insert_with(|| Brought { custom: custom.clone(), by: BTreeSet::new() });
    brought.custom = custom.clone();
    brought.by.insert(by);
}

#[cfg(test)]
mod tests {
    use levada_common::ids::TaskManagerId;

    use super::*;

    fn introduction(id: u128, sink: &str, changelog: bool) -> Introduction {
        let sink = CustomSink { name: sink.into(), options: vec![], changelog, exactly_once: false };
        Introduction {
            id: TaskManagerId::from_u128(id),
            version: "1".into(),
            slots: 1,
            data_address: "a:1".into(),
            memory_total_bytes: 0,
            network_memory_bytes: 0,
            heap_state_bytes: 0,
            sources: vec![],
            sinks: vec![sink],
        }
    }

    #[test]
    fn a_name_means_one_thing_while_someone_brings_it() {
        let mut connectors = Connectors::new(Declarations::default());
        let (first, other) = (introduction(1, "tally", false), introduction(2, "tally", true));
        let registration = Registration { id: first.id, number: 1 };
        connectors.check(&first).unwrap();
        connectors.add(registration, &first);
        assert!(connectors.check(&introduction(3, "tally", false)).is_ok());
        assert!(connectors.check(&other).unwrap_err().to_string().contains("\"tally\" is declared otherwise"));
        connectors.remove(registration);
        assert!(connectors.table().sinks.contains_key("tally"));
        connectors.check(&other).unwrap();
        connectors.add(Registration { id: other.id, number: 2 }, &other);
        assert!(connectors.table().sinks["tally"].changelog);
    }

    #[test]
    fn a_built_in_name_is_taken() {
        let mut built_in = Declarations::default();
        let sink = CustomSink { name: "file".into(), options: vec![], changelog: true, exactly_once: true };
        built_in.sinks.insert("file".into(), sink.into());
        let error = Connectors::new(built_in).check(&introduction(1, "file", true)).unwrap_err();
        assert_eq!(error, Conflict::BuiltIn { kind: "sink", name: "file".into() });
    }
}
