//! How many pages requests need, and what vLLM says about them at its start.

use thiserror::Error;

use super::layers::{LayerRule, StateMode};
use super::plan::{KvGroup, KvLayout};
use crate::numbers::truncated;

const GIB: f64 = 1_073_741_824.0;

/// Limits of the engine on which the pages of one request depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartLimits {
    /// Most tokens of prompt and output of a request.
    pub max_model_len: u32,
    /// Tokens of the steps in flight: `max_num_batched_tokens` times the number of batches in flight, which are the pipeline stages
    /// and one more with asynchronous scheduling.
    pub tokens_in_flight: u64,
}

/// vLLM does not start: the texts are those of its `ValueError`s.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum NeedsTooMuch {
    /// Nothing is left for the cache.
    #[error(
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
    )]
    NoMemory,
    /// One request of the greatest length does not fit.
    #[error("{}", self.sentence())]
    OneRequest {
        /// The greatest length, tokens.
        max_model_len: u32,
        /// KV memory of such a request, bytes per GPU.
        needed: u64,
        /// KV memory, less the null block, bytes per GPU.
        available: u64,
        /// The greatest length that fits, tokens; 0 if none does.
        estimated_length: u32,
    },
    /// Not one token fits (`--max-model-len -1`).
    #[error("Cannot auto-fit max_model_len: not enough GPU memory available to serve even a single token")]
    NothingFits,
    /// Each decoding request needs a page of states.
    #[error(
        "max_num_seqs ({max_num_seqs}) exceeds available Mamba cache blocks ({blocks}). Each decode sequence requires one Mamba cache \
         block, so CUDA graph capture cannot proceed."
    )]
    TooManyStates {
        /// Most requests in the batch.
        max_num_seqs: u32,
        /// Pages of the pool.
        blocks: u64,
    },
}

impl NeedsTooMuch {
    fn sentence(&self) -> String {
        let Self::OneRequest { max_model_len, needed, available, estimated_length } = *self else {
            return String::new();
        };
        let estimate = if estimated_length > 0 {
            format!("Based on the available memory, the estimated maximum model length is {estimated_length}. ")
        } else {
            String::new()
        };
        format!(
            "To serve at least one request with the model's max seq len ({max_model_len}), ({} GiB KV cache is needed, which is larger \
             than the available KV cache memory ({} GiB). {estimate}Try increasing `gpu_memory_utilization` or decreasing \
             `max_model_len` when initializing the engine.",
            gib(needed),
            gib(available)
        )
    }
}

/// Two decimals, without a zero at the end but for the first: Python's `round(x, 2)`.
fn gib(bytes: u64) -> String {
    let rounded = (bytes as f64 / GIB * 100.0).round() / 100.0;
    format!("{rounded:?}")
}

impl KvGroup {
    /// Pages that one request of `limits.max_model_len` tokens takes in this group at most.
    #[must_use]
    pub fn pages(&self, limits: StartLimits) -> u64 {
        let length = u64::from(limits.max_model_len);
        let block = u64::from(self.block);
        match self.rule {
            LayerRule::Full | LayerRule::Latent { .. } => length.div_ceil(block),
            LayerRule::Window(window) | LayerRule::LatentWindow(window) => {
                let held = u64::from(window.saturating_sub(1)).saturating_add(limits.tokens_in_flight);
                // One more, because a window may start inside a block.
                held.min(length).div_ceil(block) + 1
            }
            LayerRule::Chunk(chunk) => {
                u64::from(chunk).saturating_add(limits.tokens_in_flight).min(length).div_ceil(block)
            }
            LayerRule::State { mode: StateMode::Align, checkpoints, .. } => 2 + u64::from(checkpoints),
            LayerRule::State { mode: StateMode::None, .. } => 1,
        }
    }
}

/// Pages that one request of the greatest length takes, over all groups.
#[must_use]
pub fn pages_of_request(layout: &KvLayout, limits: StartLimits) -> u64 {
    layout.groups.iter().map(|group| group.pages(limits)).sum()
}

/// The greatest length up to `limits.max_model_len` of which one request fits `available` bytes; 0 if none does.
#[must_use]
pub fn estimated_length(layout: &KvLayout, limits: StartLimits, available: u64) -> u32 {
    let fits = |max_model_len: u32| {
        let pages = pages_of_request(layout, StartLimits { max_model_len, ..limits });
        pages.saturating_mul(layout.bytes_per_block) <= available
    };
    // The pages grow with the length: the search ends at the last length that fits.
    let (mut below, mut above) = (0, limits.max_model_len.saturating_add(1));
    while above - below > 1 {
        let middle = u32::midpoint(below, above);
        if fits(middle) { below = middle } else { above = middle }
    }
    below
}

impl KvLayout {
    /// Pages of a pool of `available` bytes, the null block included.
    ///
    /// # Errors
    /// If vLLM would not start: nothing is left beside the null block, or one request of the greatest length does not fit.
    pub fn blocks(&self, available: u64, limits: StartLimits) -> Result<u64, NeedsTooMuch> {
        let usable = available.saturating_sub(self.bytes_per_block);
        if available == 0 || usable == 0 {
            return Err(NeedsTooMuch::NoMemory);
        }
        let needed = pages_of_request(self, limits).saturating_mul(self.bytes_per_block);
        if needed > usable {
            return Err(NeedsTooMuch::OneRequest {
                max_model_len: limits.max_model_len,
                needed,
                available: usable,
                estimated_length: estimated_length(self, limits, usable),
            });
        }
        Ok(available / self.bytes_per_block)
    }

    /// The greatest length up to `limits.max_model_len` that fits `available` bytes (`--max-model-len -1`).
    ///
    /// # Errors
    /// If not one token fits.
    pub fn auto_fit(&self, available: u64, limits: StartLimits) -> Result<u32, NeedsTooMuch> {
        let usable = available.saturating_sub(self.bytes_per_block);
        match estimated_length(self, limits, usable) {
            0 => Err(NeedsTooMuch::NothingFits),
            max_model_len => Ok(max_model_len),
        }
    }

    /// How many requests of the greatest length fit `blocks` pages ("Maximum concurrency").
    #[must_use]
    pub fn max_concurrency(&self, blocks: u64, limits: StartLimits) -> f64 {
        blocks as f64 / pages_of_request(self, limits) as f64
    }

    /// The logged "GPU KV cache size": maximum concurrency times the greatest length, tokens.
    #[must_use]
    pub fn logged_tokens(&self, blocks: u64, limits: StartLimits) -> u64 {
        truncated(self.max_concurrency(blocks, limits) * f64::from(limits.max_model_len))
    }

    /// Whether a group keeps states.
    #[must_use]
    pub fn has_states(&self) -> bool {
        self.groups.iter().any(|group| matches!(group.rule, LayerRule::State { .. }))
    }
}
