//! Cutting stages into vertices: what has one input, on its own instance, is chained to it where that has no other reader and no
//! other output.

use levada_common::ids::{Uid, VertexId};
use levada_common::plan::{Edge, Partition, Vertex};

use super::stream::{Outlet, Stage, StageKind};

/// The stages from which a sink is reached: where only an output beside the main one of a node is read, what its clauses do
/// with the main one goes nowhere.
pub(super) fn read(stages: Vec<Stage>) -> Vec<Stage> {
    let mut is_read: Vec<bool> = stages.iter().map(|stage| matches!(stage.kind, StageKind::Sink(_))).collect();
    for (at, stage) in stages.iter().enumerate().rev() {
        if is_read[at] {
            stage.inputs.iter().for_each(|(input, _)| is_read[input.stage] = true);
        }
    }
    let mut places = Vec::with_capacity(stages.len());
    let mut kept = Vec::new();
    for (mut stage, is_read) in stages.into_iter().zip(is_read) {
        places.push(kept.len());
        if is_read {
            stage.inputs.iter_mut().for_each(|(input, _)| input.stage = places[input.stage]);
            kept.push(stage);
        }
    }
    kept
}

/// Makes vertices of stages, and edges of what goes between them.
///
/// Contract: stages stand in topological order; so do the vertices.
pub(super) fn cut(stages: Vec<Stage>) -> (Vec<Vertex>, Vec<Edge>) {
    let mut readers = vec![0usize; stages.len()];
    for (input, _) in stages.iter().flat_map(|stage| &stage.inputs) {
        readers[input.stage] += 1;
    }
    let schemas: Vec<Vec<_>> =
        stages.iter().map(|stage| (0..=stage.sides().len()).map(|output| stage.schema(output).clone()).collect()).collect();
    let (mut vertices, mut edges): (Vec<Vertex>, Vec<Edge>) = (Vec::new(), Vec::new());
    let (mut vertex_of, mut names): (Vec<usize>, Vec<Vec<Uid>>) = (Vec::new(), Vec::new());
    for stage in stages {
        let chained = match stage.inputs.as_slice() {
            [(Outlet { stage, .. }, Partition::Forward)] if readers[*stage] == 1 && schemas[*stage].len() == 1 => {
                Some(vertex_of[*stage])
            }
            _ => None,
        };
        let vertex = chained.unwrap_or_else(|| {
            let id = VertexId(vertices.len() as u32);
            for (link, (input, partition)) in stage.inputs.iter().enumerate() {
                let from = VertexId(vertex_of[input.stage] as u32);
                let (output, partition) = (input.output as u32, partition.clone());
                let schema = schemas[input.stage][input.output].clone();
                edges.push(Edge { from, to: id, input: stage.input(link), output, partition, schema });
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
