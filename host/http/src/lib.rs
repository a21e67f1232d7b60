//! HTTP: a load generator for real servers, a server with simulated response times, the page of a search that runs,
//! and language models that propose programs to a search.
//!
//! This crate has the only async runtime and the only wall clock of the program. The simulator stays a function of its
//! inputs: here requests come when clients send them, and results leave when the simulated time has passed.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests make the files that they read"))]

pub mod access;
pub mod chat;
mod clock;
pub mod connections;
mod hash;
pub mod live;
pub mod local;
pub mod mock;
pub mod observe;
pub mod sse;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a process: SIGTERM and the interrupt of a terminal.
pub struct Termination {
    term: Option<Signal>,
    interrupt: Option<Signal>,
}

impl Termination {
    /// From now on these signals end nothing by themselves. To be called within a runtime.
    #[must_use]
    pub fn new() -> Self {
        let listen = |kind| {
            let listening = signal(kind);
            listening.inspect_err(|error| tracing::warn!("a signal cannot be received: {error}")).ok()
        };
        Self { term: listen(SignalKind::terminate()), interrupt: listen(SignalKind::interrupt()) }
    }

    /// Ends when the process receives the next signal.
    pub async fn next(&mut self) {
        tokio::select! {
            () = received(&mut self.term) => {}
            () = received(&mut self.interrupt) => {}
        }
    }
}

impl Default for Termination {
    fn default() -> Self {
        Self::new()
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
