//! One state of each type, with and without windows and time to live, and random things to do with them.

use std::time::Duration;

use crate::descriptor::{
    AggregateFunction, AggregatingState, AggregatingStateDescriptor, BindError, Binder, FoldingState, FoldingStateDescriptor,
    ListState, ListStateDescriptor, MapState, MapStateDescriptor, ReducingState, ReducingStateDescriptor, Ttl, ValueState,
    ValueStateDescriptor,
};
use crate::keyed::{Clock, KeyedState, Namespace, StateResult};

use super::dice::Dice;
use super::model::{Address, Dump, Model};

/// The handles.
#[derive(Debug, Clone, Copy)]
pub(super) struct States {
    count: ValueState<i64>,
    name: ValueState<String>,
    fresh: ValueState<i64>,
    words: ListState<String>,
    recent: ListState<i64>,
    seen: ListState<i64>,
    prices: MapState<String, i64>,
    visits: MapState<i64, String>,
    sum: ReducingState<i64>,
    mean: AggregatingState<Mean>,
    log: FoldingState<i64, String>,
}

/// What a value reads as where none was set.
const DEFAULT_COUNT: i64 = 7;

/// How long the entries of a state live.
pub(super) fn ttl_of(state: &str) -> Option<Ttl> {
    match state {
        "fresh" => Some(Ttl::processing(Duration::from_millis(10)).on_read()),
        "recent" => Some(Ttl::processing(Duration::from_millis(15))),
        "seen" => Some(Ttl::event(Duration::from_millis(20)).on_read()),
        "visits" => Some(Ttl::event(Duration::from_millis(12)).on_read()),
        _ => None,
    }
}

/// Sum and number.
struct Mean;

impl AggregateFunction for Mean {
    type Input = i64;
    type Accumulator = (i64, i64);
    type Output = (i64, i64);

    fn create(&self) -> (i64, i64) {
        (0, 0)
    }

    fn add(&self, accumulator: &mut (i64, i64), input: i64) {
        *accumulator = (accumulator.0 + input, accumulator.1 + 1);
    }

    fn merge(&self, accumulator: &mut (i64, i64), other: (i64, i64)) {
        *accumulator = (accumulator.0 + other.0, accumulator.1 + other.1);
    }

    fn read(&self, accumulator: &(i64, i64)) -> (i64, i64) {
        *accumulator
    }
}

impl States {
    pub(super) fn bind(binder: &mut dyn Binder) -> Result<Self, BindError> {
        let ttl = |state| ttl_of(state).expect("these have one");
        Ok(Self {
            count: ValueStateDescriptor::new("count").with_default(DEFAULT_COUNT).bind(binder)?,
            name: ValueStateDescriptor::new("name").per_window().bind(binder)?,
            fresh: ValueStateDescriptor::new("fresh").with_ttl(ttl("fresh")).bind(binder)?,
            words: ListStateDescriptor::new("words").bind(binder)?,
            recent: ListStateDescriptor::new("recent").with_ttl(ttl("recent")).bind(binder)?,
            seen: ListStateDescriptor::new("seen").with_ttl(ttl("seen")).per_window().bind(binder)?,
            prices: MapStateDescriptor::new("prices").bind(binder)?,
            visits: MapStateDescriptor::new("visits").with_ttl(ttl("visits")).per_window().bind(binder)?,
            sum: ReducingStateDescriptor::new("sum", |sum: &mut i64, more| *sum += more).per_window().bind(binder)?,
            mean: AggregatingStateDescriptor::new("mean", Mean).per_window().bind(binder)?,
            log: FoldingStateDescriptor::new("log", "log".to_owned(), |log: &mut String, number: i64| {
                log.push_str(&format!(" {number}"));
            })
            .bind(binder)?,
        })
    }

