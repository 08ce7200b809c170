//! Options of the `file` source and the `file` sink.

use std::sync::Arc;

use levada_common::declaration::{OptionError, Options, SinkDeclaration, SourceDeclaration, SourceShape};

use super::place::Place;
use super::split;
use crate::formats::Format;
use crate::options::{OptionReader, joined};

/// Largest part of a file that is one split, where `split_size` is not set.
pub(super) const SPLIT_BYTES: u64 = 64 << 20;

/// Most splits that a subtask reads side by side.
const SIDE_BY_SIDE_MAX: i64 = 64;

/// `file: { path | paths, format, columns, split_size, side_by_side }`
#[derive(Debug, Clone)]
pub(super) struct FileSourceOptions {
    /// Paths, URIs and globs, as written.
    pub paths: Vec<String>,
    /// What a line is.
    pub format: Format,
    /// Bytes of a split, where set.
    pub split_bytes: Option<u64>,
    /// Splits that a subtask reads side by side, at least 1.
    pub side_by_side: usize,
}

impl FileSourceOptions {
    pub(super) fn read(options: &Options) -> Result<Self, Vec<OptionError>> {
        let mut reader = OptionReader::new(options);
        if !reader.has("path") && !reader.has("paths") {
            reader.defect("path", "`path` is missing: a file, a glob such as logs/*.txt, or a list of them");
        }
        let mut paths = reader.texts("path");
        paths.extend(reader.texts("paths"));
        for path in &paths {
            if let Err(error) = Place::parse_file(path) {
                reader.defect("path", error.to_string());
            }
        }
        let format = Format::read(&mut reader);
        let split_bytes = reader.size("split_size", 1, 1 << 50);
        let side_by_side = reader.integer("side_by_side", 1, SIDE_BY_SIDE_MAX).map_or(1, |count| count as usize);
        reader.finish(|| Some(Self { paths, format: format?, split_bytes, side_by_side }))
    }
}

/// The declaration of the source.
pub fn source() -> SourceDeclaration {
    let own = ["path", "paths", "split_size", "side_by_side"];
    SourceDeclaration {
        options: own.iter().chain(&Format::OPTIONS).map(|name| (*name).to_owned()).collect(),
        path_options: vec!["path".into(), "paths".into()],
        read: Arc::new(|options| {
            let options = FileSourceOptions::read(options)?;
            Ok(SourceShape {
                columns: options.format.columns(),
                computed: Vec::new(),
                event_time: None,
                bounded: true,
                replayable: true,
                parallelism_max: None,
            })
        }),
        splits: Arc::new(|options, parallelism| {
            let options = FileSourceOptions::read(options).map_err(|errors| joined(&errors))?;
            split::list(&options, parallelism)
        }),
    }
}

/// `file: { path, format }` of a sink.
#[derive(Debug, Clone)]
pub(super) struct FileSinkOptions {
    /// The folder: a path of this machine, or a URI.
    pub path: String,
}

impl FileSinkOptions {
    pub(super) fn read(options: &Options) -> Result<Self, Vec<OptionError>> {
        let mut reader = OptionReader::new(options);
        reader.require("path", "the folder that the files are written to");
        let path = reader.text("path");
        if let Some(Err(error)) = path.as_deref().map(Place::parse) {
            reader.defect("path", error.to_string());
        }
        reader.choice("format", &["ndjson"]);
        reader.finish(|| Some(Self { path: path? }))
    }
}

/// The declaration of the sink.
pub fn sink() -> SinkDeclaration {
    SinkDeclaration {
        options: ["path", "format"].map(String::from).to_vec(),
        path_options: vec!["path".into()],
        changelog: true,
        exactly_once: true,
        read: Arc::new(|options, _| FileSinkOptions::read(options).map(drop)),
    }
}
