//! Chunks of the KV cache, as tiers name them.

/// The content of a chunk: equal for equal prefixes of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkKey(pub u64);

/// A chunk and the number of its last token in the prompt, if that is known. For one request it is always the same.
pub type Positioned = (ChunkKey, Option<u32>);

/// The number of a chunk in the tier, from 0 on. It is given to another chunk when the chunk has left the tier.
pub type ChunkSlot = u32;
