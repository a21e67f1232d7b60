//! The server: routes, and requests on their way to the simulation.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use blis_eval::error::RunError;
use blis_eval::experiment::Experiment;
use blis_eval::live::{LiveService, ServiceOffer};
use blis_sim::ids::RequestId;
use blis_sim::outcome::DropReason;
use blis_sim::request::{Content, Name, Request, Tags};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;

use super::deliveries::{Deliveries, RefusalReason};
use super::metrics::ServiceMetrics;
use super::openai::{Endpoint, ParsedRequest, ResponseHead, error_body, parse};
use super::prompt::{BlockIndex, Token, tokens_of_text, word};
use super::simulation::{SimulationCommand, simulate};
use super::stream::{EventStream, RequestOutput};
use crate::Termination;
use crate::clock::SimulatedClock;
use crate::connections::{Bodies, BodyError, ConnectionLimits, serve_connections};

/// A body has room for a prompt of a million token ids. Load generators keep connections for a while, as many as requests in flight.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 16 << 10,
    head: Duration::from_secs(60),
    body: Duration::from_secs(60),
    body_bytes: 16 << 20,
    bodies_bytes: 256 << 20,
};
/// Longest request of a model without a known context length, tokens: each token of the output takes memory.
const MOST_TOKENS: u32 = 4 << 20;
/// Tenants and sessions that are distinguished; further ones count as none.
const MOST_NAMES: usize = 1 << 20;
/// llm-d's header of the tenant.
const TENANT: &str = "x-gateway-inference-fairness-id";
/// llm-d's header of the SLO class.
const CLASS: &str = "x-gateway-inference-objective";
const SESSION: &str = "x-session-id";

/// How the server listens and what it assumes.
#[derive(Clone, Copy, Debug)]
pub struct MockSettings {
    /// Address to listen on; port 0 for a free one.
    pub address: SocketAddr,
    /// Real time over simulated time, > 0: 0.1 is ten times as fast as the simulated service.
    pub time_scale: f64,
    /// Output tokens of a request that sets no limit, ≥ 1.
    pub output_tokens: u32,
    /// Time after which the server ends, from the moment at which it listens; `None`: when it is terminated.
    pub duration: Option<Duration>,
}

/// A simulated service behind OpenAI's interface.
pub struct MockServer {
    service: LiveService,
    offer: ServiceOffer,
    settings: MockSettings,
}

impl MockServer {
    /// The service of `config`. Its workload is not read: requests come from clients.
    ///
    /// # Errors
    /// If the service cannot be built.
    pub fn new(config: &Experiment, settings: MockSettings) -> Result<Self, RunError> {
        let (service, offer) = LiveService::new(config)?;
        Ok(Self { service, offer, settings })
    }

    /// Serves until the process is interrupted or terminated. `listening` is called with the address, once requests are
    /// accepted.
    ///
    /// # Errors
    /// If the address is taken, or the simulation fails.
    pub fn run(self, listening: impl FnOnce(SocketAddr) -> Result<(), RunError>) -> Result<(), RunError> {
        let Self { service, offer, settings } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(RunError::runtime)?;
        let cannot = |error: io::Error| {
            RunError::runtime(format_args!("cannot listen on {}: {error}", settings.address))
                .hint("choose another address with `--listen`; port 0 takes a free one")
        };
        let listener = runtime.block_on(TcpListener::bind(settings.address)).map_err(cannot)?;
        listening(listener.local_addr().map_err(cannot)?)?;
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::warn!("tokens of a connection may be held back: {error}");
            }
        });
        let clock = SimulatedClock::start(settings.time_scale);
        let (commands, received) = mpsc::channel();
        let label = offer.models.first().map(|(name, _, _)| name.clone()).unwrap_or_default();
        let deliveries = Deliveries::new(offer.output_token_time, ServiceMetrics::new(label));
        let (failed, failure) = oneshot::channel();
        let simulation = std::thread::Builder::new().name("simulation".to_owned()).spawn(move || {
            // The server is gone if it was terminated.
            let _ = failed.send(simulate(service, deliveries, &received, clock));
        });
        simulation.map_err(RunError::runtime)?;
        let state = Arc::new(ServerState::new(offer, settings, clock, commands));
        runtime.block_on(async {
            let mut termination = Termination::new();
            tokio::select! {
                () = serve_connections(listener, routes(state), LIMITS, std::future::pending()) => Ok(()),
                failure = failure => failure.unwrap_or(Ok(())),
                () = termination.next() => Ok(()),
                () = tokio::time::sleep(settings.duration.unwrap_or_default()), if settings.duration.is_some() => Ok(()),
            }
        })
    }
}

