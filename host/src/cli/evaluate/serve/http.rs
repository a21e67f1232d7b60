//! HTTP on this machine, with the routes of GEPA's evaluation server: `POST /evaluate`, `POST /evaluate_examples`,
//! `GET /status`, `GET /task`.
//!
//! Other users of the machine reach a port, too: there evaluations need a token. A Unix socket is a file of the user.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::Listener;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};

use blis_eval::error::RunError;
use blis_eval::evaluation::server::{EvaluationRequest, EvaluationServer, RequestError};
use blis_eval::result::EvaluationResult;
use blis_http::Termination;
use blis_http::access::{AccessToken, with_token};
use blis_http::connections::{Bodies, ConnectionLimits, HeldBody, serve_connections};
use blis_http::live::LivePage;
use blis_http::local::only_local;

/// Bodies count until their evaluations are done, so that a full queue of large candidates is refused as well.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 512,
    head: Duration::from_secs(10),
    body: Duration::from_secs(30),
    body_bytes: 8 << 20,
    bodies_bytes: 64 << 20,
};
/// Maximum number of examples in one request.
const EXAMPLES: usize = 1000;

/// Who may evaluate on a port.
pub(super) struct Protection {
    /// `None`: every user of the machine.
    pub token: Option<AccessToken>,
    /// Whether it was drawn for this server, so that it must be printed.
    pub is_drawn: bool,
}

/// What the routes share.
#[derive(Clone)]
struct ServeState {
    server: Arc<EvaluationServer>,
    bodies: Bodies,
}

/// Serves on a port until the process is terminated; requests accepted before that still get their responses. `page` is at `/`.
pub(super) fn run_on_port(
    server: &Arc<EvaluationServer>,
    address: SocketAddr,
    protection: Protection,
    page: Option<LivePage>,
) -> Result<(), RunError> {
    let runtime = runtime()?;
    let cannot = |error: io::Error| RunError::runtime(format_args!("cannot listen on {address}: {error}"));
    let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).map_err(cannot)?;
    let bound = listener.local_addr().map_err(cannot)?;
    let mut line = json!({"listening": format!("http://{bound}")});
    if let (Some(token), true) = (&protection.token, protection.is_drawn) {
        line["token"] = token.secret().into();
    }
    let (stop, stopping) = watch::channel(false);
    let routes = page.map_or(Router::new(), |page| page.routes(stopping)).merge(routes(server, protection.token));
    serve(&runtime, listener, routes.layer(from_fn(only_local)), stop, &line)
}

/// As [`run_on_port`], on a new Unix socket at `path`, which only this user can connect to.
pub(super) fn run_on_socket(server: &Arc<EvaluationServer>, path: &Path) -> Result<(), RunError> {
    let runtime = runtime()?;
    let cannot = |error: io::Error| {
        RunError::runtime(format_args!("cannot listen on `{}`: {error}", path.display()))
            .hint("name a file that is not there, in a folder of yours")
    };
    remove_abandoned(path).map_err(cannot)?;
    let listener = {
        let _guard = runtime.enter();
        // Between its creation and a later change of its mode others could connect.
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
        let bound = tokio::net::UnixListener::bind(path);
        rustix::process::umask(before);
        bound.map_err(cannot)?
    };
    let _file = SocketFile(path.to_owned());
    let line = json!({"listening": format!("unix:{}", path.display())});
    serve(&runtime, listener, routes(server, None), watch::channel(false).0, &line)
}

/// The file of a socket, which is removed at the end.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Removes the socket of a server that has ended without doing so.
fn remove_abandoned(path: &Path) -> io::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    let is_abandoned = is_socket
        && std::os::unix::net::UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if is_abandoned { std::fs::remove_file(path) } else { Ok(()) }
}

fn runtime() -> Result<Runtime, RunError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)
}

/// Prints `line`, and serves until the process is terminated.
fn serve<L: Listener>(
    runtime: &Runtime,
    listener: L,
    routes: Router,
    stop: watch::Sender<bool>,
    line: &Value,
) -> Result<(), RunError> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| RunError::output(&error))?;
    drop(out);
    runtime.block_on(serve_connections(listener, routes, LIMITS, async move {
        Termination::new().next().await;
        // Without a page it has no receiver.
        let _ = stop.send(true);
    }));
    Ok(())
}

fn routes(server: &Arc<EvaluationServer>, token: Option<AccessToken>) -> Router {
    let state = ServeState { server: Arc::clone(server), bodies: Bodies::new(LIMITS) };
    let evaluations = Router::new()
        .route("/evaluate", post(evaluate))
        .route("/evaluate_examples", post(evaluate_examples))
        .layer(from_fn_with_state(token, with_token));
    Router::new()
        .route("/status", get(async |State(state): State<ServeState>| respond(StatusCode::OK, &state.server.status())))
        .route("/task", get(async |State(state): State<ServeState>| respond(StatusCode::OK, &state.server.task())))
        .merge(evaluations)
        .with_state(state)
}

/// The body of `request`, which counts until it is dropped, and what it asks for; else the response that refuses it.
async fn read(state: &ServeState, request: Request) -> Result<(HeldBody, EvaluationRequest), Response> {
    let body = state.bodies.read(request.into_body()).await.map_err(IntoResponse::into_response)?;
    match serde_json::from_slice(&body) {
        Ok(request) => Ok((body, request)),
        Err(error) => {
            let message = format!("the body is no request: {error}");
            Err(refused(&state.server, &RequestError::Invalid(message)))
        }
    }
}

async fn evaluate(State(state): State<ServeState>, request: Request) -> Response {
    let (_body, request) = match read(&state, request).await {
        Ok(read) => read,
        Err(response) => return response,
    };
    let server = &state.server;
    match evaluated(server, &request).await {
        Ok(document) => {
            let score = document.combined_score;
            respond(
                StatusCode::OK,
                &Evaluated { example_id: None, score, info: document.without_private(), budget: Some(server.budget()) },
            )
        }
        Err(error) => refused(server, &error),
    }
}

/// Evaluates examples one after the other. Each counts for the budget, and if the queue is full, all are refused.
async fn evaluate_examples(State(state): State<ServeState>, request: Request) -> Response {
    let (_body, request) = match read(&state, request).await {
        Ok(read) => read,
        Err(response) => return response,
    };
    let server = &state.server;
    let examples = request.example_ids.clone().unwrap_or_default();
    if examples.is_empty() || examples.len() > EXAMPLES {
        return refused(server, &RequestError::Invalid("`example_ids` must have 1 to 1000 items".to_owned()));
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
        match evaluated(server, &one).await {
            Ok(document) => {
                let score = document.combined_score;
                let info = document.without_private();
                results.push(Evaluated { example_id: Some(example), score, info, budget: None });
            }
            Err(error) => return refused(server, &error),
        }
    }
    respond(StatusCode::OK, &AllEvaluated { results, budget: server.budget() })
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
