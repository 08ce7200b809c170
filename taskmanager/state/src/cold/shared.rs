//! One store for several tables, or operators, of a node: each has an end of its own, as if the store were its.
//!
//! A snapshot of the store has what every end had at the barrier. It begins with the first end that begins one and is complete when
//! all have sent their part; what an end sends behind its part waits here until then, and keeps that end from sending, not the others.
//! An end that begins a further snapshot before that gives the one before up, which says so to whoever waits for it. Must never know
//! what the ends hold. Invariant: for each end the store keeps the contract.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arrow::array::{Array, ArrayRef};
use arrow::record_batch::RecordBatch;
use levada_common::ids::Uid;
use levada_common::keys::KeyGroupRange;
use levada_common::state_schema::StateSchema;

use super::{
    Addresses, Change, ColdError, ColdExpiry, ColdMetrics, ColdStateId, ColdStore, ColdStores, Loaded, Opened, OverlayBudget,
    RowLayout, Scan, Scope, Seal, Window,
};
use crate::snapshot::{DatabaseSnapshot, SnapshotFile, VisitRows};

/// Stores that may be opened several times, each time by another end.
///
/// Contract: every end of a store is opened before the first snapshot of it.
#[derive(Debug)]
pub struct SharedStores {
    stores: Arc<dyn ColdStores>,
    open: Mutex<HashMap<Uid, Known>>,
}

/// A store that was opened.
#[derive(Debug)]
struct Known {
    shared: Weak<Mutex<Shared>>,
    budget: Arc<OverlayBudget>,
}

impl SharedStores {
    /// Of these.
    pub fn new(stores: Arc<dyn ColdStores>) -> Self {
        Self { stores, open: Mutex::default() }
    }
}

impl ColdStores for SharedStores {
    fn open(&self, uid: &Uid) -> Result<Opened, ColdError> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(uid)
            && let Some(shared) = known.shared.upgrade()
        {
            return Ok(Opened { store: Box::new(End::of(&shared)), share: known.budget.share() });
        }
        let Opened { store, share } = self.stores.open(uid)?;
        let shared = Arc::new(Mutex::new(Shared::new(uid.clone(), store)));
        let end = End::of(&shared);
        open.insert(uid.clone(), Known { shared: Arc::downgrade(&shared), budget: share.budget() });
        Ok(Opened { store: Box::new(end), share })
    }

    fn take_fetched(&self, uid: &Uid, state: &str) -> Vec<Scan> {
        self.stores.take_fetched(uid, state)
    }

    fn unopened(&self) -> Option<Uid> {
        self.stores.unopened()
    }
}

/// A store with its ends.
#[derive(Debug)]
struct Shared {
    uid: Uid,
    store: Box<dyn ColdStore>,
    ends: Vec<EndState>,
    /// Number of the snapshot that was begun last; it is running as long as it is there.
    begun: u64,
    snapshot: Option<Arc<SharedSnapshot>>,
    /// The last one that was given up, for an end that hears of it later.
    given_up: Option<Arc<SharedSnapshot>>,
    /// What went wrong where nobody could be told.
    failure: Option<ColdError>,
}

/// A snapshot of the store.
#[derive(Debug)]
struct SharedSnapshot {
    uid: Uid,
    of_store: Arc<dyn DatabaseSnapshot>,
    /// The next one began before all ends had sent their part: nobody gave its checkpoint up.
    is_overtaken: AtomicBool,
}

impl SharedSnapshot {
    fn says(&self, error: ColdError) -> ColdError {
        match error {
            ColdError::Abandoned { .. } if self.is_overtaken.load(Ordering::Acquire) => {
                ColdError::Overtaken { uid: self.uid.clone() }
            }
            error => error,
        }
    }
}

impl DatabaseSnapshot for SharedSnapshot {
    fn files(&self) -> Result<Vec<SnapshotFile>, ColdError> {
        self.of_store.files().map_err(|error| self.says(error))
    }

