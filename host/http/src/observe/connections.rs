//! Connections to the server, which are kept for later requests.

use std::cell::RefCell;
use std::io;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::target::ServerUrl;
use super::tls::TlsClient;

/// Idle connections, the last used one at the end. Used by one thread.
pub(crate) struct Connections {
    url: ServerUrl,
    /// `None` for connections that are not encrypted.
    tls: Option<TlsClient>,
    idle: RefCell<Vec<Connection>>,
}

/// An open connection, which carries one request at a time.
pub(crate) type Connection = SendRequest<Full<Bytes>>;

/// Why a request got no response.
#[derive(Debug)]
pub(crate) enum SendError {
    /// No connection could be opened.
    Connect(io::Error),
    /// The server speaks no TLS, or has no certificate that this machine trusts.
    Tls(io::Error),
    /// The connection broke before the response.
    Broken(hyper::Error),
}

/// A response, and the connection to give back once its body was read.
pub(crate) struct Answered {
    pub response: Response<Incoming>,
    pub connection: Connection,
    /// Time to open a connection; `None` if an open one was used.
    pub connected_in: Option<Duration>,
    /// When the request was written, after a connection was there.
    pub sent: Instant,
}

impl Connections {
    /// No connections to `url` yet.
    ///
    /// # Errors
    /// If it is encrypted, and this machine trusts no certificate.
    pub fn new(url: ServerUrl) -> io::Result<Self> {
        let tls = url.is_tls().then(|| TlsClient::new(url.address().0)).transpose()?;
        Ok(Self { url, tls, idle: RefCell::new(Vec::new()) })
    }

    /// Sends `request` on an idle connection, or on a new one.
    pub async fn send(&self, mut request: Request<Full<Bytes>>) -> Result<Answered, SendError> {
        loop {
            let idle = self.idle.borrow_mut().pop();
            let Some(mut connection) = idle else { break };
            // The server may have closed it in the meantime.
            if connection.is_closed() || connection.ready().await.is_err() {
                continue;
            }
            let sent = Instant::now();
            match connection.try_send_request(request).await {
                Ok(response) => return Ok(Answered { response, connection, connected_in: None, sent }),
                Err(mut error) => match error.take_message() {
                    // It was not sent.
                    Some(unsent) => request = unsent,
                    None => return Err(SendError::Broken(error.into_error())),
                },
            }
        }
        let start = Instant::now();
        let mut connection = self.open().await?;
        connection.ready().await.map_err(SendError::Broken)?;
        let sent = Instant::now();
        let response = connection.send_request(request).await.map_err(SendError::Broken)?;
        Ok(Answered { response, connection, connected_in: Some(sent - start), sent })
    }

    /// Opens a connection, so that a server that is not there is found before the start.
    pub async fn open_first(&self) -> Result<(), SendError> {
        self.open().await.map(|connection| self.give_back(connection))
    }

    async fn open(&self) -> Result<Connection, SendError> {
        let stream = TcpStream::connect(self.url.address()).await.map_err(SendError::Connect)?;
        stream.set_nodelay(true).map_err(SendError::Connect)?;
        match &self.tls {
            None => speak_http(stream).await,
            Some(tls) => speak_http(tls.connect(stream).await.map_err(SendError::Tls)?).await,
        }
    }

    /// Keeps `connection` for later requests, if the server does.
    pub fn give_back(&self, connection: Connection) {
        if !connection.is_closed() {
            self.idle.borrow_mut().push(connection);
        }
    }
}

async fn speak_http(stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<Connection, SendError> {
    let (connection, driver) = handshake(TokioIo::new(stream)).await.map_err(SendError::Broken)?;
    // Its errors reach the request that it carries.
    tokio::task::spawn_local(async move { drop(driver.await) });
    Ok(connection)
}
