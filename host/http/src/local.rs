//! Servers for this machine only.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// Refuses requests of web pages from elsewhere. A page in a browser on this machine can reach a server in two ways: by its address,
/// and then the site of the page is the `Origin`; or by a name of the site that resolves to this machine, and then that
/// name is the `Host`. Browsers also say whether the page that asks is the server's own (`Sec-Fetch-Site`).
pub async fn only_local(request: Request, next: Next) -> Response {
    let headers = request.headers();
    let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let hosts: Vec<String> = headers.get_all(header::HOST).iter().map(text).collect();
    let origins: Vec<String> = headers.get_all(header::ORIGIN).iter().map(text).collect();
    let fetches: Vec<String> = headers.get_all("sec-fetch-site").iter().map(text).collect();
    if hosts.is_empty() || !hosts.iter().all(|host| is_here(host)) {
        return refused("the header `Host` must name this machine, as 127.0.0.1 or localhost");
    }
    let is_own = |origin: &String| origin.split_once("://").is_some_and(|(_, host)| is_here(host));
    if !origins.iter().all(is_own) || !fetches.iter().all(|from| is_own_fetch(from)) {
        return refused("a page from elsewhere may not use this server");
    }
    next.run(request).await
}

/// Whether a browser sends a request for the server's own page, or for the user who has typed its address. Another port of this machine is
/// another site's (`same-site`), and has another owner.
fn is_own_fetch(site: &str) -> bool {
    site.eq_ignore_ascii_case("same-origin") || site.eq_ignore_ascii_case("none")
}

fn refused(message: &str) -> Response {
    let body = json!({"error": message}).to_string();
    (StatusCode::FORBIDDEN, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// Whether `authority`, a host with or without a port, is this machine.
fn is_here(authority: &str) -> bool {
    let Ok(authority) = authority.parse::<Authority>() else { return false };
    let host = authority.host().trim_matches(['[', ']']);
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_own_pages_fetch() {
        assert!(["same-origin", "none"].into_iter().all(is_own_fetch));
        assert!(!["cross-site", "same-site", "", "same-origin, cross-site"].into_iter().any(is_own_fetch));
    }

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
