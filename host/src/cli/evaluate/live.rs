//! `--history` and `--ui`: the history of a search, and the page that shows it while it runs.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use blis_eval::error::RunError;
use blis_eval::evaluation::history::SearchHistory;
use blis_http::access::AccessToken;
use blis_http::live::{LivePage, LiveServer};
use blis_report::live_page;

use super::super::output::print_note;

/// The history of a search in `folder`; in a file without a name if only a page needs it; `None` if nothing does.
pub(super) fn history(folder: Option<&Path>, has_page: bool) -> Result<Option<Arc<SearchHistory>>, RunError> {
    let history = match folder {
        Some(folder) => SearchHistory::create(folder)?,
        None if has_page => SearchHistory::unnamed()?,
        None => return Ok(None),
    };
    Ok(Some(Arc::new(history)))
}

/// The page that shows `history`, to those who know `token`.
pub(super) fn page(history: &SearchHistory, title: &str, token: Option<AccessToken>) -> LivePage {
    LivePage { html: live_page(title), history: history.file(), token }
}

/// Starts a server of the page on `address`, and says where it is. To be called after all processes have been started.
pub(super) fn show(history: &SearchHistory, address: SocketAddr, title: &str) -> Result<LiveServer, RunError> {
    let token = random_token()?;
    let secret = token.secret().to_owned();
    let server = LiveServer::start(address, page(history, title, Some(token)))
        .map_err(|error| RunError::runtime(format_args!("cannot listen on {address}: {error}")))?;
    print_note(&format_args!("the search is shown at http://{}/?token={secret}", server.address()));
    Ok(server)
}

/// A token for a server without a file of one.
pub(super) fn random_token() -> Result<AccessToken, RunError> {
    AccessToken::random().map_err(|error| RunError::runtime(format_args!("the system has no random numbers: {error}")))
}

/// Refuses an address that other machines can reach.
pub(super) fn check_loopback(address: Option<SocketAddr>) -> Result<(), RunError> {
    let Some(address) = address.filter(|address| !address.ip().is_loopback()) else { return Ok(()) };
    Err(RunError::usage(format_args!("{address} can be reached from other machines"))
        .hint("connections are not encrypted: use 127.0.0.1, and a tunnel from other machines"))
}
