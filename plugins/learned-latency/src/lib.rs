//! Step times learned from samples: linear within ranges of the number of tokens in a step.
//!
//! A step first waits for the weights to be read, whatever it computes; more tokens then cost little
//! until the arithmetic takes longer than the memory, and proportionally more from there on. Within a
//! range of tokens a plane describes that well, and a few rows of a table describe the whole:
//!
//! ```text
//! µs = base + per_token · tokens + per_request · requests
//!    + per_kilo_context · context that decoding requests read, in thousands of tokens
//!    + per_mega_attention · pairs of tokens that prompts attend to, in millions
//! ```
//!
//! [`TABLE`] was fitted (non-negative least squares on relative errors) to 4000 random steps of the
//! simulator's own roofline model, for Llama-3.1-8B on an H100: below some 130 tokens the 3 ms in which
//! 15 GB of weights are read, above 512 tokens 23 µs of arithmetic for each. `tests/fit.rs` makes the samples,
//! fits, compares with the table, and judges it on steps that the fit has not seen. To learn from a real
//! engine, put its step log in place of the samples and copy the table that the test prints.
//!
//! No coefficient is below 0: more context never makes a step shorter, so the simulator may skip over
//! equal steps (`every_step` stays unset).

use blis_sdk::{Constants, Description, Latency, Policy, Setup, Step};
use serde::{Deserialize, Serialize};

/// A row of the table: steps of at least `from_tokens` tokens, up to the next row. All in µs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Piece {
    /// Its first number of tokens.
    pub from_tokens: u64,
    /// Of any step.
    pub base: f64,
    /// Per token computed.
    pub per_token: f64,
    /// Per request in the step.
    pub per_request: f64,
    /// Per 1000 tokens of context of decoding requests.
    pub per_kilo_context: f64,
    /// Per 10⁶ pairs of tokens of prompts, of which one attends to the other.
    pub per_mega_attention: f64,
}

/// For Llama-3.1-8B on one H100.
#[rustfmt::skip] // a table
pub const TABLE: [Piece; 5] = [
    Piece { from_tokens: 0, base: 3044.93, per_token: 0.1109, per_request: 0.0391, per_kilo_context: 39.1083, per_mega_attention: 765.0999 },
    Piece { from_tokens: 96, base: 1651.33, per_token: 11.7469, per_request: 6.1446, per_kilo_context: 34.6339, per_mega_attention: 803.5466 },
    Piece { from_tokens: 160, base: 48.04, per_token: 22.4180, per_request: 9.6438, per_kilo_context: 20.8079, per_mega_attention: 1036.1915 },
    Piece { from_tokens: 320, base: 79.62, per_token: 22.7089, per_request: 8.2229, per_kilo_context: 11.2438, per_mega_attention: 1044.2740 },
    Piece { from_tokens: 1024, base: 0.00, per_token: 22.8841, per_request: 11.3657, per_kilo_context: 1.8172, per_mega_attention: 1192.0933 },
];

/// What a piece multiplies with its coefficients, in their order.
#[must_use]
pub fn features(step: &Step) -> [f64; 5] {
    // A prompt's token attends to the context and, on average, to half of those computed with it.
    let pairs = step.prefill_tokens_by_context as f64 + step.prefill_tokens_squared as f64 / 2.0;
    [
        1.0,
        tokens(step) as f64,
        (step.prefill_requests + step.decode_requests) as f64,
        step.decode_context as f64 / 1e3,
        pairs / 1e6,
    ]
}

/// Tokens computed in `step`.
#[must_use]
pub fn tokens(step: &Step) -> u64 {
    step.prefill_tokens.saturating_add(step.decode_requests)
}

impl Piece {
    /// In the order of [`features`].
    #[must_use]
    pub fn coefficients(&self) -> [f64; 5] {
        [self.base, self.per_token, self.per_request, self.per_kilo_context, self.per_mega_attention]
    }

    /// Of a step, µs.
    #[must_use]
    pub fn time(&self, step: &Step) -> f64 {
        self.coefficients().iter().zip(features(step)).map(|(coefficient, feature)| coefficient * feature).sum()
    }
}

/// The row for steps of `tokens`.
#[must_use]
pub fn piece(tokens: u64) -> &'static Piece {
    let row = TABLE.iter().rposition(|piece| piece.from_tokens <= tokens);
    &TABLE[row.unwrap_or(0)]
}

/// A factor on all steps, and what happens outside the engine, µs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LearnedLatency {
    factor: f64,
    queueing: u64,
    output_token: u64,
    post_decode: u64,
}

impl Policy for LearnedLatency {
    fn describe() -> Description {
        Description::new("learned-latency")
            .version(env!("CARGO_PKG_VERSION"))
            .about("Step times from a table fitted to samples: Llama-3.1-8B on an H100.")
            .parameter("factor", 1.0, 0.01..=100.0, "on the time of every step: below 1 for a faster machine")
            .parameter("queueing_us", 0.0, 0.0..=1e7, "from arrival to the wait queue: HTTP, tokenising")
            .parameter("output_token_us", 0.0, 0.0..=1e7, "until a generated token reaches the client")
            .parameter("post_decode_us", 0.0, 0.0..=1e7, "after the last token of an answer")
    }

    fn new(setup: &Setup) -> Result<Self, String> {
        Ok(Self {
            factor: setup.parameter("factor"),
            queueing: setup.parameter("queueing_us") as u64,
            output_token: setup.parameter("output_token_us") as u64,
            post_decode: setup.parameter("post_decode_us") as u64,
        })
    }
}

impl Latency for LearnedLatency {
    fn step_time(&self, step: &Step) -> u64 {
        self.rounded(piece(tokens(step)).time(step))
    }

    fn queueing_time(&self, _: u32) -> u64 {
        self.queueing
    }

    fn constants(&self) -> Constants {
        // Every feature is at least that of one request with the fewest tokens of the row.
        let least = |piece: &Piece| piece.base + piece.per_token * piece.from_tokens.max(1) as f64 + piece.per_request;
        let shortest = TABLE.iter().map(least).fold(f64::INFINITY, f64::min);
        Constants {
            shortest_step: self.rounded(shortest),
            output_token: self.output_token,
            post_decode: self.post_decode,
            ..Constants::default()
        }
    }
}

impl LearnedLatency {
    fn rounded(&self, us: f64) -> u64 {
        (self.factor * us).round().max(1.0) as u64
    }
}

blis_sdk::export_policy!(LearnedLatency: Latency);
