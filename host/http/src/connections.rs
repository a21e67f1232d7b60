//! Connections to the servers of this crate: how many there are, how long a peer may take to say something, and what it may make the
//! server hold meanwhile.
//!
//! A peer that connects and says nothing, or says it a byte at a time, costs a slot until its time is over, and no more memory than it
//! has sent. All bodies together are bounded as well ([`Bodies`]): a body counts from its first byte until its request is done, so that
//! the waiting requests of a queue are among them.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use http_body_util::BodyExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Bytes of the head of a request, and of what a connection reads ahead.
const HEAD_BYTES: usize = 64 << 10;
/// Time in which a connection beyond the limit takes its response.
const REFUSAL_LIMIT: Duration = Duration::from_secs(1);

/// What connections may take.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections at a time; further ones get the status 503.
    pub connections: usize,
    /// Time until the whole head of the first or the next request is there.
    pub head: Duration,
    /// Time from the head of a request until its whole body is there.
    pub body: Duration,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Bytes of all bodies of requests that are not done.
    pub bodies_bytes: usize,
}

/// Serves `routes` until `stopped` ends; requests that are there by then still get their responses.
pub async fn serve_connections<L: Listener>(
    mut listener: L,
    routes: Router,
    limits: ConnectionLimits,
    stopped: impl Future<Output = ()>,
) {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (stop, stopping) = watch::channel(false);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.head).max_buf_size(HEAD_BYTES);
    let mut tasks = JoinSet::new();
    tokio::pin!(stopped);
    loop {
        let (stream, _) = tokio::select! {
            accepted = listener.accept() => accepted,
            // Its task is forgotten.
            Some(_) = tasks.join_next() => continue,
            () = &mut stopped => break,
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            let refusal = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(busy()));
            // A peer that does not take it is not waited for.
            tasks.spawn(async move { drop(tokio::time::timeout(REFUSAL_LIMIT, refusal).await) });
            continue;
        };
        let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
        let mut stopping = stopping.clone();
        tasks.spawn(async move {
            let _slot = slot;
            tokio::pin!(connection);
            // What ends a connection is the matter of its peer.
            tokio::select! {
                ended = connection.as_mut() => return drop(ended.inspect_err(|error| tracing::debug!("a connection: {error}"))),
                _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        });
    }
    // There may be no connection.
    let _ = stop.send(true);
    while tasks.join_next().await.is_some() {}
}

/// What a connection beyond the limit gets.
fn busy() -> Router {
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::RETRY_AFTER, "1"), (header::CONNECTION, "close")];
    let body = json!({"error": "busy: the server has as many connections as it may"}).to_string();
    Router::new().fallback(async move || (StatusCode::SERVICE_UNAVAILABLE, headers, body))
}

/// Reads the bodies of requests within the limits of a server.
#[derive(Clone, Debug)]
pub struct Bodies {
    limits: ConnectionLimits,
    held: Arc<AtomicUsize>,
}

/// The body of a request, which counts until it is dropped.
#[derive(Debug)]
pub struct HeldBody {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

/// Why a body is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It has more bytes than a body may have.
    TooLong { at_most: usize },
    /// All bodies together would have more bytes than the server holds.
    Busy,
    /// It was not complete in time.
    Late { limit: Duration },
    /// The connection broke.
    Broken,
}

impl Bodies {
    #[must_use]
    pub fn new(limits: ConnectionLimits) -> Self {
        Self { limits, held: Arc::default() }
    }

    /// Reads `body` to its end.
    ///
    /// # Errors
    /// Why it is not read. The connection cannot be used any more then.
    pub async fn read(&self, body: Body) -> Result<HeldBody, BodyError> {
        let limit = self.limits.body;
        tokio::time::timeout(limit, self.read_all(body)).await.unwrap_or(Err(BodyError::Late { limit }))
    }

    async fn read_all(&self, mut body: Body) -> Result<HeldBody, BodyError> {
        let at_most = self.limits.body_bytes;
        let mut read = HeldBody { bytes: Vec::new(), held: Arc::clone(&self.held) };
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| BodyError::Broken)?;
            let Some(bytes) = frame.data_ref() else { continue };
            let length = read.bytes.len() + bytes.len();
            if length > at_most {
                return Err(BodyError::TooLong { at_most });
            }
            // Room for what has come, and as much again, whatever the peer says that will come.
            if length > read.bytes.capacity() {
                read.grow(length.max(2 * read.bytes.capacity()).min(at_most), self.limits.bodies_bytes)?;
            }
            read.bytes.extend_from_slice(bytes);
        }
        Ok(read)
    }
}