    /// Does something random with one of the states, in both worlds, and compares what both answer.
    pub(super) fn act(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        match dice.below(11) {
            0 => self.act_on_count(dice, world),
            1 => self.act_on_name(dice, world),
            2 => self.act_on_fresh(dice, world),
            3 => act_on_list(dice, world, "words", self.words, |number| format!("word number {number} of a long text")),
            4 => act_on_list(dice, world, "recent", self.recent, |number| number),
            5 => act_on_list(dice, world, "seen", self.seen, |number| number),
            6 => act_on_map(dice, world, "prices", self.prices, |number| format!("item {number}"), |number| number),
            7 => act_on_map(dice, world, "visits", self.visits, |number| number, |number| format!("visit {number}")),
            8 => self.act_on_sum(dice, world),
            9 => self.act_on_mean(dice, world),
            _ => self.act_on_log(dice, world),
        }
    }

    fn act_on_count(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let (address, state) = (world.address("count", None), &mut *world.state);
        let expected = world.model.read(&address, None, &world.clock).pop().unwrap_or(DEFAULT_COUNT.to_string());
        assert_eq!(self.count.get(state)?.map(i64::to_string), Some(expected.clone()));
        match dice.below(4) {
            0 => {
                self.count.clear(state)?;
                world.model.remove(&address);
            }
            1 => {
                let next: i64 = expected.parse::<i64>().expect("a number") + 1;
                self.count.update_with(state, |count| *count = count.map(|count| count + 1))?;
                world.model.put(&address, None, &world.clock, next.to_string());
            }
            2 => {
                self.count.update_with(state, |count| *count = None)?;
                world.model.remove(&address);
            }
            _ => {
                let number = dice.number();
                self.count.set(state, number)?;
                world.model.put(&address, None, &world.clock, number.to_string());
            }
        }
        Ok(())
    }

    fn act_on_name(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let namespace = world.enter_window(dice);
        let (address, state) = (world.address("name", Some(namespace)), &mut *world.state);
        let expected = world.model.read(&address, None, &world.clock).pop();
        assert_eq!(self.name.get(state)?, expected.as_ref());
        if dice.below(3) == 0 {
            self.name.clear(state)?;
            world.model.remove(&address);
        } else {
            let name = format!("name {}", dice.number());
            self.name.set(state, name.clone())?;
            world.model.put(&address, None, &world.clock, name);
        }
        Ok(())
    }

    fn act_on_fresh(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let (address, state, ttl) = (world.address("fresh", None), &mut *world.state, ttl_of("fresh"));
        if dice.below(2) == 0 {
            let expected = world.model.read(&address, ttl, &world.clock).pop();
            assert_eq!(self.fresh.get(state)?.map(i64::to_string), expected);
            return Ok(());
        }
        let number = dice.number();
        self.fresh.set(state, number)?;
        world.model.put(&address, ttl, &world.clock, number.to_string());
        Ok(())
    }

    fn act_on_sum(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let namespace = world.enter_window(dice);
        let (address, state) = (world.address("sum", Some(namespace)), &mut *world.state);
        let expected = world.model.read(&address, None, &world.clock).pop();
        assert_eq!(self.sum.get(state)?.map(i64::to_string), expected);
        let number = |text: String| text.parse::<i64>().expect("a number");
        match dice.below(5) {
            0 => {
                self.sum.clear(state)?;
                world.model.remove(&address);
            }
            1 => {
                let from = world.windows;
                self.sum.merge_namespaces(state, namespace, &from)?;
                let others = from.iter().filter(|other| **other != namespace);
                let mut all = expected.map(number);
                for other in others {
                    let other = world.address("sum", Some(*other));
                    if let Some(more) = world.model.read(&other, None, &world.clock).pop().map(number) {
                        all = Some(all.unwrap_or(0) + more);
                    }
                    world.model.remove(&other);
                }
                all.into_iter().for_each(|all| world.model.put(&address, None, &world.clock, all.to_string()));
            }
            _ => {
                let more = dice.number();
                self.sum.add(state, more)?;
                world.model.put(&address, None, &world.clock, (expected.map_or(0, number) + more).to_string());
            }
        }
        Ok(())
    }

