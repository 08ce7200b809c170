//! The tree and its layers. Each value of a layer is taken alone, so that an error names its key, its value and its origin.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::DEFAULTS;
use crate::human::{ByteSize, HumanDuration};
use crate::nearest::did_you_mean;

/// Before the names of environment variables that are settings.
const ENVIRONMENT_PREFIX: &str = "LEVADA__";

/// The whole configuration, as written: `auto` is `None`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Configuration {
    pub(super) jobmanager: JobManagerSection,
    pub(super) taskmanager: TaskManagerSection,
    pub(super) network: FractionSection,
    pub(super) state: FractionSection,
    pub(super) rocksdb: RocksdbSection,
    pub(super) storage: StorageSection,
    pub(super) rpc: RpcSection,
    pub(super) heartbeat: HeartbeatSection,
    pub(super) log: LogSection,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct JobManagerSection {
    pub(super) bind: String,
    #[serde(deserialize_with = "auto")]
    pub(super) advertise: Option<String>,
    pub(super) port: u16,
    pub(super) http_port: u16,
    pub(super) memory: MemorySection,
    #[serde(deserialize_with = "auto")]
    pub(super) inline_budget: Option<ByteSize>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskManagerSection {
    pub(super) jobmanager: String,
    pub(super) bind: String,
    #[serde(deserialize_with = "auto")]
    pub(super) advertise: Option<String>,
    pub(super) data_port: u16,
    pub(super) http_port: u16,
    pub(super) slots: u32,
    pub(super) orphan_timeout: HumanDuration,
    #[serde(deserialize_with = "auto")]
    pub(super) data_dir: Option<String>,
    pub(super) memory: MemorySection,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MemorySection {
    #[serde(deserialize_with = "auto")]
    pub(super) total: Option<ByteSize>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FractionSection {
    pub(super) memory_fraction: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RocksdbSection {
    pub(super) memory_fraction: f64,
    pub(super) overlay_fraction: f64,
    pub(super) profile: String,
    #[serde(deserialize_with = "auto")]
    pub(super) open_files: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StorageSection {
    pub(super) s3: S3Section,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct S3Section {
    #[serde(deserialize_with = "auto")]
    pub(super) endpoint: Option<String>,
    #[serde(deserialize_with = "auto")]
    pub(super) region: Option<String>,
    pub(super) path_style: bool,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RpcSection {
    pub(super) frame_size: ByteSize,
    pub(super) ask_timeout: HumanDuration,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeartbeatSection {
    pub(super) interval: HumanDuration,
    pub(super) timeout: HumanDuration,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogSection {
    pub(super) level: String,
    pub(super) format: String,
}

/// `auto` is `None`, everything else what it says.
fn auto<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) if text == "auto" => Ok(None),
        value => T::deserialize(OwnedValue(value)).map(Some).map_err(serde::de::Error::custom),
    }
}

/// A value that is deserialized for any lifetime.
struct OwnedValue(Value);

impl<'de> Deserializer<'de> for OwnedValue {
    type Error = serde_json::Error;

    fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        self.0.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What a service was started with.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// `--config`.
    pub file: Option<PathBuf>,
    /// The environment; variables that do not begin with `LEVADA__` are passed over.
    pub environment: BTreeMap<OsString, OsString>,
    /// `--set`, each `section.key=value`, the later one wins.
    pub set: Vec<String>,
}

impl Layers {
    /// The process's own environment, with a file and flags.
    pub fn of_process(file: Option<PathBuf>, set: Vec<String>) -> Self {
        Self { file, environment: std::env::vars_os().collect(), set }
    }
}

/// A defect of the configuration: the user's fault, found before anything was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("reading the configuration file \"{path}\": {cause}")]
    File {
        /// The file.
        path: String,
        /// Why.
        cause: String,
    },
    /// A flag without `=`.
    #[error("\"{0}\" is not key=value; write for example taskmanager.slots=4")]
    NotASetting(String),
    /// An environment variable whose name or value is no text.
    #[error("the environment variable {name}={value} is not UTF-8")]
    NotText {
        /// Its name, as far as it can be shown.
        name: String,
        /// Its value, as far as it can be shown.
        value: String,
    },
    /// There is no such key.
    #[error("{origin}: there is no setting \"{key}\"{hint}")]
    UnknownKey {
        /// Which layer.
        origin: String,
        /// The key.
        key: String,
        /// The nearest one.
        hint: String,
    },
    /// A value of the wrong form.
    #[error("{origin}: {key}={value}: {cause}")]
    BadValue {
        /// Which layer.
        origin: String,
        /// The key.
        key: String,
        /// The value found.
        value: String,
        /// What is allowed.
        cause: String,
    },
    /// A value out of its range, or one that does not fit another.
    #[error("{key}={value}: {allowed}")]
    OutOfRange {
        /// The key.
        key: &'static str,
        /// The value found.
        value: String,
        /// What is allowed.
        allowed: String,
    },
}

impl Configuration {
    /// Reads every layer, in order.
    pub fn load(layers: &Layers) -> Result<Self, ConfigError> {
        let mut tree: Value = serde_saphyr::from_str(DEFAULTS).expect("the embedded defaults are YAML");
        if let Some(path) = &layers.file {
            for (key, value) in leaves(&read(path)?) {
                set(&mut tree, &format!("\"{}\"", path.display()), &key, value)?;
            }
        }
        for (name, value) in layers.environment.iter().filter(|(name, _)| is_setting(name)) {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                let shown = |text: &OsStr| text.to_string_lossy().into_owned();
                return Err(ConfigError::NotText { name: shown(name), value: shown(value) });
            };
            let key = name[ENVIRONMENT_PREFIX.len()..].replace("__", ".").to_lowercase();
            set(&mut tree, name, &key, scalar(value))?;
        }
        for setting in &layers.set {
            let (key, value) = setting.split_once('=').ok_or_else(|| ConfigError::NotASetting(setting.clone()))?;
            set(&mut tree, "--set", key.trim(), scalar(value.trim()))?;
        }
        Ok(serde_json::from_value(tree).expect("each value was checked when it was set"))
    }
}

/// Whether an environment variable of this name is a setting. Others may be no text at all.
fn is_setting(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(ENVIRONMENT_PREFIX.as_bytes())
}

fn read(path: &Path) -> Result<Value, ConfigError> {
    let fail = |cause: String| ConfigError::File { path: path.display().to_string(), cause };
    let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    if text.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_saphyr::from_str(&text).map_err(|error| fail(error.to_string()))
}

/// A value as YAML would read it; what is no scalar stays text.
fn scalar(text: &str) -> Value {
    match serde_saphyr::from_str::<Value>(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(text.into()),
    }
}

/// Every value of a tree with its dotted key.
fn leaves(tree: &Value) -> Vec<(String, Value)> {
    let Value::Object(map) = tree else { return vec![(String::new(), tree.clone())] };
    let mut found = Vec::new();
    for (key, value) in map {
        for (below, leaf) in leaves(value) {
            found.push((if below.is_empty() { key.clone() } else { format!("{key}.{below}") }, leaf));
        }
    }
    found
}

/// Puts a value into the tree, where the tree stays valid with it.
fn set(tree: &mut Value, origin: &str, key: &str, value: Value) -> Result<(), ConfigError> {
    let known: Vec<String> = leaves(tree).into_iter().map(|(key, _)| key).collect();
    let wanted = key.replace('-', "_");
    if !known.contains(&wanted) {
        let hint = did_you_mean(&wanted, known.iter().map(String::as_str));
        return Err(ConfigError::UnknownKey { origin: origin.into(), key: key.into(), hint });
    }
    let pointer = format!("/{}", wanted.replace('.', "/"));
    // A number is text where text is wanted (`advertise=7`); where it is either (`auto` or a number) the number is meant.
    let as_text = value.as_number().map(|number| Value::String(number.to_string()));
    let shown = value.as_str().map_or_else(|| value.to_string(), String::from);
    let mut refused = None;
    for value in std::iter::once(value).chain(as_text) {
        *slot(tree, &pointer) = value;
        match serde_json::from_value::<Configuration>(tree.clone()) {
            Ok(_) => return Ok(()),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let cause = refused.map_or_else(String::new, |error| error.to_string());
    Err(ConfigError::BadValue { origin: origin.into(), key: wanted, value: shown, cause })
}

fn slot<'a>(tree: &'a mut Value, pointer: &str) -> &'a mut Value {
    tree.pointer_mut(pointer).expect("the key is known")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(set: &[&str]) -> Result<Configuration, ConfigError> {
        let set = set.iter().map(|text| (*text).into()).collect();
        Configuration::load(&Layers { set, ..Layers::default() })
    }

    #[test]
    fn later_layers_win() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("levada.yaml");
        std::fs::write(&file, "taskmanager:\n  slots: 2\n  memory: { total: 1GiB }\nlog: { level: warn }\n").expect("written");
        let mut layers = Layers { file: Some(file), ..Layers::default() };
        layers.environment.insert("LEVADA__TASKMANAGER__SLOTS".into(), "3".into());
        layers.environment.insert("LEVADA_JOBMANAGER".into(), "not a setting".into());
        layers.set = vec!["log.level=debug".into(), "jobmanager.inline-budget=1GiB".into()];
        let config = Configuration::load(&layers).expect("valid");
        assert_eq!((config.taskmanager.slots, config.log.level.as_str()), (3, "debug"));
        assert_eq!(config.taskmanager.memory.total, Some(ByteSize::from_mib(1024)));
        assert_eq!(config.jobmanager.inline_budget, Some(ByteSize::from_mib(1024)));
    }

    #[test]
    fn errors_name_key_value_and_origin() {
        let text = |set: &str| load(&[set]).expect_err(set).to_string();
        assert!(text("taskmanager.slot=3").contains("did you mean \"taskmanager.slots\""), "{}", text("taskmanager.slot=3"));
        assert!(
            text("taskmanager.slots=many").starts_with("--set: taskmanager.slots=many:"),
            "{}",
            text("taskmanager.slots=many")
        );
        assert!(text("heartbeat.interval=10").contains("10s"), "{}", text("heartbeat.interval=10"));
        assert!(text("slots").contains("key=value"));
        assert!(text("jobmanager.port=70000").contains("70000"));
    }

    #[test]
    fn variables_that_are_no_text_are_passed_over_and_settings_refused_by_name() {
        use std::os::unix::ffi::OsStringExt;

        let bad = || OsString::from_vec(b"warn\xFF".to_vec());
        let loaded = |name: OsString, value: OsString| {
            Configuration::load(&Layers { environment: BTreeMap::from([(name, value)]), ..Layers::default() })
        };
        assert!(loaded("OTHER".into(), bad()).is_ok() && loaded(bad(), "x".into()).is_ok());
        let text = loaded("LEVADA__LOG__LEVEL".into(), bad()).expect_err("no text").to_string();
        assert!(text.contains("LEVADA__LOG__LEVEL=warn") && text.contains("is not UTF-8"), "{text}");
        let name = OsString::from_vec(b"LEVADA__LOG\xFF".to_vec());
        let text = loaded(name, "debug".into()).expect_err("no text").to_string();
        assert!(text.contains("LEVADA__LOG") && text.contains("=debug is not UTF-8"), "{text}");
    }

    /// In a process of its own, since an environment is of a whole process.
    #[test]
    fn an_environment_with_variables_that_are_no_text_is_read() {
        use std::os::unix::ffi::OsStringExt;

        if std::env::var_os("LEVADA_TEST_CHILD").is_some() {
            let layers = Layers::of_process(None, Vec::new());
            assert_eq!(Configuration::load(&layers).expect("valid").log.level, "warn");
            return;
        }
        let mut child = std::process::Command::new(std::env::current_exe().expect("a program"));
        child.args(["--exact", "config::tree::tests::an_environment_with_variables_that_are_no_text_is_read"]);
        child.env("LEVADA_TEST_CHILD", "1").env("LEVADA__LOG__LEVEL", "warn");
        child.env(OsString::from_vec(b"NAME\xFF".to_vec()), OsString::from_vec(b"\xFF".to_vec()));
        let output = child.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    }
}
