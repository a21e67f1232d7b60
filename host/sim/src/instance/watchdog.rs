//! Detection of livelock under KV pressure: "no progress" becomes an error instead of an endless simulation.

use super::config::InstanceConfig;
use crate::ids::RequestId;
use crate::limits::STEPS_WITHOUT_PROGRESS;
use crate::numbers::count;
use crate::request::Request;
use crate::units::Micros;

/// Counts events without progress. Progress means that a request gets further than it ever was: if a thousand
/// preemptions in a row bring none, and no request finishes or leaves, none ever will.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watchdog {
    useless: u32,
    /// Sum over requests of the maximum number of tokens that each has had computed, at the last measurement.
    furthest: u64,
}

impl Watchdog {
    /// Counts a preemption, or a step that computes nothing while requests wait. Returns `true` if it is time to
    /// measure progress.
    pub fn useless(&mut self) -> bool {
        self.useless += 1;
        self.useless > STEPS_WITHOUT_PROGRESS
    }

    /// Resets the count, because a request ended.
    pub fn progress(&mut self) {
        *self = Self::default();
    }

    /// Whether there was no progress since the last measurement. `furthest` is as in the field.
    pub fn stuck(&mut self, furthest: u64) -> bool {
        if furthest <= self.furthest {
            // The same tokens are computed again and again: no later step can end a request.
            return true;
        }
        *self = Self { useless: 0, furthest };
        false
    }
}

/// An instance that would execute for ever without completing a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no progress at {:.6} s: {STEPS_WITHOUT_PROGRESS} preemptions or empty steps in a row brought no request any further. \
     request_{id} has {generated} of {output_tokens} output tokens after a prompt of {input_tokens}; {running} running, \
     {queued} queued, {total_kv_blocks} KV blocks of {block_size} tokens",
    .at.as_secs_f64()
)]
pub struct NoProgress {
    /// Time at which the lack of progress was detected.
    pub at: Micros,
    /// The request that cannot advance.
    pub id: RequestId,
    /// Length of its prompt, tokens.
    pub input_tokens: u32,
    /// Length of its whole output, tokens.
    pub output_tokens: u32,
    /// Output tokens that it has generated so far.
    pub generated: u32,
    /// Number of requests in the batch.
    pub running: u32,
    /// Number of requests in the waiting queue.
    pub queued: u32,
    /// Size of the KV cache, blocks.
    pub total_kv_blocks: u32,
    /// Size of a KV block, tokens.
    pub block_size: u32,
}

impl NoProgress {
    pub(super) fn new(
        at: Micros,
        request: &Request,
        generated: u32,
        running: usize,
        queued: usize,
        config: &InstanceConfig,
    ) -> Self {
        Self {
            at,
            id: request.id,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            generated,
            running: count(running),
            queued: count(queued),
            total_kv_blocks: config.total_kv_blocks,
            block_size: config.block_size,
        }
    }
}
