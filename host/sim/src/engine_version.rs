//! The versions of vLLM between which the memory of a GPU differs, and the constants of each.
//!
//! Source of all constants: `memory.md` §4, fitted there to the start-up logs of `data/memory/logs.csv`, most of them of one H100
//! with 80 GB, `max_num_seqs` 1024 and `max_num_batched_tokens` 8192. None depends on the model.

use std::fmt;
use std::str::FromStr;

use crate::model::Parallelism;

/// A release of vLLM, `0.MINOR`: patches do not differ in what is computed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineVersion(u32);

/// What a server does at its start beside the profile run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphCapture {
    /// Maximum batch size: graphs are captured for batches of up to so many requests.
    pub max_num_seqs: u32,
    /// `--enforce-eager`: no graph is captured.
    pub eager: bool,
}

impl EngineVersion {
    /// The first one with known constants, and the last.
    pub const OLDEST: Self = Self(10);
    /// The version of which the scheduler is simulated by default.
    pub const NEWEST: Self = Self(33);

    /// vLLM 0.`minor`; `None` without known constants.
    #[must_use]
    pub fn new(minor: u32) -> Option<Self> {
        (Self::OLDEST.0..=Self::NEWEST.0).contains(&minor).then_some(Self(minor))
    }

    /// The default of `gpu_memory_utilization` (`config/cache.py`).
    #[must_use]
    pub fn default_utilization(self) -> f64 {
        if self.0 < 21 { 0.90 } else { 0.92 }
    }

    /// Bytes per request and word of the vocabulary at the peak of the sampler's profile run. The sampler sorts up to 0.16; model runner
    /// V2, the default from 0.24 on, keeps more copies of the logits; 0.33 profiles them in 32 bits once more.
    #[must_use]
    pub fn sampler_bytes(self) -> f64 {
        match self.0 {
            ..=16 => 38.3,
            17..=23 => 15.1,
            24..=32 => 21.0,
            33.. => 28.0,
        }
    }

    /// What is subtracted for CUDA graphs, GiB per GPU: nothing before the estimate became the default in 0.21. Between the two measured
    /// sizes of batches, 256 and 1024, it grows evenly.
    #[must_use]
    pub fn graphs_gib(self, capture: GraphCapture) -> f64 {
        if self.0 < 21 || capture.eager {
            return 0.0;
        }
        0.5 + 0.5 * (f64::from(capture.max_num_seqs.clamp(256, 1024)) - 256.0) / (1024.0 - 256.0)
    }

    /// CUDA context, buffers of collectives and workspaces ("non-torch"), GiB per GPU. Tensor parallel sizes above 4 take the figure of 4,
    /// which 0.29 confirms.
    #[must_use]
    pub fn context_gib(self, parallelism: Parallelism, pipeline: u32) -> f64 {
        match (parallelism.tensor, self.0) {
            (..=1, _) if pipeline > 1 => 0.07,
            (..=1, ..=17) => 0.13,
            (..=1, _) => 0.25,
            (_, ..=17) => 0.55,
            (2..=3, 18..=28) => 2.07,
            (_, 18..=28) => 2.17,
            (_, 29..) => 1.7,
        }
    }

    /// What no log confirms of the constants of this version beside `parallelism`; empty if logs of it exist.
    #[must_use]
    pub fn unmeasured(self, parallelism: Parallelism) -> Option<&'static str> {
        match (self.0, parallelism.tensor) {
            (10 | 12..=14 | 16 | 20 | 22..=23 | 25..=30 | 32, ..=1) => Some("between those of logged versions"),
            (16..=17 | 20..=28, 2..) => Some("with tensor parallelism those of other versions"),
            (_, 9..) => Some("those of 8 GPUs"),
            _ => None,
        }
    }
}

impl Default for EngineVersion {
    fn default() -> Self {
        Self::NEWEST
    }
}

impl fmt::Display for EngineVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("0.{}", self.0))
    }
}

impl FromStr for EngineVersion {
    type Err = String;

    /// `0.19`, also with a patch (`0.19.1`, `0.26.1rc1.dev608`), a `v` or the name of vLLM's image before it.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = || format!("it must be a version of vLLM, {} to {}", Self::OLDEST, Self::NEWEST);
        let bare = text.strip_prefix("vllm/vllm-openai:").unwrap_or(text);
        let bare = bare.strip_prefix('v').unwrap_or(bare);
        let mut parts = bare.split('.');
        let (major, minor) = (parts.next(), parts.next().unwrap_or_default());
        if major != Some("0") || minor.is_empty() || !minor.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(known());
        }
        minor.parse().ok().and_then(Self::new).ok_or_else(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> EngineVersion {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_read_with_their_patches() {
        for text in ["0.19", "0.19.1", "v0.19.0", "vllm/vllm-openai:v0.19.1", "0.19.1rc1.dev608"] {
            assert_eq!(version(text).to_string(), "0.19", "{text}");
        }
        for text in ["", "0", "0.", "0.9", "0.34", "1.19", "0.x", "0.+19", "19", "0.99999999999"] {
            let message = text.parse::<EngineVersion>().unwrap_err();
            assert_eq!(message, "it must be a version of vLLM, 0.10 to 0.33", "{text}");
        }
    }

    #[test]
    fn constants_change_where_vllm_changed() {
        let utilization = |text| version(text).default_utilization();
        assert_eq!(["0.15", "0.20", "0.21", "0.33"].map(utilization), [0.9, 0.9, 0.92, 0.92]);
        let sampler = |text| version(text).sampler_bytes();
        assert_eq!(["0.16", "0.17", "0.23", "0.24", "0.33"].map(sampler), [38.3, 15.1, 15.1, 21.0, 28.0]);
        let graphs = |text, max_num_seqs, eager| version(text).graphs_gib(GraphCapture { max_num_seqs, eager });
        assert_eq!((graphs("0.20", 1024, false), graphs("0.21", 1024, false)), (0.0, 1.0));
        assert_eq!(
            (graphs("0.33", 1, false), graphs("0.33", 4096, false), graphs("0.33", 1024, true)),
            (0.5, 1.0, 0.0)
        );
    }

    #[test]
    fn collectives_take_memory_of_every_gpu() {
        let context = |text, tensor, pipeline| version(text).context_gib(Parallelism { tensor, data: 1 }, pipeline);
        assert_eq!(["0.15", "0.18", "0.33"].map(|text| context(text, 1, 1)), [0.13, 0.25, 0.25]);
        assert_eq!(["0.15", "0.19", "0.33"].map(|text| context(text, 2, 1)), [0.55, 2.07, 1.7]);
        assert_eq!((context("0.19", 4, 1), context("0.19", 1, 2)), (2.17, 0.07));
    }
}
