//! The connectors and functions that TaskManagers bring, beside the connectors built in. A name means one thing in the whole cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use levada_common::declaration::{CustomSink, CustomSource, Declarations};
use levada_common::function::FunctionDeclaration;

use super::{Introduction, Registration};

/// Two connectors or functions share a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Conflict {
    #[error("{kind} \"{name}\" is built in; the TaskManager's own must have another name")]
    BuiltIn { kind: &'static str, name: String },
    #[error("{kind} \"{name}\" is declared otherwise by another TaskManager; all of them must run the same binary")]
    Differs { kind: &'static str, name: String },
    #[error("function \"{name}\" cannot be: {defect}")]
    Defect { name: String, defect: String },
}

/// A custom connector or a function, and who brings it.
#[derive(Debug)]
struct Brought<T> {
    custom: T,
    by: BTreeSet<Registration>,
}

/// All connectors, and all functions.
pub(crate) struct Connectors {
    built_in: Declarations,
    sources: BTreeMap<String, Brought<CustomSource>>,
    sinks: BTreeMap<String, Brought<CustomSink>>,
    functions: BTreeMap<String, Brought<FunctionDeclaration>>,
}

impl Connectors {
    pub(crate) fn new(built_in: Declarations) -> Self {
        Self { built_in, sources: BTreeMap::new(), sinks: BTreeMap::new(), functions: BTreeMap::new() }
    }

    /// Checks what a TaskManager brings against what is known. A declaration that no registered TaskManager brings any more
    /// may be replaced.
    pub(crate) fn check(&self, introduction: &Introduction) -> Result<(), Conflict> {
        for source in &introduction.sources {
            let built_in = self.built_in.sources.contains_key(&source.name);
            check_one("source connector", &source.name, source, built_in, &self.sources)?;
        }
        for sink in &introduction.sinks {
            let built_in = self.built_in.sinks.contains_key(&sink.name);
            check_one("sink connector", &sink.name, sink, built_in, &self.sinks)?;
        }
        for function in &introduction.functions {
            if let Some(defect) = function.defect() {
                return Err(Conflict::Defect { name: function.name.clone(), defect });
            }
            check_one("function", &function.name, function, false, &self.functions)?;
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
        for function in &introduction.functions {
            add_one(&mut self.functions, &function.name, function, by);
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
        for brought in self.functions.values_mut() {
            brought.by.remove(&registration);
        }
    }

    /// The table for the planner.
    pub(crate) fn table(&self) -> Arc<Declarations> {
        let mut table = self.built_in.clone();
        table.sources.extend(self.sources.iter().map(|(name, brought)| (name.clone(), brought.custom.clone().into())));
        table.sinks.extend(self.sinks.iter().map(|(name, brought)| (name.clone(), brought.custom.clone().into())));
        table.functions = Some(self.functions.iter().map(|(name, brought)| (name.clone(), brought.custom.clone())).collect());
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
    use levada_common::function::FunctionKind;
    use levada_common::ids::TaskManagerId;
    use levada_common::types::LogicalType;

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
            functions: vec![],
        }
    }

    #[test]
    fn a_function_is_one_in_the_whole_cluster() {
        let function =
            |column: &str| FunctionDeclaration::new("detect", FunctionKind::FlatMap).output(column, LogicalType::Int64);
        let bring = |id, functions| Introduction { sinks: vec![], functions, ..introduction(id, "", false) };
        let mut connectors = Connectors::new(Declarations::default());
        assert_eq!(connectors.table().functions, Some(BTreeMap::new()));
        let first = bring(1, vec![function("x")]);
        connectors.check(&first).unwrap();
        connectors.add(Registration { id: first.id, number: 1 }, &first);
        assert_eq!(connectors.table().functions.as_ref().unwrap()["detect"], function("x"));
        connectors.check(&bring(2, vec![function("x")])).unwrap();
        let error = connectors.check(&bring(2, vec![function("y")])).unwrap_err().to_string();
        assert!(error.contains("function \"detect\" is declared otherwise"), "{error}");
        let error = connectors.check(&bring(3, vec![function("_op")])).unwrap_err().to_string();
        assert!(error.contains("reserved"), "{error}");
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
        assert_eq!(error, Conflict::BuiltIn { kind: "sink connector", name: "file".into() });
    }
}
