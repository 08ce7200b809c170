//! What goes to which edge.

use levada_common::ids::CheckpointId;
use levada_common::plan::Partition;

use super::*;
use crate::testing::{Queue, channel, drain, edge, ints};

fn outlet(output: usize) -> (Queue, Outlet) {
    let (queue, writer, _) = channel(2);
    let partitioner = Partitioner::new(&edge(0, 1, Partition::Forward), 0, 1, 128).expect("no key is needed");
    (queue, Outlet { output, partitioner, channels: vec![writer] })
}

#[test]
fn rows_go_to_the_edges_of_their_output_and_signals_to_all() {
    let (queues, outlets): (Vec<Queue>, Vec<Outlet>) = [0, 2, 0, 1, 2].into_iter().map(outlet).unzip();
    let mut gate = OutputGate::new(outlets);
    gate.write(0, ints([1])).unwrap();
    gate.write(2, ints([2])).unwrap();
    gate.write(3, ints([3])).unwrap();
    gate.signal(Signal::Watermark(Watermark(7)));
    gate.barrier(Barrier::checkpoint(CheckpointId(1)));
    let said: Vec<Vec<String>> = queues.iter().map(drain).collect();
    let expected = |rows: &[&str]| rows.iter().chain(&["watermark 7", "barrier 1"]).map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(said, [&["[1]"][..], &["[2]"], &["[1]"], &[], &["[2]"]].map(expected));
}

#[test]
fn a_full_edge_of_any_output_holds_all_back() {
    let ((main, one), (side, other)) = (outlet(0), outlet(1));
    let mut gate = OutputGate::new(vec![one, other]);
    side.set_capacity(1);
    assert!(gate.is_ready());
    gate.write(1, ints([1])).unwrap();
    assert!(!gate.is_ready());
    assert_eq!((main.len(), drain(&side)), (0, vec!["[1]".to_string()]));
    assert!(gate.is_ready());
}
