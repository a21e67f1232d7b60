//! TLS, for servers at `https://`.

use std::io;
use std::sync::Arc;

use rustls_native_certs::load_native_certs;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Opens encrypted connections to one server. Its certificate must be for its name and from an authority that this machine
/// trusts, or that the environment variable `SSL_CERT_FILE` names.
pub(super) struct TlsClient {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsClient {
    /// # Errors
    /// If this machine trusts no authority, or `host` is no name.
    pub fn new(host: &str) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let found = load_native_certs();
        let (trusted, _) = roots.add_parsable_certificates(found.certs);
        if trusted == 0 {
            let why = found.errors.first().map_or_else(String::new, |error| format!(": {error}"));
            return Err(io::Error::other(format!("this machine trusts no certificate authority{why}")));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name })
    }

    /// The encrypted form of `stream`.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}