    fn act_on_mean(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let namespace = world.enter_window(dice);
        let (address, state) = (world.address("mean", Some(namespace)), &mut *world.state);
        let kept = self.mean.get(state)?;
        let expected = world.model.read(&address, None, &world.clock).pop();
        assert_eq!(kept.map(|(sum, number)| format!("{sum}|{number}")), expected);
        match dice.below(5) {
            0 => {
                self.mean.clear(state)?;
                world.model.remove(&address);
            }
            1 => {
                let (from, mut all) = (world.windows, kept);
                self.mean.merge_namespaces(state, namespace, &from)?;
                for other in from.iter().filter(|other| **other != namespace) {
                    let other = world.address("mean", Some(*other));
                    if let Some(text) = world.model.read(&other, None, &world.clock).pop() {
                        let (sum, number) = text.split_once('|').expect("two numbers");
                        let number_of = |text: &str| text.parse::<i64>().expect("a number");
                        let before = all.unwrap_or_default();
                        all = Some((before.0 + number_of(sum), before.1 + number_of(number)));
                    }
                    world.model.remove(&other);
                }
                all.iter().for_each(|(sum, number)| world.model.put(&address, None, &world.clock, format!("{sum}|{number}")));
            }
            _ => {
                let (more, (sum, number)) = (dice.number(), kept.unwrap_or_default());
                self.mean.add(state, more)?;
                world.model.put(&address, None, &world.clock, format!("{}|{}", sum + more, number + 1));
            }
        }
        Ok(())
    }

    fn act_on_log(&self, dice: &mut Dice, world: &mut World<'_>) -> StateResult<()> {
        let (address, state) = (world.address("log", None), &mut *world.state);
        let expected = world.model.read(&address, None, &world.clock).pop();
        assert_eq!(self.log.get(state)?, expected.as_ref());
        if dice.below(6) == 0 {
            self.log.clear(state)?;
            world.model.remove(&address);
        } else {
            let number = dice.number();
            self.log.add(state, number)?;
            let log = format!("{} {number}", expected.unwrap_or("log".into()));
            world.model.put(&address, None, &world.clock, log);
        }
        Ok(())
    }

    /// Everything that has not expired, found by going over all keys.
    pub(super) fn dump(&self, state: &mut KeyedState, dump: &mut Dump) -> StateResult<()> {
        let mut found: Vec<Found> = Vec::new();
        let text = |value: &i64| vec![value.to_string()];
        self.count.for_each_key(state, |key, at, value| found.push(("count", key, at, String::new(), text(value))))?;
        self.name.for_each_key(state, |key, at, value| found.push(("name", key, at, String::new(), vec![value.clone()])))?;
        self.fresh.for_each_key(state, |key, at, value| found.push(("fresh", key, at, String::new(), text(value))))?;
        self.words.for_each_key(state, |key, at, items| found.push(("words", key, at, String::new(), items.to_vec())))?;
        for (name, list) in [("recent", self.recent), ("seen", self.seen)] {
            list.for_each_key(state, |key, at, items| {
                found.push((name, key, at, String::new(), items.iter().map(i64::to_string).collect()));
            })?;
        }
        self.prices.for_each_key(state, |key, at, item, value| found.push(("prices", key, at, item.clone(), text(value))))?;
        self.visits.for_each_key(state, |key, at, visit, value| {
            found.push(("visits", key, at, visit.to_string(), vec![value.clone()]));
        })?;
        self.sum.for_each_key(state, |key, at, value| found.push(("sum", key, at, String::new(), text(value))))?;
        self.mean.for_each_key(state, |key, at, (sum, number)| {
            found.push(("mean", key, at, String::new(), vec![format!("{sum}|{number}")]));
        })?;
        self.log.for_each_key(state, |key, at, value| found.push(("log", key, at, String::new(), vec![value.clone()])))?;
        for (name, key, namespace, map_key, items) in found {
            let address = Address { state: name, key: super::key_of(state, key), namespace, map_key };
            assert!(dump.insert(address, items).is_none(), "an entry is in one place");
        }
        Ok(())
    }
}

/// An entry that a dump has found: state, key, window, map key, items.
type Found = (&'static str, u32, Option<Namespace>, String, Vec<String>);

/// Both worlds, at one key.
pub(super) struct World<'a> {
    pub(super) state: &'a mut KeyedState,
    pub(super) model: &'a mut Model,
    pub(super) clock: Clock,
    pub(super) windows: [Namespace; 3],
    pub(super) key: Option<i64>,
}

