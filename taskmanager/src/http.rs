//! The HTTP port: `/health` and `/metrics`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::board::Board;
use crate::databases::Databases;
use crate::metrics::{ProcessFigures, render};

/// What the pages show.
#[derive(Clone)]
pub struct Pages {
    /// The tasks.
    pub board: Arc<Board>,
    /// Whether the TaskManager is registered.
    pub registered: watch::Receiver<bool>,
    /// Figures of the process; `registered` is filled in.
    pub figures: ProcessFigures,
    /// The databases, for what they use and move.
    pub databases: Arc<Databases>,
}

/// Serves until `shutdown`.
pub async fn serve(listener: TcpListener, pages: Pages, shutdown: CancellationToken) {
    let router = Router::new().route("/health", get(health)).route("/metrics", get(metrics)).with_state(pages);
    let served = axum::serve(listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await;
    if let Err(error) = served {
        tracing::warn!(%error, "the HTTP port failed");
    }
}

/// 200 while registered, else 503: the process is alive, but of no use to a job.
async fn health(State(pages): State<Pages>) -> impl IntoResponse {
    if *pages.registered.borrow() {
        (StatusCode::OK, "registered\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not registered at the JobManager\n")
    }
}

async fn metrics(State(pages): State<Pages>) -> impl IntoResponse {
    let figures = ProcessFigures { registered: *pages.registered.borrow(), ..pages.figures };
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render(figures, &pages.databases, &pages.board.tasks()))
}