/// The state that all requests share.
struct ServerState {
    offer: ServiceOffer,
    settings: MockSettings,
    clock: SimulatedClock,
    commands: Mutex<Sender<SimulationCommand>>,
    next: AtomicU32,
    known: Mutex<Known>,
    bodies: Bodies,
}

/// What earlier requests have brought.
struct Known {
    blocks: BlockIndex,
    /// Numbers of tenants and sessions, behind those of the offer.
    names: FxHashMap<String, Name>,
    first: u32,
}

impl Known {
    fn name(&mut self, text: Option<&str>) -> Name {
        let Some(text) = text.filter(|text| !text.is_empty()) else { return Name::NONE };
        if let Some(&name) = self.names.get(text) {
            return name;
        }
        if self.names.len() >= MOST_NAMES {
            return Name::NONE;
        }
        let name = Name(self.first + self.names.len() as u32);
        self.names.insert(text.to_owned(), name);
        name
    }
}

fn routes(state: Arc<ServerState>) -> Router {
    Router::new()
        .route(
            "/v1/completions",
            post(async |State(server), request| serve(server, Endpoint::Completions, request).await),
        )
        .route(
            "/v1/chat/completions",
            post(async |State(server), request| serve(server, Endpoint::Chat, request).await),
        )
        .route("/v1/models", get(async |State(server): State<Arc<ServerState>>| server.models()))
        .route("/health", get(async || StatusCode::OK))
        .route("/ping", get(async || StatusCode::OK))
        .route("/version", get(async || respond(StatusCode::OK, &json!({"version": env!("CARGO_PKG_VERSION")}))))
        .route("/metrics", get(async |State(server): State<Arc<ServerState>>| server.metrics().await))
        .route("/counts", get(async |State(server): State<Arc<ServerState>>| server.counts().await))
        .with_state(state)
}

