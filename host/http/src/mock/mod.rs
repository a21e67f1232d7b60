//! A simulated service behind OpenAI's interface, in real time.
//!
//! ```text
//! client ─► server.rs (axum, one thread) ─ requests ─► simulation.rs (one thread): the simulator, up to the present
//!    ◄── stream.rs ◄────────────────────── tokens ────── deliveries.rs: every token at its simulated time
//! ```
//!
//! Arrivals get the time at which they were read. A step of an instance is simulated when it begins, so its end is known
//! before it is due, and tokens leave then.

mod deliveries;
mod metrics;
mod openai;
mod prompt;
mod server;
mod simulation;
mod stream;

pub use server::{MockServer, MockSettings};
