//! Wishes for savepoints: each is known by its request id, and a job ends with one savepoint only.

use levada_jobmanager_core::{Event as CoreEvent, SavepointRequest};
use levada_proto::v1;
use tracing::info;

use super::run::Driver;
use crate::status::savepoint;

impl Driver {
    /// The savepoint that answers the request: the one that it asked for before, the one that ends the job already, or a new one.
    /// `None` where too many wait.
    pub(super) fn savepoint(&mut self, request: SavepointRequest) -> Option<v1::SavepointStatus> {
        if let Some(known) = self.machine.savepoint(&request.id) {
            return Some(savepoint(known));
        }
        if request.mode.ends_job()
            && let Some(ending) = self.machine.ending_savepoint()
        {
            return Some(savepoint(ending));
        }
        info!(job = %self.job.id, request = request.id, directory = request.directory, mode = request.mode.name(), "savepoint requested");
        let id = request.id.clone();
        self.apply(CoreEvent::Savepoint(request));
        self.machine.savepoint(&id).map(savepoint)
    }
}
