//! Cutting stages into vertices: what has one input, on its own instance, is chained to it.

use levada_common::ids::{Uid, VertexId};
use levada_common::plan::{Edge, Partition, Vertex};

use super::stream::{Stage, StageKind};

/// Makes vertices of stages, and edges of what goes between them.
///
/// Contract: stages stand in topological order; so do the vertices.
pub(super) fn cut(stages: Vec<Stage>) -> (Vec<Vertex>, Vec<Edge>) {
    let mut readers = vec![0usize; stages.len()];
    for (input, _) in stages.iter().flat_map(|stage| &stage.inputs) {
        readers[*input] += 1;
    }
    let schemas: Vec<_> = stages.iter().map(|stage| stage.output.clone()).collect();
    let (mut vertices, mut edges): (Vec<Vertex>, Vec<Edge>) = (Vec::new(), Vec::new());
    let (mut vertex_of, mut names): (Vec<usize>, Vec<Vec<Uid>>) = (Vec::new(), Vec::new());
    for stage in stages {
        let chained = match stage.inputs.as_slice() {
            [(input, Partition::Forward)] if readers[*input] == 1 => Some(vertex_of[*input]),
            _ => None,
        };
        let vertex = chained.unwrap_or_else(|| {
            let id = VertexId(vertices.len() as u32);
            for (link, (input, partition)) in stage.inputs.iter().enumerate() {
                let from = VertexId(vertex_of[*input] as u32);
                let (partition, schema) = (partition.clone(), schemas[*input].clone());
                edges.push(Edge { from, to: id, input: stage.input(link), partition, schema });
            }
            names.push(Vec::new());
            let parallelism = stage.parallelism;
            vertices.push(Vertex { id, name: String::new(), parallelism, source: None, operators: Vec::new(), sink: None });
            vertices.len() - 1
        });
        vertex_of.push(vertex);
        if names[vertex].last() != Some(&stage.uid) {
            names[vertex].push(stage.uid);
        }
        let vertex = &mut vertices[vertex];
        assert_eq!(vertex.parallelism, stage.parallelism, "a forward edge joins stages of one parallelism");
        match stage.kind {
            StageKind::Source(spec) => vertex.source = Some(spec),
            StageKind::Operator(spec) => vertex.operators.push(spec),
            StageKind::Pass => {}
            StageKind::Sink(spec) => vertex.sink = Some(spec),
        }
    }
    for (vertex, names) in vertices.iter_mut().zip(names) {
        vertex.name = names.iter().map(Uid::as_str).collect::<Vec<_>>().join(" -> ");
    }
    (vertices, edges)
}
