//! A page that shows a search while it runs: `GET /` is the page, `GET /events` its events (server-sent events), a line of the
//! search's history each.
//!
//! The number of an event is that of its line. A browser that was cut off names the last one it has (`Last-Event-ID`) and gets the
//! rest.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http_body::Frame;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::watch;

use crate::local::only_local;

/// Time between two looks at the history.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Most bytes that are read at a look.
const MOST_AT_ONCE: u64 = 1 << 20;

/// A page of a search and the history that it shows.
#[derive(Clone, Debug)]
pub struct LivePage {
    /// The page that it serves.
    pub html: String,
    /// The file with the history, which grows by lines of JSON.
    pub history: PathBuf,
}

impl LivePage {
    /// The routes of the page. Events end when `stopping` becomes true, after those that are there.
    pub fn routes(self, stopping: watch::Receiver<bool>) -> Router {
        let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
        let page = |State((live, _)): State<LiveState>| async move { (headers, live.html.clone()).into_response() };
        Router::new().route("/", get(page)).route("/events", get(events)).with_state((Arc::new(self), stopping))
    }
}

type LiveState = (Arc<LivePage>, watch::Receiver<bool>);

async fn events(State((live, stopping)): State<LiveState>, headers: HeaderMap) -> Response {
    let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok()).unwrap_or(0);
    // A slow browser delays its own events only.
    let (sender, receiver) = channel(16);
    tokio::spawn(async move { follow(HistoryTail::new(live.history.clone(), seen), stopping, &sender).await });
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
                    tracing::warn!("the history `{}` cannot be read: {error}", tail.path.display());
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
    path: PathBuf,
    file: Option<File>,
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
    fn new(path: PathBuf, seen: u64) -> Self {
        Self { path, file: None, rest: Vec::new(), lines: 0, seen, is_finished: false }
    }

    /// The lines that are there since the last call, as events; empty if there is none.
    fn next_events(&mut self) -> io::Result<Vec<u8>> {
        let mut events = Vec::new();
        loop {
            let file = match &mut self.file {
                Some(file) => file,
                None => self.file.insert(File::open(&self.path)?),
            };
            let count = file.take(MOST_AT_ONCE).read_to_end(&mut self.rest)?;
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
                let routes = page.routes(stopping.clone()).layer(middleware::from_fn(only_local));
                let mut until = stopping;
                let stopped = async move { _ = until.wait_for(|&stop| stop).await };
                axum::serve(listener, routes).with_graceful_shutdown(stopped).await
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
    use std::io::Write as _;
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
        let page = LivePage { html: "<p>page</p>".to_owned(), history: path.clone() };
        let server = LiveServer::start(([127, 0, 0, 1], 0).into(), page).expect("started");
        let address = server.address();
        let html = ask(address, "GET / HTTP/1.1\r\nHost: localhost");
        assert!(html.starts_with("HTTP/1.1 200") && html.ends_with("<p>page</p>"), "{html}");
        assert!(ask(address, "GET / HTTP/1.1\r\nHost: evil.example").starts_with("HTTP/1.1 403"));
        assert!(ask(address, "GET /elsewhere HTTP/1.1\r\nHost: localhost").starts_with("HTTP/1.1 404"));
        // Two browsers, one of which was here before; the rest of the third line comes later, and then the end.
        let browsers = ["", "\r\nLast-Event-ID: 1"].map(|seen| {
            let head = format!("GET /events HTTP/1.1\r\nHost: localhost{seen}");
            std::thread::spawn(move || ask(address, &head))
        });
        std::thread::sleep(Duration::from_millis(300));
        let mut file = File::options().append(true).open(&path).expect("there");
        file.write_all(b"ber\":3}\n{\"finished\":true}\n").expect("written");
        let [all, rest] = browsers.map(|browser| browser.join().expect("a response"));
        assert_eq!((ids(&all), ids(&rest)), (vec![1, 2, 3, 4], vec![2, 3, 4]), "{all}");
        assert!(all.contains("text/event-stream") && all.contains("data: {\"number\":3}\n\n"), "{all}");
        server.finish().expect("ended");
        std::fs::remove_file(path).expect("removed");
    }

    #[test]
    fn a_server_that_stops_ends_its_events() {
        let path = std::env::temp_dir().join(format!("blis-live-stop-{}.jsonl", std::process::id()));
        std::fs::write(&path, "{\"number\":1}\n").expect("written");
        let page = LivePage { html: String::new(), history: path.clone() };
        let server = LiveServer::start(([127, 0, 0, 1], 0).into(), page).expect("started");
        let address = server.address();
        let browser = std::thread::spawn(move || ask(address, "GET /events HTTP/1.1\r\nHost: localhost"));
        std::thread::sleep(Duration::from_millis(300));
        server.finish().expect("ended");
        assert_eq!(ids(&browser.join().expect("a response")), [1]);
        std::fs::remove_file(path).expect("removed");
    }
}
