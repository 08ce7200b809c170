//! The table of jobs: those that run, those that ended (the newest are kept), and the requests that made them.
//!
//! Pure. Invariant: every request id that is kept belongs to a job that is kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use levada_common::ids::JobId;
use levada_proto::v1;

use super::JobView;

/// Jobs that ended whose tasks are kept, too: a wide job has many thousands.
const ENDED_WITH_TASKS_MAX: usize = 20;

/// One job.
#[derive(Debug)]
struct Entry {
    name: String,
    request_id: String,
    view: JobView,
}

/// All jobs; ids sort by time.
#[derive(Debug)]
pub(crate) struct Jobs {
    entries: BTreeMap<JobId, Entry>,
    requests: HashMap<String, JobId>,
    /// Oldest end first.
    ended: VecDeque<JobId>,
    ended_max: usize,
}

/// Why a job is not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotFound {
    #[error("no job has the id or name \"{0}\"")]
    None(String),
    #[error("{count} jobs have the name \"{name}\"; name one by its id: {ids}")]
    Several { name: String, count: usize, ids: String },
}

impl Jobs {
    /// No jobs; `ended_max` that ended are kept.
    pub(crate) fn new(ended_max: usize) -> Self {
        Self { entries: BTreeMap::new(), requests: HashMap::new(), ended: VecDeque::new(), ended_max }
    }

    /// Jobs that have not ended.
    pub(crate) fn running(&self) -> usize {
        self.entries.len() - self.ended.len()
    }

    /// The job that this request made.
    pub(crate) fn of_request(&self, request_id: &str) -> Option<JobId> {
        self.requests.get(request_id).copied()
    }

    /// A job begins; an empty `request_id` is none.
    pub(crate) fn insert(&mut self, job: JobId, name: String, request_id: String, view: JobView) {
        if !request_id.is_empty() {
            self.requests.insert(request_id.clone(), job);
        }
        self.entries.insert(job, Entry { name, request_id, view });
    }

    /// A job has ended; the one that ended longest ago is forgotten where there are too many.
    pub(crate) fn end(&mut self, job: JobId, status: Arc<v1::JobStatus>) {
        let Some(entry) = self.entries.get_mut(&job) else { return };
        entry.view = JobView::Ended(status);
        self.ended.push_back(job);
        self.drop_tasks();
        if self.ended.len() > self.ended_max
            && let Some(oldest) = self.ended.pop_front()
            && let Some(entry) = self.entries.remove(&oldest)
        {
            self.requests.remove(&entry.request_id);
        }
    }

    /// Drops the tasks of the newest job that is too old for them; those before it have none any more.
    fn drop_tasks(&mut self) {
        let oldest = self.ended.len().checked_sub(ENDED_WITH_TASKS_MAX + 1).and_then(|at| self.ended.get(at));
        if let Some(entry) = oldest.and_then(|job| self.entries.get_mut(job))
            && let JobView::Ended(status) = &mut entry.view
        {
            Arc::make_mut(status).tasks = Vec::new();
        }
    }

    /// The job of this id.
    pub(crate) fn get(&self, job: JobId) -> Option<&JobView> {
        self.entries.get(&job).map(|entry| &entry.view)
    }

    /// The job of this id or name; of several with the name the only one that has not ended.
    pub(crate) fn find(&self, text: &str) -> Result<&JobView, NotFound> {
        if let Some(view) = text.parse().ok().and_then(|id| self.get(id)) {
            return Ok(view);
        }
        let named: Vec<(&JobId, &Entry)> = self.entries.iter().filter(|(_, entry)| entry.name == text).collect();
        let running: Vec<&&Entry> =
            named.iter().map(|(_, entry)| entry).filter(|entry| matches!(entry.view, JobView::Driven(_))).collect();
        match (named.as_slice(), running.as_slice()) {
            ([], _) => Err(NotFound::None(text.chars().take(128).collect())),
            ([(_, entry)], _) => Ok(&entry.view),
            (_, [entry]) => Ok(&entry.view),
            _ => {
                let ids: Vec<String> = named.iter().rev().take(5).map(|(id, _)| id.to_string()).collect();
                Err(NotFound::Several { name: text.into(), count: named.len(), ids: ids.join(", ") })
            }
        }
    }

    /// All jobs, newest first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &JobView> {
        self.entries.values().rev().map(|entry| &entry.view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(job: JobId) -> Arc<v1::JobStatus> {
        Arc::new(v1::JobStatus { job_id: job.to_string(), ..Default::default() })
    }

    fn ended(jobs: &mut Jobs, number: u128, name: &str, request: &str) -> JobId {
        let job = JobId::from_u128(number);
        jobs.insert(job, name.into(), request.into(), JobView::Ended(status(job)));
        jobs.end(job, status(job));
        job
    }

    #[test]
    fn a_request_is_remembered_as_long_as_its_job() {
        let mut jobs = Jobs::new(2);
        let first = ended(&mut jobs, 1, "a", "r1");
        assert_eq!(jobs.of_request("r1"), Some(first));
        ended(&mut jobs, 2, "b", "r2");
        assert_eq!(jobs.of_request("r1"), Some(first));
        ended(&mut jobs, 3, "c", "");
        assert_eq!(jobs.of_request("r1"), None);
        assert_eq!(jobs.all().count(), 2);
        assert_eq!(jobs.running(), 0);
        assert_eq!(jobs.of_request(""), None);
    }

    #[test]
    fn only_the_newest_that_ended_keep_their_tasks() {
        let mut jobs = Jobs::new(100);
        for number in 0..60 {
            let job = JobId::from_u128(number);
            let status = v1::JobStatus { tasks: vec![v1::TaskStatus::default()], ..Default::default() };
            jobs.insert(job, "wide".into(), String::new(), JobView::Ended(Arc::default()));
            jobs.end(job, Arc::new(status));
        }
        let tasks = |view: &JobView| if let JobView::Ended(status) = view { status.tasks.len() } else { panic!("{view:?}") };
        assert_eq!(jobs.all().map(tasks).collect::<Vec<_>>(), [vec![1; ENDED_WITH_TASKS_MAX], vec![0; 40]].concat());
    }

    #[test]
    fn a_name_finds_a_job_where_it_is_the_only_one() {
        let mut jobs = Jobs::new(10);
        let a = ended(&mut jobs, 1, "a", "");
        assert!(jobs.find("a").is_ok());
        assert!(jobs.find(&a.to_string()).is_ok());
        ended(&mut jobs, 2, "a", "");
        let text = jobs.find("a").unwrap_err().to_string();
        assert!(text.starts_with("2 jobs have the name \"a\"") && text.contains(&a.to_string()), "{text}");
        assert_eq!(jobs.find("b").unwrap_err(), NotFound::None("b".into()));
    }
}
