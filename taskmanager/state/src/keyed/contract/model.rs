//! Keyed state as a plain map: slow, obvious, and without snapshots, since a copy is one.

use std::collections::BTreeMap;

use crate::descriptor::{Ttl, TtlUpdate};
use crate::keyed::{Clock, Namespace};

/// Where a value is, and of which state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) state: &'static str,
    pub(super) key: Option<i64>,
    pub(super) namespace: Option<Namespace>,
    pub(super) map_key: String,
}

/// The items of an entry as text, with the time of their last touch.
#[derive(Debug, Clone, Default, PartialEq)]
struct Entry {
    items: Vec<(String, i64)>,
}

/// What is there and has not expired.
pub(super) type Dump = BTreeMap<Address, Vec<String>>;

/// All states of all subtasks.
#[derive(Debug, Clone, Default)]
pub(super) struct Model {
    entries: BTreeMap<Address, Entry>,
}

impl Model {
    /// What a read sees; it touches what it sees where the TTL says so.
    pub(super) fn read(&mut self, address: &Address, ttl: Option<Ttl>, clock: &Clock) -> Vec<String> {
        let Some(entry) = self.entries.get_mut(address) else { return Vec::new() };
        let living = entry.living(ttl, clock);
        if let Some(ttl) = ttl.filter(|ttl| ttl.update == TtlUpdate::OnReadAndWrite && living < entry.items.len()) {
            let stamp = Ttl::touched(entry.stamp(), clock.stamp(ttl.time));
            entry.items[living..].iter_mut().for_each(|(_, touched)| *touched = stamp);
        }
        entry.items[living..].iter().map(|(item, _)| item.clone()).collect()
    }

    /// Puts one item in the place of all.
    pub(super) fn put(&mut self, address: &Address, ttl: Option<Ttl>, clock: &Clock, item: String) {
        let entry = self.entries.entry(address.clone()).or_default();
        let stamp = ttl.map_or(0, |ttl| Ttl::touched(entry.stamp(), clock.stamp(ttl.time)));
        entry.items = vec![(item, stamp)];
    }

    /// Adds an item behind those that have not expired.
    pub(super) fn append(&mut self, address: &Address, ttl: Option<Ttl>, clock: &Clock, item: String) {
        let entry = self.entries.entry(address.clone()).or_default();
        let living = entry.living(ttl, clock);
        let stamp = ttl.map_or(0, |ttl| Ttl::touched(entry.stamp(), clock.stamp(ttl.time)));
        entry.items.drain(..living);
        entry.items.push((item, stamp));
    }

    /// Forgets an entry.
    pub(super) fn remove(&mut self, address: &Address) {
        self.entries.remove(address);
    }

    /// Forgets the entries with any map key.
    pub(super) fn clear(&mut self, address: &Address) {
        self.entries.retain(|at, _| Address { map_key: String::new(), ..*at } != *address);
    }

    /// What is there of all states; `ttl_of` says how long each lives.
    pub(super) fn dump(&self, ttl_of: impl Fn(&str) -> Option<Ttl>, clock: &Clock) -> Dump {
        let living = |(address, entry): (&Address, &Entry)| {
            let first = entry.living(ttl_of(address.state), clock);
            let items: Vec<String> = entry.items[first..].iter().map(|(item, _)| item.clone()).collect();
            (!items.is_empty()).then(|| (address.clone(), items))
        };
        self.entries.iter().filter_map(living).collect()
    }
}

impl Entry {
    /// The first item that has not expired: those behind it were touched later.
    fn living(&self, ttl: Option<Ttl>, clock: &Clock) -> usize {
        let Some(ttl) = ttl else { return 0 };
        let expired = |(_, touched): &(String, i64)| ttl.is_expired(*touched, clock.now(ttl.time));
        self.items.iter().take_while(|item| expired(item)).count()
    }

    fn stamp(&self) -> Option<i64> {
        self.items.last().map(|(_, touched)| *touched)
    }
}
