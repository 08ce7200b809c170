//! The table against a map that is cloned at each barrier.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Insert(u8),
    InsertNew(u8),
    Remove(u8),
    RemoveFirst(u8),
    Extend(u8),
    SaveMoved,
    SaveNext(usize),
    Barrier,
    Abandon,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..40u8;
    let step = prop_oneof![
        6 => key.clone().prop_map(Step::Insert),
        3 => key.clone().prop_map(Step::InsertNew),
        5 => key.clone().prop_map(Step::Remove),
        3 => key.prop_map(Step::RemoveFirst),
        1 => (100..110u8).prop_map(Step::Extend),
        3 => Just(Step::SaveMoved),
        6 => (0..6usize).prop_map(Step::SaveNext),
        2 => Just(Step::Barrier),
        1 => Just(Step::Abandon),
    ];
    prop::collection::vec(step, 1..150)
}

/// A snapshot: what it has so far, and what it must come to.
struct Snapshot {
    saved: BTreeMap<u8, usize>,
    expected: BTreeMap<u8, usize>,
}

impl Snapshot {
    fn save(&mut self, key: u8, value: usize) {
        assert_eq!(self.saved.insert(key, value), None, "{key} came twice");
    }
}

fn finish(table: &mut OrderedTable<u8, usize>, snapshot: &mut Option<Snapshot>) {
    if let Some(mut snapshot) = snapshot.take() {
        while table.is_running() {
            table.save_moved(|(key, value)| snapshot.save(key, value));
            table.save_next(3, |key, value| snapshot.save(*key, *value));
        }
        assert_eq!(snapshot.saved, snapshot.expected);
    }
}

proptest! {
    #[test]
    fn a_snapshot_is_the_map_at_its_barrier(steps in steps()) {
        let (mut table, mut model) = (OrderedTable::<u8, usize>::new(), BTreeMap::new());
        let mut snapshot: Option<Snapshot> = None;
        for (at, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(key) => {
                    let old = table.insert(key, at);
                    let expected = model.insert(key, at);
                    prop_assert!(old == expected || (old.is_none() && snapshot.is_some()));
                }
                Step::InsertNew(key) => {
                    prop_assert_eq!(table.insert_new(key, at), !model.contains_key(&key));
                    model.entry(key).or_insert(at);
                }
                Step::Remove(key) => match (table.remove(&key), model.remove(&key)) {
                    (Removed::Absent, expected) => prop_assert_eq!(expected, None),
                    (Removed::Gone(value), expected) => prop_assert_eq!(expected, Some(value)),
                    (Removed::Kept, expected) => prop_assert!(expected.is_some() && snapshot.is_some()),
                },
                Step::RemoveFirst(up_to) => {
                    let first = model.first_key_value().map(|(key, _)| *key).filter(|key| *key <= up_to);
                    prop_assert_eq!(table.remove_first(|key| *key <= up_to).map(|(key, _)| key), first);
                    first.map(|key| model.remove(&key));
                }
                Step::Extend(key) => {
                    model.entry(key).or_insert_with(|| {
                        table.extend_new(vec![(key, at)]);
                        at
                    });
                }
                Step::SaveMoved => table.save_moved(|(key, value)| {
                    snapshot.as_mut().expect("a snapshot runs").save(key, value);
                }),
                Step::SaveNext(looks) => table.save_next(looks, |key, value| {
                    snapshot.as_mut().expect("a snapshot runs").save(*key, *value);
                }),
                Step::Barrier => {
                    finish(&mut table, &mut snapshot);
                    table.freeze();
                    snapshot = Some(Snapshot { saved: BTreeMap::new(), expected: model.clone() });
                }
                Step::Abandon => {
                    table.abandon(|_| {});
                    snapshot = None;
                }
            }
            if !table.is_running() && let Some(snapshot) = snapshot.take() {
                prop_assert_eq!(snapshot.saved, snapshot.expected);
            }
            prop_assert_eq!(table.first(), model.first_key_value().map(|(key, _)| key));
            prop_assert!(table.iter().eq(model.iter()));
            prop_assert_eq!(table.len(), model.len());
        }
        finish(&mut table, &mut snapshot);
    }
}
