//! Golden jobs: each of `taskmanager/golden/*.yaml` gives what stands in its script, run straight, through a checkpoint after every
//! moment, and from each of these checkpoints on, at other parallelisms.
//!
//! A job is a document as users write it, whose sources are `rows` and whose sinks are `lines`; what comes in and out is beside it
//! in NAME.txt, as `script.rs` says. `LEVADA_BLESS=1` writes what came out into the scripts, to be read before it is kept.
//! Rows of one moment come in any order; a row at another moment than the one where it stands is a failure. After a restore that
//! holds of jobs with one source only: the time of several is that of the slowest, and each begins anew.

mod covered;
mod ends;
mod functions;
mod run;
mod script;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use levada_common::ids::CheckpointId;
use levada_common::plan::{BackendKind, Plan, SinkSpec};
use levada_sql::{PlanOverrides, plan_document};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::shipping::{Place, Shipping, Snapshot};
use crate::testing::attempt;
use run::Run;
use script::{Event, Script};

const WIDTHS: [u32; 3] = [1, 2, 3];

/// A job of the folder.
struct Job {
    name: String,
    document: String,
    script: Script,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

/// All jobs, or the one that `LEVADA_GOLDEN` names.
fn jobs() -> Vec<Job> {
    let wanted = std::env::var("LEVADA_GOLDEN").ok();
    let entries = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut documents: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|end| end == "yaml")).collect();
    documents.sort();
    let job = |path: PathBuf| Job {
        name: path.file_stem().expect("a file has a name").to_string_lossy().into_owned(),
        document: std::fs::read_to_string(&path).unwrap(),
        script: Script::read(&path.with_extension("txt")),
    };
    let jobs: Vec<Job> =
        documents.into_iter().map(job).filter(|job| wanted.as_ref().is_none_or(|name| *name == job.name)).collect();
    assert!(!jobs.is_empty(), "no job in {} is called {wanted:?}", folder().display());
    jobs
}

impl Job {
    fn plan(&self, parallelism: u32, backend: BackendKind) -> Arc<Plan> {
        let overrides = PlanOverrides { parallelism: Some(parallelism), ..PlanOverrides::default() };
        let (_, mut plan) = plan_document(&self.document, &ends::declarations(), &overrides)
            .unwrap_or_else(|errors| panic!("{}: {errors}", self.name));
        plan.settings.backend = backend;
        // A source is quiet as soon as it has nothing, and says what time it is: the clock stands still between two moments.
        plan.settings.buffer_timeout_ms = 0;
        Arc::new(plan)
    }

    /// Each sink with the columns that it takes.
    fn sinks(&self) -> Vec<String> {
        let plan = self.plan(1, BackendKind::Memory);
        let sinks = plan.vertices.iter().filter_map(|vertex| vertex.sink.as_ref());
        let text = |sink: &SinkSpec| {
            let columns = sink.input.columns.iter().map(|column| column.name.as_str());
            let op = sink.input.changelog.then_some("_op");
            std::iter::once(sink.uid.as_str()).chain(op).chain(columns).collect::<Vec<_>>().join(" ")
        };
        sinks.map(text).collect()
    }

    /// What comes out of a run that nothing interrupts.
    async fn straight(&self, parallelism: u32) -> Vec<Vec<String>> {
        let shipping = Shipping::new(Place::Files).await;
        let plan = self.plan(parallelism, BackendKind::Memory);
        let mut run = Run::start(&shipping, &plan, attempt(1), None, 0).await;
        self.script.moments.iter().map(|moment| run.happen(&moment.event)).collect()
    }

    /// Whether what came out from a moment on is what stands there.
    fn compare(&self, first: usize, given: &[Vec<String>], what: &str) -> Result<(), String> {
        let difference = self.script.difference(first, given);
        difference.map_or(Ok(()), |difference| Err(format!("golden job \"{}\", {what}, {difference}", self.name)))
    }

    /// What processing time is after the moments before this one.
    fn clock_ms(&self, moment: usize) -> u64 {
        let mut clocks = self.script.moments[..moment].iter().filter_map(|moment| match moment.event {
            Event::Clock(ms) => Some(ms),
            Event::Rows { .. } | Event::End(_) => None,
        });
        clocks.next_back().unwrap_or(0)
    }

