//! Options of `socket`.

use std::sync::Arc;

use levada_common::declaration::{OptionError, Options, SourceDeclaration, SourceShape};

use crate::formats::Format;
use crate::options::OptionReader;

/// `socket: { host, port, format, columns }`
#[derive(Debug, Clone)]
pub(super) struct SocketOptions {
    /// A name or an address; a name is resolved at each connect.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// What a line is.
    pub format: Format,
}

impl SocketOptions {
    pub(super) fn read(options: &Options) -> Result<Self, Vec<OptionError>> {
        let mut reader = OptionReader::new(options);
        reader.require("host", "the server's name or address");
        reader.require("port", "the server's TCP port");
        let host = reader.text("host");
        let port = reader.integer("port", 1, 65_535);
        let format = Format::read(&mut reader);
        reader.finish(|| Some(Self { host: host?, port: port? as u16, format: format? }))
    }
}

/// The declaration of `socket`.
pub fn source() -> SourceDeclaration {
    SourceDeclaration {
        options: ["host", "port"].iter().chain(&Format::OPTIONS).map(|name| (*name).to_owned()).collect(),
        path_options: Vec::new(),
        read: Arc::new(|options| {
            let options = SocketOptions::read(options)?;
            Ok(SourceShape {
                columns: options.format.columns(),
                computed: Vec::new(),
                event_time: None,
                bounded: false,
                replayable: false,
                parallelism_max: Some(1),
            })
        }),
        // One connection; there is nothing to say about how far it is read.
        splits: Arc::new(|_, _| Ok(vec!["{}".to_owned()])),
    }
}
