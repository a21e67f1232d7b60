//! Versions of the engine: the behaviour of their schedulers, and the settings that their servers choose by GPU.

use blis_sim::engine_version::EngineVersion;
use blis_sim::latency::Sampler;
use blis_sim::semantics::Semantics;
use strum::{Display, EnumMessage, IntoStaticStr, VariantArray};

/// A version of an inference engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumMessage, IntoStaticStr, VariantArray)]
pub enum EngineProfile {
    /// vLLM 0.33.0
    #[default]
    #[strum(to_string = "vllm-0.33")]
    Vllm033,
    /// vLLM 0.15.1
    #[strum(to_string = "vllm-0.15")]
    Vllm015,
}

/// The two limits of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// Maximum number of requests (vLLM `max_num_seqs`).
    pub max_num_seqs: u32,
    /// Maximum number of tokens of a step (vLLM `max_num_batched_tokens`).
    pub max_num_batched_tokens: u32,
}

impl BatchLimits {
    /// The limits of BLIS, and of vLLM's server on GPUs that it does not know as large.
    pub const BLIS: Self = Self { max_num_seqs: 256, max_num_batched_tokens: 2048 };
}

/// The limits that a deployment sets, and what the default of the others depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchSettings {
    /// The engine of which the server chooses; `None` for BLIS.
    pub engine: Option<EngineProfile>,
    /// `--max-num-seqs`, ≥ 1, if it is set.
    pub max_num_seqs: Option<u32>,
    /// `--max-num-batched-tokens`, ≥ 1, if it is set.
    pub max_num_batched_tokens: Option<u32>,
    /// Whether prompts are never chunked: then the default budget holds the longest one.
    pub unchunked_prefill: bool,
}

impl EngineProfile {
    /// The behaviour of the scheduler.
    #[must_use]
    pub fn semantics(self) -> Semantics {
        match self {
            Self::Vllm033 => Semantics::VLLM_0_33,
            Self::Vllm015 => Semantics::VLLM_0_15,
        }
    }

    /// The version of which the memory is computed, unless another is set.
    #[must_use]
    pub fn version(self) -> EngineVersion {
        let minor = match self {
            Self::Vllm033 => 33,
            Self::Vllm015 => 15,
        };
        EngineVersion::new(minor).unwrap_or_default()
    }

    /// The default of `scheduler_reserve_full_isl`: a request is admitted only if its whole prompt fits the free KV
    /// blocks.
    #[must_use]
    pub fn reserves_full_prompt(self) -> bool {
        self == Self::Vllm033
    }

    /// The implementation of top-k and top-p sampling.
    #[must_use]
    pub fn sampler(self) -> Sampler {
        match self {
            Self::Vllm033 => Sampler::FlashInfer,
            Self::Vllm015 => Sampler::Sort,
        }
    }

    /// The limits that the API server chooses for a GPU called `name` with so much memory, and why.
    ///
    /// Source: `get_batch_defaults` in vLLM's `engine/arg_utils.py`.
    fn by_gpu(self, name: &str, memory_gib: f64) -> (BatchLimits, &'static str) {
        let a100 = name.to_ascii_lowercase().contains("a100");
        match self {
            Self::Vllm033 if memory_gib >= 160.0 => (
                BatchLimits { max_num_seqs: 1024, max_num_batched_tokens: 16_384 },
                "vLLM's server on a GPU of at least 160 GiB",
            ),
            _ if memory_gib >= 70.0 && !a100 => (
                BatchLimits { max_num_seqs: 1024, max_num_batched_tokens: 8192 },
                "vLLM's server on a GPU of at least 70 GiB that is no A100",
            ),
            _ => (BatchLimits::BLIS, "vLLM's server on an A100 or a GPU of less than 70 GiB"),
        }
    }
}

impl BatchSettings {
    fn over(&self, default: BatchLimits) -> BatchLimits {
        BatchLimits {
            max_num_seqs: self.max_num_seqs.unwrap_or(default.max_num_seqs),
            max_num_batched_tokens: self.max_num_batched_tokens.unwrap_or(default.max_num_batched_tokens),
        }
    }

    /// The limits on a GPU called `name` with so much memory, for a model of that `context` length, tokens; and what the
    /// defaults follow.
    ///
    /// Source: `_set_default_max_num_seqs_and_batched_tokens_args` in vLLM's `engine/arg_utils.py`.
    #[must_use]
    pub fn on(&self, name: &str, memory_gib: f64, context: Option<u32>) -> (BatchLimits, &'static str) {
        let Some(engine) = self.engine else { return (self.over(BatchLimits::BLIS), "BLIS") };
        let (default, why) = engine.by_gpu(name, memory_gib);
        let seqs = self.max_num_seqs.unwrap_or(default.max_num_seqs);
        let tokens = self.max_num_batched_tokens.unwrap_or_else(|| {
            let context = context.unwrap_or(u32::MAX);
            let longest = if self.unchunked_prefill { context } else { 0 };
            // Without a known context length, prompts of any length are possible: the table's budget stays.
            let longest = if context == u32::MAX { 0 } else { longest };
            default.max_num_batched_tokens.max(longest).min(seqs.saturating_mul(context))
        });
        let seqs = self.max_num_seqs.unwrap_or(seqs.min(tokens));
        (BatchLimits { max_num_seqs: seqs, max_num_batched_tokens: tokens }, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNSET: BatchSettings = BatchSettings {
        engine: Some(EngineProfile::Vllm033),
        max_num_seqs: None,
        max_num_batched_tokens: None,
        unchunked_prefill: false,
    };

    fn limits(settings: BatchSettings, gpu: &str, memory_gib: f64) -> (u32, u32) {
        let (BatchLimits { max_num_seqs, max_num_batched_tokens }, _) = settings.on(gpu, memory_gib, Some(40_960));
        (max_num_seqs, max_num_batched_tokens)
    }

    #[test]
    fn the_server_chooses_by_memory_and_name() {
        let of_0_15 = BatchSettings { engine: Some(EngineProfile::Vllm015), ..UNSET };
        assert_eq!(limits(UNSET, "H100", 79.0), (1024, 8192));
        assert_eq!(limits(UNSET, "A100-SXM", 79.0), (256, 2048));
        assert_eq!(limits(UNSET, "L40S", 44.5), (256, 2048));
        assert_eq!(limits(UNSET, "B200", 178.0), (1024, 16_384));
        assert_eq!(limits(of_0_15, "B200", 178.0), (1024, 8192), "the largest row is new in 0.33");
    }

    #[test]
    fn a_limit_that_is_set_changes_the_other_default() {
        assert_eq!(limits(BatchSettings { max_num_batched_tokens: Some(512), ..UNSET }, "H100", 79.0), (512, 512));
        assert_eq!(limits(BatchSettings { max_num_seqs: Some(8), ..UNSET }, "H100", 79.0), (8, 8192));
        let unchunked = BatchSettings { unchunked_prefill: true, ..UNSET };
        assert_eq!(limits(unchunked, "H100", 79.0), (1024, 40_960), "the longest prompt fits a step");
        let short = BatchSettings { max_num_seqs: Some(2), ..UNSET }.on("H100", 79.0, Some(100)).0;
        assert_eq!(short.max_num_batched_tokens, 200, "two requests of the longest length");
        let unknown = unchunked.on("H100", 79.0, None).0;
        assert_eq!(unknown.max_num_batched_tokens, 8192);
    }
}
