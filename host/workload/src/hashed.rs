//! Prompts that are given as one hash id per block of tokens: Mooncake, Bailian, vllm-vcr.
//!
//! No tokens are invented for the ids. An engine block belongs to the hash block that contains its last token, so keys
//! for any block size follow by arithmetic.

use std::num::NonZeroU32;

use super::TraceOptions;
use super::error::TraceError;
use super::prefix::{PathNode, PrefixTree, ROOT};
use super::row::RequestMetadata;
use super::rows::{Intake, SharedContents};
use blis_diag::RowError;

/// The prompts of a trace.
pub(super) struct HashedPrompts {
    tree: PrefixTree,
    /// Tokens per hash id.
    pub hash_block: NonZeroU32,
    /// Number of prompts that are longer than their ids cover.
    short: u64,
}

impl HashedPrompts {
    /// `usual`: tokens per hash id, unless the options contain another number.
    pub fn new(options: &TraceOptions, usual: NonZeroU32) -> Self {
        Self { tree: PrefixTree::new(), hash_block: options.hash_block_size.unwrap_or(usual), short: 0 }
    }

    /// Checks that a prompt of `input` tokens has no more than `ids` hash ids.
    pub fn check(&self, ids: usize, input: u32, name: &str) -> Result<(), RowError> {
        let blocks = input.div_ceil(self.hash_block.get());
        if ids <= blocks as usize {
            return Ok(());
        }
        let fault =
            RowError::new(format!("{ids} `{name}`, but {input} tokens are {blocks} blocks of {}", self.hash_block));
        Err(fault.hint("set the hash block size to that of the trace (Mooncake 512, Bailian 16)"))
    }

    /// Adds a checked prompt of `input` tokens; its node is for [`TraceRow::prefix`](super::row::Row::prefix).
    pub fn insert<T: RequestMetadata>(
        &mut self,
        ids: &[u64],
        input: u32,
        intake: &Intake<'_, T>,
    ) -> Result<PathNode, TraceError> {
        self.short += u64::from(!ids.is_empty() && ids.len() < (input / self.hash_block) as usize);
        if ids.is_empty() {
            return Ok(ROOT);
        }
        self.tree.insert(ids.iter().copied()).map_err(|_| intake.too_many("shared KV blocks"))
    }

    /// Finds the shared prefixes. Leaves a note if the ids do not cover all prompts.
    pub fn finish<T: RequestMetadata>(
        self,
        intake: &mut Intake<'_, T>,
        block_size: NonZeroU32,
    ) -> Result<SharedContents, TraceError> {
        if self.short > 0 {
            let short = self.short;
            intake
                .notes
                .push(format!("{short} prompts are longer than their hash ids cover; the rest counts as unique"));
        }
        let (hash_block, block) = (u64::from(self.hash_block.get()), u64::from(block_size.get()));
        // A path is no longer than a 32-bit prompt, so the quotient fits.
        let blocks_to = |depth: u32| (u64::from(depth) * hash_block / block).min(u64::from(u32::MAX)) as u32;
        let (prefixes, renumbered) = self.tree.finish(blocks_to).map_err(|_| intake.too_many("shared KV blocks"))?;
        Ok(SharedContents { prefixes, renumbered, block_size: Some(block_size) })
    }
}
