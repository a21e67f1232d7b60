//! The coefficients of `physics`, which `blis fit` finds.

/// Overheads of the host around the engine: α of [`Physics`](super::Physics).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhysicsAlpha {
    /// Time from arrival to the waiting queue, µs per request.
    pub arrival_us: f64,
    /// Additional time per prompt token (tokenisation), µs.
    pub input_token_us: f64,
    /// Time from the end of the step that generates the first token until the client has it, µs.
    pub first_token_us: f64,
}

impl PhysicsAlpha {
    /// Names in coefficient files, in the order of [`Self::to_array`].
    pub const NAMES: [&'static str; 3] = ["arrival_us", "input_token_us", "first_token_us"];

    /// The coefficients in the order of `--alpha-coeffs`.
    #[must_use]
    pub fn to_array(self) -> [f64; 3] {
        [self.arrival_us, self.input_token_us, self.first_token_us]
    }
}

impl From<[f64; 3]> for PhysicsAlpha {
    fn from([arrival_us, input_token_us, first_token_us]: [f64; 3]) -> Self {
        Self { arrival_us, input_token_us, first_token_us }
    }
}

/// Weights of the parts of a step: β of [`Physics`](super::Physics).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhysicsBeta {
    /// Matrix products and the kernels between them; 1 is the curve of the GPU, here and below.
    pub gemm: f64,
    /// Routed experts, their weights and activations.
    pub experts: f64,
    /// Attention of decoding requests.
    pub decode_attention: f64,
    /// Attention of requests in prefill.
    pub prefill_attention: f64,
    /// All-reduces and the exchange with experts.
    pub collectives: f64,
    /// Sampling with top-k, top-p or penalties; 1 is [`Sampler::us`](super::Sampler::us).
    pub sampling: f64,
    /// Small kernels, µs per layer.
    pub layer_us: f64,
    /// Launching the kernels of a layer one by one, µs per layer; see [`Launch`](super::Launch).
    pub launch_us: f64,
    /// Sampling without restrictions and bookkeeping, µs per request in the batch.
    pub request_us: f64,
    /// Scheduling, input and output, µs per step.
    pub step_us: f64,
}

impl PhysicsBeta {
    /// Names in coefficient files, in the order of [`Self::to_array`].
    pub const NAMES: [&'static str; 10] = [
        "gemm",
        "experts",
        "decode_attention",
        "prefill_attention",
        "collectives",
        "sampling",
        "layer_us",
        "launch_us",
        "request_us",
        "step_us",
    ];

    /// The coefficients in the order of `--beta-coeffs`.
    #[must_use]
    pub fn to_array(self) -> [f64; 10] {
        [
            self.gemm,
            self.experts,
            self.decode_attention,
            self.prefill_attention,
            self.collectives,
            self.sampling,
            self.layer_us,
            self.launch_us,
            self.request_us,
            self.step_us,
        ]
    }
}

impl From<[f64; 10]> for PhysicsBeta {
    fn from(values: [f64; 10]) -> Self {
        let [gemm, experts, decode_attention, prefill_attention, collectives, rest @ ..] = values;
        let [sampling, layer_us, launch_us, request_us, step_us] = rest;
        Self {
            gemm,
            experts,
            decode_attention,
            prefill_attention,
            collectives,
            sampling,
            layer_us,
            launch_us,
            request_us,
            step_us,
        }
    }
}