    fn rows(&self, state: &str, visit: VisitRows<'_>) -> Result<(), ColdError> {
        self.of_store.rows(state, visit).map_err(|error| self.says(error))
    }

    fn entries(&self, state: &str) -> u64 {
        self.of_store.entries(state)
    }
}

/// How far an end is with the snapshot that is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Part {
    /// Its barrier has not come.
    #[default]
    Before,
    Sending,
    Sent,
}

/// What is known of an end.
#[derive(Debug, Default)]
struct EndState {
    /// Number of snapshots that it has begun, each of which is one of the store.
    begun: u64,
    part: Part,
    /// What it sent behind its part of the snapshot.
    held: VecDeque<Held>,
    held_bytes: u64,
    /// The last seal that it was given, and the one that is known to be written.
    sealed: u64,
    written: u64,
    /// Its seals that are the store's, but for those that are written.
    seals: VecDeque<(u64, Seal)>,
}

#[derive(Debug)]
enum Held {
    Change(ColdStateId, Change),
    Seal(u64),
}

impl Shared {
    fn new(uid: Uid, store: Box<dyn ColdStore>) -> Self {
        Self { uid, store, ends: Vec::new(), begun: 0, snapshot: None, given_up: None, failure: None }
    }

    /// Hands what an end sent behind its part on, where nothing is in the way any more.
    fn let_go(&mut self, end: usize) -> Result<(), ColdError> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        let state = &mut self.ends[end];
        if self.snapshot.is_some() && state.part == Part::Sent {
            return Ok(());
        }
        state.held_bytes = 0;
        while let Some(held) = state.held.pop_front() {
            match held {
                Held::Change(of, change) => self.store.change(of, change)?,
                Held::Seal(seal) => state.seals.push_back((seal, self.store.seal())),
            }
        }
        Ok(())
    }

    fn let_all_go(&mut self) {
        for end in 0..self.ends.len() {
            if let Err(failure) = self.let_go(end) {
                self.failure = Some(failure);
            }
        }
    }

    /// Begins a snapshot. One that is running is overtaken: what this end sends from now on belongs to the new one.
    fn begin_snapshot(&mut self) {
        if let Some(running) = &self.snapshot {
            running.is_overtaken.store(true, Ordering::Release);
            self.give_up();
        }
        let (uid, of_store) = (self.uid.clone(), self.store.begin_snapshot());
        self.snapshot = Some(Arc::new(SharedSnapshot { uid, of_store, is_overtaken: AtomicBool::new(false) }));
    }

    fn give_up(&mut self) {
        if self.snapshot.is_some() {
            self.store.abandon_snapshot();
            self.given_up = self.snapshot.take();
            self.end_snapshot();
        }
    }

    fn end_snapshot(&mut self) {
        self.snapshot = None;
        self.ends.iter_mut().for_each(|end| end.part = Part::Before);
        self.let_all_go();
    }
}

/// One end of a store.
#[derive(Debug)]
struct End {
    shared: Arc<Mutex<Shared>>,
    number: usize,
    /// Of the states that were opened here.
    layouts: Vec<(ColdStateId, RowLayout)>,
}

impl End {
    /// A further end.
    fn of(shared: &Arc<Mutex<Shared>>) -> Self {
        let mut store = lock(shared);
        let begun = store.begun;
        store.ends.push(EndState { begun, ..EndState::default() });
        Self { shared: Arc::clone(shared), number: store.ends.len() - 1, layouts: Vec::new() }
    }

