//! The functions of the example in the harness: no cluster, no files, and time that moves when it is told to.

use fraud_detection::{
    Alarm, Convert, Detect, Sitting, Spent, alarm_declaration, convert_declaration, detect_declaration, sitting_declaration,
    spent_declaration,
};
use levada_taskmanager::Options;
use levada_taskmanager::function::RegisteredFunction;
use levada_taskmanager::harness::{Harness, SessionGap, WindowSpec};
use levada_taskmanager::types::LogicalType;
use serde_json::{Value, json};

fn payment(account: &str, merchant: &str, amount: i64, at: i64) -> Value {
    json!({"account": account, "merchant": merchant, "amount": amount, "at": at})
}

fn detect() -> Harness {
    let function = RegisteredFunction::keyed_process(detect_declaration(), Detect::new).expect("the declaration is good");
    Harness::new(function).key("account", LogicalType::String).event_time("at").option("large", 500).option("within_ms", 1000)
}

#[test]
fn a_large_payment_soon_after_a_small_one_is_an_alert() {
    let mut run = detect().start().unwrap();
    run.push(&[
        payment("ann", "shop", 20, 1_000),
        payment("bob", "shop", 900, 1_100),
        payment("ann", "shop", 300, 1_200),
        payment("ann", "jeweller", 700, 1_900),
        payment("ann", "shop", 800, 2_000),
        payment("ann", "shop", 900, 2_001),
    ])
    .unwrap();
    let alert = |amount: i64, payments: i64, known: bool, at: &str| json!({"account": "ann", "amount": amount, "payments": payments, "known_merchant": known, "at": at});
    assert_eq!(
        run.output().unwrap(),
        [alert(700, 2, false, "1970-01-01T00:00:01.900"), alert(800, 3, true, "1970-01-01T00:00:02")]
    );
    assert_eq!(run.counters()["alerts"], 2);
}

#[test]
fn time_makes_it_forget_and_a_later_small_payment_remember() {
    let mut run = detect().start().unwrap();
    run.push(&[payment("ann", "shop", 20, 1_000), payment("ann", "shop", 30, 1_500)]).unwrap();
    run.watermark(2_001).unwrap();
    run.push(&[payment("ann", "shop", 600, 2_400)]).unwrap();
    assert_eq!(run.output().unwrap().len(), 1, "the second small payment still counts");
    run.watermark(2_501).unwrap();
    // It comes late, but what it would be held against has been forgotten.
    run.push(&[payment("ann", "shop", 600, 2_450)]).unwrap();
    assert_eq!(run.output().unwrap(), Vec::<Value>::new());
}

#[test]
fn nothing_is_lost_when_the_parallelism_changes() {
    let accounts: Vec<String> = (0..40).map(|account| format!("account-{account}")).collect();
    let small: Vec<Value> = accounts.iter().map(|account| payment(account, "shop", 1, 1_000)).collect();
    let large: Vec<Value> = accounts.iter().map(|account| payment(account, "shop", 500, 1_500)).collect();
    let sorted = |mut rows: Vec<Value>| {
        rows.sort_by_key(|row| row["account"].as_str().unwrap().to_owned());
        rows
    };
    let mut undisturbed = detect().start().unwrap();
    undisturbed.push(&small).unwrap();
    undisturbed.push(&large).unwrap();
    let expected = sorted(undisturbed.output().unwrap());
    assert_eq!(expected.len(), 40);
    for (before, after) in [(1, 3), (3, 2), (2, 8), (8, 1)] {
        let mut run = detect().parallelism(before).start().unwrap();
        run.push(&small).unwrap();
        let snapshot = run.snapshot().unwrap();
        // What comes after the snapshot is not in it.
        run.push(&large).unwrap();
        let mut restored = detect().parallelism(after).restore(&snapshot).unwrap();
        restored.push(&large).unwrap();
        assert_eq!(sorted(restored.output().unwrap()), expected, "{before} to {after}");
        let mut forgetful = detect().parallelism(after).restore(&snapshot).unwrap();
        forgetful.watermark(2_001).unwrap();
        forgetful.push(&large).unwrap();
        assert_eq!(forgetful.output().unwrap(), Vec::<Value>::new(), "timers came along, {before} to {after}");
    }
}

