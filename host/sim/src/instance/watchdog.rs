//! Turns "no progress" into an error, so that nothing can hang under KV pressure.

use super::InstanceConfig;
use crate::limits::USELESS_IN_A_ROW;
use crate::request::Request;
use crate::units::Micros;

/// Counts what brings nothing. Progress is a request that gets further than it ever was: if a
/// thousand preemptions bring none, and nothing finishes or leaves, nothing ever will.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watchdog {
    useless: u32,
    /// Σ over requests of the tokens they once had in place, when last measured.
    furthest: u64,
}

impl Watchdog {
    /// A preemption, or a step that computes nothing while requests wait. `true` if it is time
    /// to measure.
    pub fn useless(&mut self) -> bool {
        self.useless += 1;
        self.useless > USELESS_IN_A_ROW
    }

    /// A request ended.
    pub fn progress(&mut self) {
        *self = Self::default();
    }

    /// Whether nothing moved since the last measurement. `furthest` is as in the field.
    pub fn stuck(&mut self, furthest: u64) -> bool {
        if furthest <= self.furthest {
            return true;
        }
        *self = Self { useless: 0, furthest };
        false
    }
}

/// An instance that would run for ever without finishing anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no progress at {:.6} s: {USELESS_IN_A_ROW} preemptions or empty steps in a row brought no request any further. \
     request_{id} has {generated} of {output_tokens} output tokens after a prompt of {input_tokens}; {running} running, \
     {queued} queued, {total_kv_blocks} KV blocks of {block_size} tokens",
    .at.as_secs_f64()
)]
pub struct Stuck {
    /// When.
    pub at: Micros,
    /// The request that cannot advance.
    pub id: u32,
    /// Its prompt, tokens.
    pub input_tokens: u32,
    /// The answer it wants, tokens.
    pub output_tokens: u32,
    /// What it got so far, tokens.
    pub generated: u32,
    /// Requests in the batch.
    pub running: u32,
    /// Requests in the wait queue.
    pub queued: u32,
    /// Size of the KV cache, blocks.
    pub total_kv_blocks: u32,
    /// Size of a block, tokens.
    pub block_size: u32,
}

impl Stuck {
    pub(super) fn new(
        at: Micros,
        request: &Request,
        generated: u32,
        (running, queued): (usize, usize),
        config: &InstanceConfig,
    ) -> Self {
        Self {
            at,
            id: request.id,
            input_tokens: request.input_tokens,
            output_tokens: request.output_tokens,
            generated,
            running: running as u32,
            queued: queued as u32,
            total_kv_blocks: config.total_kv_blocks,
            block_size: config.block_size,
        }
    }
}
