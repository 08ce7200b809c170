//! The check values of the generator: equal to those of every other implementation of it.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use proptest::prelude::*;

use crate::testing::{Node, drain, texts};

const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn h(values: [i64; 4]) -> u64 {
    let [a, b, c, d] = values.map(|value| value as u64);
    let x = mix(a.wrapping_mul(GOLDEN).wrapping_add(1));
    [b, c, d].into_iter().fold(x, |x, value| mix(x.wrapping_add(value).wrapping_mul(GOLDEN)))
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

fn node(events: u64, table: &str, columns: &[&str]) -> Node {
    let options = format!(r#"{{"events": {events}, "table": "{table}"}}"#);
    Node::declared("nexmark", super::declaration::source(), super::source::create, &options).keep(columns)
}

fn ints<'a>(batch: &'a RecordBatch, name: &str) -> &'a [i64] {
    let column = batch.column_by_name(name).expect(name);
    match column.as_primitive_opt::<Int64Type>() {
        Some(column) => column.values(),
        None => column.as_primitive::<TimestampMillisecondType>().values(),
    }
}

/// The sums over one table of the first `events` events: rows, h, fnv.
fn sums(events: u64, table: &str, hashed: [&str; 4]) -> (u64, u64, u64) {
    let (mut rows, mut h_sum, mut fnv_sum) = (0, 0u64, 0u64);
    for batch in drain(&node(events, table, &[]), 8192) {
        rows += batch.num_rows() as u64;
        if !hashed[0].is_empty() {
            let columns = hashed.map(|name| ints(&batch, name));
            for row in 0..batch.num_rows() {
                h_sum = h_sum.wrapping_add(h(columns.map(|column| column[row])));
            }
        }
        for column in batch.columns().iter().filter_map(|column| column.as_string_opt::<i32>()) {
            fnv_sum = column.iter().flatten().fold(fnv_sum, |sum, text| sum.wrapping_add(fnv(text)));
        }
    }
    (rows, h_sum, fnv_sum)
}

#[test]
fn the_first_million_events_have_the_known_sums() {
    let bids = sums(1_000_000, "bid", ["auction", "bidder", "price", "dateTime"]);
    let auctions = sums(1_000_000, "auction", ["id", "seller", "reserve", "expires"]);
    let persons = sums(1_000_000, "person", [""; 4]);
    assert_eq!((bids.0, auctions.0, persons.0), (920_000, 60_000, 20_000));
    assert_eq!(format!("{:x}", bids.1.wrapping_add(auctions.1)), "f6de16d942a46d48");
    assert_eq!(format!("{:x}", bids.2.wrapping_add(auctions.2).wrapping_add(persons.2)), "cedc7721740c8b8f");
}

#[test]
fn single_bids_are_as_published() {
    let known = [
        (4, 1003, 1000, 4_150_573, 1_700_000_000_000, "whycgkyxfnuhaetozcuspiybzzgpcvrettbfnugqpkplhmtqofvxcavsexhocvvxk"),
        (5, 1000, 1006, 269, 1_700_000_000_000, "gmmdxmrkbatvzhncrdnksnmzfuzvfnntstocydkhaymyznmwgwaqxokw"),
        (1_234_567, 75_009, 25_601, 14_131_905, 1_700_000_012_345, "uojdsariuessekjgecawmkkjexfwkhdkprtgyzymergdtoujkzzjkf"),
        (99_999_999, 6_000_900, 2_000_901, 650, 1_700_000_999_999, "hpzdfpyefbcvtrruwnrqrcbtzkauietqvyivfxejrmbsudosbagjwvvcase"),
    ];
    for (n, auction, bidder, price, time, extra) in known {
        let entry = format!(r#"{{"stripe": 0, "of": 1, "next": {n}}}"#);
        let batches = node(n + 1, "bid", &[]).with_splits(vec![entry]).drain(8192);
        assert_eq!(batches.len(), 1);
        let row = ["auction", "bidder", "price", "dateTime"].map(|name| ints(&batches[0], name)[0]);
        assert_eq!(row, [auction, bidder, price, time]);
        assert_eq!(texts(&batches, "extra"), [extra]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn parallelism_batches_and_restores_change_nothing(
        events in 0u64..9_000, table in "bid|auction|person", parallelism in 1u32..5, rows_max in 1usize..700, stop_after in 0usize..6,
    ) {
        let name = if table == "bid" { "price" } else { "id" };
        let node = node(events, &table, &["dateTime", name]);
        let rows = |batches: &[RecordBatch]| -> Vec<(i64, i64)> {
            let pairs = batches.iter().flat_map(|b| ints(b, "dateTime").iter().copied().zip(ints(b, name).iter().copied()));
            pairs.collect()
        };
        let mut expected = rows(&drain(&node, 8192));
        let mut all = Vec::new();
        for batches in node.drain_restored(parallelism, rows_max, stop_after) {
            let part = rows(&batches);
            prop_assert!(part.is_sorted_by_key(|row| row.0));
            prop_assert!(batches.iter().all(|batch| batch.num_rows() <= rows_max));
            all.extend(part);
        }
        all.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(all, expected);
    }
}
