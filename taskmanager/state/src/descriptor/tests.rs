//! What a descriptor is, and when two are one.

use std::time::Duration;

use levada_common::checkpoint::StateKind;
use levada_common::state_schema::StateShape;
use levada_common::types::{Column, LogicalType};
use proptest::prelude::*;

use super::*;
use crate::types::Timestamp;

/// The mean of what is added.
struct Mean;

impl AggregateFunction for Mean {
    type Input = i64;
    type Accumulator = (i64, u64);
    type Output = f64;

    fn create(&self) -> (i64, u64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, u64), input: i64) {
        *accumulator = (accumulator.0 + input, accumulator.1 + 1);
    }

    fn merge(&self, accumulator: &mut (i64, u64), other: (i64, u64)) {
        *accumulator = (accumulator.0 + other.0, accumulator.1 + other.1);
    }

    fn read(&self, accumulator: &(i64, u64)) -> f64 {
        accumulator.0 as f64 / accumulator.1 as f64
    }
}

fn add(sum: &mut i64, more: i64) {
    *sum += more;
}

fn hours(hours: u64) -> Duration {
    Duration::from_secs(hours * 3600)
}

#[test]
fn a_recorder_has_the_states_in_the_order_of_binding() {
    let mut recorder = Recorder::new();
    let count = ValueStateDescriptor::<i64>::new("count").bind(&mut recorder).expect("bound");
    MapStateDescriptor::<String, (i8, bool)>::new("seen").with_ttl(Ttl::event(hours(1))).bind(&mut recorder).expect("bound");
    AggregatingStateDescriptor::new("mean", Mean).bind(&mut recorder).expect("bound");
    OperatorListDescriptor::<Timestamp>::union("offsets").bind(&mut recorder).expect("bound");
    let again = ValueStateDescriptor::<i64>::new("count").bind(&mut recorder).expect("bound");
    assert_eq!((count, count.id()), (again, StateId(0)));

    let states = recorder.into_declarations();
    let names: Vec<_> = states.iter().map(|state| (state.name.as_str(), state.kind, state.schema.shape)).collect();
    assert_eq!(
        names,
        [
            ("count", StateKind::Keyed, StateShape::Value),
            ("seen", StateKind::Keyed, StateShape::Map),
            ("mean", StateKind::Keyed, StateShape::Aggregating),
            ("offsets", StateKind::OperatorUnion, StateShape::List),
        ]
    );
    assert!(states[1].schema.ttl.is_some() && !states[0].schema.ttl.is_some());
    let columns = |columns: &[Column]| columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>();
    assert_eq!(columns(&states[1].schema.map_key), ["map_key"]);
    assert_eq!(columns(&states[1].schema.values), ["value.0", "value.1"]);
    let key = [Column::new("user", LogicalType::String, true)];
    assert_eq!(states[0].schema(&key).keys, key);
    assert!(states[3].schema(&key).keys.is_empty(), "an operator's list has no key");

    let json = serde_json::to_string(&states).expect("it is data");
    assert_eq!(serde_json::from_str::<Vec<levada_common::state_schema::StateDeclaration>>(&json).expect("it is read"), states);
}

/// Binds both under the name `s`; the text of the refusal.
fn clash(first: &dyn Descriptor, second: &dyn Descriptor) -> String {
    let mut recorder = Recorder::new();
    recorder.bind(first).expect("the first is bound");
    recorder.bind(second).expect_err("the second is refused").to_string()
}

#[test]
fn another_type_under_a_name_is_refused_with_both() {
    let text = clash(&ValueStateDescriptor::<i64>::new("s"), &ValueStateDescriptor::<String>::new("s"));
    assert_eq!(
        text,
        "state \"s\" is bound as value state of i64 (value INT64) and as value state of alloc::string::String (value STRING); \
         give one of them another name"
    );
    let value = ValueStateDescriptor::<i64>::new("s");
    let others: [&dyn Descriptor; 9] = [
        &ListStateDescriptor::<i64>::new("s"),
        &ValueStateDescriptor::<u32>::new("s"),
        &ValueStateDescriptor::<Option<i64>>::new("s"),
        &ValueStateDescriptor::<i64>::new("s").with_ttl(Ttl::processing(hours(2))),
        &ValueStateDescriptor::<i64>::new("s").with_default(0),
        &MapStateDescriptor::<i64, i64>::new("s"),
        &ReducingStateDescriptor::new("s", add),
        &FoldingStateDescriptor::new("s", 0i64, add),
        &OperatorListDescriptor::<i64>::split("s"),
    ];
    for (at, other) in others.iter().enumerate() {
        clash(&value, *other);
        clash(*other, &value);
        for (with, second) in others.iter().enumerate().filter(|(with, _)| *with != at) {
            assert!(clash(*other, *second).starts_with("state \"s\" is bound as "), "{at} and {with}");
        }
    }
}

