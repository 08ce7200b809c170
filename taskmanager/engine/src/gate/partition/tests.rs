//! Splitting against an owner that is computed row by row.

use std::sync::Arc;

use arrow::array::{Array, AsArray, Int64Array, StringArray};
use arrow::datatypes::Int64Type;
use levada_common::types::{LogicalType, StreamSchema};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;
use crate::testing::{column, edge, ints};

fn keyed_edge() -> Edge {
    let columns = vec![column("id", LogicalType::Int64), column("name", LogicalType::String)];
    let partition = Partition::Hash { columns: vec!["name".into()] };
    Edge { schema: StreamSchema::append(columns), ..edge(0, 1, partition) }
}

/// `id` numbers the rows; `name` is one of a few texts, or null.
fn keyed(rng: &mut StdRng, edge: &Edge, rows: i64) -> RecordBatch {
    let names: StringArray =
        (0..rows).map(|_| rng.random_bool(0.9).then(|| format!("name {}", rng.random_range(0..40)))).collect();
    let ids = Int64Array::from_iter_values(0..rows);
    RecordBatch::try_new(edge.schema.to_arrow(), vec![Arc::new(ids), Arc::new(names)]).unwrap()
}

#[test]
fn each_row_goes_to_the_owner_of_its_key() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (targets, max_parallelism) = (rng.random_range(1..9), 1 << rng.random_range(3..12));
        let edge = keyed_edge();
        let mut partitioner = Partitioner::new(&edge, 0, targets, max_parallelism).unwrap();
        for _ in 0..3 {
            let rows = rng.random_range(1..200);
            let batch = keyed(&mut rng, &edge, rows);
            let mut expected: Vec<Vec<i64>> = vec![Vec::new(); targets];
            for row in 0..batch.num_rows() {
                let mut group = Vec::new();
                key_groups(&[batch.column(1).slice(row, 1)], max_parallelism, &mut group);
                expected[owner_of_group(group[0], targets as u32, max_parallelism) as usize].push(row as i64);
            }
            let mut got: Vec<Vec<i64>> = vec![Vec::new(); targets];
            let send = |target: usize, part: RecordBatch| {
                assert!(part.num_rows() > 0 && got[target].is_empty(), "seed {seed}");
                let ids = part.column(0).as_primitive::<Int64Type>().values().to_vec();
                let names = part.column(1).as_string::<i32>();
                for (at, id) in ids.iter().enumerate() {
                    let before = batch.column(1).as_string::<i32>();
                    let expected = before.is_valid(*id as usize).then(|| before.value(*id as usize));
                    assert_eq!(names.is_valid(at).then(|| names.value(at)), expected, "seed {seed}");
                }
                got[target] = ids;
            };
            partitioner.split(batch.clone(), send).unwrap();
            assert_eq!(got, expected, "seed {seed}");
        }
    }
}

#[test]
fn whole_batches_go_round() {
    let mut partitioner = Partitioner::new(&edge(0, 1, Partition::Rebalance), 2, 3, 128).unwrap();
    let mut targets = Vec::new();
    for _ in 0..4 {
        partitioner.split(ints([1, 2]), |target, _| targets.push(target)).unwrap();
    }
    assert_eq!(targets, [2, 0, 1, 2]);
}

#[test]
fn an_only_target_gets_the_batch_itself() {
    let batch = ints([1, 2, 3]);
    for partition in [Partition::Forward, Partition::Rebalance, Partition::Hash { columns: vec!["n".into()] }] {
        let mut partitioner = Partitioner::new(&edge(0, 1, partition), 0, 1, 128).unwrap();
        let same = |_, part: RecordBatch| assert!(Arc::ptr_eq(part.column(0), batch.column(0)));
        partitioner.split(batch.clone(), same).unwrap();
    }
}

#[test]
fn an_unknown_key_column_is_named() {
    let edge = edge(0, 1, Partition::Hash { columns: vec!["m".into()] });
    assert_eq!(Partitioner::new(&edge, 0, 2, 128).unwrap_err(), "m");
}
