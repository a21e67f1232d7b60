//! HTTP: a server with simulated response times.
//!
//! This crate has the only async runtime and the only wall clock of the program. The simulator stays a function of its
//! inputs: here requests come when clients send them, and results leave when the simulated time has passed.

mod clock;
pub mod mock;

/// Ends when the process receives SIGTERM or an interrupt.
pub async fn termination() {
    let mut term = match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(term) => term,
        Err(error) => {
            tracing::warn!("the server cannot be ended by a signal: {error}");
            return std::future::pending().await;
        }
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
