//! `--history` and `--ui`: the history of a search, and the page that shows it while it runs.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use blis_eval::error::RunError;
use blis_eval::evaluation::history::SearchHistory;
use blis_http::live::{LivePage, LiveServer};
use blis_report::live_page;

use super::super::output::print_note;

/// The history of a search in its folder, which is removed at the end if the user has named none.
pub(super) struct SearchFolder {
    pub history: Arc<SearchHistory>,
    folder: PathBuf,
    is_temporary: bool,
}

impl SearchFolder {
    /// A history in `folder`, or if a page needs one; `None` if nothing does.
    pub fn create(folder: Option<&Path>, has_page: bool) -> Result<Option<Self>, RunError> {
        let (folder, is_temporary) = match folder {
            Some(folder) => (folder.to_owned(), false),
            None if has_page => (std::env::temp_dir().join(format!("blis-search-{}", std::process::id())), true),
            None => return Ok(None),
        };
        let history = Arc::new(SearchHistory::create(&folder)?);
        Ok(Some(Self { history, folder, is_temporary }))
    }

    /// The page of the search.
    pub fn page(&self, title: &str) -> LivePage {
        LivePage { html: live_page(title), history: SearchHistory::path(&self.folder) }
    }

    /// Starts a server of the page on `address`, and says where it is. To be called after all processes have been started.
    pub fn show(&self, address: SocketAddr, title: &str) -> Result<LiveServer, RunError> {
        let server = LiveServer::start(address, self.page(title))
            .map_err(|error| RunError::runtime(format_args!("cannot listen on {address}: {error}")))?;
        print_note(&format_args!("the search is shown at http://{}", server.address()));
        Ok(server)
    }
}

impl Drop for SearchFolder {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = std::fs::remove_dir_all(&self.folder)
        {
            tracing::warn!("`{}` cannot be removed: {error}", self.folder.display());
        }
    }
}

/// Refuses an address that other machines can reach.
pub(super) fn check_loopback(address: Option<SocketAddr>) -> Result<(), RunError> {
    let Some(address) = address.filter(|address| !address.ip().is_loopback()) else { return Ok(()) };
    Err(RunError::usage(format_args!("{address} can be reached from other machines"))
        .hint("the server has no access control: use 127.0.0.1, and a tunnel from other machines"))
}