impl HeldBody {
    fn grow(&mut self, capacity: usize, all_at_most: usize) -> Result<(), BodyError> {
        let more = capacity - self.bytes.capacity();
        if self.held.fetch_add(more, Ordering::SeqCst) + more > all_at_most {
            self.held.fetch_sub(more, Ordering::SeqCst);
            return Err(BodyError::Busy);
        }
        let before = self.bytes.capacity();
        self.bytes.reserve_exact(capacity - self.bytes.len());
        // The allocator may give more than it was asked for.
        self.held.fetch_add(self.bytes.capacity() - before - more, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for HeldBody {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes.capacity(), Ordering::SeqCst);
    }
}

impl Deref for HeldBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BodyError {
    /// The status of the response.
    #[must_use]
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLong { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Late { .. } => StatusCode::REQUEST_TIMEOUT,
            Self::Broken => StatusCode::BAD_REQUEST,
        }
    }
}

impl std::fmt::Display for BodyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { at_most } => write!(f, "the body is longer than {} MiB", at_most >> 20),
            Self::Busy => f.write_str("busy: the server holds as many bodies of requests as it may"),
            Self::Late { limit } => write!(f, "the body was not complete within {} s", limit.as_secs()),
            Self::Broken => f.write_str("the body is not complete"),
        }
    }
}

impl IntoResponse for BodyError {
    fn into_response(self) -> Response {
        let body = json!({"error": self.to_string()}).to_string();
        let mut response = (self.status(), [(header::CONTENT_TYPE, "application/json")], body).into_response();
        // What is left of the body is not read.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        if self == Self::Busy {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream};
    use std::time::Instant;

    use axum::extract::{Request, State};
    use axum::routing::post;

    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits {
        connections: 4,
        head: Duration::from_millis(300),
        body: Duration::from_millis(600),
        body_bytes: 1 << 20,
        bodies_bytes: 3 << 19,
    };

    /// A server that replies with the length of a body, and the bytes that its bodies hold.
    fn start() -> (SocketAddr, Bodies, watch::Sender<bool>) {
        let bodies = Bodies::new(LIMITS);
        let (state, (stop, mut stopping)) = (bodies.clone(), watch::channel(false));
        let (sender, address) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
                sender.send(listener.local_addr().expect("an address")).expect("the test waits");
                let length =
                    async |State(bodies): State<Bodies>, request: Request| match bodies.read(request.into_body()).await
                    {
                        Ok(body) => body.len().to_string().into_response(),
                        Err(error) => error.into_response(),
                    };
                let routes = Router::new().route("/", post(length)).with_state(state);
                serve_connections(listener, routes, LIMITS, async move { _ = stopping.wait_for(|stop| *stop).await })
                    .await;
            });
        });
        (address.recv().expect("it listens"), bodies, stop)
    }

    fn connect(address: SocketAddr, text: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).expect("it listens");
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    }

    fn response(mut stream: TcpStream) -> String {
        let mut text = String::new();
        // A connection that is closed before all was sent is reset after the response.
        let _ = stream.read_to_string(&mut text);
        text
    }

    fn head(length: usize) -> String {
        format!("POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n")
    }

    #[test]
    fn slow_peers_end_in_time_and_hold_what_they_sent() {
        let (address, bodies, _stop) = start();
        let begun = Instant::now();
        assert_eq!(response(connect(address, "POST / HT")), "");
        let slow = response(connect(address, &format!("{}abc", head(1 << 20))));
        assert!(slow.starts_with("HTTP/1.1 408") && slow.contains("within 0 s"), "{slow}");
        assert!(begun.elapsed() >= LIMITS.head + LIMITS.body && begun.elapsed() < Duration::from_secs(20));
        let many: Vec<TcpStream> =
            (0..3).map(|_| connect(address, &format!("{}{}", head(1 << 20), "x".repeat(100_000)))).collect();
        std::thread::sleep(Duration::from_millis(200));
        let held = bodies.held.load(Ordering::SeqCst);
        assert!(held <= 3 << 18, "{held}");
        drop(many);
        assert!(response(connect(address, &format!("{}{}", head(5), "hello"))).ends_with("\r\n\r\n5"));
        std::thread::sleep(LIMITS.body);
        assert_eq!(bodies.held.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn bodies_and_connections_are_bounded() {
        let (address, _, stop) = start();
        let long = response(connect(address, &format!("{}{}", head(3 << 20), "x".repeat(2 << 20))));
        assert!(long.is_empty() || long.starts_with("HTTP/1.1 413"), "{long}");
        let _idle: Vec<TcpStream> = (0..4).map(|_| connect(address, "POST")).collect();
        std::thread::sleep(Duration::from_millis(100));
        let refused = response(connect(address, &head(0)));
        assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
        std::thread::sleep(LIMITS.head * 2);
        assert!(response(connect(address, &format!("{}{}", head(2), "ok"))).ends_with("\r\n\r\n2"));
        stop.send(true).expect("it runs");
    }
}