#[test]
fn life_default_and_function_are_part_of_a_descriptor() {
    let with = |ttl| ValueStateDescriptor::<i64>::new("s").with_ttl(ttl);
    let text = clash(&with(Ttl::processing(hours(1))), &with(Ttl::event(hours(1)).on_read()));
    assert!(text.contains("with a life of 1h of processing time after the last write and as"), "{text}");
    assert!(text.contains("with a life of 1h of event time after the last read or write;"), "{text}");
    let default = |default| ValueStateDescriptor::<f64>::new("s").with_default(default);
    assert!(clash(&default(1.0), &default(2.0)).contains("starting from 1.0 and as"));
    Recorder::new().bind(&default(f64::NAN)).expect("bound");
    let mut recorder = Recorder::new();
    for _ in 0..2 {
        recorder.bind(&default(f64::NAN)).expect("one NaN is the other");
        recorder.bind(&FoldingStateDescriptor::new("fold", 7i64, add)).expect("the same function");
        recorder.bind(&ReducingStateDescriptor::new("sum", add)).expect("the same function");
    }
    let text = clash(&ReducingStateDescriptor::new("s", add), &ReducingStateDescriptor::new("s", |sum: &mut i64, _| *sum += 1));
    assert!(text.contains("with the function levada_state::descriptor::tests::add"), "{text}");
}

#[test]
fn names_are_checked() {
    let refused = |name: &str| ValueStateDescriptor::<i64>::new(name).bind(&mut Recorder::new()).is_err();
    for good in ["a", "count", "größe 1", &"x".repeat(128)] {
        assert!(!refused(good), "{good}");
    }
    for bad in ["", "a/b", "a\nb", "_timers.event", &"x".repeat(129), &"ä".repeat(65)] {
        assert!(refused(bad), "{bad}");
    }
}

#[test]
fn a_life_of_nothing_is_refused() {
    let text = ListStateDescriptor::<i64>::new("s").with_ttl(Ttl::event(Duration::from_micros(999))).bind(&mut Recorder::new());
    assert!(text.expect_err("refused").to_string().contains("at least 1 ms"));
    assert_eq!(Ttl::event(Duration::MAX).ttl_ms, u64::MAX);
}

/// Times near the ends of what there is, and others.
fn times() -> impl Strategy<Value = i64> {
    prop_oneof![any::<i64>(), -5..5i64, (0..5i64).prop_map(|n| i64::MAX - n), (0..5i64).prop_map(|n| i64::MIN + n)]
}

proptest! {
    #[test]
    fn expiry_is_exact_for_every_time(
        stamp in times(),
        now in times(),
        ttl_ms in prop_oneof![1..9u64, any::<u64>(), Just(u64::MAX)],
    ) {
        let ttl = Ttl { time: TtlTime::Event, update: TtlUpdate::OnCreateAndWrite, ttl_ms: ttl_ms.max(1) };
        let expired = i128::from(stamp) + i128::from(ttl.ttl_ms) <= i128::from(now);
        prop_assert_eq!(ttl.is_expired(stamp, now), expired);
        prop_assert_eq!(ttl.expires_at(stamp).is_some_and(|at| at <= now), expired);
        prop_assert_eq!(ttl.expired_up_to(now).is_some_and(|up_to| stamp <= up_to), expired);
        if let Some(at) = ttl.expires_at(stamp) {
            prop_assert!(ttl.is_expired(stamp, at) && !ttl.is_expired(stamp, at - 1));
        }
        prop_assert_eq!(Ttl::touched(Some(stamp), now), stamp.max(now));
    }
}
