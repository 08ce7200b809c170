//! Round trips of every type, and what is refused.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use arrow::array::{AsArray, BinaryArray, Int32Array, Int64Array, StringArray, StructArray};
use levada_common::types::LogicalType;
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::*;

/// Writes the values, compares the columns with `columns()`, reads them back: whole, and from a slice.
fn round_trip<T: StateType>(values: &[T]) -> Vec<ArrayRef> {
    let columns = T::columns("value").expect("it has columns");
    let arrays = T::gather(values).expect("it is written");
    assert_eq!((columns.len(), arrays.len()), (T::width(), T::width()));
    for (column, array) in columns.iter().zip(&arrays) {
        assert_eq!((&column.ty.to_arrow(), values.len()), (array.data_type(), array.len()), "{}", column.name);
        assert!(column.nullable || array.null_count() == 0, "{} is not null", column.name);
    }
    let back = T::scatter("value", &arrays, values.len()).expect("it is read");
    assert_bits(&back, values);
    let from = values.len() / 3;
    let sliced: Vec<ArrayRef> = arrays.iter().map(|array| array.slice(from, values.len() - from)).collect();
    assert_bits(&T::scatter("value", &sliced, values.len() - from).expect("it is read"), &values[from..]);
    arrays
}

/// Compares bit by bit, NaN with NaN.
fn assert_bits<T: StateType>(found: &[T], expected: &[T]) {
    let arrays = |values: &[T]| T::gather(values).expect("written").iter().map(|array| array.to_data()).collect::<Vec<_>>();
    assert_eq!(found.len(), expected.len());
    assert_eq!(arrays(found), arrays(expected));
}

fn names<T: StateType>() -> Vec<String> {
    T::columns("value").expect("it has columns").into_iter().map(|column| format!("{} {}", column.name, column.ty)).collect()
}

macro_rules! round_trips {
    ($($name:ident: $ty:ty = $values:expr;)*) => {
        proptest! {
            $(#[test]
            fn $name(values in prop::collection::vec($values, 0..70)) {
                round_trip::<$ty>(&values);
            })*
        }
    };
}