async fn serve(server: Arc<ServerState>, api: Endpoint, request: HttpRequest) -> Response {
    let (head, body) = request.into_parts();
    let headers = head.headers;
    let body = match server.bodies.read(body).await {
        Ok(body) => body,
        Err(error) => return unread(error),
    };
    // A request arrives when all of it is there.
    let arrival = server.clock.now();
    let parsed = match parse(api, &body) {
        Ok(parsed) => parsed,
        Err(message) => return bad_request(&message),
    };
    drop(body);
    let (model, adapter) = match server.model(parsed.model.as_deref()) {
        Ok(names) => names,
        Err(response) => return *response,
    };
    let head = ResponseHead {
        api,
        id: String::new(),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        model: parsed.model.clone().unwrap_or_else(|| server.offer.models[0].0.clone()),
    };
    let id = RequestId(server.next.fetch_add(1, Ordering::Relaxed));
    let prefix = if api == Endpoint::Chat { "chatcmpl" } else { "cmpl" };
    let head = ResponseHead { id: format!("{prefix}-{id}"), ..head };
    let request = match server.request(id, &parsed, &headers, model, adapter) {
        Ok(request) => Request { arrival, ..request },
        Err(message) => return bad_request(&message),
    };
    let ends_by = if parsed.max_tokens.is_some() { "length" } else { "stop" };
    let mut output = server.submit(request, ends_by);
    // The status depends on what the policies decide, so it waits for the first token.
    match output.next().await {
        None => stopping(),
        Some(Err(refusal)) => refused(refusal, &server.offer, head.model.as_str()),
        Some(Ok(first)) if parsed.stream => {
            let stream = EventStream::new(head, parsed.include_usage, first, output);
            let headers =
                [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
            (headers, Body::new(stream)).into_response()
        }
        Some(Ok(first)) => {
            let mut token = first;
            let mut text = String::new();
            loop {
                text.push_str(token.text);
                if let Some((reason, usage)) = token.end {
                    return respond(StatusCode::OK, &head.whole(&text, reason, usage));
                }
                token = match output.next().await {
                    Some(Ok(token)) => token,
                    Some(Err(refusal)) => return refused(refusal, &server.offer, head.model.as_str()),
                    None => return stopping(),
                };
            }
        }
    }
}

impl ServerState {
    fn new(
        offer: ServiceOffer,
        settings: MockSettings,
        clock: SimulatedClock,
        commands: Sender<SimulationCommand>,
    ) -> Self {
        let known = Known {
            blocks: BlockIndex::new(offer.block_size),
            names: FxHashMap::default(),
            // More names than 32 bits can number do not fit the memory.
            first: offer.names.texts().len().max(1) as u32,
        };
        Self {
            offer,
            settings,
            clock,
            commands: Mutex::new(commands),
            next: AtomicU32::new(0),
            known: Mutex::new(known),
            bodies: Bodies::new(LIMITS),
        }
    }

    /// The numbers of the model and of the adapter that a request names; the first model if it names none.
    fn model(&self, name: Option<&str>) -> Result<(Name, Name), Box<Response>> {
        let models = &self.offer.models;
        let found = match name {
            None => models.first(),
            Some(name) => models.iter().find(|(known, _, _)| known == name),
        };
        found
            .map(|&(_, model, adapter)| (model, adapter))
            .ok_or_else(|| Box::new(no_model(&self.offer, name.unwrap_or_default())))
    }

    fn request(
        &self,
        id: RequestId,
        parsed: &ParsedRequest,
        headers: &HeaderMap,
        model: Name,
        adapter: Name,
    ) -> Result<Request, String> {
        let input = u32::try_from(parsed.tokens.len()).map_err(|_| "the prompt has too many tokens".to_owned())?;
        let most = self.offer.max_model_len.unwrap_or(MOST_TOKENS);
        let room = most.saturating_sub(input);
        let output = parsed.max_tokens.unwrap_or_else(|| self.settings.output_tokens.min(room));
        if output > room || room == 0 {
            return Err(format!(
                "This model's maximum context length is {most} tokens. However, you requested {} tokens ({input} in the \
                 prompt, {output} in the output). Please reduce the length of one of them.",
                u64::from(input) + u64::from(output)
            ));
        }
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let tags = Tags {
            slo_class: text(CLASS).and_then(|class| self.offer.names.find(class)).unwrap_or(Name::NONE),
            tenant: known.name(text(TENANT)),
            session: known.name(text(SESSION)),
            model,
            adapter,
            ..Tags::default()
        };
        let content = known.blocks.content(&with_output(id, &parsed.tokens, output, adapter));
        Ok(request(id, input, output, parsed, tags, content))
    }

    /// Sends `request` to the simulation.
    fn submit(&self, request: Request, ends_by: &'static str) -> RequestOutput {
        let (events, received) = unbounded_channel();
        let commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let output = RequestOutput::new(request.id, request.input_tokens, ends_by, received, commands.clone());
        // If the simulation is gone, no token comes.
        let _ = commands.send(SimulationCommand::Submit(Box::new(request), events));
        output
    }

    fn models(&self) -> Response {
        let model = |(name, model, adapter): &(String, Name, Name)| {
            let base = (*adapter != Name::NONE).then(|| self.offer.names.text(*model));
            json!({"id": name, "object": "model", "created": 0, "owned_by": "blis", "root": name, "parent": base,
                   "max_model_len": self.offer.max_model_len})
        };
        let models: Vec<Value> = self.offer.models.iter().map(model).collect();
        respond(StatusCode::OK, &json!({"object": "list", "data": models}))
    }

    async fn metrics(&self) -> Response {
        match self.ask(SimulationCommand::Metrics).await {
            Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page).into_response(),
            None => stopping(),
        }
    }

    async fn counts(&self) -> Response {
        match self.ask(SimulationCommand::Counts).await {
            Some(([arrived, completed, refused, cancelled], in_service)) => respond(
                StatusCode::OK,
                &json!({"arrived": arrived, "completed": completed, "refused": refused, "cancelled": cancelled,
                        "in_service": in_service}),
            ),
            None => stopping(),
        }
    }

    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> SimulationCommand) -> Option<T> {
        let (reply, received) = oneshot::channel();
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).send(command(reply)).ok()?;
        received.await.ok()
    }
}

