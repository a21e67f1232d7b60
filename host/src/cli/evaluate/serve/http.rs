//! HTTP on this machine, with the routes of GEPA's evaluation server: `POST /evaluate`, `POST /evaluate_examples`,
//! `GET /status`, `GET /task`.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{EvaluationRequest, EvaluationServer, RequestError};
use blis_eval::result::EvaluationResult;
use blis_http::Termination;
use blis_http::live::LivePage;
use blis_http::local::only_local;

/// Maximum length of a request body.
const BODY_BYTES: usize = 8 << 20;
/// Maximum number of examples in one request.
const EXAMPLES: usize = 1000;

/// Serves until the process is terminated; requests accepted before that still get their responses. `page` is at `/`.
pub(super) fn run(server: &Arc<EvaluationServer>, address: SocketAddr, page: Option<LivePage>) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)?;
    runtime.block_on(async {
        let cannot = |error: std::io::Error| RunError::runtime(format_args!("cannot listen on {address}: {error}"));
        let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
        let bound = listener.local_addr().map_err(cannot)?;
        let mut out = std::io::stdout().lock();
        let written = writeln!(out, "{}", json!({"listening": format!("http://{bound}")})).and_then(|()| out.flush());
        written.map_err(|error| RunError::output(&error))?;
        drop(out);
        let routes = Router::new()
            .route("/evaluate", post(evaluate))
            .route("/evaluate_examples", post(evaluate_examples))
            .route(
                "/status",
                get(async |State(server): State<Arc<EvaluationServer>>| respond(StatusCode::OK, &server.status())),
            )
            .route(
                "/task",
                get(async |State(server): State<Arc<EvaluationServer>>| respond(StatusCode::OK, &server.task())),
            )
            .with_state(Arc::clone(server));
        let (stop, stopping) = watch::channel(false);
        let routes = page.map_or(Router::new(), |page| page.routes(stopping)).merge(routes);
        let routes = routes.layer(DefaultBodyLimit::max(BODY_BYTES)).layer(middleware::from_fn(only_local));
        axum::serve(listener, routes)
            .with_graceful_shutdown(async move {
                Termination::new().next().await;
                // Without a page it has no receiver.
                let _ = stop.send(true);
            })
            .await
            .map_err(cannot)
    })
}

async fn evaluate(State(server): State<Arc<EvaluationServer>>, body: Bytes) -> Response {
    let request = match parse(&body) {
        Ok(request) => request,
        Err(message) => return refused(&server, &RequestError::Invalid(message)),
    };
    match evaluated(&server, &request).await {
        Ok(document) => {
            let score = document.combined_score;
            respond(
                StatusCode::OK,
                &Evaluated { example_id: None, score, info: document.without_private(), budget: Some(server.budget()) },
            )
        }
        Err(error) => refused(&server, &error),
    }
}

/// Evaluates examples one after the other. Each counts for the budget, and if the queue is full, all are refused.
async fn evaluate_examples(State(server): State<Arc<EvaluationServer>>, body: Bytes) -> Response {
    let request = match parse(&body) {
        Ok(request) => request,
        Err(message) => return refused(&server, &RequestError::Invalid(message)),
    };
    let examples = request.example_ids.clone().unwrap_or_default();
    if examples.is_empty() || examples.len() > EXAMPLES {
        return refused(&server, &RequestError::Invalid("`example_ids` must have 1 to 1000 items".to_owned()));
    }
    let mut results = Vec::new();
    for example in examples {
        let one = EvaluationRequest {
            candidate: request.candidate.clone(),
            suite: request.suite.clone(),
            stage: request.stage,
            wall_s: request.wall_s,
            example_id: Some(example.clone()),
            epoch: request.epoch,
            feedback_bytes: request.feedback_bytes,
            patterns: request.patterns,
            decisions: request.decisions,
            ..EvaluationRequest::default()
        };
        match evaluated(&server, &one).await {
            Ok(document) => {
                let score = document.combined_score;
                let info = document.without_private();
                results.push(Evaluated { example_id: Some(example), score, info, budget: None });
            }
            Err(error) => return refused(&server, &error),
        }
    }
    respond(StatusCode::OK, &AllEvaluated { results, budget: server.budget() })
}

fn parse(body: &[u8]) -> Result<EvaluationRequest, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))
}

async fn evaluated(
    server: &Arc<EvaluationServer>,
    request: &EvaluationRequest,
) -> Result<EvaluationResult, RequestError> {
    let (sender, receiver) = oneshot::channel();
    let reply = Box::new(|result| {
        // The receiver is gone if the connection was closed.
        let _ = sender.send(result);
    });
    server.submit(request, reply)?;
    let result = receiver.await.map_err(|_| RequestError::Invalid("the server is stopping".to_owned()))?;
    result.map_err(RequestError::Invalid)
}

fn refused(server: &EvaluationServer, why: &RequestError) -> Response {
    let status = match why {
        RequestError::Busy | RequestError::Budget => StatusCode::TOO_MANY_REQUESTS,
        RequestError::Invalid(_) => StatusCode::BAD_REQUEST,
    };
    let mut response = respond(status, &json!({"error": why.to_string(), "budget": server.budget()}));
    if *why == RequestError::Busy {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn respond(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// The response of `/evaluate`, and an item in that of `/evaluate_examples`. Not a `Value`, which would sort the keys:
/// texts come most important first.
#[derive(Serialize)]
struct Evaluated {
    #[serde(skip_serializing_if = "Option::is_none")]
    example_id: Option<String>,
    score: f64,
    info: EvaluationResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Value>,
}

#[derive(Serialize)]
struct AllEvaluated {
    results: Vec<Evaluated>,
    budget: Value,
}
