//! HTTP on this machine, with the routes of GEPA's evaluation server: `POST /evaluate`, `POST /evaluate_examples`,
//! `GET /status`, `GET /task`.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{EvaluationRequest, EvaluationServer, RequestError};
use blis_eval::result::EvaluationResult;

/// Longer requests are none.
const BODY_BYTES: usize = 8 << 20;
/// Examples of one request.
const EXAMPLES: usize = 1000;

/// Until the process is told to end; what was asked before is answered.
pub(super) fn run(server: &Arc<EvaluationServer>, address: SocketAddr) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)?;
    runtime.block_on(async {
        let cannot = |error: std::io::Error| RunError::runtime(format_args!("cannot listen on {address}: {error}"));
        let listener = tokio::net::TcpListener::bind(address).await.map_err(cannot)?;
        let bound = listener.local_addr().map_err(cannot)?;
        let mut out = std::io::stdout().lock();
        let told = writeln!(out, "{}", json!({"listening": format!("http://{bound}")})).and_then(|()| out.flush());
        told.map_err(|error| RunError::output(&error))?;
        drop(out);
        let routes = Router::new()
            .route("/evaluate", post(evaluate))
            .route("/evaluate_examples", post(evaluate_examples))
            .route(
                "/status",
                get(async |State(server): State<Arc<EvaluationServer>>| answer(StatusCode::OK, &server.status())),
            )
            .route(
                "/task",
                get(async |State(server): State<Arc<EvaluationServer>>| answer(StatusCode::OK, &server.task())),
            )
            .layer(DefaultBodyLimit::max(BODY_BYTES))
            .layer(middleware::from_fn(from_here))
            .with_state(Arc::clone(server));
        axum::serve(listener, routes).with_graceful_shutdown(told_to_end()).await.map_err(cannot)
    })
}

/// A page of some web site in a browser on this machine reaches the server, too: by its address, which makes the site
/// the `Origin`, or by a name of its own that leads here, which makes that the `Host`.
async fn from_here(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let hosts: Vec<String> = headers.get_all(header::HOST).iter().map(text).collect();
    let origins: Vec<String> = headers.get_all(header::ORIGIN).iter().map(text).collect();
    if hosts.is_empty() || !hosts.iter().all(|host| is_here(host)) {
        let told = "the header `Host` must name this machine, as 127.0.0.1 or localhost";
        return answer(StatusCode::FORBIDDEN, &json!({"error": told}));
    }
    let is_own = |origin: &String| origin.split_once("://").is_some_and(|(_, host)| is_here(host));
    if !origins.iter().all(is_own) {
        return answer(StatusCode::FORBIDDEN, &json!({"error": "a page from elsewhere may not use this server"}));
    }
    next.run(request).await
}

/// Whether `authority`, a host with or without a port, is this machine.
fn is_here(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

async fn told_to_end() {
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(term) => term,
        Err(error) => {
            tracing::warn!("the server cannot be ended by a signal: {error}");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

async fn evaluate(State(server): State<Arc<EvaluationServer>>, body: Bytes) -> Response {
    let ask = match understood(&body) {
        Ok(ask) => ask,
        Err(told) => return refused(&server, &RequestError::Invalid(told)),
    };
    match judged(&server, &ask).await {
        Ok(document) => {
            let score = document.combined_score;
            answer(StatusCode::OK, &Judged { example_id: None, score, info: document, budget: Some(server.budget()) })
        }
        Err(told) => refused(&server, &told),
    }
}

/// One after the other: each counts for the budget, and a full queue refuses all of them.
async fn evaluate_examples(State(server): State<Arc<EvaluationServer>>, body: Bytes) -> Response {
    let ask = match understood(&body) {
        Ok(ask) => ask,
        Err(told) => return refused(&server, &RequestError::Invalid(told)),
    };
    let examples = ask.example_ids.clone().unwrap_or_default();
    if examples.is_empty() || examples.len() > EXAMPLES {
        return refused(&server, &RequestError::Invalid("`example_ids` has one to 1000 of them".to_owned()));
    }
    let mut results = Vec::new();
    for example in examples {
        let one = EvaluationRequest {
            candidate: ask.candidate.clone(),
            suite: ask.suite.clone(),
            stage: ask.stage,
            wall_s: ask.wall_s,
            example_id: Some(example.clone()),
            epoch: ask.epoch,
            feedback_bytes: ask.feedback_bytes,
            ..EvaluationRequest::default()
        };
        match judged(&server, &one).await {
            Ok(document) => {
                let score = document.combined_score;
                results.push(Judged { example_id: Some(example), score, info: document, budget: None });
            }
            Err(told) => return refused(&server, &told),
        }
    }
    answer(StatusCode::OK, &AllJudged { results, budget: server.budget() })
}

fn understood(body: &[u8]) -> Result<EvaluationRequest, String> {
    serde_json::from_slice(body).map_err(|error| format!("the body is no request: {error}"))
}

async fn judged(server: &Arc<EvaluationServer>, ask: &EvaluationRequest) -> Result<EvaluationResult, RequestError> {
    let (sender, receiver) = oneshot::channel();
    let reply = Box::new(|answer| {
        // Nobody waits any more if the connection was closed.
        let _ = sender.send(answer);
    });
    server.submit(ask, reply)?;
    let answer = receiver.await.map_err(|_| RequestError::Invalid("the server is stopping".to_owned()))?;
    answer.map_err(RequestError::Invalid)
}

fn refused(server: &EvaluationServer, why: &RequestError) -> Response {
    let budget = server.budget();
    match why {
        RequestError::Busy => {
            let mut response = answer(StatusCode::TOO_MANY_REQUESTS, &json!({"error": "busy", "budget": budget}));
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        RequestError::Budget => {
            answer(StatusCode::TOO_MANY_REQUESTS, &json!({"error": "the budget is used up", "budget": budget}))
        }
        RequestError::Invalid(told) => answer(StatusCode::BAD_REQUEST, &json!({"error": told, "budget": budget})),
    }
}

fn answer(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_string(value).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// An answer of `/evaluate`, and a part of one of `/evaluate_examples`. Not a `Value`, which sorts its keys: texts come
/// in the order in which they matter.
#[derive(Serialize)]
struct Judged {
    #[serde(skip_serializing_if = "Option::is_none")]
    example_id: Option<String>,
    score: f64,
    info: EvaluationResult,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<Value>,
}

#[derive(Serialize)]
struct AllJudged {
    results: Vec<Judged>,
    budget: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_here() {
        for here in ["localhost", "LOCALHOST:80", "127.0.0.1:8765", "127.9.9.9", "[::1]:1"] {
            assert!(is_here(here), "{here}");
        }
        for elsewhere in ["", "x", "evil.example:8765", "localhost.evil.example", "localhost@evil.example", "10.0.0.1"]
        {
            assert!(!is_here(elsewhere), "{elsewhere}");
        }
    }
}
