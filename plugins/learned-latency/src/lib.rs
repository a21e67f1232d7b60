//! Step times learned from samples: linear within ranges of the number of tokens in a step.
//!
//! A step takes at least the time to read the weights from memory, whatever it computes; more tokens then cost little
//! until the arithmetic takes longer than the memory accesses, and a proportional time from there on. Within a range of
//! tokens a linear function describes that well, so a table of a few rows covers all steps:
//!
//! ```text
//! µs = base + per_token · tokens + per_request · requests
//!    + per_kilo_context · context read by decoding requests, in thousands of tokens
//!    + per_mega_attention · pairs of tokens in the attention of prompts, in millions
//! ```
//!
//! [`TABLE`] was fitted (non-negative least squares on relative errors) to 4000 random steps of the simulator's own
//! roofline model, for Llama-3.1-8B on an H100: below some 130 tokens it shows the 3 ms in which 15 GB of weights are
//! read, above 512 tokens 23 µs of arithmetic per token. `tests/fit.rs` generates the samples, fits the table, compares
//! it with this one, and evaluates it on steps that were not part of the fit. To learn from a real engine, replace the
//! samples by its step log and copy the table that the test prints.
//!
//! No coefficient is below 0: more context never makes a step shorter, so the simulator may skip equal steps
//! (`every_step` is not set).

use blis_sdk::{Description, Latency, LatencyConstants, Policy, Setup, Step};
use serde::{Deserialize, Serialize};

/// One row of the table: steps of at least `from_tokens` tokens, up to the next row. All times are µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// The smallest number of tokens of a step in this row.
    pub from_tokens: u64,
    /// Time of any step, µs.
    pub base: f64,
    /// Time per computed token, µs.
    pub per_token: f64,
    /// Time per request in the step, µs.
    pub per_request: f64,
    /// Time per 1000 tokens of context of decoding requests, µs.
    pub per_kilo_context: f64,
    /// Time per 10⁶ pairs of prompt tokens of which one attends to the other, µs.
    pub per_mega_attention: f64,
}

/// The table for Llama-3.1-8B on one H100.
#[rustfmt::skip] // a table
pub const TABLE: [Piece; 5] = [
    Piece { from_tokens: 0, base: 3044.93, per_token: 0.1109, per_request: 0.0391, per_kilo_context: 39.1083, per_mega_attention: 765.0999 },
    Piece { from_tokens: 96, base: 1651.33, per_token: 11.7469, per_request: 6.1446, per_kilo_context: 34.6339, per_mega_attention: 803.5466 },
    Piece { from_tokens: 160, base: 48.04, per_token: 22.4180, per_request: 9.6438, per_kilo_context: 20.8079, per_mega_attention: 1036.1915 },
    Piece { from_tokens: 320, base: 79.62, per_token: 22.7089, per_request: 8.2229, per_kilo_context: 11.2438, per_mega_attention: 1044.2740 },
    Piece { from_tokens: 1024, base: 0.00, per_token: 22.8841, per_request: 11.3657, per_kilo_context: 1.8172, per_mega_attention: 1192.0933 },
];

/// The factors of a row's coefficients, in their order.
#[must_use]
pub fn features(step: &Step) -> [f64; 5] {
    // A prompt token attends to the context and, on average, to half of the tokens computed with it.
    let pairs = step.prefill_tokens_by_context as f64 + step.prefill_tokens_squared as f64 / 2.0;
    [
        1.0,
        tokens(step) as f64,
        (step.prefill_requests + step.decode_requests) as f64,
        step.decode_context as f64 / 1e3,
        pairs / 1e6,
    ]
}

/// Number of tokens computed in `step`.
#[must_use]
pub fn tokens(step: &Step) -> u64 {
    step.prefill_tokens.saturating_add(step.decode_requests)
}

impl Piece {
    /// The coefficients in the order of [`features`].
    #[must_use]
    pub fn coefficients(&self) -> [f64; 5] {
        [self.base, self.per_token, self.per_request, self.per_kilo_context, self.per_mega_attention]
    }

    /// Predicted duration of `step`, µs.
    #[must_use]
    pub fn time(&self, step: &Step) -> f64 {
        self.coefficients().iter().zip(features(step)).map(|(coefficient, feature)| coefficient * feature).sum()
    }
}

/// The row for steps of this number of tokens.
#[must_use]
pub fn piece(tokens: u64) -> &'static Piece {
    let row = TABLE.iter().rposition(|piece| piece.from_tokens <= tokens);
    &TABLE[row.unwrap_or(0)]
}

/// The latency model: a factor on all steps, and times outside of the engine, µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LearnedLatency {
    factor: f64,
    queueing_us: u64,
    output_token_us: u64,
    post_decode_us: u64,
}

impl Policy for LearnedLatency {
    type Signals = ();

    fn describe() -> Description {
        Description::new("learned-latency")
            .version(env!("CARGO_PKG_VERSION"))
            .about("Step times from a table fitted to samples: Llama-3.1-8B on an H100.")
            .parameter(
                "factor",
                1.0,
                0.01..=100.0,
                "factor on the duration of every step: below 1 for a faster machine",
            )
            .parameter("queueing_us", 0.0, 0.0..=1e7, "time from arrival to the waiting queue (HTTP, tokenising)")
            .parameter("output_token_us", 0.0, 0.0..=1e7, "time until a generated token reaches the client")
            .parameter("post_decode_us", 0.0, 0.0..=1e7, "time after the last output token")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            factor: setup.parameter("factor"),
            queueing_us: setup.parameter("queueing_us") as u64,
            output_token_us: setup.parameter("output_token_us") as u64,
            post_decode_us: setup.parameter("post_decode_us") as u64,
        })
    }
}

impl Latency for LearnedLatency {
    fn step_time(&self, step: &Step) -> u64 {
        self.rounded(piece(tokens(step)).time(step))
    }

    fn queueing_time(&self, _: u32) -> u64 {
        self.queueing_us
    }

    fn constants(&self) -> LatencyConstants {
        // No feature is smaller than for one request with the fewest tokens of the row.
        let least = |piece: &Piece| piece.base + piece.per_token * piece.from_tokens.max(1) as f64 + piece.per_request;
        let shortest = TABLE.iter().map(least).fold(f64::INFINITY, f64::min);
        LatencyConstants {
            shortest_step_us: self.rounded(shortest),
            output_token_us: self.output_token_us,
            post_decode_us: self.post_decode_us,
            ..LatencyConstants::default()
        }
    }
}

impl LearnedLatency {
    fn rounded(&self, us: f64) -> u64 {
        (self.factor * us).round().max(1.0) as u64
    }
}

blis_sdk::export_policy!(LearnedLatency: Latency);
