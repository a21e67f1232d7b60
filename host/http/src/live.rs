//! A page that shows a search while it runs: `GET /` is the page, `GET /events` its events (server-sent events), a line of the
//! search's history each.
//!
//! The number of an event is that of its line. A browser that was cut off names the last one it has (`Last-Event-ID`) and gets the
//! rest.
//!
//! The history is an open file, never a path: whatever another user puts there meanwhile, the page shows the search. Its events have the
//! texts of candidates, so they need the token of the server; the page itself holds nothing, and passes its own `?token=…` on.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::access::{AccessToken, with_token};
use crate::connections::{ConnectionLimits, serve_connections};
use crate::local::only_local;

/// Limits of the server of a page. It takes no bodies.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 64,
    head: Duration::from_secs(10),
    body: Duration::from_secs(10),
    body_bytes: 0,
    bodies_bytes: 0,
};
/// Time between two looks at the history.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Most bytes that are read at a look.
const MOST_AT_ONCE: usize = 1 << 20;

/// A page of a search and the history that it shows.
#[derive(Clone, Debug)]
pub struct LivePage {
    /// The page that it serves.
    pub html: String,
    /// The file with the history, open for reading, which grows by lines of JSON.
    pub history: Arc<File>,
    /// What requests for the events must name; `None` if they need nothing.
    pub token: Option<AccessToken>,
}

impl LivePage {
    /// The routes of the page. Events end when `stopping` becomes true, after those that are there.
    pub fn routes(self, stopping: watch::Receiver<bool>) -> Router {
        let headers = [
            (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
            (header::CACHE_CONTROL, "no-store".to_owned()),
            (header::CONTENT_SECURITY_POLICY, content_policy(&self.html)),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
            // Its address has the token.
            (header::REFERRER_POLICY, "no-referrer".to_owned()),
        ];
        let token = self.token.clone();
        let page = |State((live, _)): State<LiveState>| async move { (headers, live.html.clone()).into_response() };
        let events = get(events).layer(from_fn_with_state(token, with_token));
        Router::new().route("/", get(page)).route("/events", events).with_state((Arc::new(self), stopping))
    }
}

/// The content security policy that the page `html` states, and what only a header can say: no other page may frame it.
fn content_policy(html: &str) -> String {
    let stated =
        html.split_once("http-equiv=\"Content-Security-Policy\" content=\"").and_then(|(_, rest)| rest.split_once('"'));
    let stated = stated.map_or("default-src 'none'", |(policy, _)| policy);
    format!("{stated}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
}

type LiveState = (Arc<LivePage>, watch::Receiver<bool>);

async fn events(State((live, stopping)): State<LiveState>, headers: HeaderMap) -> Response {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok()).unwrap_or(0);
    // A slow browser delays its own events only.
    let (sender, receiver) = channel(16);
    tokio::spawn(async move { follow(HistoryTail::new(Arc::clone(&live.history), seen), stopping, &sender).await });
    let headers = [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::new(EventBody(receiver))).into_response()
}

/// Sends the lines of the history until the search or the server ends, or the browser is gone.
async fn follow(mut tail: HistoryTail, mut stopping: watch::Receiver<bool>, sender: &Sender<Bytes>) {
    loop {
        let is_stopping = *stopping.borrow();
        loop {
            match tail.next_events() {
                Ok(events) if events.is_empty() => break,
                Ok(events) => {
                    if sender.send(events.into()).await.is_err() || tail.is_finished {
                        return;
                    }
                }
                Err(error) => {
                    tracing::warn!("the history of the search cannot be read: {error}");
                    return;
                }
            }
        }
        if is_stopping {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            changed = stopping.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = sender.closed() => return,
        }
    }
}

/// The part of a history that has not been sent.
#[derive(Debug)]
struct HistoryTail {
    file: Arc<File>,
    /// Bytes that were read.
    offset: u64,
    /// Bytes after the last line that was complete.
    rest: Vec<u8>,
    /// Number of complete lines so far.
    lines: u64,
    /// Number of lines that the browser has already.
    seen: u64,
    /// Whether the last line of the search has been read.
    is_finished: bool,
}

impl HistoryTail {
    fn new(file: Arc<File>, seen: u64) -> Self {
        Self { file, offset: 0, rest: Vec::new(), lines: 0, seen, is_finished: false }
    }

    /// The lines that are there since the last call, as events; empty if there is none.
    fn next_events(&mut self) -> io::Result<Vec<u8>> {
        let mut events = Vec::new();
        loop {
            // By position: the file is also that of the writer, and of other browsers.
            let start = self.rest.len();
            self.rest.resize(start + MOST_AT_ONCE, 0);
            let read = self.file.read_at(&mut self.rest[start..], self.offset);
            let count = read.as_ref().copied().unwrap_or(0);
            self.rest.truncate(start + count);
            read?;
            self.offset += count as u64;
            let whole = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = self.rest.drain(..whole).collect();
            for line in lines.split_inclusive(|&byte| byte == b'\n') {
                self.lines += 1;
                self.is_finished |= line.starts_with(b"{\"finished\":true}");
                if self.lines > self.seen {
                    events.extend_from_slice(format!("id: {}\ndata: ", self.lines).as_bytes());
                    events.extend_from_slice(line);
                    events.push(b'\n');
                }
            }
            // What was skipped is no reason to wait.
            if count == 0 || !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

/// The body of the response of `/events`.
struct EventBody(Receiver<Bytes>);

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|events| events.map(|events| Ok(Frame::data(events))))
    }
}

/// A server of a live page in a thread of its own.
#[derive(Debug)]
pub struct LiveServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: JoinHandle<io::Result<()>>,
}