    /// The store, which has what this end sent, as far as it may have it.
    fn store(&self) -> Result<MutexGuard<'_, Shared>, ColdError> {
        let mut shared = lock(&self.shared);
        shared.let_go(self.number)?;
        Ok(shared)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ColdStore for End {
    fn open_state(&mut self, name: &str, schema: &Arc<StateSchema>, touched_at_ms: i64) -> Result<ColdStateId, ColdError> {
        let mut shared = self.store()?;
        let state = shared.store.open_state(name, schema, touched_at_ms)?;
        let layout = shared.store.layout(state).clone();
        drop(shared);
        self.layouts.retain(|(known, _)| *known != state);
        self.layouts.push((state, layout));
        Ok(state)
    }

    fn layout(&self, state: ColdStateId) -> &RowLayout {
        let found = self.layouts.iter().find(|(known, _)| *known == state);
        &found.expect("a state is opened at the end that uses it").1
    }

    fn load(&mut self, state: ColdStateId, addresses: &Addresses, below_max: usize) -> Result<Loaded, ColdError> {
        self.store()?.store.load(state, addresses, below_max)
    }

    fn load_last(&mut self, state: ColdStateId, addresses: &Addresses) -> Result<Loaded, ColdError> {
        self.store()?.store.load_last(state, addresses)
    }

    fn scan(&mut self, state: ColdStateId, scope: Scope) -> Result<Scan, ColdError> {
        self.store()?.store.scan(state, scope)
    }

    fn namespaces(&mut self, state: ColdStateId, groups: KeyGroupRange) -> Result<BTreeSet<Option<Window>>, ColdError> {
        self.store()?.store.namespaces(state, groups)
    }

    fn change(&mut self, state: ColdStateId, change: Change) -> Result<(), ColdError> {
        let mut shared = self.store()?;
        if shared.snapshot.is_none() || shared.ends[self.number].part != Part::Sent {
            return shared.store.change(state, change);
        }
        let end = &mut shared.ends[self.number];
        end.held_bytes += bytes_of(&change);
        end.held.push_back(Held::Change(state, change));
        Ok(())
    }

    fn seal(&mut self) -> Seal {
        let mut shared = lock(&self.shared);
        let is_held = shared.let_go(self.number).is_err() || !shared.ends[self.number].held.is_empty();
        let seal = shared.ends[self.number].sealed + 1;
        shared.ends[self.number].sealed = seal;
        if is_held {
            shared.ends[self.number].held.push_back(Held::Seal(seal));
        } else {
            let of_store = shared.store.seal();
            shared.ends[self.number].seals.push_back((seal, of_store));
        }
        Seal(seal)
    }

    fn is_written(&mut self, seal: Seal) -> Result<bool, ColdError> {
        let number = self.number;
        let mut shared = self.store()?;
        if shared.ends[number].written >= seal.0 {
            return Ok(true);
        }
        let Some((known, of_store)) = shared.ends[number].seals.iter().rfind(|(known, _)| *known <= seal.0).copied() else {
            return Ok(false);
        };
        if !shared.store.is_written(of_store)? {
            return Ok(false);
        }
        let end = &mut shared.ends[number];
        end.written = known;
        end.seals.retain(|(other, _)| *other > known);
        Ok(known == seal.0)
    }

    fn wait_written(&mut self, seal: Seal) -> Result<(), ColdError> {
        let mut shared = self.store()?;
        match shared.ends[self.number].seals.iter().rfind(|(known, _)| *known <= seal.0).copied() {
            Some((_, of_store)) => shared.store.wait_written(of_store),
            None => Ok(()),
        }
    }

    /// What the others hold back is not among them: it may wait for this end, which would wait for it.
    fn pending_bytes(&self) -> u64 {
        let shared = lock(&self.shared);
        shared.store.pending_bytes() + shared.ends[self.number].held_bytes
    }

    fn begin_snapshot(&mut self) -> Arc<dyn DatabaseSnapshot> {
        let mut shared = lock(&self.shared);
        shared.ends[self.number].begun += 1;
        let begun = shared.ends[self.number].begun;
        if begun > shared.begun {
            shared.begin_snapshot();
            shared.begun = begun;
        }
        if let Some(snapshot) = shared.snapshot.clone().filter(|_| begun == shared.begun) {
            shared.ends[self.number].part = Part::Sending;
            return snapshot;
        }
        // It was given up before this end's barrier came.
        shared.given_up.clone().expect("a snapshot is complete only with every end's part")
    }

    fn complete_snapshot(&mut self) {
        let mut shared = lock(&self.shared);
        // Where it is another one by now, this end's part was of one that was given up.
        if shared.snapshot.is_none() || shared.ends[self.number].part != Part::Sending {
            return;
        }
        shared.ends[self.number].part = Part::Sent;
        if shared.ends.iter().all(|end| end.part == Part::Sent) {
            shared.store.complete_snapshot();
            shared.end_snapshot();
        }
    }

    fn abandon_snapshot(&mut self) {
        let mut shared = lock(&self.shared);
        if shared.ends[self.number].part == Part::Sending {
            shared.give_up();
        }
    }

    fn expire(&mut self, state: ColdStateId, expiry: ColdExpiry) {
        lock(&self.shared).store.expire(state, expiry);
    }

    fn metrics(&self) -> ColdMetrics {
        lock(&self.shared).store.metrics()
    }
}

/// Bytes that a change holds, as near as its columns tell.
fn bytes_of(change: &Change) -> u64 {
    let columns = |columns: &[ArrayRef]| columns.iter().map(|column| column.get_array_memory_size()).sum::<usize>();
    let deletes = change.deletes.as_ref().map_or(0, |gone| columns(&gone.keys) + columns(&gone.below));
    let upserts = change.upserts.as_ref().map_or(0, RecordBatch::get_array_memory_size);
    (deletes + upserts) as u64
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, new_null_array};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;

