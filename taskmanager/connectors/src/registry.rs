//! The table of connectors: a name, a declaration, a maker.

use std::collections::BTreeMap;
use std::sync::Arc;

use levada_common::declaration::{CustomSink, CustomSource, Declarations, SinkDeclaration, SourceDeclaration};
use levada_common::plan::{SinkSpec, SourceSpec};
use levada_engine::error::EngineError;
use levada_engine::sink::{Sink, SinkFactory};
use levada_engine::source::{Source, SourceFactory};

use crate::{blackhole, file, generate, nexmark, print, socket};

/// The connectors that a process knows.
#[derive(Clone, Default)]
pub struct Registry {
    /// What planning knows of them.
    pub declarations: Declarations,
    /// Makers of sources, by name.
    pub sources: BTreeMap<String, SourceFactory>,
    /// Makers of sinks, by name.
    pub sinks: BTreeMap<String, SinkFactory>,
}

/// The built-in connectors.
pub fn registry() -> Registry {
    let mut registry = Registry::default();
    registry.source("file", file::declaration::source(), file::source::create);
    registry.source("generate", generate::declaration::source(), generate::source::create);
    registry.source("nexmark", nexmark::declaration::source(), nexmark::source::create);
    registry.source("socket", socket::declaration::source(), socket::source::create);
    registry.sink("blackhole", blackhole::declaration::sink(), blackhole::sink::create);
    registry.sink("file", file::declaration::sink(), file::sink::create);
    registry.sink("print", print::declaration::sink(), print::sink::create);
    registry
}

impl Registry {
    /// Adds a source that a binary brings; one of the same name is replaced.
    pub fn add_source(&mut self, custom: CustomSource, factory: SourceFactory) {
        self.sources.insert(custom.name.clone(), factory);
        self.declarations.sources.insert(custom.name.clone(), custom.into());
    }

    /// Adds a sink that a binary brings; one of the same name is replaced.
    pub fn add_sink(&mut self, custom: CustomSink, factory: SinkFactory) {
        self.sinks.insert(custom.name.clone(), factory);
        self.declarations.sinks.insert(custom.name.clone(), custom.into());
    }

    fn source(
        &mut self,
        name: &str,
        declaration: SourceDeclaration,
        create: fn(&SourceSpec) -> Result<Box<dyn Source>, EngineError>,
    ) {
        self.declarations.sources.insert(name.into(), declaration);
        self.sources.insert(name.into(), Arc::new(create));
    }

    fn sink(&mut self, name: &str, declaration: SinkDeclaration, create: fn(&SinkSpec) -> Result<Box<dyn Sink>, EngineError>) {
        self.declarations.sinks.insert(name.into(), declaration);
        self.sinks.insert(name.into(), Arc::new(create));
    }
}