    /// Goes on from a snapshot that was taken before this moment.
    async fn go_on(
        &self,
        shipping: &Shipping,
        plan: &Arc<Plan>,
        (number, snapshot): (u32, &Snapshot),
        moment: usize,
        what: &str,
    ) -> Result<(), String> {
        let mut run = Run::start(shipping, plan, attempt(number), Some(snapshot), self.clock_ms(moment)).await;
        let (past, future) = self.script.moments.split_at(moment);
        let mut given = Vec::new();
        for ended in past.iter().filter(|moment| matches!(moment.event, Event::End(_))) {
            given.extend(run.happen(&ended.event));
        }
        assert_eq!(given, [""; 0], "golden job \"{}\", {what}: what has ended gives nothing anew", self.name);
        for source in plan.vertices.iter().filter_map(|vertex| vertex.source.as_ref()) {
            let is_of = |event: &Event| matches!(event, Event::Rows { source: of, .. } if of == source.uid.as_str());
            let read = past.iter().filter(|moment| is_of(&moment.event)).count() as u64;
            assert_eq!(run.read_before(source.uid.as_str()), read, "{}, {what}: position of {}", self.name, source.uid);
        }
        let given: Vec<Vec<String>> = future.iter().map(|moment| run.happen(&moment.event)).collect();
        if plan.vertices.iter().filter(|vertex| vertex.source.is_some()).count() == 1 {
            return self.compare(moment, &given, what);
        }
        let (expected, found) = (sorted(future.iter().flat_map(|moment| &moment.given)), sorted(given.iter().flatten()));
        if found == expected {
            return Ok(());
        }
        let only = |these: &[&String], others: &[&String]| {
            let only = these.iter().filter(|line| others.binary_search(line).is_err());
            only.map(|line| format!("\n  {line}")).collect::<String>()
        };
        let (missing, more) = (only(&expected, &found), only(&found, &expected));
        Err(format!(
            "golden job \"{}\", {what}, gives {} rows instead of {}; missing{missing}\nmore{more}",
            self.name,
            found.len(),
            expected.len()
        ))
    }

    /// A run that takes a checkpoint after each moment of `cuts`, which goes out while the next one happens; and from each of them
    /// one more run, at the width that is named with it.
    async fn interrupted(&self, backend: BackendKind, place: Place, width: u32, cuts: &[(usize, u32)]) -> Result<(), String> {
        let mut shipping = Shipping::new(place).await;
        let plan = self.plan(width, backend);
        let mut run = Run::start(&shipping, &plan, attempt(1), None, 0).await;
        let (mut given, mut snapshots, mut under_way) = (Vec::new(), Vec::new(), None);
        for (place, moment) in self.script.moments.iter().enumerate() {
            given.push(run.happen(&moment.event));
            if let Some(under_way) = under_way.take() {
                snapshots.push(run.complete(&mut shipping, under_way).await);
            }
            if cuts.iter().any(|(cut, _)| *cut == place) {
                under_way = Some(run.barrier(&shipping, CheckpointId(place as u64 + 1)));
            }
        }
        let of = format!("{} at {place:?}", backend.name());
        self.compare(0, &given, &format!("{width} wide on {of}, with checkpoints"))?;
        drop(run);
        for (number, ((cut, to), snapshot)) in cuts.iter().zip(&snapshots).enumerate() {
            let what = format!("from {width} to {to} wide on {of}, restored behind \"{}\"", self.script.moments[*cut].line());
            let plan = self.plan(*to, backend);
            self.go_on(&shipping, &plan, (number as u32 + 2, snapshot), cut + 1, &what).await?;
        }
        Ok(())
    }
}

fn sorted<'a>(lines: impl Iterator<Item = &'a String>) -> Vec<&'a String> {
    let mut lines: Vec<&String> = lines.collect();
    lines.sort_unstable();
    lines
}

/// Panics with the first failure of each job that has one.
fn report(failures: Vec<String>) {
    assert!(failures.is_empty(), "{} golden jobs fail:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_jobs_give_what_is_written() {
    let mut failures = Vec::new();
    for job in jobs() {
        let given = job.straight(1).await;
        if std::env::var_os("LEVADA_BLESS").is_some() {
            job.script.bless(&job.sinks(), &given);
            continue;
        }
        failures.extend(job.compare(0, &given, "straight").err());
    }
    report(failures);
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_jobs_give_the_same_at_other_parallelisms() {
    let mut failures = Vec::new();
    for job in jobs() {
        for width in [2, 3] {
            failures.extend(job.compare(0, &job.straight(width).await, &format!("{width} wide")).err());
        }
    }
    report(failures);
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_jobs_go_on_from_memory_behind_every_moment() {
    let mut failures = Vec::new();
    for job in jobs() {
        for (turn, width) in WIDTHS.into_iter().enumerate() {
            // A third of the moments from each width; to each width as often.
            let cuts = job.script.cuts().into_iter().enumerate().filter(|(number, _)| number % 3 == turn);
            let cuts: Vec<_> = cuts.map(|(number, cut)| (cut, WIDTHS[number / 3 % 3])).collect();
            failures.extend(job.interrupted(BackendKind::Memory, Place::Files, width, &cuts).await.err());
        }
    }
    report(failures);
}

/// A few cuts of each job by chance.
async fn some_cuts(backend: BackendKind, place: Place, seed: u64) {
    println!("seed {seed:#x}");
    let (mut rng, mut failures) = (StdRng::seed_from_u64(seed), Vec::new());
    for job in jobs() {
        let all = job.script.cuts();
        let mut cuts: Vec<_> = (0..3).map(|_| all[rng.random_range(0..all.len())]).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let cuts: Vec<_> = cuts.into_iter().map(|cut| (cut, WIDTHS[rng.random_range(0..3)])).collect();
        failures.extend(job.interrupted(backend, place, WIDTHS[rng.random_range(0..3)], &cuts).await.err());
    }
    report(failures);
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_jobs_go_on_from_databases() {
    some_cuts(BackendKind::Rocksdb, Place::Files, 0x601D).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_jobs_go_on_from_savepoints() {
    some_cuts(BackendKind::Rocksdb, Place::Savepoint, 0x601E).await;
}
