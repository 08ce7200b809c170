//! The structure holds: who may depend on whom, and who may name which library.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Package, folder, and the packages of ours that it may use. ARCHITECTURE.md has the same table.
const ALLOWED: [(&str, &str, &[&str]); 13] = [
    ("levada-common", "common", &[]),
    ("levada-proto", "proto", &["common"]),
    ("levada-state", "taskmanager/state", &["common"]),
    ("levada-state-rocksdb", "taskmanager/state-rocksdb", &["common", "state"]),
    ("levada-engine", "taskmanager/engine", &["common", "state"]),
    ("levada-connectors", "taskmanager/connectors", &["common", "engine"]),
    ("levada-sql", "sql", &["common", "engine"]),
    ("levada-taskmanager", "taskmanager", &["common", "proto", "state", "state-rocksdb", "engine", "connectors", "sql"]),
    ("levada-jobmanager-core", "jobmanager/core", &["common"]),
    ("levada-jobmanager", "jobmanager", &["common", "proto", "jobmanager-core", "connectors", "sql"]),
    ("levada", "cli", &["common", "proto", "state", "state-rocksdb", "connectors", "sql", "taskmanager", "jobmanager"]),
    ("fraud-detection", "examples/fraud-detection", &["taskmanager"]),
    (
        "levada-integration-tests",
        "integration-tests",
        &[
            "",
            "common",
            "proto",
            "state",
            "state-rocksdb",
            "engine",
            "connectors",
            "sql",
            "taskmanager",
            "jobmanager",
            "jobmanager-core",
        ],
    ),
];

/// Libraries that only one package may name.
const EXCLUSIVE: [(&str, &str); 4] = [
    ("rocksdb", "levada-state-rocksdb"),
    ("datafusion", "levada-sql"),
    ("axum", "levada-jobmanager levada-taskmanager"),
    ("clap", "levada levada-jobmanager levada-taskmanager levada-integration-tests"),
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of the dependencies of a manifest, dev-dependencies left out.
fn dependencies(manifest: &Path) -> Vec<String> {
    let text = fs::read_to_string(manifest).unwrap_or_else(|error| panic!("{}: {error}", manifest.display()));
    let mut names = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if line.starts_with('[') {
            inside = line == "[dependencies]";
        } else if inside && let Some((name, _)) = line.split_once(['.', '=', ' ']) {
            names.push(name.trim().to_string());
        }
    }
    names
}

#[test]
fn packages_depend_only_on_what_the_table_allows() {
    for (package, folder, allowed) in ALLOWED {
        let allowed: Vec<String> =
            allowed.iter().map(|name| if name.is_empty() { "levada".into() } else { format!("levada-{name}") }).collect();
        for name in dependencies(&root().join(folder).join("Cargo.toml")) {
            let ours = name == "levada" || name.starts_with("levada-");
            assert!(!ours || allowed.contains(&name), "{package} must not depend on {name}");
            for (library, owners) in EXCLUSIVE {
                let owned = owners.split(' ').any(|owner| owner == package);
                assert!(!name.starts_with(library) || owned, "{package} must not name {name}: only {owners} may");
            }
        }
    }
}

#[test]
fn the_pure_cores_have_no_runtime() {
    for folder in ["taskmanager/engine", "taskmanager/state", "jobmanager/core"] {
        for name in dependencies(&root().join(folder).join("Cargo.toml")) {
            for banned in ["tokio", "tonic", "futures", "rand", "object_store", "uuid", "chrono"] {
                assert!(name != banned, "{folder} must not depend on {name}");
            }
        }
    }
}

#[test]
fn every_package_is_in_the_table() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the workspace has a manifest");
    let members: BTreeMap<&str, &str> = ALLOWED.iter().map(|(package, folder, _)| (*folder, *package)).collect();
    let listed = manifest.split("members = [").nth(1).and_then(|rest| rest.split(']').next()).expect("members are listed");
    let folders: Vec<&str> = listed.split('"').skip(1).step_by(2).collect();
    assert_eq!(folders.len(), members.len());
    for folder in folders {
        assert!(members.contains_key(folder), "\"{folder}\" is not in the table of packages");
    }
}