/// The tokens of prompt and output. An adapter changes what is cached, so its blocks are others.
fn with_output(id: RequestId, prompt: &[Token], output: u32, adapter: Name) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(prompt.len() + output as usize);
    tokens.extend_from_slice(prompt);
    if adapter != Name::NONE {
        tokens[0] ^= u64::from(adapter.0) << 32;
    }
    for index in 0..output {
        tokens_of_text(word(u64::from(id.0), index), &mut tokens);
    }
    tokens
}

fn request(id: RequestId, input: u32, output: u32, parsed: &ParsedRequest, tags: Tags, content: Content) -> Request {
    Request {
        tags,
        content,
        max_output_tokens: parsed.max_tokens,
        client_priority: parsed.priority,
        ..Request::new(id, blis_sim::units::Micros::ZERO, input, output)
    }
}

fn bad_request(message: &str) -> Response {
    respond(StatusCode::BAD_REQUEST, &error_body(400, "BadRequestError", message))
}

/// The response to a body that was not read, in the form of OpenAI.
fn unread(error: BodyError) -> Response {
    let status = error.status();
    let mut response = respond(status, &error_body(status.as_u16(), "BadRequestError", &error.to_string()));
    // What is left of the body is not read.
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn no_model(offer: &ServiceOffer, name: &str) -> Response {
    let known: Vec<&str> = offer.models.iter().map(|(name, _, _)| name.as_str()).collect();
    let message = format!("The model `{name}` does not exist. Served here: {}", known.join(", "));
    respond(StatusCode::NOT_FOUND, &error_body(404, "NotFoundError", &message))
}

fn stopping() -> Response {
    respond(StatusCode::SERVICE_UNAVAILABLE, &error_body(503, "ServiceUnavailableError", "the server is stopping"))
}

fn refused(refusal: RefusalReason, offer: &ServiceOffer, model: &str) -> Response {
    let (status, kind, message) = match refusal {
        RefusalReason::TooMany => {
            (StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsError", "the service rejected the request")
        }
        RefusalReason::Unavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailableError", "the service has no room for the request")
        }
        RefusalReason::Evicted => {
            let message = "the request was evicted for one of higher priority";
            (StatusCode::TOO_MANY_REQUESTS, "TooManyRequestsError", message)
        }
        RefusalReason::NoModel => return no_model(offer, model),
        RefusalReason::Impossible(DropReason::KvTooSmall) => {
            return bad_request("the prompt needs more KV blocks than an instance has");
        }
        RefusalReason::Impossible(_) => return bad_request("the prompt is longer than the model allows"),
    };
    let body = error_body(status.as_u16(), kind, message);
    let mut response = respond(status, &body);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn respond(status: StatusCode, value: &Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}
