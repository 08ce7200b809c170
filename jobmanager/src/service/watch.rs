//! A job's status again and again, until it is terminal.

use std::time::Duration;

use futures::{Stream, stream};
use levada_proto::v1;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::dispatcher::{Dispatcher, JobView};
use crate::task_managers::stopping;

struct Watch {
    dispatcher: Dispatcher,
    view: JobView,
    period: Duration,
    stop: CancellationToken,
    first: bool,
}

/// The stream of a watch: the status now, then about every `period`, at once when the job ends.
pub(super) fn watch(
    dispatcher: Dispatcher,
    view: JobView,
    period: Duration,
    stop: CancellationToken,
) -> impl Stream<Item = Result<v1::DescribeJobResponse, Status>> + Send {
    stream::unfold(Some(Watch { dispatcher, view, period, stop, first: true }), |watch| async move {
        let mut watch = watch?;
        if !watch.wait().await {
            return Some((Err(stopping()), None));
        }
        match watch.dispatcher.status(watch.view.clone()).await {
            Ok(status) => {
                let last = is_terminal(status.state());
                let response = v1::DescribeJobResponse { job: Some((*status).clone()) };
                Some((Ok(response), (!last).then_some(watch)))
            }
            Err(status) => Some((Err(status), None)),
        }
    })
}

impl Watch {
    /// Waits for the next moment; false where the JobManager stops.
    async fn wait(&mut self) -> bool {
        if std::mem::replace(&mut self.first, false) {
            return true;
        }
        let ended = async {
            match &self.view {
                JobView::Driven(driver) => driver.ended().cancelled().await,
                JobView::Ended(_) => {}
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => false,
            () = ended => true,
            () = tokio::time::sleep(self.period) => true,
        }
    }
}

fn is_terminal(state: v1::JobState) -> bool {
    matches!(state, v1::JobState::Finished | v1::JobState::Failed | v1::JobState::Canceled)
}