impl World<'_> {
    fn address(&self, state: &'static str, namespace: Option<Namespace>) -> Address {
        Address { state, key: self.key, namespace, map_key: String::new() }
    }

    fn enter_window(&mut self, dice: &mut Dice) -> Namespace {
        let namespace = self.windows[dice.below(3)];
        self.state.set_namespace(Some(namespace));
        namespace
    }
}

fn act_on_list<T: crate::types::StateType + ToString>(
    dice: &mut Dice,
    world: &mut World<'_>,
    name: &'static str,
    list: ListState<T>,
    item: impl Fn(i64) -> T,
) -> StateResult<()> {
    let namespace = (name == "seen").then(|| world.enter_window(dice));
    let (address, state, ttl) = (world.address(name, namespace), &mut *world.state, ttl_of(name));
    match dice.below(8) {
        0 => {
            list.clear(state)?;
            world.model.remove(&address);
        }
        1 => {
            let expected = world.model.read(&address, ttl, &world.clock);
            assert_eq!(list.iter(state)?.map(T::to_string).collect::<Vec<_>>(), expected);
        }
        2 => {
            let numbers: Vec<i64> = (0..dice.below(4)).map(|_| dice.number()).collect();
            list.update(state, numbers.iter().map(|number| item(*number)))?;
            world.model.remove(&address);
            numbers.iter().for_each(|number| world.model.append(&address, ttl, &world.clock, item(*number).to_string()));
        }
        3 if namespace.is_some() => {
            let (into, from) = (namespace.expect("it has one"), world.windows);
            list.merge_namespaces(state, into, &from)?;
            for other in from.into_iter().filter(|other| *other != into) {
                let other = world.address(name, Some(other));
                let items = world.model.read(&other, ttl, &world.clock);
                world.model.remove(&other);
                items.into_iter().for_each(|item| world.model.append(&address, ttl, &world.clock, item));
            }
        }
        _ => {
            let item = item(dice.number());
            world.model.append(&address, ttl, &world.clock, item.to_string());
            list.add(state, item)?;
        }
    }
    Ok(())
}

fn act_on_map<K, V>(
    dice: &mut Dice,
    world: &mut World<'_>,
    name: &'static str,
    map: MapState<K, V>,
    key: impl Fn(i64) -> K,
    value: impl Fn(i64) -> V,
) -> StateResult<()>
where
    K: crate::types::StateType + std::hash::Hash + Eq + ToString,
    V: crate::types::StateType + ToString,
{
    let namespace = (name == "visits").then(|| world.enter_window(dice));
    let (key, ttl) = (key(dice.below(8) as i64), ttl_of(name));
    let all = world.address(name, namespace);
    let (address, state) = (Address { map_key: key.to_string(), ..all }, &mut *world.state);
    match dice.below(10) {
        0 => {
            map.clear(state)?;
            world.model.clear(&all);
        }
        1 | 2 => {
            map.remove(state, &key)?;
            world.model.remove(&address);
        }
        3 => {
            let mut expected = Vec::new();
            for number in world.model.dump(ttl_of, &world.clock).into_keys() {
                if (Address { map_key: String::new(), ..number }) == all {
                    let item = world.model.read(&number, ttl, &world.clock).pop().expect("it has not expired");
                    expected.push((number.map_key, item));
                }
            }
            let mut found: Vec<_> = map.iter(state)?.map(|(key, value)| (key.to_string(), value.to_string())).collect();
            found.sort();
            assert_eq!(found, expected);
        }
        4 | 5 => {
            let expected = world.model.read(&address, ttl, &world.clock).pop();
            assert_eq!(map.get(state, &key)?.map(V::to_string), expected);
            assert_eq!(map.contains(state, &key)?, expected.is_some());
        }
        _ => {
            let value = value(dice.number());
            map.put(state, &key, value.clone())?;
            world.model.put(&address, ttl, &world.clock, value.to_string());
        }
    }
    Ok(())
}