    use super::*;
    use crate::cold::contract::{self, MAX_PARALLELISM, all_rows, states};
    use crate::cold::memory::MemoryColdStores;
    use crate::cold::{Within, WriteBack};

    fn stores(lag: u32) -> SharedStores {
        SharedStores::new(Arc::new(MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(1 << 20))))
    }

    #[test]
    fn an_end_keeps_the_contract() {
        for seed in 0..8 {
            let stores = stores(seed as u32 % 3);
            let opened = stores.open(&Uid::new("counts")).expect("memory has no errors");
            contract::check(opened.store, seed).expect("memory has no errors");
        }
    }

    #[test]
    fn ends_divide_the_memory() {
        let stores = stores(0);
        let [one, other] = [0, 1].map(|_| stores.open(&Uid::new("counts")).expect("no errors"));
        assert_eq!((one.share.bytes(), other.share.bytes()), (1 << 19, 1 << 19));
    }

    /// A snapshot, and what each end had when it had sent its part.
    struct Taken {
        snapshot: Arc<dyn DatabaseSnapshot>,
        had: [Option<BTreeSet<i64>>; 2],
    }

    /// What an end does.
    #[derive(Debug, Clone, Copy)]
    enum Deed {
        Change(i64),
        Seal,
        Begin,
        Complete,
        Abandon,
    }

    fn deed() -> impl Strategy<Value = Deed> {
        prop_oneof![
            5 => (0i64..40).prop_map(Deed::Change),
            2 => Just(Deed::Seal),
            2 => Just(Deed::Begin),
            3 => Just(Deed::Complete),
            1 => Just(Deed::Abandon),
        ]
    }

    /// Two ends of a store with little memory, and a state of each.
    fn two_ends(lag: u32) -> [(WriteBack, ColdStateId); 2] {
        let stores = SharedStores::new(Arc::new(MemoryColdStores::new(MAX_PARALLELISM, lag, OverlayBudget::new(16 << 10))));
        let (_, schema) = states().swap_remove(0);
        let opened = ["one", "other"].map(|name| (stores.open(&Uid::new("counts")).expect("memory has no errors"), name));
        opened.map(|(opened, name)| {
            let mut end = WriteBack::new(opened);
            let state = end.store().open_state(name, &schema, 0).expect("no errors");
            (end, state)
        })
    }

    fn add(end: &mut WriteBack, state: ColdStateId, keys: std::ops::Range<i64>) {
        let notes = new_null_array(&DataType::Utf8, keys.clone().count());
        let id: ArrayRef = Arc::new(keys.collect::<Int64Array>());
        let columns = Arc::clone(end.store().layout(state).columns());
        let rows = RecordBatch::try_new(columns, vec![Arc::clone(&id), id, notes]).expect("its columns");
        end.change(state, Change { deletes: None, upserts: Some(rows) }).expect("no errors");
    }

    /// As a task sends in the background: asks until it may send more.
    fn may_send(end: &mut WriteBack) -> bool {
        (0..20).any(|_| end.takes_more().expect("no errors"))
    }

    #[test]
    fn what_an_end_holds_back_does_not_keep_the_others_from_sending_their_part() {
        for lag in 0..3 {
            let [(mut one, of_one), (mut other, of_other)] = two_ends(lag);
            let snapshot = one.begin_snapshot();
            one.end_generation();
            // Its memory is short at once.
            one.begin_generation();
            let mut sent = 0;
            while may_send(&mut one) {
                add(&mut one, of_one, sent..sent + 20);
                sent += 20;
                assert!(sent < 10_000, "what is held back has a limit");
            }
            other.begin_snapshot();
            for part in 0..100 {
                assert!(may_send(&mut other), "it waits for the one that waits for it, after {part} parts");
                add(&mut other, of_other, part * 20..part * 20 + 20);
            }
            other.end_generation();
            assert!(all_rows(snapshot.as_ref(), "one").expect("it is complete").is_empty());
            assert_eq!(ids(&all_rows(snapshot.as_ref(), "other").expect("it is complete")), (0..2_000).collect());
            assert!(may_send(&mut one), "what was held back is let go");
        }
    }

    #[test]
    fn a_snapshot_that_the_next_one_overtakes_says_so_and_one_that_is_given_up_does_not() {
        let [(mut one, of_one), (mut other, of_other)] = two_ends(0);
        let first = one.begin_snapshot();
        other.begin_snapshot();
        add(&mut one, of_one, 0..10);
        one.end_generation();
        let second = one.begin_snapshot();
        let why = first.files().expect_err("not all parts came");
        assert!(matches!(why, ColdError::Overtaken { .. }), "{why}");
        assert!(matches!(all_rows(first.as_ref(), "one"), Err(ColdError::Overtaken { .. })));
        // The other end goes on with its part of the first, and then has the barrier of the second.
        add(&mut other, of_other, 0..5);
        other.end_generation();
        assert!(Arc::ptr_eq(&second, &other.begin_snapshot()));
        add(&mut other, of_other, 5..7);
        other.end_generation();
        one.end_generation();
        assert_eq!(ids(&all_rows(second.as_ref(), "one").expect("it is complete")), (0..10).collect());
        assert_eq!(ids(&all_rows(second.as_ref(), "other").expect("it is complete")), (0..7).collect());
        let third = one.begin_snapshot();
        other.begin_snapshot();
        other.abandon_snapshot();
        assert!(matches!(third.files(), Err(ColdError::Abandoned { .. })));
    }

    #[test]
    fn what_is_held_back_is_not_waited_for() {
        let [(mut one, of_one), (mut other, _)] = two_ends(1);
        one.begin_snapshot();
        one.end_generation();
        add(&mut one, of_one, 0..10);
        let seal = one.store().seal();
        one.store().wait_written(seal).expect("no errors");
        assert!((0..9).all(|_| !one.store().is_written(seal).expect("no errors")), "it is behind the snapshot");
        one.wait_for_room().expect("no errors");
        other.begin_snapshot();
        other.end_generation();
        one.store().wait_written(seal).expect("no errors");
        assert!(one.store().is_written(seal).expect("no errors"));
    }

    #[test]
    #[should_panic(expected = "nothing is held back behind a snapshot")]
    fn who_relies_on_what_is_held_back_is_stopped() {
        let [(mut one, of_one), _other] = two_ends(0);
        one.begin_snapshot();
        one.end_generation();
        add(&mut one, of_one, 0..10);
        one.wait().expect("no errors");
    }

    fn ids(batches: &[RecordBatch]) -> BTreeSet<i64> {
        use arrow::array::AsArray;
        use arrow::datatypes::Int64Type;
        batches.iter().flat_map(|rows| rows.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
    }

    proptest! {
        /// Two ends, each with a state of its own in which keys are only ever added: a snapshot has of each what it had sent when its
        /// part was complete, and nothing of what it sent later.
        #[test]
        fn a_snapshot_has_of_each_end_what_it_had(deeds in prop::collection::vec((0usize..2, deed()), 1..80), lag in 0u32..3) {
            let stores = stores(lag);
            let names = ["one", "other"];
            let (_, schema) = states().swap_remove(0);
            let mut ends: Vec<Box<dyn ColdStore>> =
                (0..2).map(|_| stores.open(&Uid::new("counts")).expect("no errors").store).collect();
            let of: Vec<ColdStateId> =
                ends.iter_mut().zip(names).map(|(end, name)| end.open_state(name, &schema, 0).expect("no errors")).collect();
            let mut sent = [BTreeSet::new(), BTreeSet::new()];
            // The checkpoint of each end, as a task has them: every end hears of each barrier, the first one first.
            let (mut parts, mut begun) = ([None, None], [0u32, 0]);
            let mut taken: Vec<Taken> = Vec::new();
            let mut seals: Vec<(usize, Seal)> = Vec::new();
            for (at, deed) in deeds {
                let end = &mut ends[at];
                match deed {
                    Deed::Change(key) => {
                        let id: ArrayRef = Arc::new(Int64Array::from(vec![key]));
                        let columns = vec![Arc::clone(&id), id, new_null_array(&DataType::Utf8, 1)];
                        let rows = RecordBatch::try_new(Arc::clone(end.layout(of[at]).columns()), columns).expect("its columns");
                        end.change(of[at], Change { deletes: None, upserts: Some(rows) }).expect("no errors");
                        sent[at].insert(key);
                    }
                    Deed::Seal => seals.push((at, end.seal())),
                    Deed::Begin if at == 0 && begun[0] == begun[1] || at == 1 && begun[1] < begun[0] => {
                        begun[at] += 1;
                        let snapshot = end.begin_snapshot();
                        let known = taken.iter().position(|known| Arc::ptr_eq(&known.snapshot, &snapshot));
                        parts[at] = Some(known.unwrap_or_else(|| {
                            taken.push(Taken { snapshot, had: [None, None] });
                            taken.len() - 1
                        }));
                    }
                    Deed::Begin => {}
                    Deed::Complete => if let Some(snapshot) = parts[at].take() {
                        end.complete_snapshot();
                        taken[snapshot].had[at] = Some(sent[at].clone());
                    },
                    Deed::Abandon => if parts[at].take().is_some() {
                        end.abandon_snapshot();
                    },
                }
            }
            for Taken { snapshot, had } in &taken {
                let [Some(one), Some(other)] = had else { continue };
                // One that was given up by either end has nothing.
                let Ok(found) = all_rows(snapshot.as_ref(), "one") else { continue };
                prop_assert_eq!(&ids(&found), one);
                prop_assert_eq!(&ids(&all_rows(snapshot.as_ref(), "other").expect("no errors")), other);
            }
            // What is held is let go when the parts that are missing come.
            if begun[1] < begun[0] {
                ends[1].begin_snapshot();
            }
            ends.iter_mut().for_each(|end| end.complete_snapshot());
            for (at, seal) in seals {
                prop_assert!((0..9).any(|_| ends[at].is_written(seal).expect("no errors")), "a seal is written in the end");
            }
            let everything = Scope { groups: KeyGroupRange::all(MAX_PARALLELISM), within: Within::Any };
            for ((end, of), sent) in ends.iter_mut().zip(of).zip(&sent) {
                let seal = end.seal();
                end.wait_written(seal).expect("no errors");
                prop_assert!(end.is_written(seal).expect("no errors"));
                let scan = end.scan(of, everything).expect("no errors");
                let found: Vec<RecordBatch> = scan.map(|rows| rows.expect("rows")).collect();
                prop_assert_eq!(&ids(&found), sent);
            }
        }
    }
}