impl LiveServer {
    /// Starts serving `page`. Port 0 takes a free one.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn start(address: SocketAddr, page: LivePage) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (stop, stopping) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("live page".to_owned()).spawn(move || {
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let routes = page.routes(stopping.clone()).layer(from_fn(only_local));
                let mut until = stopping;
                let stopped = async move { _ = until.wait_for(|&stop| stop).await };
                serve_connections(listener, routes, LIMITS, stopped).await;
                Ok(())
            })
        })?;
        Ok(Self { address, stop, thread })
    }

    /// The address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the server after the events that are there have been sent.
    ///
    /// # Errors
    /// If the server had ended before.
    pub fn finish(self) -> io::Result<()> {
        // Without a receiver the thread has ended, with its error.
        let _ = self.stop.send(true);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread of the live page has panicked")))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    fn ask(address: SocketAddr, head: &str) -> String {
        let mut stream = TcpStream::connect(address).expect("it listens");
        write!(stream, "{head}\r\nConnection: close\r\n\r\n").expect("sent");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("a response");
        text
    }

    /// The numbers of the events in a response.
    fn ids(response: &str) -> Vec<u64> {
        response.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect()
    }

    #[test]
    fn a_browser_gets_the_page_and_every_line_once() {
        let path = std::env::temp_dir().join(format!("blis-live-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"number\":1}\n{\"number\":2}\n{\"num").expect("written");
        let history = Arc::new(File::open(&path).expect("there"));
        let token = AccessToken::random().expect("random numbers");
        let secret = token.secret().to_owned();
        let page = LivePage { html: "<p>page</p>".to_owned(), history, token: Some(token) };
        let server = LiveServer::start(([127, 0, 0, 1], 0).into(), page).expect("started");
        let address = server.address();
        let html = ask(address, "GET / HTTP/1.1\r\nHost: localhost");
        assert!(html.starts_with("HTTP/1.1 200") && html.ends_with("<p>page</p>"), "{html}");
        assert!(
            html.contains("content-security-policy: default-src 'none'; ") && html.contains("frame-ancestors 'none'"),
            "{html}"
        );
        let from_elsewhere = ask(address, "GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-site");
        assert!(from_elsewhere.starts_with("HTTP/1.1 403"), "{from_elsewhere}");
        let without = ask(address, "GET /events HTTP/1.1\r\nHost: localhost");
        assert!(without.starts_with("HTTP/1.1 401") && !without.contains("number"), "{without}");
        assert!(ask(address, "GET / HTTP/1.1\r\nHost: evil.example").starts_with("HTTP/1.1 403"));
        assert!(ask(address, "GET /elsewhere HTTP/1.1\r\nHost: localhost").starts_with("HTTP/1.1 404"));
        // Two browsers, one of which was here before; the rest of the third line comes later, and then the end.
        let browsers = ["", "\r\nLast-Event-ID: 1"].map(|seen| {
            let head = format!("GET /events?token={secret} HTTP/1.1\r\nHost: localhost{seen}");
            std::thread::spawn(move || ask(address, &head))
        });
        std::thread::sleep(Duration::from_millis(300));
        // Another file takes the path, which is not read again.
        let moved = path.with_extension("moved");
        std::fs::rename(&path, &moved).expect("moved");
        std::fs::write(&path, "{\"secret\":0}\n".repeat(9)).expect("written");
        let mut file = File::options().append(true).open(&moved).expect("there");
        file.write_all(b"ber\":3}\n{\"finished\":true}\n").expect("written");
        let [all, rest] = browsers.map(|browser| browser.join().expect("a response"));
        assert_eq!((ids(&all), ids(&rest)), (vec![1, 2, 3, 4], vec![2, 3, 4]), "{all}");
        assert!(!all.contains("secret"), "{all}");
        assert!(all.contains("text/event-stream") && all.contains("data: {\"number\":3}\n\n"), "{all}");
        server.finish().expect("ended");
        std::fs::remove_file(path).and_then(|()| std::fs::remove_file(moved)).expect("removed");
    }

    #[test]
    fn a_server_that_stops_ends_its_events() {
        let path = std::env::temp_dir().join(format!("blis-live-stop-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"number\":1}\n").expect("written");
        let history = Arc::new(File::open(&path).expect("there"));
        let page = LivePage { html: String::new(), history, token: None };
        let server = LiveServer::start(([127, 0, 0, 1], 0).into(), page).expect("started");
        let address = server.address();
        let browser = std::thread::spawn(move || ask(address, "GET /events HTTP/1.1\r\nHost: localhost"));
        std::thread::sleep(Duration::from_millis(300));
        server.finish().expect("ended");
        assert_eq!(ids(&browser.join().expect("a response")), [1]);
        std::fs::remove_file(path).expect("removed");
    }
}
