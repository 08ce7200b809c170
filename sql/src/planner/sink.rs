//! Sinks: what they take, and whether it fits.

use levada_common::graph::SinkNode;
use levada_common::plan::SinkSpec;

use super::graph::Planner;
use super::stream::{Stage, StageKind};
use levada_common::nearest::did_you_mean;

impl Planner<'_> {
    /// Plans a sink.
    pub(super) fn add_sink(&mut self, node: &SinkNode) {
        let path = format!("sinks.{}", node.uid);
        let declarations = self.declarations;
        let declaration = declarations.sinks.get(&node.connector);
        let options_path = format!("{path}.{}", node.connector);
        if declaration.is_none() {
            let names = || declarations.sinks.keys().map(String::as_str);
            let near = did_you_mean(&node.connector, names());
            let list = names().collect::<Vec<_>>().join(", ");
            self.error(&options_path, format!("unknown sink \"{}\"{near}; sinks: {list}", node.connector));
        }
        let wanted = self.parallelism(&path, node.parallelism);
        let stream = self.inputs(&node.inputs).and_then(|inputs| self.unite(&path, "inputs", &node.uid, inputs, wanted));
        let Some(declaration) = declaration else { return };
        let Some(stream) = stream else {
            return self.option_errors(&options_path, &node.connector, &node.options, &declaration.options, Vec::new());
        };
        if stream.schema.changelog && !declaration.changelog {
            let message = format!(
                "{} takes rows, not changes, and what it reads is a changelog; give the aggregate a window, as in `window: global`",
                node.connector
            );
            self.error(format!("{path}.inputs"), message);
        }
        let found = (declaration.read)(&node.options, &stream.schema).err().unwrap_or_default();
        self.option_errors(&options_path, &node.connector, &node.options, &declaration.options, found);

        let parallelism = wanted.unwrap_or(if stream.single { stream.parallelism } else { self.settings.parallelism });
        let partition = match stream.spread(parallelism) {
            Ok(partition) => partition,
            Err(reason) => return self.error(format!("{path}.parallelism"), reason),
        };
        let spec = SinkSpec {
            uid: node.uid.clone(),
            connector: node.connector.clone(),
            options: node.options.clone(),
            input: stream.schema.clone(),
            bad_records: node.bad_records,
        };
        self.push_stage(Stage {
            uid: node.uid.clone(),
            kind: StageKind::Sink(spec),
            parallelism,
            inputs: vec![(stream.stage, partition)],
            output: stream.schema,
            uses: Vec::new(),
        });
    }
}
