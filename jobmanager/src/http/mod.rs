//! HTTP for people and monitoring: `/health`, `/metrics`, `/jobs`. It only reads.

mod json;
mod metrics;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use levada_proto::v1;
use serde_json::{Value, json};
use tonic::Code;

use crate::dispatcher::Dispatcher;
use crate::inline_state::InlineBudget;
use crate::task_managers::{TaskManagers, VERSION};

/// What is shown.
#[derive(Clone)]
pub(crate) struct Shown {
    pub dispatcher: Dispatcher,
    pub task_managers: TaskManagers,
    pub budget: InlineBudget,
}

/// The routes.
pub(crate) fn router(shown: Shown) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/metrics", get(metrics_text))
        .route("/jobs", get(jobs))
        .route("/jobs/{job}", get(job))
        .with_state(shown)
}

async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": VERSION }))
}

async fn statuses(shown: &Shown) -> Vec<Arc<v1::JobStatus>> {
    let views = shown.dispatcher.list().await.unwrap_or_default();
    let statuses = futures::future::join_all(views.into_iter().map(|view| shown.dispatcher.status(view))).await;
    statuses.into_iter().flatten().collect()
}

async fn metrics_text(State(shown): State<Shown>) -> Response {
    let sample = metrics::Sample {
        jobs: statuses(&shown).await,
        task_managers: shown.task_managers.describe().await,
        inline_used_bytes: shown.budget.used_bytes(),
        inline_budget_bytes: shown.budget.limit_bytes(),
    };
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], metrics::text(&sample)).into_response()
}

async fn jobs(State(shown): State<Shown>) -> Json<Value> {
    Json(statuses(&shown).await.iter().map(|status| json::job(status)).collect())
}

async fn job(State(shown): State<Shown>, Path(job): Path<String>) -> Response {
    let status = match shown.dispatcher.find(job).await {
        Ok(view) => shown.dispatcher.status(view).await,
        Err(status) => Err(status),
    };
    match status {
        Ok(status) => Json(json::job(&status)).into_response(),
        Err(status) => {
            let code = if status.code() == Code::NotFound { StatusCode::NOT_FOUND } else { StatusCode::SERVICE_UNAVAILABLE };
            (code, Json(json!({ "error": status.message() }))).into_response()
        }
    }
}