#[test]
fn options_are_checked() {
    let error = detect().option("large", "much").start().err().unwrap();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("option \"large\": a whole number above 0"), "{cause}");
}

#[test]
fn what_was_spent_adds_up() {
    let function = RegisteredFunction::reduce::<Spent>(spent_declaration()).unwrap();
    let mut run = Harness::new(function).key("account", LogicalType::String).start().unwrap();
    let paid = |account: &str, amount: i64| json!({"account": account, "amount": amount});
    run.push(&[paid("ann", 3), paid("bob", 5), paid("ann", 4)]).unwrap();
    let spent = |account: &str, spent: i64| json!({"account": account, "spent": spent});
    assert_eq!(run.output().unwrap(), [spent("ann", 3), spent("bob", 5), spent("ann", 7)]);
}

#[test]
fn rates_reach_every_instance_and_come_back() {
    let function = RegisteredFunction::broadcast_process(convert_declaration(), |_| Ok(Convert)).unwrap();
    let harness = Harness::new(function);
    let amount = |amount: i64| json!({"account": "ann", "currency": "USD", "amount": amount});
    let euros = |euros: Option<i64>| json!({"account": "ann", "euros": euros});
    let mut run = harness.clone().parallelism(2).start().unwrap();
    run.push(&[amount(100)]).unwrap();
    run.push_broadcast(&[json!({"currency": "USD", "rate": 900_000})]).unwrap();
    run.push(&[amount(100)]).unwrap();
    run.push(&[amount(200)]).unwrap();
    assert_eq!(run.output().unwrap(), [euros(None), euros(Some(90)), euros(Some(180))]);
    let snapshot = run.snapshot().unwrap();
    let mut wider = harness.parallelism(3).restore(&snapshot).unwrap();
    for _ in 0..3 {
        wider.push(&[amount(10)]).unwrap();
    }
    assert_eq!(wider.output().unwrap(), [euros(Some(9)), euros(Some(9)), euros(Some(9))]);
}

#[test]
fn a_sitting_is_told_when_it_grows_large_and_when_it_is_over() {
    let sitting = RegisteredFunction::window(sitting_declaration(), |_| Ok(Sitting)).unwrap();
    let alarm = RegisteredFunction::trigger(alarm_declaration(), Alarm::new).unwrap();
    let options: Options = [("limit".to_string(), json!(100))].into_iter().collect();
    let harness = Harness::new(sitting).key("account", LogicalType::String).event_time("at");
    let gap = SessionGap::Fixed { gap_ms: 1_000 };
    let harness = harness.window(WindowSpec::Session { gap }, None).trigger(alarm, options);
    let payment =
        |merchant: &str, amount: i64, at: i64| json!({"account": "ann", "merchant": merchant, "amount": amount, "at": at});
    let mut run = harness.clone().start().unwrap();
    let told = |rows: Vec<Value>| -> Vec<Value> {
        rows.iter().map(|row| json!([row["payments"], row["spent"], row["largest_at"], row["window_end"]])).collect()
    };
    run.push(&[payment("shop", 60, 0), payment("inn", 30, 1_500)]).unwrap();
    let snapshot = run.snapshot().unwrap();
    let mut run = harness.parallelism(3).restore(&snapshot).unwrap();
    assert_eq!(told(run.output().unwrap()), Vec::<Value>::new());
    // It makes the two sittings one, which have spent 100 together.
    run.push(&[payment("bar", 10, 800)]).unwrap();
    assert_eq!(told(run.output().unwrap()), [json!([3, 100, "shop", "1970-01-01T00:00:02.500"])]);
    run.finish().unwrap();
    assert_eq!(told(run.output().unwrap()), [json!([3, 100, "shop", "1970-01-01T00:00:02.500"])]);
}