round_trips! {
    bools: bool = any::<bool>();
    i8s: i8 = any::<i8>();
    i16s: i16 = any::<i16>();
    i32s: i32 = any::<i32>();
    i64s: i64 = any::<i64>();
    u16s: u16 = any::<u16>();
    u32s: u32 = any::<u32>();
    u64s: u64 = any::<u64>();
    f32s: f32 = any::<u32>().prop_map(f32::from_bits);
    f64s: f64 = any::<u64>().prop_map(f64::from_bits);
    timestamps: Timestamp = any::<i64>().prop_map(Timestamp);
    dates: Date = any::<i32>().prop_map(Date);
    decimals: Decimal<20, 3> = any::<i64>().prop_map(|unscaled| Decimal::new(unscaled.into()).expect("it has 19 digits"));
    texts: String = ".{0,12}";
    bytes: Vec<u8> = prop::collection::vec(any::<u8>(), 0..12);
    arrays: [u8; 5] = any::<[u8; 5]>();
    no_bytes: [u8; 0] = Just([]);
    optional_numbers: Option<i32> = any::<Option<i32>>();
    optional_bools: Option<bool> = any::<Option<bool>>();
    optional_texts: Option<String> = prop::option::of(".{0,5}");
    optional_arrays: Option<[u8; 3]> = any::<Option<[u8; 3]>>();
    lists: Vec<i64> = prop::collection::vec(any::<i64>(), 0..5);
    nested_lists: Vec<Vec<Option<String>>> = prop::collection::vec(prop::collection::vec(prop::option::of(".{0,3}"), 0..4), 0..4);
    optional_lists: Option<Vec<Option<bool>>> = prop::option::of(prop::collection::vec(any::<Option<bool>>(), 0..4));
    tuples: (i64, String, Option<f32>, Vec<u8>) = (any::<i64>(), ".{0,3}", Just(Some(1.5)), prop::collection::vec(any::<u8>(), 0..3));
    nested_tuples: ((i8, bool), (String,), ()) = (any::<(i8, bool)>(), ".{0,3}", Just(())).prop_map(|(a, b, c)| (a, (b,), c));
    units: () = Just(());
    structs: Serde<Order> = any::<(u32, Option<bool>, i64)>().prop_flat_map(|(id, paid, at)| {
        (".{0,4}", prop::collection::vec(any::<(u8, f64)>(), 0..3)).prop_map(move |(name, lines)| Serde(Order {
            id, paid, name, level: if at % 2 == 0 { Level::Low } else { Level::High }, place: Place { at, size: None },
            lines: lines.into_iter().map(|(count, price)| Line { count, price }).collect(),
        }))
    });
    serde_numbers: (i8, Serde<u64>) = any::<(i8, u64)>().prop_map(|(a, b)| (a, Serde(b)));
    serde_lists: Serde<Vec<Option<i16>>> = prop::collection::vec(any::<Option<i16>>(), 0..4).prop_map(Serde);
    serde_tuples: Serde<(u8, String)> = (any::<u8>(), ".{0,4}").prop_map(Serde);
    serde_enums: Serde<Level> = any::<bool>().prop_map(|low| Serde(if low { Level::Low } else { Level::High }));
    sessions: Serde<Session> = (prop::collection::btree_map(".{0,2}", any::<Option<i64>>(), 0..3), events(),
        prop::collection::vec(events(), 0..4), prop::option::of(prop::collection::btree_map(any::<u16>(),
        prop::collection::vec(any::<bool>(), 0..3), 0..3)))
        .prop_map(|(counts, last, log, marks)| Serde(Session { counts, last, log, place: marks.map(|marks| Marked { marks }) }));
    serde_events: Serde<Event> = events().prop_map(Serde);
    serde_maps: Serde<BTreeMap<i8, Event>> = prop::collection::btree_map(any::<i8>(), events(), 0..4).prop_map(Serde);
    serde_options: Serde<Option<Place>> = any::<Option<(i64, Option<i8>)>>().prop_map(|place| Serde(place.map(|(at, size)| Place { at, size })));
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    id: u32,
    paid: Option<bool>,
    name: String,
    level: Level,
    place: Place,
    lines: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Level {
    Low,
    High,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Place {
    at: i64,
    size: Option<i8>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Line {
    count: u8,
    price: f64,
}

/// What stands in snapshots: names and types that may never change.
#[test]
fn columns_are_these_for_ever() {
    assert_eq!(names::<i64>(), ["value INT64"]);
    assert_eq!(names::<u32>(), ["value INT64"]);
    assert_eq!(names::<[u8; 16]>(), ["value BINARY"]);
    assert_eq!(names::<Decimal<10, 2>>(), ["value DECIMAL(10,2)"]);
    assert_eq!(names::<Vec<Vec<u16>>>(), ["value LIST(LIST(INT32))"]);
    assert_eq!(names::<(Timestamp, (Date, f32))>(), ["value.0 TIMESTAMP", "value.1.0 DATE", "value.1.1 FLOAT32"]);
    assert_eq!(names::<()>(), [""; 0]);
    assert_eq!(names::<Serde<Level>>(), ["value STRING"]);
    assert_eq!(
        names::<Serde<Order>>(),
        [
            "value.id INT64",
            "value.paid BOOLEAN",
            "value.name STRING",
            "value.level STRING",
            "value.place STRUCT(at INT64 NOT NULL, size INT8)",
            "value.lines LIST(STRUCT(count INT16 NOT NULL, price FLOAT64 NOT NULL))",
        ]
    );
    let nullable = |columns: Vec<Column>| columns.iter().map(|column| column.nullable).collect::<Vec<_>>();
    assert_eq!(nullable(<(i64, Option<String>)>::columns("value").expect("columns")), [false, true]);
    assert_eq!(nullable(Serde::<Place>::columns("value").expect("columns")), [false, true]);
}

fn refusal<T: StateType + Debug>(columns: &[ArrayRef]) -> String {
    T::scatter("value", columns, 1).expect_err("it is refused").to_string()
}

#[test]
fn columns_that_do_not_fit_are_refused_with_both_types() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(-1), None]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
    let bytes: ArrayRef = Arc::new(BinaryArray::from(vec![b"abc".as_slice(), b"a"]));
    let dates: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let text = refusal::<i64>(std::slice::from_ref(&texts));
    assert_eq!(text, "column \"value\" is STRING, but i64 is stored as INT64");
    assert_eq!(
        refusal::<i64>(std::slice::from_ref(&numbers)),
        "column \"value\" has 1 nulls, which i64 cannot be; Option of it can"
    );
    assert_eq!(refusal::<Option<u32>>(std::slice::from_ref(&numbers)), "column \"value\" has -1 in row 0, which u32 cannot be");
    assert_eq!(refusal::<[u8; 3]>(&[bytes]), "column \"value\" has 1 bytes in row 1, which [u8; 3] cannot be");
    assert_eq!(refusal::<Date>(&[dates]).split(',').next(), Some("column \"value\" is INT32"));
    assert_eq!(refusal::<(i64, i64)>(&[texts]), "\"value\" has 1 columns, but (i64, i64) is stored in 2");
    assert_eq!(
        refusal::<(Option<i64>, i8)>(&[Arc::clone(&numbers), numbers]).split(',').next(),
        Some("column \"value.1\" is INT64")
    );
    let two: ArrayRef = Decimal::<3, 0>::gather(&[Decimal::new(999).expect("3 digits")]).expect("written").remove(0);
    assert!(refusal::<Decimal<2, 0>>(&[two]).starts_with("column \"value\" is DECIMAL(3,0), but"));
    let lists = <Vec<Option<i8>>>::gather(&[vec![None]]).expect("written");
    assert_eq!(refusal::<Vec<i8>>(&lists), "column \"value\" has 1 nulls, which i8 cannot be; Option of it can");
}

#[test]
fn decimals_have_their_digits() {
    assert_eq!(Decimal::<2, 1>::new(99).map(Decimal::unscaled), Some(99));
    assert_eq!(Decimal::<2, 1>::new(-100), None);
    assert!(Decimal::<38, 0>::new(i128::MIN).is_none());
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Event {
    Opened { by: String, at: i64 },
    Moved(i32, i32),
    Noted(String),
    Tagged(BTreeMap<String, u8>),
    Closed,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Session {
    counts: BTreeMap<String, Option<i64>>,
    last: Event,
    log: Vec<Event>,
    place: Option<Marked>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Marked {
    marks: BTreeMap<u16, Vec<bool>>,
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        (".{0,3}", any::<i64>()).prop_map(|(by, at)| Event::Opened { by, at }),
        any::<(i32, i32)>().prop_map(|(x, y)| Event::Moved(x, y)),
        ".{0,3}".prop_map(Event::Noted),
        prop::collection::btree_map(".{0,2}", any::<u8>(), 0..3).prop_map(Event::Tagged),
        Just(Event::Closed),
    ]
}

#[test]
fn maps_and_enums_with_data_have_columns() {
    let variants = "STRUCT(variant STRING NOT NULL, Opened STRUCT(by STRING NOT NULL, at INT64 NOT NULL), \
                    Moved STRUCT(0 INT32 NOT NULL, 1 INT32 NOT NULL), Noted STRING, \
                    Tagged LIST(STRUCT(key STRING NOT NULL, value INT16 NOT NULL)))";
    assert_eq!(
        names::<Serde<Session>>(),
        [
            "value.counts LIST(STRUCT(key STRING NOT NULL, value INT64))".to_owned(),
            format!("value.last {variants}"),
            format!("value.log LIST({variants})"),
            "value.place STRUCT(marks LIST(STRUCT(key INT32 NOT NULL, value LIST(BOOLEAN) NOT NULL)) NOT NULL)".to_owned(),
        ]
    );
    assert_eq!(names::<Serde<Event>>(), [format!("value {variants}")]);
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct WithOption {
    last: Option<Event>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Tree {
    below: Vec<Tree>,
}

#[test]
fn serde_types_without_columns_say_why() {
    let text = Serde::<WithOption>::columns("value").expect_err("refused").to_string();
    assert!(text.contains("WithOption has no columns: \"last\" is an option of an enum with data"), "{text}");
    let text = Serde::<Tree>::columns("value").expect_err("refused").to_string();
    assert!(text.contains("Tree has no columns: "), "{text}");
    let text = Serde::<()>::columns("value").expect_err("refused").to_string();
    assert!(text.contains("\"item\" would be always null"), "{text}");
    let values = [Serde(WithOption { last: None })];
    assert!(matches!(Serde::gather(&values), Err(TypeError::Untraceable { .. })));
}

#[test]
fn a_variant_that_is_gone_is_refused() {
    #[derive(Debug, Clone, Serialize, Deserialize)]
    enum Fewer {
        Noted(String),
        Closed,
    }
    let columns = Serde::gather(&[Serde(Fewer::Noted("a".into())), Serde(Fewer::Closed)]).expect("written");
    let renamed = columns[0].as_struct();
    let names: ArrayRef = Arc::new(StringArray::from(vec!["Noted", "Gone"]));
    let fields = renamed.fields().clone();
    let renamed: ArrayRef = Arc::new(StructArray::new(fields, vec![names, Arc::clone(renamed.column(1))], None));
    let error = Serde::<Fewer>::scatter("value", &[renamed], 2).expect_err("refused");
    let text = levada_common::fault::Faulty::to_failure(&error).message;
    assert!(text.contains("the enum has no variant \"Gone\""), "{text}");
}

#[test]
fn memory_behind_pointers_is_counted() {
    assert_eq!(heap(&7i64), 0);
    assert_eq!(heap(&String::with_capacity(100)), 100);
    assert_eq!(heap(&(1i8, Some("abc".to_owned()))), 3);
    assert_eq!(heap(&vec!["ab".to_owned(), "c".to_owned()]), 2 * size_of::<String>() + 3);
    assert_eq!(heap(&Serde(Place { at: 1, size: Some(1) })), 0);
    assert_eq!(heap(&Serde(vec![1i64, 2, 3])), 24);
    assert_eq!(heap(&Serde(("abc".to_owned(), vec![("de".to_owned(), 1u32)]))), 3 + 24 + 2 + 4);
}

fn heap<T: StateType>(value: &T) -> usize {
    value.heap_bytes()
}

#[test]
fn types_are_told_apart_by_their_columns() {
    let error = <Vec<i32>>::scatter("x", &<Vec<i64>>::gather(&[vec![1]]).expect("written"), 1).expect_err("another type");
    match error {
        TypeError::Column { expected, found, .. } => {
            assert_eq!((expected, found), (LogicalType::List(Box::new(LogicalType::Int32)), "LIST(INT64)".into()));
        }
        other => panic!("{other:?}"),
    }
}
