//! The address of a server.

use std::fmt;

/// A server by its URL: `http://host:port` or `https://host:port`, or with a path before `/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    is_tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl ServerUrl {
    /// Reads `http[s]://host[:port][/path]`; a `/v1` at its end belongs to the interface, not to the path.
    ///
    /// # Errors
    /// What is wrong with `text`, and what to write.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "write http://HOST:PORT, or https://HOST";
        let (is_tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            (None, None) => return Err(format!("it has no `http://` or `https://`; {form}")),
        };
        let (authority, path) = rest.split_once('/').map_or((rest, ""), |(authority, path)| (authority, path));
        if authority.contains('@') {
            return Err(format!("names and passwords do not belong into a URL; {form}"));
        }
        let uri: hyper::http::uri::Authority =
            authority.parse().map_err(|_| format!("`{authority}` is no host; {form}"))?;
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix("v1").map_or(path, |path| path.trim_end_matches('/'));
        if path.bytes().any(|byte| !byte.is_ascii_graphic()) || path.contains(['?', '#']) {
            return Err(format!("`/{path}` is no path; {form}"));
        }
        let path = if path.is_empty() { String::new() } else { format!("/{path}") };
        let has_port = authority.len() > uri.host().len();
        if has_port && uri.port_u16().is_none() {
            return Err(format!("`{authority}` has no valid port; {form}"));
        }
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { is_tls, host: uri.host().trim_matches(['[', ']']).to_owned(), port, path })
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host and port to connect to.
    #[must_use]
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The value of the header `Host`.
    #[must_use]
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The path of a route of the interface, such as `/v1/models`.
    #[must_use]
    pub fn route(&self, route: &str) -> String {
        format!("{}{route}", self.path)
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_host_and_perhaps_a_port_and_a_path() {
        let parts = |text: &str| {
            let url = ServerUrl::parse(text).unwrap();
            (url.address().0.to_owned(), url.address().1, url.route("/v1/models"))
        };
        assert_eq!(parts("http://localhost:8000"), ("localhost".to_owned(), 8000, "/v1/models".to_owned()));
        assert_eq!(parts("http://a.example/v1/"), ("a.example".to_owned(), 80, "/v1/models".to_owned()));
        assert_eq!(parts("http://[::1]:9/team/v1"), ("::1".to_owned(), 9, "/team/v1/models".to_owned()));
        assert_eq!(ServerUrl::parse("http://[::1]:9/x").unwrap().to_string(), "http://[::1]:9/x");
        let tls = ServerUrl::parse("https://a.example/v1").unwrap();
        assert_eq!((tls.is_tls(), tls.to_string()), (true, "https://a.example:443".to_owned()));
    }

    #[test]
    fn other_texts_are_refused_with_the_form() {
        for (text, part) in [
            ("localhost:8000", "no `http://`"),
            ("http://", "no host"),
            ("http://user:secret@a.example", "passwords"),
            ("http://a:99999", "port"),
            ("http://a/x?y", "no path"),
        ] {
            let error = ServerUrl::parse(text).unwrap_err();
            assert!(error.contains(part) && error.contains("http://HOST:PORT"), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
