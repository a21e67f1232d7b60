//! What a look-up in the prefix cache found, of blocks or of pages.

use super::pages::PageHit;
use crate::numbers::count;

/// What a look-up found of a prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedPrefix {
    /// Leading blocks of the prompt.
    Blocks(Vec<u32>),
    /// Pages by group.
    Pages(PageHit),
}

impl CachedPrefix {
    /// Leading tokens that are cached.
    #[must_use]
    pub fn tokens(&self, block_size: u32) -> u32 {
        match self {
            Self::Blocks(blocks) => count(blocks.len()) * block_size,
            Self::Pages(hit) => hit.tokens,
        }
    }
}
